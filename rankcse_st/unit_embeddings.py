"""Checks on the embeddings by which teachers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# What unit vectors in half precision are off by, and more.
_TOLERANCE = 1e-2


def check_unit_embeddings(
    embeddings: Sequence[ArrayLike], names: Sequence[str] | None, *, fewest: int = 1
) -> tuple[list[NDArray[Any]], list[str]]:
    """Each teacher's unit embeddings ``(n, D_k)`` of the same n texts, and the teachers' names, checked.

    Raises:
        ValueError: If there is no teacher, there are fewer than ``fewest`` texts, shapes or the number of names do not
            fit, values are not finite, or rows have another length than 1.
    """
    arrays = [np.asarray(one) for one in embeddings]
    if not arrays or any(one.ndim != 2 or len(one) != len(arrays[0]) for one in arrays) or len(arrays[0]) < fewest:
        at_least = "" if fewest == 1 else f"{fewest} or more "
        raise ValueError(
            f"Expected unit embeddings (n, D_k) of the same {at_least}texts for each teacher, but got the shapes "
            f"{[one.shape for one in arrays]}."
        )
    names = list(names) if names is not None else [f"teacher {k}" for k in range(len(arrays))]
    if len(names) != len(arrays):
        raise ValueError(f"There are {len(arrays)} teachers, but {len(names)} names.")
    for name, one in zip(names, arrays, strict=True):
        if not np.isfinite(one).all():
            raise ValueError(f"Teacher {name!r} has embeddings with NaN or infinite values.")
        lengths = np.sqrt(np.einsum("nd,nd->n", one, one, dtype=np.float64))
        off = np.flatnonzero(np.abs(lengths - 1) > _TOLERANCE)
        if len(off):
            raise ValueError(
                f"Embeddings must have length 1, but {len(off)} of {len(one)} of teacher {name!r} have not (row "
                f"{off[0]}: {lengths[off[0]]:.3g}): divide each by its length."
            )
    return arrays, names
