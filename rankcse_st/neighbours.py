"""Partition vectors into groups of near neighbours: k-means whose clusters all have the same size, in bounded memory.

Everything random comes from a generator that is passed in, and all sums that decide who joins whom are sums of small
integers, which float32 holds exactly below 2**24. So the groups do not depend on the linear algebra library, its
number of threads or the machine: the processes of a distributed run find the same ones without exchanging anything.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

Rows = NDArray[np.int64]
"""Positions of rows."""

MAX_DIMENSION = 1024
"""Widest reduced vectors: ``1024 * 127 * 127`` is still below 2**24."""

_LEVELS = 127  # of int8, on each side of 0
_ITERATIONS = 4  # of k-means; twice as many gain a hundredth of recall
_CANDIDATES = 8  # nearest clusters that a vector asks for at once
_CHUNK = 1024  # vectors compared with all clusters at once


class Reducer:
    """Reduce unit vectors to ``dimension`` int8 numbers each, whose dot products order them much as before.

    Principal components, fitted on a sample. The mean is taken out first, so that vectors which all point one way
    (scores all near 1) use the whole range of the integers too.

    Args:
        sample: ``(s, D)`` vectors, s at least 1.
        dimension: Numbers to keep, at most 1024; fewer where ``D`` or s is smaller.
        seed: Seed of the randomised solver that wide vectors are fitted with.
    """

    def __init__(self, sample: NDArray[np.floating], dimension: int, seed: int) -> None:
        sample = np.asarray(sample, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # Shares of no variance, where all vectors are equal.
            self._pca = PCA(min(dimension, *sample.shape), random_state=seed).fit(sample)
        largest = np.abs(self._pca.transform(sample)).max()
        self._scale = _LEVELS / largest if largest > 1e-9 else 0.0

    def __call__(self, vectors: NDArray[np.floating]) -> NDArray[np.int8]:
        """Reduce ``(m, D)`` vectors to ``(m, dimension)``."""
        # Float64, so that what rounds up on one machine does not round down on another.
        reduced = self._pca.transform(np.asarray(vectors, dtype=np.float64)) * self._scale
        return np.asarray(np.clip(np.rint(reduced), -_LEVELS, _LEVELS), dtype=np.int8)


def group_neighbours(
    vectors: NDArray[np.int8], group_size: int, cell_size: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Partition ``vectors`` into groups of near neighbours, all of ``group_size``.

    First into cells of about ``cell_size`` vectors, then each cell into groups, so that the time grows with
    ``n * cell_size / group_size`` and not with the square of n. Neighbours on two sides of a cell's border do not meet;
    another generator draws other borders and other groups.

    Args:
        vectors: ``(n, d)`` reduced vectors.
        group_size: Members of a group.
        cell_size: Members of a cell, about.
        rng: Source of the random first centres.

    Returns:
        The groups, ``(m, group_size)`` rows, and the rows that are left over: up to ``group_size - 1``.
    """
    shuffled = rng.permutation(len(vectors))
    complete = len(vectors) // group_size * group_size
    rows, rest = np.sort(shuffled[:complete]), np.sort(shuffled[complete:])
    groups = [np.empty((0, group_size), dtype=np.int64)]
    # Cells of about equal size that hold whole groups, so that none leaves rows over.
    cells = -(-complete // cell_size)
    groups_in_cell = -(-complete // (group_size * max(cells, 1)))
    for cell in same_size_kmeans(vectors[rows], groups_in_cell * group_size, rng):
        members = rows[cell]
        groups.append(members[np.stack(same_size_kmeans(vectors[members], group_size, rng))])
    return np.concatenate(groups), rest


def same_size_kmeans(vectors: NDArray[np.int8], size: int, rng: np.random.Generator) -> list[Rows]:
    """Spherical k-means with clusters of exactly ``size`` members (one of them takes what remains).

    Args:
        vectors: ``(n, d)`` reduced vectors.
        size: Members of a cluster.
        rng: Source of the random first centres.

    Returns:
        ``ceil(n / size)`` arrays of rows, each in ascending order.
    """
    n = len(vectors)
    clusters = -(-n // size)
    if clusters <= 1:
        return [np.arange(n)] if n else []
    room = np.full(clusters, size)
    room[-1] = n - size * (clusters - 1)
    members = [np.array([row]) for row in rng.choice(n, clusters, replace=False)]
    for _ in range(_ITERATIONS):
        centres = _as_integers(np.stack([vectors[rows].sum(axis=0, dtype=np.float64) for rows in members]))
        by_cluster = np.argsort(_assign(vectors, centres, room), kind="stable")
        members = np.split(by_cluster, np.cumsum(room)[:-1])
    return members


def _as_integers(centres: NDArray[np.float64]) -> NDArray[np.float32]:
    """Centres at unit length, then on the same grid of integers as the vectors."""
    lengths = np.sqrt(np.square(centres).sum(axis=1, keepdims=True))
    unit = centres / np.where(lengths > 0, lengths, 1.0)
    largest = np.abs(unit).max()
    return np.rint(unit * (_LEVELS / (largest if largest > 0 else 1.0))).astype(np.float32)


def _assign(vectors: NDArray[np.int8], centres: NDArray[np.float32], room: Rows) -> Rows:
    """The cluster of each vector: the nearest that has room, the most similar pairs of vector and cluster first.

    Each vector asks for its few nearest clusters; those that find them full ask again among the ones with room left.
    """
    assigned = np.full(len(vectors), -1)
    waiting = np.arange(len(vectors))
    while len(waiting):  # The most similar pair of each round finds room, so there is an end.
        open_clusters = np.flatnonzero(room)
        nearest, similarities = _nearest(vectors, waiting, centres[open_clusters])
        best_first = np.argsort(-similarities.ravel(), kind="stable")
        askers = best_first // nearest.shape[1]
        clusters = open_clusters[nearest.ravel()[best_first]]
        chosen, left = [-1] * len(waiting), room.tolist()
        for asker, cluster in zip(askers.tolist(), clusters.tolist(), strict=True):
            if chosen[asker] < 0 and left[cluster]:
                chosen[asker] = cluster
                left[cluster] -= 1
        assigned[waiting], room = chosen, np.array(left)
        waiting = np.flatnonzero(assigned < 0)
    return assigned


def _nearest(vectors: NDArray[np.int8], rows: Rows, centres: NDArray[np.float32]) -> tuple[Rows, NDArray[np.float32]]:
    """The few nearest centres of ``vectors[rows]``: ``(m, candidates)`` positions and similarities, nearest first."""
    shape = len(rows), min(_CANDIDATES, len(centres))
    nearest, similarities = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
    for start in range(0, len(rows), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        scores = vectors[rows[chunk]].astype(np.float32) @ centres.T
        each = np.arange(len(scores))
        for place in range(shape[1]):
            # Of equal scores the first: which ones a partial sort would keep depends on the processor.
            best = scores.argmax(axis=1)
            nearest[chunk, place], similarities[chunk, place] = best, scores[each, best]
            scores[each, best] = -np.inf
    return nearest, similarities


def true_neighbours(
    anchors: Rows, queries: NDArray[np.floating], chunks: Iterable[NDArray[np.floating]], k: int
) -> Rows:
    """The ``k`` rows of largest dot product with each anchor, itself left out, found by comparing with every row.

    Args:
        anchors: ``(m,)`` rows whose neighbours are wanted.
        queries: ``(m, D)`` their vectors.
        chunks: All rows' vectors in order, some at a time, each ``(c, D)``.
        k: How many; at most the number of rows less one.

    Returns:
        ``(m, k)`` rows, in no particular order.
    """
    best = np.full((len(anchors), k), -np.inf)
    rows = np.full((len(anchors), k), -1)
    start = 0
    for chunk in chunks:
        scores = np.asarray(queries) @ np.asarray(chunk).T
        here = np.arange(start, start + len(chunk))
        scores[anchors[:, None] == here] = -np.inf
        scores = np.concatenate([best, scores], axis=1)
        found = np.concatenate([rows, np.broadcast_to(here, (len(anchors), len(here)))], axis=1)
        kept = np.argpartition(scores, -k, axis=1)[:, -k:]
        best, rows = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(found, kept, axis=1)
        start += len(chunk)
    return rows
