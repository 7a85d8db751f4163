"""Smaller score vectors: fewer dimensions, smaller numbers, and a report of what that costs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset, DatasetInfo, Features
from datasets.table import ConcatenationTable, InMemoryTable
from torch import Tensor

from rankcse_st.evaluation.metrics import spearman
from rankcse_st.scores.arrays import label_table
from rankcse_st.scores.layout import label_features

CompressedDtype = Literal["int8", "float16"]

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class CompressionReport:
    """What compression costs, measured on batches of rows that it was not fitted on.

    Args:
        dimension: Numbers in a vector now.
        dimension_before: Numbers in a vector before.
        bytes_per_vector: Bytes in a vector now.
        kept: Share of the vectors' squared length that the dimensions keep, before they are brought back to length 1.
        spearman: Spearman's correlation of each sentence's scores in its batch with what they were, mean of all.
        lowest_spearman: The lowest of these correlations.
        mean_absolute_error: Mean difference of a score from what it was.
        largest_absolute_error: The largest difference.
        batch_size: Sentences in a batch.
        rows: Rows that were measured.
        held_out: Whether those are other rows than the fitted ones; small datasets do not have enough for both.
    """

    dimension: int
    dimension_before: int
    bytes_per_vector: int
    kept: float
    spearman: float
    lowest_spearman: float
    mean_absolute_error: float
    largest_absolute_error: float
    batch_size: int
    rows: int
    held_out: bool

    def to_dict(self) -> dict[str, Any]:
        """The report as it is kept with the dataset."""
        return dataclasses.asdict(self)


def main_dimensions(vectors: Tensor, dimension: int) -> Tensor:
    """The dimensions of the largest second moments of rows ``(n, D)``: ``(D, d)`` with orthonormal columns.

    They are not centred, unlike PCA's, since the products of the vectors themselves are to be kept; d is at most D.
    """
    eigenvectors: Tensor = torch.linalg.eigh(vectors.T @ vectors).eigenvectors
    return eigenvectors.flip(1)[:, :dimension]


@dataclass(frozen=True)
class Compressor:
    """Projects vectors onto fewer dimensions, brings them back to length 1 and rounds them.

    Args:
        basis: ``(D, d)`` with orthonormal columns.
        dtype: What the result is stored in. Integers have no scale of their own: the vector is their direction.
    """

    basis: Tensor
    dtype: CompressedDtype

    @classmethod
    def fit(cls, vectors: Tensor, dimension: int, dtype: CompressedDtype) -> Compressor:
        """Fit the basis on rows ``(n, D)``."""
        return cls(main_dimensions(vectors.double(), dimension).float().contiguous(), dtype)

    def encode(self, vectors: Tensor) -> np.ndarray:
        """``(..., D)`` unit vectors to ``(..., d)`` numbers to be stored."""
        projected = torch.nn.functional.normalize(vectors.float() @ self.basis, dim=-1)
        if self.dtype == "float16":
            return projected.half().numpy()
        # Each row by its own largest number: its scale is lost anyway, and is known to be 1.
        return (projected * (127 / projected.abs().amax(dim=-1, keepdim=True))).round().to(torch.int8).numpy()

    @staticmethod
    def decode(stored: np.ndarray) -> Tensor:
        """The unit vectors that stored numbers stand for, as the loss reads them."""
        return torch.nn.functional.normalize(torch.from_numpy(stored).float(), dim=-1)


def compress(
    dataset: Dataset,
    dimension: int = 256,
    *,
    dtype: CompressedDtype = "int8",
    sample_size: int = 8192,
    batch_size: int = 128,
    seed: int = 0,
) -> tuple[Dataset, CompressionReport]:
    """See :meth:`rankcse_st.TeacherScoreDataset.compress`; the record is not this function's business."""
    before = _width(dataset)
    if not isinstance(dimension, int) or not 1 <= dimension <= before:
        raise ValueError(f"dimension must be between 1 and the {before} that there are, but got {dimension!r}.")
    if dtype not in ("int8", "float16"):
        raise ValueError(f'dtype must be "int8" or "float16", but got {dtype!r}.')
    if batch_size < 3 or len(dataset) < max(dimension, batch_size):
        raise ValueError(
            f"{dimension} dimensions are fitted on at least as many rows, and measured on batches of {batch_size}, but "
            f"the dataset has {len(dataset)} rows."
        )
    vectors = dataset.with_format("torch", columns=["label"])
    order = np.random.default_rng(seed).permutation(len(dataset))
    fitted = order[: max(min(sample_size, len(order) // 2), dimension)]
    measured = order[len(fitted) :][:4096]
    held_out = len(measured) >= batch_size
    compressor = Compressor.fit(vectors[fitted]["label"].flatten(0, -2), dimension, dtype)
    truth = vectors[measured if held_out else fitted]["label"]
    report = measure(compressor, truth.reshape(len(truth), -1, before)[:, 0], batch_size, held_out)
    return _apply(dataset, compressor), report


def measure(compressor: Compressor, vectors: Tensor, batch_size: int, held_out: bool) -> CompressionReport:
    """Compare the scores of batches of ``vectors`` ``(n, D)`` before and after."""
    stored = compressor.encode(vectors)
    decoded = compressor.decode(stored)
    off_diagonal = ~np.eye(batch_size, dtype=bool)
    errors, correlations = [], []
    for start in range(0, len(vectors) - batch_size + 1, batch_size):
        old, new = (
            (rows @ rows.T).numpy()[off_diagonal].reshape(batch_size, -1)
            for rows in (vectors[start : start + batch_size].float(), decoded[start : start + batch_size])
        )
        errors.append(np.abs(new - old))
        correlations.append(spearman(new, old))
    return CompressionReport(
        dimension=stored.shape[-1],
        dimension_before=vectors.shape[-1],
        bytes_per_vector=stored.shape[-1] * stored.itemsize,
        kept=float((vectors.float() @ compressor.basis).square().sum(1).mean()),
        spearman=float(np.mean(correlations)),
        lowest_spearman=float(np.min(correlations)),
        mean_absolute_error=float(np.mean(errors)),
        largest_absolute_error=float(np.max(errors)),
        batch_size=batch_size,
        rows=len(errors) * batch_size,
        held_out=held_out,
    )


def _width(dataset: Dataset) -> int:
    if "label" not in dataset.column_names:
        raise ValueError(f"There is no label column with score vectors: the dataset has {dataset.column_names}.")
    width: int = dataset.with_format("torch", columns=["label"])[0]["label"].shape[-1]
    return width


def _apply(dataset: Dataset, compressor: Compressor) -> Dataset:
    """The dataset with compressed labels, a piece at a time."""
    tables, vectors = dataset.with_format("arrow"), dataset.with_format("torch", columns=["label"])
    blocks = []
    for start in range(0, len(dataset), _ROWS_AT_ONCE):
        piece = slice(start, start + _ROWS_AT_ONCE)
        labels = compressor.encode(vectors[piece]["label"])
        texts = tables[piece].drop_columns(["label"])
        compressed = label_table(labels, label_features(compressor.dtype, labels.shape[1:]))
        blocks.append([InMemoryTable(texts), InMemoryTable(compressed)])
    joined = ConcatenationTable.from_blocks(blocks)
    features = Features.from_arrow_schema(joined.schema.remove_metadata())
    return Dataset(joined, info=DatasetInfo(features=features))
