"""Reading what the user gives: a file of sentences, files of graded pairs, names of models."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAIR_COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True)
class Corpus:
    """The sentences of a file, and what was left out of it."""

    sentences: list[str]
    blank: int
    duplicates: int

    def describe(self) -> str:
        """One line for the user."""
        left_out = []
        if self.blank:
            left_out.append(f"{self.blank:,} blank lines skipped")
        if self.duplicates:
            left_out.append(f"{self.duplicates:,} duplicates dropped")
        return f"{len(self.sentences):,} sentences" + (f" ({', '.join(left_out)})" if left_out else "")


def read_sentences(path: Path, *, minimum: int = 2) -> Corpus:
    """Read a UTF-8 text file of one sentence a line.

    White space around a sentence is removed, blank lines are skipped, and of equal lines the first is kept.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8, or holds fewer than ``minimum`` different sentences.
    """
    sentences: dict[str, None] = {}
    blank = duplicates = 0
    for line in _lines(path, "sentences"):
        sentence = line.strip()
        if not sentence:
            blank += 1
        elif sentence in sentences:
            duplicates += 1
        else:
            sentences[sentence] = None
    corpus = Corpus(list(sentences), blank, duplicates)
    if len(sentences) < minimum:
        raise ValueError(
            f"{path} holds {corpus.describe()}, but at least {minimum} different ones are needed, one on each line."
        )
    return corpus


def corpus_sha256(sentences: Sequence[str]) -> str:
    """Identity of sentences and their order."""
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(f"{sentence}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs graded by people: what STS data holds."""

    name: str
    sentences1: list[str]
    sentences2: list[str]
    scores: list[float]

    def sha256(self) -> str:
        """Identity of what is measured on them."""
        return hashlib.sha256(json.dumps([self.sentences1, self.sentences2, self.scores]).encode()).hexdigest()


def read_pairs(path: Path) -> Pairs:
    """Read graded pairs from JSON Lines, CSV or TSV (by suffix) with the fields sentence1, sentence2 and score.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format is another, a row lacks a field or holds something else than two texts and a finite
            number, or if there are not two different scores.
    """
    readers = {".jsonl": _json_rows, ".json": _json_rows, ".csv": _csv_rows, ".tsv": _csv_rows}
    if path.suffix.lower() not in readers:
        raise ValueError(f"Pairs are read from .jsonl, .csv or .tsv files, but got {path}.")
    sentences1, sentences2, scores = [], [], []
    for number, row in readers[path.suffix.lower()](path):
        missing = [column for column in PAIR_COLUMNS if _blank(row.get(column))]
        if missing:
            raise ValueError(
                f"{path}, row {number}: no {' and no '.join(missing)}; every pair needs {', '.join(PAIR_COLUMNS)}."
            )
        try:
            score = float(row["score"])
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score) or isinstance(row["score"], bool):
            raise ValueError(f"{path}, row {number}: score must be a finite number, but got {row['score']!r}.")
        if not isinstance(row["sentence1"], str) or not isinstance(row["sentence2"], str):
            raise ValueError(f"{path}, row {number}: sentence1 and sentence2 must be texts.")
        sentences1.append(row["sentence1"])
        sentences2.append(row["sentence2"])
        scores.append(score)
    if len(set(scores)) < 2:
        raise ValueError(f"{path} holds {len(scores)} pairs of fewer than two different scores: nothing can be ranked.")
    return Pairs(path.stem, sentences1, sentences2, scores)


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def read_all_pairs(paths: Sequence[Path]) -> list[Pairs]:
    """Read several files of pairs, whose names without suffix must differ: they name the results."""
    pairs = [read_pairs(path) for path in paths]
    names = [one.name for one in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Two files of pairs are called {name!r}; results go by that name, so rename one.")
    return pairs


def check_model_name(name: str, role: str) -> None:
    """Refuse a missing folder, which would else be looked for on the Hub.

    Raises:
        FileNotFoundError: If ``name`` looks like a path and nothing is there.
    """
    looks_like_path = name.startswith((".", "~", "/", os.sep)) or name.count("/") > 1 or "\\" in name
    if not name.strip() or (looks_like_path and not Path(name).expanduser().exists()):
        raise FileNotFoundError(f"There is no {role} at {name!r}: give an existing folder or a name on the Hub.")


def _lines(path: Path, what: str) -> Iterator[str]:
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {found}: a file of {what} is expected.")
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}). Convert the file, for example with "
            "'iconv -f ISO-8859-1 -t UTF-8'."
        ) from None


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(path, "pairs"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, row {number}: not JSON ({error}); one object a line is expected.") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, row {number}: an object is expected, but got {line.strip()[:60]!r}.")
            yield number, row


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    yield from enumerate(csv.DictReader(_lines(path, "pairs"), delimiter=delimiter), start=2)
