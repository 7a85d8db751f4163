"""Put teachers on one scale: which weights let each teacher's opinion count as much as its weight says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def spread_of_similarities(embeddings: Tensor) -> float:
    """Standard deviation of the cosines of different rows of unit ``embeddings`` ``(n, d)``."""
    scores = embeddings.double() @ embeddings.double().T
    rows, columns = torch.triu_indices(len(scores), len(scores), offset=1)
    return float(scores[rows, columns].std())


def spread_of_lists(scores: Tensor) -> float:
    """Standard deviation of ``scores`` ``(n, K)`` around each list's own mean, missing (NaN) entries left out."""
    scores = scores.double()
    present = ~scores.isnan()
    deviations = (scores - scores.nanmean(dim=1, keepdim=True))[present]
    freedom = int((present.sum(dim=1) - 1).clamp(min=0).sum())
    return float((deviations.square().sum() / max(freedom, 1)).sqrt())


def calibrated_weights(weights: Sequence[float], spreads: Sequence[float], names: Sequence[str]) -> list[float]:
    """Each weight divided by its teacher's spread, brought back to the sum they had.

    A teacher's scores enter a list's softmax and order only through their differences, so a teacher whose scores
    spread ten times as wide decides the ensemble as if it had ten times the weight; this takes it back. Because the
    weights are then scaled to sum 1 again, the ensemble's scores get another spread than before, which acts like
    another teacher temperature: look at that one again after calibrating.

    Raises:
        ValueError: If a teacher of weight above 0 gives all pairs the same score.
    """
    for weight, spread, name in zip(weights, spreads, names, strict=True):
        if weight > 0 and not (math.isfinite(spread) and spread > 1e-9):
            raise ValueError(
                f"Teacher {name!r} gives all sentences of the sample the same score (standard deviation {spread:.2g}): "
                "it cannot be calibrated, nor can it teach a ranking. Leave it out."
            )
    divided = [weight / spread if weight > 0 else 0.0 for weight, spread in zip(weights, spreads, strict=True)]
    return [weight * sum(weights) / sum(divided) for weight in divided]
