"""Read texts shard by shard from wherever they are, without holding them all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rankcse_st.fingerprints import hash_json
from rankcse_st.texts import bad_texts, raise_for_bad_texts


class Shard:
    """Some rows of one or several text columns, as many of each.

    Args:
        columns: The texts of each column.
    """

    def __init__(self, columns: dict[str, list[str]]) -> None:
        self.columns = columns
        self._hashes: dict[str, str] = {}

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def key(self, columns: Sequence[str]) -> str:
        """Identity of the texts of ``columns``, whatever the columns are called."""
        for column in columns:
            if column not in self._hashes:
                self._hashes[column] = hash_texts(self.columns[column])
        return hash_json([self._hashes[column] for column in columns])


def hash_texts(texts: Sequence[str]) -> str:
    """A hash of a list of texts, their order and the borders between them."""
    digest = hashlib.blake2b(np.array([len(text) for text in texts], dtype=np.int64).tobytes(), digest_size=16)
    digest.update("".join(texts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


class TextSource(Protocol):
    """Rows of one or several text columns."""

    columns: tuple[str, ...]
    length: int | None
    """How many rows there are; None if that shows only at the end."""

    def shards(self, size: int) -> Iterator[Shard]:
        """The columns of ``size`` rows after another; texts are checked where :meth:`check` could not."""

    def check(self) -> None:
        """Raise for what is no text, before any model runs."""


class SentenceSource:
    """One column of sentences from a text file (one a line), a sequence, or any iterable.

    Args:
        sentences: The path of a UTF-8 text file, or the sentences.
        column: The column's name.

    Raises:
        FileNotFoundError: If a path leads nowhere.
        ValueError: If there are fewer than two sentences.
    """

    def __init__(self, sentences: str | os.PathLike[str] | Iterable[str], column: str) -> None:
        self.columns: tuple[str, ...] = (column,)
        self.length: int | None = None
        self._path: Path | None = None
        if isinstance(sentences, (str, os.PathLike)):
            self._path = Path(sentences)
            if not self._path.is_file():
                raise FileNotFoundError(
                    f"There is no text file {os.fspath(sentences)!r}. A string is the path of a file with a sentence "
                    "on each line; put sentences themselves in a list."
                )
            with self._path.open("rb") as file:
                self.length = sum(1 for _ in file)
        elif isinstance(sentences, Sized) and hasattr(sentences, "__getitem__"):
            self.length = len(sentences)
        self._sentences = sentences
        if self.length is not None:
            self._check_length(self.length)

    def check(self) -> None:
        """Look at every sentence once, unless they come from an iterator that can be read only once."""
        if self.length is None:
            return
        bad: dict[str, list[int]] = {}
        start = 0
        for texts in self._lists(65536):
            for kind, positions in bad_texts(texts, start).items():
                bad.setdefault(kind, []).extend(positions)
            start += len(texts)
        raise_for_bad_texts(bad, self.length, "sentences")

    def shards(self, size: int) -> Iterator[Shard]:
        """One shard after another; an iterator is checked here, as it comes."""
        start = 0
        for texts in self._lists(size):
            if self.length is None:
                raise_for_bad_texts(bad_texts(texts, start), None, "sentences")
            start += len(texts)
            yield Shard({self.columns[0]: texts})
        self._check_length(start)

    def _lists(self, size: int) -> Iterator[list[str]]:
        if self._path is not None:
            # A byte order mark, as Windows editors write it, is no part of the first sentence.
            with self._path.open(encoding="utf-8-sig", newline="\n") as file:
                lines = (line.rstrip("\r\n") for line in file)
                while texts := list(islice(lines, size)):
                    yield texts
        elif self.length is not None:
            sentences: Any = self._sentences
            for start in range(0, self.length, size):
                # A slice at a time: one by one is slow for a dataset's column.
                yield list(sentences[start : start + size])
        else:
            iterator = iter(self._sentences)  # type: ignore[arg-type]
            while texts := list(islice(iterator, size)):
                yield texts

    @staticmethod
    def _check_length(length: int) -> None:
        if length < 2:
            found = "no sentences" if length == 0 else "one sentence"
            raise ValueError(f"At least two sentences are needed for anything to be ranked, but there are {found}.")


class DatasetSource:
    """The text columns of a ``datasets.Dataset``.

    Args:
        dataset: The dataset.
        columns: Its text columns, in the order that the loss expects.
        missing: Columns where None and ``""`` stand for a missing text, read as ``""``.
    """

    def __init__(self, dataset: Any, columns: Sequence[str], missing: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        self.length: int | None = len(dataset)
        self._rows = dataset.with_format(None).select_columns(list(columns))
        self._missing = frozenset(missing)
        if len(dataset) == 0:
            raise ValueError("The dataset has no rows.")

    def check(self) -> None:
        """Look at every text of every column once."""
        bad: dict[str, dict[str, list[int]]] = {column: {} for column in self.columns}
        start = 0
        for shard in self.shards(65536):
            for column, texts in shard.columns.items():
                for kind, positions in bad_texts(texts, start).items():
                    if kind != "empty" or column not in self._missing:
                        bad[column].setdefault(kind, []).extend(positions)
            start += len(shard)
        for column in self.columns:
            raise_for_bad_texts(bad[column], self.length, f"texts of column {column!r}")

    def shards(self, size: int) -> Iterator[Shard]:
        """One shard after another."""
        for start in range(0, len(self._rows), size):
            shard = self._rows[start : start + size]
            yield Shard(
                {
                    column: ["" if text is None and column in self._missing else text for text in shard[column]]
                    for column in self.columns
                }
            )

    def same_texts(self) -> bool:
        """Whether all columns hold the same text in every row, as in recipes that give a sentence twice."""
        first, *others = self.columns
        return all(shard[first] == shard[other] for shard in self.shards(65536) for other in others)


def sample(source: TextSource, size: int, seed: int = 0) -> Shard:
    """At most ``size`` random rows of a source whose length is known, in their order, no text of theirs twice.

    Raises:
        ValueError: If the source can be read only once, or if it holds fewer than 3 different texts.
    """
    if source.length is None:
        raise ValueError("Sentences that can be iterated only once cannot be sampled: give a list or a text file.")
    chosen = np.sort(np.random.default_rng(seed).permutation(source.length)[:size])
    rows: dict[str, list[str]] = {column: [] for column in source.columns}
    seen: set[str] = set()
    start = 0
    for shard in source.shards(65536):
        first = shard[source.columns[0]]
        for row in chosen[(chosen >= start) & (chosen < start + len(first))] - start:
            if first[row] not in seen:
                seen.add(first[row])
                for column in source.columns:
                    rows[column].append(shard[column][row])
        start += len(shard)
    if len(seen) < 3:
        raise ValueError(f"At least 3 different texts are needed, but the sample holds {len(seen)}.")
    return Shard(rows)
