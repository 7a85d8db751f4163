"""A dataset whose labels are read a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, Value
from numpy.typing import NDArray
from torch import Tensor

from rankcse_st._st import LABEL_FORMAT


class ScoredDataset(Dataset):  # type: ignore[misc]
    """A ``datasets.Dataset`` whose ``label`` column is read several times faster where whole batches are asked for.

    The ``torch`` and ``numpy`` formats turn each row of a list column into an array of its own before they join them
    again: 1.5 ms and more for 128 rows of 1,152 numbers, 11 ms for two text columns. Here the numbers of a batch are
    copied once. The rows are the same as the format's, in the same order of columns.

    What ``select``, ``map`` and the like make of it is a plain ``Dataset``, which reads the same rows more slowly.
    """

    _labels: tuple[pa.Table, list[NDArray[Any]]] | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> ScoredDataset:
        """The same rows; nothing is copied.

        Args:
            dataset: With a column ``label`` of numbers, of the same shape in each row, and no indices mapping.
        """
        assert len(dataset) == len(dataset.data)
        return cls(dataset.data, info=dataset.info, split=dataset.split)

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays, which would be pickled and copied as what they show of a file."""
        return {**self.__dict__, "_labels": None}

    def __getitems__(self, keys: list[int]) -> list[dict[str, Any]]:
        """Rows, as PyTorch's ``DataLoader`` asks for a batch of them."""
        shown = self.format["columns"]
        others = [name for name in self.column_names if name != "label"]
        if (
            self.format["type"] != LABEL_FORMAT
            or self.format["format_kwargs"]
            or "label" not in shown
            or not _is_array(self.data.table["label"])
            or any(self.features[name] != Value("string") for name in others)
            or self._indices is not None
            or len(keys) == 0
            or min(keys) < 0
            or max(keys) >= len(self)
        ):
            rows: list[dict[str, Any]] = super().__getitems__(keys)
            return rows
        table = self.data.fast_gather(keys)
        # Formatted columns come first, as in the format.
        names = [name for name in self.column_names if name in shown]
        names += [name for name in others if name not in shown] if self.format["output_all_columns"] else []
        if self._labels is None or self._labels[0] is not self.data.table:
            self._labels = self.data.table, _arrays(self.data.table["label"])
        labels = _gather(self._labels[1], keys)
        columns = [labels if name == "label" else table[name].to_pylist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_array(column: pa.ChunkedArray) -> bool:
    """Whether a column holds floats in one shape for all rows."""
    kind = column.type
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_floating(kind)) and column.null_count == 0


def _arrays(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """The chunks of a label column as arrays ``(rows, ...)`` that share its memory, which may be a file's."""
    arrays = []
    for chunk in column.chunks:
        shape = [len(chunk)]
        while pa.types.is_fixed_size_list(chunk.type):
            shape.append(chunk.type.list_size)
            chunk = chunk.flatten()
        arrays.append(chunk.to_numpy(zero_copy_only=chunk.null_count == 0).reshape(shape))
    return arrays


def _gather(arrays: list[NDArray[Any]], keys: Sequence[int]) -> Sequence[Tensor] | NDArray[np.float32]:
    """Some rows, in the type that the format gives them."""
    starts = np.cumsum([0, *map(len, arrays)])
    rows = np.asarray(keys)
    owners = np.searchsorted(starts, rows, side="right") - 1
    # In single precision, as the formats give all floats, and copied: what the file holds cannot be written to.
    labels = np.empty((len(rows), *arrays[0].shape[1:]), dtype=np.float32)
    for owner in np.unique(owners):
        mine = owners == owner
        labels[mine] = arrays[owner][rows[mine] - starts[owner]]
    return torch.from_numpy(labels).unbind() if LABEL_FORMAT == "torch" else labels
