"""What the commands print: progress to stdout, errors to stderr, always as lines that can be searched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

USAGE_ERROR = 2
INTERRUPTED = 130

MAIN_PROCESS = os.environ.get("RANK", "0") == "0"


def console() -> Console:
    """The console of the main process; under ``torchrun`` the others are silent.

    It prints text as it is: a name or a path may hold what rich would take for markup or for an emoji.
    """
    return Console(quiet=not MAIN_PROCESS, highlight=False, markup=False, emoji=False)


def say(message: str) -> None:
    """Print one line."""
    console().print(message, soft_wrap=True)


def fail(message: str, code: int = USAGE_ERROR) -> typer.Exit:
    """Print an error; ``raise`` what this returns."""
    text = Text.assemble(("Error:", "bold red"), f" {message}")
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
    return typer.Exit(code)


@contextlib.contextmanager
def errors_as_messages(*, traceback: bool) -> Iterator[None]:
    """Turn an error about the input into one message and exit code 2.

    Meant for reading files, loading models and scoring, where ``ValueError``, ``TypeError`` and ``OSError`` tell about
    what the user gave, and ``ImportError`` about what is not installed. ``traceback`` lets them pass.
    """
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        if traceback:
            raise
        raise fail(f"{error}") from None


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def percent(value: float | None) -> str:
    """A correlation or overlap as it is usually printed: times 100, two digits."""
    return "-" if value is None else f"{100 * value:.2f}"


def print_metrics(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """Print metrics (rows) of several states of a model (columns), times 100."""
    names = list(dict.fromkeys(name for metrics in columns.values() for name in metrics))
    rows = [[name, *(percent(metrics.get(name)) for metrics in columns.values())] for name in names]
    print_table(title, ["x 100", *columns], rows)
