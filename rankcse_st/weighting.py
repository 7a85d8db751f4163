"""Weights of teachers by measurement: those with which the ensemble ranks graded pairs best, on pairs left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.table import Table
from scipy.optimize import nnls
from scipy.stats import norm, rankdata

from rankcse_st.tables import json_able, plain_text
from rankcse_st.unit_embeddings import check_unit_embeddings

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredTeacher:
    """What was measured of one teacher. Correlations are Spearman's, between scores and grades.

    Args:
        name: The teacher's name.
        weight: Its weight; exactly 0 if it was dropped.
        fold_weights: The weights that were fitted without one fold of the pairs each; empty if it was dropped.
        alone: Correlation of its own scores.
        with_it: Held-out correlation of the ensemble with it: of all that are kept, or, if it was dropped, of those
            that were left at that time.
        without_it: Held-out correlation of the same ensemble without it; NaN if there was no other teacher.
        gain: ``with_it - without_it``; NaN if there was no other teacher.
        standard_error: Standard error of the gain.
    """

    name: str
    weight: float
    fold_weights: tuple[float, ...]
    alone: float
    with_it: float
    without_it: float
    gain: float
    standard_error: float


@dataclass(frozen=True)
class WeightChoice:
    """Weights chosen on graded pairs, and what they rest on.

    Args:
        teachers: One entry for each candidate, in the order given.
        correlation: Held-out correlation of the ensemble that was chosen.
        pairs: Number of different graded pairs.
        folds: Number of parts that the pairs were divided into.
    """

    teachers: tuple[MeasuredTeacher, ...]
    correlation: float
    pairs: int
    folds: int

    @property
    def weights(self) -> list[float]:
        """The candidates' weights; they sum to 1."""
        return [teacher.weight for teacher in self.teachers]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it; NaN becomes None."""
        record: dict[str, Any] = json_able(asdict(self))
        return record

    def __rich__(self) -> Table:
        table = Table(
            title=f"Spearman x 100 on {self.pairs} graded pairs; the ensemble held out: {100 * self.correlation:.2f}"
        )
        for heading in ("teacher", "weight", "in the folds", "alone", "with it", "without it", "gain"):
            table.add_column(heading, justify="left" if heading == "teacher" else "right")
        for one in self.teachers:
            folds = f"{min(one.fold_weights):.3f} to {max(one.fold_weights):.3f}" if one.fold_weights else "dropped"
            only = one.gain != one.gain
            table.add_row(
                one.name,
                f"{one.weight:.3f}" if one.weight else "0",
                folds,
                f"{100 * one.alone:.2f}",
                f"{100 * one.with_it:.2f}",
                "-" if only else f"{100 * one.without_it:.2f}",
                "-" if only else f"{100 * one.gain:+.2f} ± {100 * one.standard_error:.2f}",
            )
        return table

    def __str__(self) -> str:
        return plain_text(self.__rich__())


def choose_weights(
    embeddings: Sequence[ArrayLike],
    pairs: ArrayLike,
    scores: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    folds: int = 5,
    standard_errors: float = 2.0,
    seed: int = 0,
) -> WeightChoice:
    r"""Choose non-negative weights, which sum to 1, with which :math:`\sum_k w_k \cos_k` ranks graded pairs best.

    The weights maximise Spearman's correlation with the grades: first, exactly, the correlation of the scores
    with the grades' ranks (non-negative least squares), then Spearman's by a search around there. Whether a teacher
    belongs to the ensemble is decided on pairs that the weights were not fitted on: as long as leaving the least
    useful one out costs no more than ``standard_errors`` standard errors of that difference, beside the teachers of
    that time and beside the best of all that were there before, it is dropped. So a useless teacher has weight exactly
    0, and so has the second of two that say the same.

    Args:
        embeddings: For each teacher its unit embeddings ``(n, D_k)`` of the same n texts.
        pairs: ``(m, 2)`` positions of texts. A pair that is there several times, either way round, counts once.
        scores: ``(m,)`` grades of the pairs, higher is more similar, on any scale; of equal pairs their mean is taken.
        names: What to call the teachers.
        folds: Number of parts that the pairs are divided into at random.
        standard_errors: How many standard errors a teacher's gain must be above 0. A smaller number keeps more.
        seed: Seed of the division into folds.

    Returns:
        The weights and the evidence; it prints as a table.

    Raises:
        ValueError: If shapes do not fit, embeddings are not of length 1, grades are not finite or all the same, there
            are fewer than 4 different pairs in a fold, or no teacher's scores have anything to do with the grades.
    """
    arrays, names = check_unit_embeddings(embeddings, names)
    places, grades = merge_graded_pairs(pairs, scores, folds=folds, standard_errors=standard_errors)
    cosines = _cosines(arrays, places)
    ranks = rankdata(grades)
    alone = [_correlation(column, ranks) for column in cosines.T]
    best = int(np.argmax(alone))
    # Two standard errors above 0, for as many teachers as the best was taken from.
    if alone[best] * np.sqrt(len(grades)) < norm.isf(norm.sf(2) / len(names)):
        raise ValueError(
            f"No teacher's scores have to do with the grades: the best Spearman correlation is {alone[best]:.3f} "
            f"({names[best]}) over {len(grades)} pairs. Check that scores and pairs belong together and that a higher "
            "score means more similar."
        )
    parts = np.random.default_rng(seed).permutation(len(grades)) % folds
    # By merit, so that the order in which they are given changes nothing.
    kept = sorted(range(len(names)), key=lambda k: -alone[k])
    whole = strongest = _HeldOut(cosines[:, kept], ranks, parts)
    measured: dict[int, tuple[float, float, float]] = {}
    while len(kept) > 1:
        without = {k: _HeldOut(cosines[:, [j for j in kept if j != k]], ranks, parts) for k in kept}
        measured |= {k: (whole.correlation, rest.correlation, whole.error_of_gain(rest)) for k, rest in without.items()}
        least = min(reversed(kept), key=lambda k: _gain_in_errors(*measured[k]))
        rest = without[least]
        # Small losses add up: what is left must also be as good as the best that was there on the way.
        lost = _gain_in_errors(strongest.correlation, rest.correlation, strongest.error_of_gain(rest))
        if max(_gain_in_errors(*measured[least]), lost) > standard_errors:
            break
        kept.remove(least)
        whole = rest
        strongest = max(strongest, whole, key=lambda one: one.correlation)
    if len(kept) == 1:
        measured[kept[0]] = whole.correlation, np.nan, np.nan
    weights = np.zeros(len(names))
    weights[kept] = _fit(cosines[:, kept], ranks)
    teachers = []
    for k, name in enumerate(names):
        with_it, without_it, error = measured[k]
        in_folds = tuple(float(fold[kept.index(k)]) for fold in whole.weights) if k in kept else ()
        gain = with_it - without_it
        teachers.append(MeasuredTeacher(name, float(weights[k]), in_folds, alone[k], with_it, without_it, gain, error))
    return WeightChoice(tuple(teachers), whole.correlation, len(grades), folds)


class _HeldOut:
    """Scores of each pair by the weights that were fitted without the pair's fold, and their correlation."""

    def __init__(self, cosines: Floats, ranks: Floats, parts: NDArray[np.int64]) -> None:
        folds = range(int(parts.max()) + 1)
        self.weights = [_fit(cosines[parts != fold], ranks[parts != fold]) for fold in folds]
        scores = np.empty(len(ranks))
        for fold, weights in zip(folds, self.weights, strict=True):
            # On one scale, or pairs of folds with other weights would lie at other heights and be ranked by that.
            scores[parts == fold] = _standardised(cosines @ weights)[parts == fold]
        a, b = _standardised(rankdata(scores)), _standardised(ranks)
        self.correlation = float(np.mean(a * b))
        # What each pair adds to the correlation, to first order.
        self.influence = a * b - self.correlation / 2 * (a * a + b * b)

    def error_of_gain(self, other: _HeldOut) -> float:
        """Standard error of the difference of the two correlations, which are of the same pairs."""
        return float(np.std(self.influence - other.influence) / np.sqrt(len(self.influence)))


