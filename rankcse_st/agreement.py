"""Do teachers agree? Their scores compared list by list, without any labels, and the odd one out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.table import Table
from scipy.stats import rankdata

from rankcse_st.calibration import calibrated_weights
from rankcse_st.tables import json_able, plain_text
from rankcse_st.unit_embeddings import check_unit_embeddings

Floats = NDArray[np.float64]

_ODD = 0.75  # of the agreement that the others have among themselves
_UNRELATED = 0.1  # Spearman correlation that says nothing
_NO_SPREAD = 1e-6  # what float32 embeddings of one and the same vector differ by
_NARROW = 0.1  # of the median of the teachers' spreads


@dataclass(frozen=True)
class TeacherAgreement:
    """How one teacher's scores agree with the others'.

    Args:
        name: The teacher's name.
        spread: Standard deviation of its cosines of different sentences.
        mean: Mean of these cosines.
        with_each: Mean Spearman correlation of its lists with every teacher's, itself included (1).
        with_others: The same with the lists of the mean of the other teachers, put on one scale; only of those that
            are not flagged. NaN if there are none.
        flag: Why it is flagged, or ``""``.
        unrelated: Whether it has weight 0: its scores have nothing to do with the others' or hardly differ.
    """

    name: str
    spread: float
    mean: float
    with_each: tuple[float, ...]
    with_others: float
    flag: str
    unrelated: bool


@dataclass(frozen=True)
class AgreementReport:
    """Agreement of teachers on unlabelled sentences.

    Args:
        teachers: One entry for each candidate, in the order given.
        sentences: Number of sentences; each one's list holds all the others.
        note: What two teachers alone cannot tell, or ``""``.
    """

    teachers: tuple[TeacherAgreement, ...]
    sentences: int
    note: str

    @property
    def spreads(self) -> list[float]:
        """Standard deviation of each teacher's cosines."""
        return [teacher.spread for teacher in self.teachers]

    @property
    def flagged(self) -> list[int]:
        """Positions of the flagged teachers."""
        return [k for k, teacher in enumerate(self.teachers) if teacher.flag]

    @property
    def narrow(self) -> list[int]:
        """Positions of the teachers whose scores hardly differ."""
        return [k for k, spread in enumerate(self.spreads) if _too_narrow(spread, self.spreads)]

    @property
    def undecided(self) -> bool:
        """Whether no two of the teachers agree, so that nothing says which of them is right."""
        # One that is left over because the rest hardly differ is borne out by those of them that rank as it does.
        left = [k for k, one in enumerate(self.teachers) if not one.flag]
        return len(self.teachers) > 1 and all(
            value < _UNRELATED for k in left for j, value in enumerate(self.teachers[k].with_each) if j != k
        )

    def calibrated_weights(self, *, drop_flagged: bool = False) -> list[float]:
        """Weights in proportion to 1 / spread, which sum to 1; 0 for teachers that are unrelated to the others.

        Args:
            drop_flagged: Whether all flagged teachers have weight 0.
        """
        kept = [not (one.unrelated or (drop_flagged and one.flag)) for one in self.teachers]
        return calibrated_weights(
            [1 / sum(kept) if keep else 0.0 for keep in kept], self.spreads, [one.name for one in self.teachers]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it; NaN becomes None."""
        record: dict[str, Any] = json_able(asdict(self))
        return record

    def __rich__(self) -> Table:
        table = Table(
            title=f"Agreement over {self.sentences} sentences (mean Spearman x 100 of their lists)", caption=self.note
        )
        table.add_column("teacher")
        for heading in (
            "mean score",
            "spread",
            *(f"with {k + 1}" for k in range(len(self.teachers))),
            "with the others",
        ):
            table.add_column(heading, justify="right")
        table.add_column("flag")
        for k, one in enumerate(self.teachers):
            others = "-" if one.with_others != one.with_others else f"{100 * one.with_others:.1f}"
            table.add_row(
                f"{k + 1} {one.name}",
                f"{one.mean:.3f}",
                f"{one.spread:.2g}",
                *("-" if j == k else f"{100 * value:.1f}" for j, value in enumerate(one.with_each)),
                others,
                one.flag,
            )
        return table

    def __str__(self) -> str:
        return plain_text(self.__rich__())


def agreement_report(
    embeddings: Sequence[ArrayLike],
    *,
    names: Sequence[str] | None = None,
    sample_size: int = 500,
    seed: int = 0,
) -> AgreementReport:
    """Compare how teachers rank the same sentences, without labels, and flag those that rank like none of the others.

    Each sentence's list holds its cosines to all the other sentences; two teachers agree as much as their lists
    correlate by Spearman, on average. With three teachers or more, the one that agrees least with the mean of the
    others is flagged if it agrees less than three quarters as much as these do among themselves; then the rest are
    looked at again. A flag says: look whether that teacher's pooling, prompt or language is right. It is no proof:
    teachers of one family agree, and so do those with a common fault. Only a teacher whose lists have nothing to do
    with the others' (below 0.1), or whose scores hardly differ (a tenth of the usual spread), has weight 0.

    Args:
        embeddings: For each teacher its unit embeddings ``(n, D_k)`` of the same n different sentences.
        names: What to call the teachers.
        sample_size: How many of the sentences are compared, drawn by ``seed``.
        seed: Seed of the sample.

    Returns:
        The report, with weights in proportion to 1 / spread; it prints as a table.

    Raises:
        ValueError: If shapes do not fit, there are fewer than 3 sentences, values are not finite, or embeddings are not
            of length 1.
    """
    arrays, names = check_unit_embeddings(embeddings, names, fewest=3)
    rows = np.sort(np.random.default_rng(seed).permutation(len(arrays[0]))[:sample_size])
    lists = [_lists(one[rows]) for one in arrays]
    spreads = [float(scores.std()) for scores in lists]
    if max(spreads) <= _NO_SPREAD:
        raise ValueError(
            f"Each of the teachers {names} gives all pairs of sentences the same score: they rank nothing."
        )
    ranks = [_standardised_ranks(scores) for scores in lists]
    flags, with_others = _odd_ones(lists, ranks, spreads)
    teachers = tuple(
        TeacherAgreement(
            name=name,
            spread=spreads[k],
            mean=float(lists[k].mean()),
            with_each=tuple(_agreement(ranks[k], other) for other in ranks),
            with_others=with_others[k],
            flag=flags[k],
            unrelated=bool(flags[k] and (_too_narrow(spreads[k], spreads) or with_others[k] < _UNRELATED)),
        )
        for k, name in enumerate(names)
    )
    report = AgreementReport(teachers, len(rows), "")
    return replace(report, note=_note(report))


def _odd_ones(lists: list[Floats], ranks: list[Floats], spreads: list[float]) -> tuple[list[str], list[float]]:
    """Why each teacher is flagged, and its agreement with the mean of those others that are not."""
    flags = [_too_narrow(spread, spreads) for spread in spreads]

    def with_mean_of(others: list[int], k: int) -> float:
        others = [j for j in others if j != k]
        if not others:
            return np.nan
        return _agreement(ranks[k], _standardised_ranks(np.sum([lists[j] / spreads[j] for j in others], axis=0)))

    left = [k for k, flag in enumerate(flags) if not flag]
    while len(left) > 2:
        agreement = {k: with_mean_of(left, k) for k in left}
        oddest = min(left, key=agreement.__getitem__)
        rest = [k for k in left if k != oddest]
        usual = float(np.mean([with_mean_of(rest, k) for k in rest]))
        if agreement[oddest] >= _ODD * usual:
            break
        flags[oddest] = f"odd one out: {100 * agreement[oddest]:.1f} where the others have {100 * usual:.1f}"
        left = rest
    return flags, [with_mean_of(left, k) for k in range(len(lists))]


def _too_narrow(spread: float, spreads: list[float]) -> str:
    """Why a teacher cannot be put on one scale with the others, or ``""``.

    Weights sum to 1. One whose scores are all near 1, say, would need nearly all the weight to be heard, and leave the
    ensemble with differences that no temperature of the others fits.
    """
    if spread <= _NO_SPREAD:
        return "gives all pairs the same score"
    if spread < _NARROW * float(np.median(spreads)):
        return f"scores hardly differ: a spread of {spread:.2g}"
    return ""


def _note(report: AgreementReport) -> str:
    if report.undecided:
        return "No two of the teachers agree: at most one of them can be right. Graded pairs would tell which."
    if len(report.teachers) == 2 and not report.flagged:
        return "With two teachers no odd one out can be told: a third, or graded pairs, would."
    return ""


def _lists(embeddings: NDArray[Any]) -> Floats:
    """Cosines of each sentence to all the others, ``(n, n - 1)``."""
    unit = embeddings.astype(np.float64)
    scores = unit @ unit.T
    return np.asarray(scores[~np.eye(len(unit), dtype=bool)].reshape(len(unit), -1))


def _standardised_ranks(lists: Floats) -> Floats:
    ranks = rankdata(lists, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    spreads = ranks.std(axis=1, keepdims=True)
    return np.asarray(ranks / np.where(spreads > 0, spreads, 1.0))


def _agreement(ranks: Floats, others: Floats) -> float:
    return float(np.mean(ranks * others))
