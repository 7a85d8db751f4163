"""Embedding matching beside ranking: the student's embeddings against the score vectors themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from rankcse_st.losses.labels import TeacherScores, TeacherVectors


def check_matching(weight: float, distillation_weight: float, projection: Tensor | None, width: int | None) -> None:
    """Refuse a weight that is none, what nothing could act on, and a projection to another width than the student's."""
    if not 0 <= weight < math.inf:
        raise ValueError(f"matching_weight must be a finite number of at least 0, got {weight}.")
    if weight and not distillation_weight:
        raise ValueError(
            "matching_weight goes with distillation, whose score vectors it uses, but distillation_weight is 0. To "
            "match embeddings alone, use sentence_transformers' EmbedDistillLoss."
        )
    if projection is None:
        return
    if not weight:
        raise ValueError("teacher_projection is for matching embeddings, but matching_weight is 0: give it a weight.")
    if projection.ndim != 2 or not projection.is_floating_point() or width not in (None, projection.shape[1]):
        raise ValueError(
            f"teacher_projection must be a float tensor (D, d) with the student's d = {width}, got "
            f"{tuple(projection.shape)} in {projection.dtype}. fit_teacher_projection(model, train_dataset) makes it."
        )


def matching(
    weight: float,
    embeddings: Sequence[Tensor],
    teacher: TeacherVectors | TeacherScores | None,
    model_width: int | None,
    projection: Tensor | None = None,
) -> Tensor | None:
    """Weight times the mean of ``1 - cos`` of embeddings and score vectors (EmbedDistill, eq. 7).

    The mean is over rows and views or columns.

    Args:
        weight: The term's weight.
        embeddings: One (B, d) tensor per view or column, in single precision at least.
        teacher: The score vectors (B, C, D); two views of one column share them.
        model_width: The width of the model's embeddings.
        projection: (D, d), applied to the score vectors; None where D = d and both are of one space.

    Returns:
        A scalar, or None for embeddings that ``MatryoshkaLoss`` has cut: the score vectors have no such prefix.

    Raises:
        ValueError: If there are no score vectors, or if they have another width than the embeddings.
    """
    if not isinstance(teacher, TeacherVectors):
        raise ValueError("matching_weight needs score vectors as labels, but these are explicit scores of lists.")
    width, vectors = embeddings[0].shape[-1], teacher.values
    if model_width is not None and width < model_width:
        return None
    expected = width if projection is None else len(projection)
    if vectors.shape[-1] != expected:
        given = "" if projection is None else f", and teacher_projection is for {expected}"
        raise ValueError(
            f"matching_weight={weight:g} compares each embedding with its score vector, but the student's embeddings "
            f"have {width} dimensions and the score vectors {vectors.shape[-1]} (all the teachers' together){given}. "
            "Pass teacher_projection=fit_teacher_projection(model, train_dataset), or leave matching_weight out."
        )
    if projection is not None:
        vectors = vectors @ projection.to(vectors)
    targets = vectors.unbind(1)
    targets = targets * len(embeddings) if len(targets) == 1 else targets
    cosines = [F.cosine_similarity(e, v.to(e.dtype), dim=-1) for e, v in zip(embeddings, targets, strict=True)]
    return weight * (1 - torch.stack(cosines).mean())