def _gain_in_errors(with_it: float, without_it: float, error: float) -> float:
    gain = with_it - without_it
    return gain / error if error > 1e-12 else 0.0


def _fit(cosines: Floats, ranks: Floats) -> Floats:
    """Weights on the simplex, ``(K,)``, of the largest Spearman correlation with ``ranks``."""
    centred = cosines - cosines.mean(axis=0)
    spreads = centred.std(axis=0)
    # On one scale, so that a step in the search means as much for each teacher. One that gives all pairs the same score
    # has nothing to say.
    scaled = centred / np.where(spreads > 1e-9, spreads, np.inf)
    # Least squares on a cone finds its vector of largest correlation.
    weights, _ = nnls(scaled, ranks - ranks.mean())
    if not weights.any():
        weights[np.argmax([_correlation(column, ranks) for column in scaled.T])] = 1.0
    weights = _search(scaled, ranks, weights / weights.sum())
    weights = np.where(spreads > 1e-9, weights / np.maximum(spreads, 1e-9), 0.0)
    return np.asarray(weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights)))


def _search(scores: Floats, ranks: Floats, weights: Floats) -> Floats:
    """Move weight from one teacher to another, in ever smaller steps, as long as Spearman's correlation grows."""
    places = np.arange(len(ranks)) - (len(ranks) - 1) / 2

    def agreement(trial: Floats) -> float:
        # Spearman's correlation but for a factor; a third of the time of ranking, as sums of scores hardly tie.
        return float(places @ ranks[np.argsort(scores @ trial, kind="stable")])

    best = agreement(weights)
    moves = [(giver, taker) for giver in range(len(weights)) for taker in range(len(weights)) if giver != taker]
    for step in (0.1, 0.03, 0.01):
        improved = True
        while improved:
            improved = False
            for giver, taker in moves:
                if weights[giver] == 0:
                    continue
                trial = weights.copy()
                trial[[giver, taker]] += np.array([-1, 1]) * min(step, weights[giver])
                found = agreement(trial)
                if found > best + 1e-6:
                    weights, best, improved = trial, found, True
    return weights


