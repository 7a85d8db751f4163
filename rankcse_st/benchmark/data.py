"""A folder of JSONL files that stands in for the hub: which files are a task's, how many rows, which revision."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: How the revision of every task on local data begins, so that it cannot pass for an official one.
LOCAL_REVISION = "local-"

#: Ends of the names of tasks by another protocol on the same data: C chosen in every fold, first sentences as queries.
NESTED = ".nested"
FIRST_ONLY = ".first-only"

_STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark")

#: The files of each task by split. MTEB's SICK-R scores train, dev and test together, the papers only test.
TASK_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    **{name: {"test": (f"{name}.jsonl",)} for name in _STS},
    "SICK-R": {"test": ("SICK-R.train.jsonl", "SICK-R.dev.jsonl", "SICK-R.jsonl")},
    "SICK-R.test": {"test": ("SICK-R.jsonl",)},
    **{f"{name}Ranking": {"test": (f"{name}.jsonl",)} for name in _STS},
    "SICK-RRanking": {"test": ("SICK-R.jsonl",)},
    "STSBenchmarkGeometry": {"validation": ("STSBenchmark.dev.jsonl",)},
    **{name: {"test": (f"{name}.jsonl",)} for name in ("MR", "CR", "SUBJ", "MPQA")},
    "SST2": {split: (f"SST2.{split}.jsonl",) for split in ("train", "dev", "test")},
    **{name: {split: (f"{name}.{split}.jsonl",) for split in ("train", "test")} for name in ("TREC", "MRPC")},
}

#: How many rows the whole data have, where MTEB does not say so itself.
EXPECTED_ROWS: dict[str, dict[str, int]] = {
    "SICK-R.test": {"test": 4927},
    "STS12Ranking": {"test": 3108},
    "STS13Ranking": {"test": 1500},
    "STS14Ranking": {"test": 3750},
    "STS15Ranking": {"test": 3000},
    "STS16Ranking": {"test": 1186},
    "STSBenchmarkRanking": {"test": 1379},
    "SICK-RRanking": {"test": 4927},
    "STSBenchmarkGeometry": {"validation": 1500},
    "MR": {"test": 10662},
    "CR": {"test": 3775},
    "SUBJ": {"test": 10000},
    "MPQA": {"test": 10606},
    "SST2": {"train": 6920, "dev": 872, "test": 1821},
    "TREC": {"train": 5452, "test": 500},
    "MRPC": {"train": 4076, "test": 1725},
}


def base_name(task: str) -> str:
    """The name of a task without the end that tells its protocol."""
    return task.removesuffix(NESTED).removesuffix(FIRST_ONLY)


@dataclass(frozen=True)
class LocalData:
    """A folder with the files of the tasks, in it or in its immediate subfolders.

    Args:
        folder: Where ``STS12.jsonl`` and the rest are, or the parent of ``sts/STS12.jsonl``.
        check_rows: Refuse a task whose number of rows is not that of the full data. Turn it off for a sample, whose
            scores compare with nothing published.
    """

    folder: Path
    check_rows: bool = True

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise FileNotFoundError(f"There is no folder of benchmark data at {os.fspath(self.folder)!r}.")

    def files(self, task: str, splits: Sequence[str] = ("test",)) -> dict[str, tuple[Path, ...]]:
        """The files of a task by split.

        Args:
            task: The name of the task. Names outside ``TASK_FILES`` have ``NAME.SPLIT.jsonl`` or, for the test split,
                ``NAME.jsonl``.
            splits: The splits of a task outside ``TASK_FILES``.

        Raises:
            FileNotFoundError: Naming the files that are missing.
        """
        known = TASK_FILES.get(base_name(task))
        # For each split its files, and for each file the names that it may have.
        wanted: dict[str, list[tuple[str, ...]]] = {}
        if known is not None:
            wanted = {split: [(name,) for name in names] for split, names in known.items()}
        else:
            for split in splits:
                wanted[split] = [(f"{task}.{split}.jsonl", *([f"{task}.jsonl"] if split == "test" else []))]
        found = {split: [self._find(names) for names in alternatives] for split, alternatives in wanted.items()}
        missing = [
            " or ".join(names)
            for split, alternatives in wanted.items()
            for names, path in zip(alternatives, found[split], strict=True)
            if path is None
        ]
        if missing:
            raise FileNotFoundError(
                f"Task {task} needs {', '.join(missing)} in {os.fspath(self.folder)!r} or a folder in it. Put the data "
                "there, leave the task out, or run without local data to load it from the hub."
            )
        return {split: tuple(path for path in paths if path is not None) for split, paths in found.items()}

    def _find(self, names: tuple[str, ...]) -> Path | None:
        folders = [self.folder, *sorted(child for child in self.folder.iterdir() if child.is_dir())]
        return next((folder / name for name in names for folder in folders if (folder / name).is_file()), None)

    def check(self, task: str, split: str, rows: int, expected: int | None) -> None:
        """Raise ValueError if a split has not as many rows as the full data."""
        if self.check_rows and expected is not None and rows != expected:
            raise ValueError(
                f"Task {task} has {expected} rows in its {split} split, the files in {os.fspath(self.folder)!r} have "
                f"{rows}: a score on them compares with no published one. Complete the data, or allow partial data."
            )


def revision_of(files: Mapping[str, Sequence[Path]]) -> str:
    """The revision of local data: a hash of the splits' files in order, marked as local."""
    digest = hashlib.sha256()
    for split, paths in sorted(files.items()):
        digest.update(f"\0{split}\0".encode())
        for path in paths:
            digest.update(path.read_bytes())
    return LOCAL_REVISION + digest.hexdigest()[:16]


def read_jsonl(paths: Sequence[Path]) -> dict[str, list[Any]]:
    """The columns of JSONL files, one after the other; only the columns that all rows have are kept.

    Raises:
        ValueError: If a line is not a JSON object, or there is none.
    """
    rows: list[dict[str, Any]] = []
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"Line {number} of {path.name} is not JSON: {error}") from error
                if not isinstance(row, dict):
                    raise ValueError(f"Line {number} of {path.name} must be a JSON object, got {type(row).__name__}.")
                rows.append(row)
    if not rows:
        raise ValueError(f"No rows in {', '.join(path.name for path in paths)}.")
    columns = [key for key in rows[0] if all(key in row for row in rows)]
    return {column: [row[column] for row in rows] for column in columns}
