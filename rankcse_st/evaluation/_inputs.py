"""Checks of the data that an evaluator is given, made when it is built: before any model runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def check_scores(scores: Any, argument: str) -> NDArray[np.float64]:
    """A one-dimensional float64 array of finite numbers."""
    try:
        array = np.asarray(scores.cpu() if isinstance(scores, Tensor) else list(scores), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument} must be a list of numbers: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{argument} must have one axis, got the shape {array.shape}.")
    if not (finite := np.isfinite(array)).all():
        positions = np.flatnonzero(~finite)
        raise ValueError(
            f"{argument}: {len(positions)} of {len(array)} are NaN or infinite (first at position {positions[0]}). "
            "Remove these rows."
        )
    return array


def check_same_length(**columns: Sequence[Any] | NDArray[np.float64]) -> None:
    """An error that gives every length, unless they are equal."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        given = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"{' and '.join(lengths)} must have the same length: {given}.")


def as_score_vectors(teachers: Any) -> Tensor | None:
    """(n, D) float32 score vectors if that is what ``teachers`` holds (tensor, array, rows of numbers), else None."""
    if isinstance(teachers, Tensor | np.ndarray):
        vectors = teachers
    elif isinstance(teachers, Sequence) and not isinstance(teachers, str) and len(teachers):
        first = teachers[0]
        if isinstance(first, Tensor):
            vectors = torch.stack(list(teachers))
        elif isinstance(first, np.ndarray | list | tuple):
            vectors = np.asarray(list(teachers))
        else:
            return None
    else:
        return None
    return torch.as_tensor(vectors).detach().float().cpu()


def check_score_vectors(vectors: Tensor, sentences: int) -> Tensor:
    """Finite unit vectors, one for each sentence."""
    if vectors.ndim != 2 or len(vectors) != sentences:
        raise ValueError(
            f"teachers: expected score vectors of shape ({sentences}, D), one row for each sentence, "
            f"got {tuple(vectors.shape)}."
        )
    if not (finite := vectors.isfinite().all(dim=1)).all():
        bad = (~finite).nonzero().flatten().tolist()
        raise ValueError(
            f"teachers: {len(bad)} of {sentences} score vectors hold NaN or infinity (first: row {bad[0]}). "
            "Score the sentences again, in float32."
        )
    return vectors


def check_unit_length(vectors: Tensor) -> None:
    """Half precision moves a length by less than 0.01; anything further off was never normalised."""
    lengths = vectors.norm(dim=1)
    if (off := (lengths - 1.0).abs() > 0.01).any():
        raise ValueError(
            f"teachers: score vectors must have length 1, but {int(off.sum())} of {len(vectors)} do not (lengths "
            f"{float(lengths.min()):.3g} to {float(lengths.max()):.3g}). Normalise them: "
            "torch.nn.functional.normalize(vectors, dim=1)."
        )


def distinct(sentences: Iterable[str]) -> list[str]:
    """Each string once, in the order of first appearance."""
    return list(dict.fromkeys(sentences))
