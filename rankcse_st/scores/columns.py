"""Check and choose the columns of a dataset that teachers are to read, before any of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, List, Value

from rankcse_st.scores.layout import Form
from rankcse_st.teachers import TeacherEnsemble

#: Columns that the trainer's collator reads as the label.
LABEL_COLUMNS = ("label", "labels", "score", "scores")


def check_dataset(dataset: Any) -> None:
    """Raise for what is no dataset, or has labels already."""
    if isinstance(dataset, (DatasetDict, IterableDatasetDict)):
        raise TypeError(
            f"Expected one Dataset, but got a {type(dataset).__name__} with {sorted(dataset)}: score each of them, for "
            'example from_dataset(dataset["train"], ...).'
        )
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            "Expected a Dataset, but got an IterableDataset, whose rows have no fixed place: load it without "
            "streaming, or give the texts to from_sentences."
        )
    if not isinstance(dataset, Dataset):
        raise TypeError(f"Expected a datasets.Dataset, but got {type(dataset).__name__}.")
    labels = [column for column in dataset.column_names if column in LABEL_COLUMNS]
    if labels:
        raise ValueError(
            f"The dataset has the column(s) {labels} already, which the trainer would read as the label besides the "
            f"teachers' scores: remove them first, dataset.remove_columns({labels})."
        )


def check_columns(dataset: Dataset, columns: Sequence[str] | None, form: Form) -> list[str]:
    """The text columns, after checking that they are that."""
    if isinstance(columns, str):
        columns = [columns]
    if columns is None:
        columns = dataset.column_names
        remedy = "name the text columns, columns=[...]; the others are left out"
        ids = [column for column in columns if column in ("id", "idx") or column.endswith(("_id", "_ids", "_idx"))]
        if ids:
            raise ValueError(f"The column(s) {ids} look like ids, but would be tokenised as text: {remedy}.")
    else:
        remedy = "leave them out of columns=[...]"
        absent = [column for column in columns if column not in dataset.column_names]
        if absent:
            raise ValueError(f"There are no columns {absent}: the dataset has {dataset.column_names}.")
        if len(set(columns)) < len(columns):
            raise ValueError(f"Each column can be named once, but got {list(columns)}.")
    columns = list(columns)
    if not columns:
        raise ValueError("At least one text column is needed, but there is none.")
    others = [column for column in columns if not _is_text(dataset.features[column])]
    if form == "lists":
        if len(columns) < 2:
            raise ValueError(f"Lists need an anchor column and at least one of candidates, but got {columns}.")
        if len(columns) == 2 and others == columns[1:] and _is_list_of_texts(dataset.features[columns[1]]):
            others = []
    if others:
        types = ", ".join(f"{column!r} ({dataset.features[column]})" for column in others)
        raise ValueError(f"The column(s) {types} are no text: {remedy}.")
    return columns


def _is_text(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string", "string_view")


def _is_list_of_texts(feature: Any) -> bool:
    return isinstance(feature, List) and _is_text(feature.feature)


def spread_lists(dataset: Dataset, columns: list[str]) -> tuple[Dataset, list[str]]:
    """One column for each candidate instead of one column of lists, short lists filled up with ``""``."""
    anchor, *candidates = columns
    if len(candidates) != 1 or not _is_list_of_texts(dataset.features[candidates[0]]):
        return dataset, columns
    (name,) = candidates
    lists = [listed or [] for listed in dataset.with_format(None)[name]]
    width = max(map(len, lists), default=0)
    if width == 0:
        raise ValueError(f"The lists of column {name!r} are all empty.")
    names = [f"{name}_{place}" for place in range(1, width + 1)]
    if anchor in names:
        raise ValueError(
            f"The lists of column {name!r} become the columns {names}, but {anchor!r} is the anchor's column already: "
            f"rename one of them first, for example dataset.rename_column({anchor!r}, 'anchor')."
        )
    spread: dict[str, list[str]] = {anchor: list(dataset.with_format(None)[anchor])}
    for place, column in enumerate(names):
        spread[column] = [(listed[place] or "") if place < len(listed) else "" for listed in lists]
    return Dataset.from_dict(spread), [anchor, *names]


def check_prompts(ensemble: TeacherEnsemble, columns: Sequence[str]) -> None:
    """Raise for prompts of columns that are not there."""
    for teacher in ensemble.teachers:
        if isinstance(teacher.prompt, Mapping):
            unknown = sorted(set(teacher.prompt) - set(columns))
            if unknown:
                raise ValueError(
                    f"Teacher {teacher.name!r} has prompts for the columns {unknown}, but the columns are "
                    f"{list(columns)}: name those, prompt={{{columns[0]!r}: ...}}, or give one prompt for all columns, "
                    'prompt="...".'
                )


def have_one_prompt(ensemble: TeacherEnsemble, columns: Sequence[str]) -> bool:
    """Whether each teacher reads all columns with one prompt."""
    return all(len({ensemble.readers[k].prompt(column) for column in columns}) == 1 for k in ensemble.active)
