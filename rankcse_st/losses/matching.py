"""Embedding matching beside ranking: the student's embeddings against the score vectors themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from rankcse_st.losses.labels import TeacherScores, TeacherVectors


def check_matching_weight(weight: float, distillation_weight: float) -> None:
    """Refuse a weight that is none, and one that nothing could act on."""
    if not 0 <= weight < math.inf:
        raise ValueError(f"matching_weight must be a finite number of at least 0, got {weight}.")
    if weight and not distillation_weight:
        raise ValueError(
            "matching_weight goes with distillation, whose score vectors it uses, but distillation_weight is 0. To "
            "match embeddings alone, use sentence_transformers' EmbedDistillLoss."
        )


def check_widths(weight: float, embedding_width: int, label_width: int) -> None:
    """Refuse to match embeddings with score vectors of another width."""
    if embedding_width != label_width:
        raise ValueError(
            f"matching_weight={weight:g} compares each embedding with its score vector, which needs one width, but the "
            f"student's embeddings have {embedding_width} dimensions and the score vectors {label_width} (all the "
            "teachers' together). Leave matching_weight out, or take one teacher of the student's width."
        )


def matching(
    weight: float,
    embeddings: Sequence[Tensor],
    teacher: TeacherVectors | TeacherScores | None,
    model_width: int | None,
) -> Tensor | None:
    """Weight times the mean of ``1 - cos`` of embeddings and score vectors (EmbedDistill, eq. 7).

    The mean is over rows and views or columns.

    Args:
        weight: The term's weight.
        embeddings: One (B, d) tensor per view or column, in single precision at least.
        teacher: The score vectors (B, C, D) with D = d; two views of one column share them.
        model_width: The width of the model's embeddings.

    Returns:
        A scalar, or None for embeddings that ``MatryoshkaLoss`` has cut: the score vectors have no such prefix.

    Raises:
        ValueError: If there are no score vectors, or if they have another width than the embeddings.
    """
    if not isinstance(teacher, TeacherVectors):
        raise ValueError("matching_weight needs score vectors as labels, but these are explicit scores of lists.")
    width, vectors = embeddings[0].shape[-1], teacher.values.unbind(1)
    if model_width is not None and width < model_width:
        return None
    check_widths(weight, width, vectors[0].shape[-1])
    vectors = vectors * len(embeddings) if len(vectors) == 1 else vectors
    cosines = [F.cosine_similarity(e, v.to(e.dtype), dim=-1) for e, v in zip(embeddings, vectors, strict=True)]
    return weight * (1 - torch.stack(cosines).mean())
