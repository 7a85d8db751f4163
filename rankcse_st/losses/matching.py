"""Embedding matching beside ranking: the student's embeddings against the score vectors themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
    is_tensor = isinstance(projection, Tensor)
    fits = is_tensor and projection.ndim == 2 and projection.is_floating_point()
    if not fits or width not in (None, projection.shape[1]):
        given = f"{tuple(projection.shape)} in {projection.dtype}" if is_tensor else type(projection).__name__
        raise ValueError(
            f"teacher_projection must be a float tensor (D, d) with the student's d = {width}, got {given}. "
            "fit_teacher_projection(model, train_dataset) makes it."
        )


class Matching(NamedTuple):
    """What embeddings are to be near to, and how near they are.

    Args:
        embeddings: (N, d), of all views or columns one below the other.
        targets: (N, d), their score vectors, projected if need be.
    """

    embeddings: Tensor
    targets: Tensor

    @classmethod
    def of(
        cls,
        embeddings: Sequence[Tensor],
        teacher: TeacherVectors | TeacherScores | None,
        model_width: int | None,
        projection: Tensor | None = None,
    ) -> Matching | None:
        """Put a batch's embeddings beside its score vectors.

        Args:
            embeddings: One (B, d) tensor per view or column, in single precision at least.
            teacher: The score vectors (B, C, D); two views of one column share them.
            model_width: The width of the model's embeddings.
            projection: (D, d), applied to the score vectors; None where D = d and both are of one space.

        Returns:
            None for embeddings that ``MatryoshkaLoss`` has cut: the score vectors have no such prefix.

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
                "matching_weight compares each embedding with its score vector, but the student's embeddings have "
                f"{width} dimensions and the score vectors {vectors.shape[-1]} (all the teachers' together){given}. "
                "Pass teacher_projection=fit_teacher_projection(model, train_dataset), or leave matching_weight out."
            )
        if projection is not None:
            vectors = vectors @ projection.to(vectors)
        targets = vectors.unbind(1)
        targets = targets * len(embeddings) if len(targets) == 1 else targets
        if len(targets) != len(embeddings):
            raise ValueError(f"There are {len(targets)} score vectors in each row for {len(embeddings)} embeddings.")
        return cls(torch.cat(list(embeddings)), torch.cat(targets).to(embeddings[0].dtype))

    def loss(self) -> Tensor:
        """Mean of ``1 - cos`` (EmbedDistill, eq. 7) over rows and views or columns."""
        return 1 - F.cosine_similarity(self.embeddings, self.targets, dim=-1).mean()


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """How far the directions of two sets of vectors (N, d) of the same texts go together, by dimension: -1 to 1.

    Centred, as sharing the direction in which all of the vectors point says nothing of the texts.
    """
    first, second = F.normalize(first, dim=-1), F.normalize(second, dim=-1)
    first, second = first - first.mean(dim=0), second - second.mean(dim=0)
    found: Tensor = (first * second).sum() / (first.norm() * second.norm()).clamp(min=1e-12)
    return found
