"""Any MTEB task on local JSONL files: its own class, with its own metadata at class level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTask, AbsTaskClassification

from rankcse_st.benchmark.data import EXPECTED_ROWS, TASK_FILES, LocalData, base_name, read_jsonl, revision_of


class _LocalFiles:
    """Read ``local_files`` where the task would ask the hub. Mixed in before the task's class."""

    local_files: Mapping[str, tuple[Path, ...]]
    metadata: Any
    dataset: Any
    data_loaded: bool
    dataset_transform: Any

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        # Not load_dataset("json"): it copies the data into a cache and reads brackets in a path as a pattern.
        self.dataset = DatasetDict(
            {split: Dataset.from_dict(read_jsonl(paths)) for split, paths in self.local_files.items()}
        )
        self.dataset_transform(num_proc=num_proc)
        self.data_loaded = True


def localize(task: AbsTask, data: LocalData) -> AbsTask:
    """An instance of a task that reads local data and says so in its revision, ``local-`` and a hash of the files.

    Its class is made anew with metadata of its own: metadata set on an instance is lost when MTEB unloads the data,
    and data set on an instance would be recorded under the official revision.

    Raises:
        FileNotFoundError: If files are missing.
        ValueError: If the task has several subsets, or the files another number of rows than the full data.
    """
    name = task.metadata.name
    if task.metadata.is_multilingual:
        raise ValueError(
            f"Task {name} has several subsets ({', '.join(task.metadata.hf_subsets[:5])}, …), which local files do not "
            "stand in for. Run it without local data."
        )
    splits = list(task.metadata.eval_splits)
    if isinstance(task, AbsTaskClassification) and task.train_split not in splits:
        splits.append(task.train_split)
    files = data.files(name, splits)
    expected = EXPECTED_ROWS.get(base_name(name)) or task.metadata.n_samples or {}
    for split, paths in files.items():
        data.check(name, split, len(next(iter(read_jsonl(paths).values()))), expected.get(split))
    metadata = task.metadata.model_copy(
        update={"dataset": {"path": f"local/{_stem(name)}", "revision": revision_of(files)}}
    )
    cls = type(task)
    local = type(f"Local{cls.__name__}", (_LocalFiles, cls), {"metadata": metadata, "local_files": files})
    return local()


def _stem(name: str) -> str:
    splits = TASK_FILES.get(base_name(name))
    return name if splits is None else splits[max(splits)][-1].removesuffix(".jsonl")
