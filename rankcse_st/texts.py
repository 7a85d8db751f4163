"""Checks on the texts that people hand in: said before any model runs, with how many are wrong and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def check_texts(texts: Iterable[Any], what: str = "sentences") -> list[str]:
    """Return ``texts`` as a list after checking that each one is a string with something in it.

    Args:
        texts: The texts, in any iterable but a bare string.
        what: What they are called in the error.

    Raises:
        TypeError: If ``texts`` is one string, or if some texts are not strings (None included).
        ValueError: If some texts are empty or blank.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"{what} must be a list of strings, got one {type(texts).__name__}: put it in a list.")
    checked = list(texts)
    raise_for_bad_texts(bad_texts(checked), len(checked), what)
    return checked


def bad_texts(texts: Sequence[Any], offset: int = 0) -> dict[str, list[int]]:
    """The positions of what is no text, by kind: None, another type's name, or empty."""
    bad: dict[str, list[int]] = {}
    for position, text in enumerate(texts, start=offset):
        if isinstance(text, str):
            if text and not text.isspace():
                continue
            kind = "empty"
        else:
            kind = "None" if text is None else f"of type {type(text).__name__}"
        bad.setdefault(kind, []).append(position)
    return bad


def raise_for_bad_texts(bad: dict[str, list[int]], total: int | None, what: str) -> None:
    """Raise the error that names what ``bad_texts`` found; nothing found is no error."""
    if not bad:
        return
    found = "; ".join(f"{len(where)} {kind} (at {_positions(where)})" for kind, where in bad.items())
    of = "" if total is None else f" of {total}"
    error = ValueError if set(bad) == {"empty"} else TypeError
    raise error(f"Every one of the {what} must be a string that is not blank, but{of} there are {found}. Remove them.")


def _positions(positions: list[int], shown: int = 5) -> str:
    listed = ", ".join(map(str, positions[:shown]))
    return listed if len(positions) <= shown else f"{listed}, …"