def _correlation(scores: Floats, ranks: Floats) -> float:
    """Spearman's correlation of ``scores`` with what has ``ranks``; 0 if the scores are all the same."""
    return float(np.mean(_standardised(rankdata(scores)) * _standardised(ranks)))


def _standardised(values: Floats) -> Floats:
    spread = values.std()
    return np.asarray((values - values.mean()) / spread if spread > 0 else np.zeros_like(values))


def merge_graded_pairs(
    pairs: ArrayLike, scores: ArrayLike, *, folds: int, standard_errors: float
) -> tuple[NDArray[np.int64], Floats]:
    """The different pairs ``(m, 2)``, whichever way round, and the mean grade ``(m,)`` of each.

    A pair that is there twice would lie in a fold that weights are fitted on and in one that they are judged by, and
    count as evidence twice.

    Raises:
        ValueError: If the arguments of :func:`choose_weights` of these names cannot be used.
    """
    if not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds must be an integer of at least 2, but got {folds!r}.")
    if np.isnan(standard_errors):
        raise ValueError("standard_errors must be a number, but got NaN.")
    places = np.asarray(pairs)
    if places.ndim != 2 or places.shape[1] != 2 or not np.issubdtype(places.dtype, np.integer):
        raise ValueError(f"pairs must be (m, 2) positions of texts, but got {places.dtype} of shape {places.shape}.")
    try:
        grades = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scores must be numbers, one for each pair: {error}.") from None
    if grades.shape != (len(places),):
        raise ValueError(f"There are {len(places)} pairs, but scores of shape {grades.shape}: expected one for each.")
    different, row = np.unique(np.sort(places, axis=1), axis=0, return_inverse=True)
    if len(different) < 4 * folds:
        raise ValueError(
            f"{folds} folds need 4 different pairs in each, {4 * folds} in all, but there are {len(different)}"
            + (f" among {len(places)}." if len(different) < len(places) else ".")
        )
    merged = np.bincount(row.ravel(), weights=grades) / np.bincount(row.ravel())
    if not np.isfinite(grades).all() or np.ptp(merged) == 0:
        raise ValueError("scores must be finite and not all the same: there is nothing to rank otherwise.")
    return different.astype(np.int64), merged


def _cosines(arrays: Sequence[NDArray[Any]], pairs: NDArray[np.int64]) -> Floats:
    """Each teacher's cosine of each pair, ``(m, K)``, to six digits: further ones are rounding of float32."""
    if pairs.min() < 0 or pairs.max() >= len(arrays[0]):
        raise ValueError(
            f"pairs must lie between 0 and {len(arrays[0]) - 1}, as there are {len(arrays[0])} texts, but they go from "
            f"{pairs.min()} to {pairs.max()}."
        )
    left, right = pairs.T
    # Some pairs at a time: in float64 all of them at once may be gigabytes.
    starts = range(0, len(pairs), 4096)
    columns = [
        np.concatenate(
            [np.einsum("md,md->m", one[left[s : s + 4096]], one[right[s : s + 4096]], dtype=np.float64) for s in starts]
        )
        for one in arrays
    ]
    return np.asarray(np.stack(columns, axis=1).round(6))
