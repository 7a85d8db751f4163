"""Read score vectors back out of a dataset's label column, some rows at a time, however the dataset is formatted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray

READ = 4096
"""Rows in memory at once."""


class LabelVectors:
    """The score vectors of each row's first text column, read from the label column when asked for.

    Args:
        dataset: Dataset, also one that was shuffled, selected from or given a format or transform.
        label_column: Name of the column that holds ``(D,)`` or ``(C, D)`` numbers in each row; None if there is none.
        text_columns: Names of the text columns.

    Raises:
        ValueError: If the first row does not hold score vectors. Only that row is read here.
    """

    def __init__(self, dataset: Dataset, label_column: str | None, text_columns: Sequence[str]) -> None:
        if label_column is None:
            raise ValueError(
                "Neighbours are found by score vectors in a label column, but the dataset has only the columns "
                f"{list(text_columns)}. {_REMEDY}"
            )
        self._dataset = dataset
        self._column = label_column
        first = read_column(dataset, label_column, slice(0, 1)).to_pylist()[0]
        try:
            self._shape = np.asarray(first, dtype=np.float64).shape
        except (TypeError, ValueError):
            raise ValueError(
                f'The column "{label_column}" must hold numbers, as many in each row, but the first row is '
                f"{first!r:.200}. {_REMEDY}"
            ) from None
        if len(self._shape) not in (1, 2) or self._shape[-1] < 2:
            raise ValueError(
                "Neighbours are found by score vectors, (D,) or (C, D) numbers in each row, but the column "
                f'"{label_column}" has the shape {self._shape}. {_REMEDY}'
            )
        if len(self._shape) == 1 and self._shape[0] == len(text_columns) - 1:
            raise ValueError(
                f'The column "{label_column}" has a number for each of the {self._shape[0]} columns '
                f"{list(text_columns[1:])}: explicit scores of each anchor's own candidates, which do not tell which "
                "rows are neighbours. Leave the batch sampler out; such lists need no neighbours in their batch."
            )
        if len(self._shape) == 2 and self._shape[0] != len(text_columns):
            raise ValueError(
                f'The column "{label_column}" has {self._shape[0]} score vectors in each row, but there are '
                f"{len(text_columns)} text columns, {list(text_columns)}: expected one for each. Remove columns that "
                "are no texts, or score the dataset again."
            )

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """Vectors ``(m, D)`` of some rows, scaled to unit length.

        Raises:
            ValueError: If some are missing, of another shape, NaN or infinite.
        """
        column = read_column(self._dataset, self._column, rows)
        count = len(column)
        while isinstance(column, pa.ExtensionArray) or pa.types.is_nested(column.type):
            column = column.storage if isinstance(column, pa.ExtensionArray) else column.flatten()
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        if values.size != count * np.prod(self._shape) or not np.isfinite(values).all():
            raise ValueError(
                f'Every row of the column "{self._column}" must hold {self._shape} finite numbers, but some hold more, '
                "fewer, NaN or infinite ones. Remove those rows, or score the sentences again."
            )
        vectors = values.reshape(count, -1, self._shape[-1])[:, 0]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))

    def chunks(self) -> Iterator[NDArray[np.float64]]:
        """All vectors in order, at most 4096 at a time."""
        for start in range(0, len(self), READ):
            yield self[start : start + READ]


_REMEDY = (
    "Make the dataset with TeacherScoreDataset.from_sentences (or from_dataset), which adds score vectors, or set "
    "group_size=1 for plain shuffling."
)


def text_ids(dataset: Dataset, column: str) -> NDArray[np.int64]:
    """A number for each row, the same for rows with the same text; no two the same where ``column`` holds no texts."""
    digests = np.empty(len(dataset), dtype=np.uint64)
    for start in range(0, len(dataset), READ):
        texts = read_column(dataset, column, slice(start, start + READ)).to_pylist()
        if not all(isinstance(text, str) for text in texts):
            return np.arange(len(dataset))
        # Eight bytes a row instead of the text; and not hash(), which Python salts anew in each process.
        keys = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
        digests[start : start + READ] = np.frombuffer(b"".join(keys), dtype=np.uint64)
    return np.unique(digests, return_inverse=True)[1].reshape(-1)


def read_column(dataset: Dataset, column: str, rows: slice | NDArray[np.int64]) -> pa.Array:
    """Some rows of one column as an Arrow array."""
    # Arrow, not NumPy: nested lists take NumPy's format a hundred times as long. A dataset's own format or transform
    # does not matter here, but the indices that select and shuffle leave do.
    return dataset.select_columns([column]).with_format("arrow")[rows][column].combine_chunks()
