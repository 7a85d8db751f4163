"""Reading a batch's labels: score vectors, whose dot products are the teachers' scores, or explicit score lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

LabelForm = Literal["vectors", "lists"]

# How far the norm of a score vector may be from 1. Half precision rounds it by less than 1e-3.
UNIT_TOLERANCE = 1e-2


@dataclass(frozen=True)
class TeacherVectors:
    """Score vectors, (B, C, D): one per row and text column; ``t_i · t_j`` is the teachers' score of i and j."""

    values: Tensor


@dataclass(frozen=True)
class TeacherScores:
    """Explicit scores, (B, K): each anchor's own list, NaN where a candidate is missing."""

    values: Tensor


def read_labels(
    labels: Tensor,
    *,
    batch_size: int,
    columns: int,
    form: LabelForm | None = None,
    normalize: bool = False,
    in_batch_terms: bool = False,
) -> TeacherVectors | TeacherScores:
    """Tell score vectors from explicit scores by shape, and check them.

    Args:
        labels: (B, D) vectors, shared by at most two columns; (B, C, D) vectors, one per column; or (B, K) explicit
            scores of the K = C − 1 candidates of the first column.
        batch_size: B.
        columns: C, the number of text columns.
        form: ``"vectors"`` or ``"lists"`` where the shape allows both readings.
        normalize: Scale vectors that are not unit to length 1, instead of refusing them.
        in_batch_terms: Whether other terms are computed beside lists of explicit scores.

    Raises:
        ValueError: If the shape fits neither form or both, vectors are not of unit length, vectors are not finite,
            explicit scores are infinite, or lists have only one candidate.
    """
    shape = tuple(labels.shape)
    expected = _expected(batch_size, columns)
    if labels.ndim not in (2, 3) or shape[0] != batch_size or (labels.ndim == 3 and shape[1] != columns):
        raise ValueError(
            f"The labels of {columns} text column(s) must be {expected}, got shape {shape}. "
            "TeacherScoreDataset attaches labels of the right shape."
        )
    # Vectors and grades may come as integers or in half precision.
    labels = labels.detach() if labels.dtype in (torch.float32, torch.float64) else labels.detach().float()
    could_be_scores = labels.ndim == 2 and columns > 1 and shape[1] == columns - 1
    could_be_vectors = labels.ndim == 3 or (columns <= 2 and (normalize or _all_unit(labels)))
    if form is None and could_be_scores and could_be_vectors:
        raise ValueError(
            f"Labels of shape {shape} for {columns} text columns can be read as explicit scores of {columns - 1} "
            'candidate(s) or as unit score vectors: say which with label_form="lists" or label_form="vectors".'
        )
    if form == "lists" or (form is None and could_be_scores):
        if not could_be_scores:
            raise ValueError(
                f"Explicit scores of {columns - 1} candidate column(s) must have shape ({batch_size}, {columns - 1}), "
                f"got {shape}."
            )
        if shape[1] == 1 and not in_batch_terms:
            raise ValueError(
                "The labels are explicit scores of one candidate, and a list of one has nothing to rank: the loss "
                "would be 0 for ever. Give each anchor more candidates, or rank it against the batch by score vectors."
            )
        if labels.isinf().any():
            raise ValueError(
                "Explicit scores must be finite, or NaN where a candidate is missing; got an infinite one."
            )
        return TeacherScores(labels)
    if labels.ndim == 2 and columns > 2:
        raise ValueError(
            f"With {columns} text columns the labels must be {expected}, got shape {shape}: "
            "one vector per row cannot tell an anchor from its negatives."
        )
    if not labels.isfinite().all():
        raise ValueError(
            "Score vectors must be finite, got NaN or infinity in "
            f"{int((~labels.isfinite()).flatten(1).any(1).sum())} of {batch_size} rows. "
            "Missing entries (NaN) are for explicit scores of anchor and candidates only."
        )
    if normalize:
        zeros = int((labels.norm(dim=-1) == 0).sum())
        if zeros:
            raise ValueError(f"{zeros} of the labels' vectors are zero vectors, which no scale brings to length 1.")
        labels = torch.nn.functional.normalize(labels, dim=-1)
    elif not _all_unit(labels):
        norms = labels.norm(dim=-1)
        raise ValueError(
            f"Labels of shape {shape} are read as score vectors, which must have length 1, but their lengths are "
            f"between {norms.min():.4g} and {norms.max():.4g}. Expected {expected}. If these are plain teacher "
            "embeddings, normalise them or pass normalize_labels=True."
        )
    return TeacherVectors(labels if labels.ndim == 3 else labels.unsqueeze(1).expand(-1, columns, -1))


def undo_truncation(labels: Tensor, embedding_width: int, model_width: int | None) -> Tensor:
    """Give labels that ``MatryoshkaLoss`` has cut back their full width.

    ``MatryoshkaLoss`` takes labels whose last axis is as long as the model's embeddings for embeddings, and passes
    ``labels[..., :dim]`` on: teacher scores would silently be wrong at every smaller dimension. A slice is a view and
    keeps the strides of the whole, which shows that it was cut and where the rest is.

    Args:
        labels: The labels as the loss received them.
        embedding_width: The width of the embeddings as the loss received them, ``dim`` inside ``MatryoshkaLoss``.
        model_width: The width of the model's embeddings.

    Returns:
        The labels before the cut where they were cut, else the labels.
    """
    cut = (
        model_width is not None
        and labels.ndim in (2, 3)
        and labels.shape[-1] == embedding_width < model_width
        and labels.stride(-1) == 1
        and labels.stride(-2) == model_width
    )
    if not cut or model_width is None:
        return labels
    return labels.as_strided((*labels.shape[:-1], model_width), labels.stride())


def _all_unit(vectors: Tensor) -> bool:
    norms = vectors.norm(dim=-1)
    return bool(((norms - 1).abs() <= UNIT_TOLERANCE).all())


def _expected(batch_size: int, columns: int) -> str:
    if columns == 1:
        return f"score vectors ({batch_size}, D)"
    shared = f", or score vectors ({batch_size}, D) shared by both columns" if columns == 2 else ""
    return (
        f"score vectors ({batch_size}, {columns}, D){shared}, or explicit scores ({batch_size}, {columns - 1}) "
        f"of the candidates of the first column"
    )
