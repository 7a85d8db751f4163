"""Choose teachers and their weights by measurement: one encoding for each candidate, no training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Group

from rankcse_st.agreement import AgreementReport, agreement_report
from rankcse_st.tables import plain_text
from rankcse_st.teachers import Teacher, TeacherEnsemble, TeacherLike, as_teachers
from rankcse_st.texts import check_texts
from rankcse_st.weighting import WeightChoice, choose_weights, merge_graded_pairs

__all__ = ["TeacherSelection", "select_teachers"]


@dataclass(frozen=True)
class TeacherSelection:
    """The teachers that were kept, with weights that sum to 1, and what the choice rests on.

    Args:
        ensemble: All candidates with the weights chosen, 0 for those that were dropped; what was loaded stays loaded.
        agreement: How the candidates agree on unlabelled sentences.
        choice: What was measured on graded pairs, of all candidates but those whose scores hardly differ; None where
            there were no pairs.
    """

    ensemble: TeacherEnsemble
    agreement: AgreementReport
    choice: WeightChoice | None

    @property
    def weights(self) -> list[float]:
        """The weight of every candidate, in the order given, exactly 0 for those that were dropped."""
        return list(self.ensemble.relative_weights)

    @property
    def teachers(self) -> list[Teacher]:
        """The teachers that were kept, with their weights."""
        return [
            replace(self.ensemble.teachers[k], weight=self.ensemble.relative_weights[k]) for k in self.ensemble.active
        ]

    def to_dict(self) -> dict[str, Any]:
        """Weights and evidence as JSON can hold them."""
        return {
            "teachers": [one.name for one in self.agreement.teachers],
            "weights": self.weights,
            "chosen_by": "calibration" if self.choice is None else "graded pairs",
            "graded_pairs": None if self.choice is None else self.choice.to_dict(),
            "agreement": self.agreement.to_dict(),
        }

    def __rich__(self) -> Group:
        return Group(*([] if self.choice is None else [self.choice]), self.agreement)

    def __str__(self) -> str:
        return plain_text(self)


def select_teachers(
    teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike],
    sentences: Sequence[str] | None = None,
    *,
    pairs: Sequence[Sequence[str]] | None = None,
    scores: Sequence[float] | None = None,
    column: str | None = None,
    sample_size: int = 500,
    folds: int = 5,
    standard_errors: float = 2.0,
    drop_flagged: bool = False,
    seed: int = 0,
    show_progress_bar: bool = False,
    **kwargs: Any,
) -> TeacherSelection:
    """Choose among candidate teachers, and weigh them, by what they do on your text.

    With graded pairs, the weights are those with which the ensemble ranks the pairs best, and a teacher that does not
    help on held-out pairs has weight 0: see :func:`~rankcse_st.weighting.choose_weights`. Without, the teachers are put
    on one scale (weights in proportion to 1 / spread of their scores), the odd one out is flagged, and one whose scores
    have nothing to do with the others' has weight 0: see :func:`~rankcse_st.agreement.agreement_report`. Either way, a
    teacher whose scores hardly differ has weight 0: it could be heard only in an ensemble that says nothing.

    Weights sum to 1, so the ensemble's scores have another spread than a single teacher's: look at the teacher
    temperature again.

    Args:
        teachers: The candidates, as :class:`~rankcse_st.TeacherEnsemble` takes them. Their own weights are not used.
        sentences: Unlabelled sentences like those to be trained on, at least 3 different ones. May be left out if there
            are ``pairs``, whose texts then serve.
        pairs: m pairs of texts; one that is there several times, either way round, counts once, at its mean grade.
        scores: m grades of the pairs, higher is more similar, on any scale.
        column: Name of the column that the texts come from, for teachers whose prompts differ by column.
        sample_size: How many of the sentences are encoded, drawn by ``seed``.
        folds: See ``choose_weights``.
        standard_errors: See ``choose_weights``.
        drop_flagged: Without pairs: give weight 0 to every teacher that is flagged.
        seed: Seed of the sample and of the folds.
        show_progress_bar: Whether to show a bar for each teacher's encoding.
        **kwargs: ``batch_size``, ``device`` and ``dtype`` of a new ``TeacherEnsemble``.

    Raises:
        TypeError: If texts are not strings, if a candidate is a cross-encoder, which has no embeddings, or if there are
            ``kwargs`` for an ensemble that exists.
        ValueError: If there are neither sentences nor pairs, only one of pairs and scores, no pairs and no two teachers
            that agree, or as ``choose_weights`` and ``agreement_report`` say. What needs no embeddings is checked
            before any teacher runs.

    Example:
        ::

            from rankcse_st import TeacherScoreDataset
            from rankcse_st.selection import select_teachers

            chosen = select_teachers(["all-mpnet-base-v2", "all-MiniLM-L6-v2", "my-teacher"], sentences)
            print(chosen)
            train = TeacherScoreDataset.from_sentences(sentences, chosen.teachers)
    """
    if (pairs is None) != (scores is None):
        raise ValueError("pairs and scores belong together: give both, or neither to do without grades.")
    if isinstance(sample_size, bool) or not isinstance(sample_size, int) or sample_size < 3:
        raise ValueError(f"sample_size must be an integer of at least 3, but got {sample_size!r}.")
    if kwargs and isinstance(teachers, TeacherEnsemble):
        raise TypeError(f"{', '.join(kwargs)}: of no use for a TeacherEnsemble, which has its own. Leave it out.")
    ended = [] if pairs is None else _ends(pairs)
    texts = ended if sentences is None else check_texts(sentences)
    sample = list(dict.fromkeys(texts))
    if len(sample) < 3:
        raise ValueError(
            f"At least 3 different sentences are needed to compare teachers on, but got {len(sample)}. Give some in "
            "sentences, or graded pairs."
        )
    sample = [sample[row] for row in np.random.default_rng(seed).permutation(len(sample))[:sample_size]]

    position = {text: row for row, text in enumerate(dict.fromkeys([*sample, *ended]))}
    graded = None
    if scores is not None:
        places = np.array([position[text] for text in ended]).reshape(-1, 2)
        graded = merge_graded_pairs(places, scores, folds=folds, standard_errors=standard_errors)  # Before encoding.
    ensemble = _equal(teachers, **kwargs)
    names = _distinct([teacher.name for teacher in ensemble.teachers])
    each = ensemble.encode_each(list(position), column=column, show_progress_bar=show_progress_bar)
    embeddings = [one.numpy() for one in each]

    report = agreement_report([one[: len(sample)] for one in embeddings], names=names, sample_size=sample_size)
    if graded is None:
        if report.undecided:
            raise ValueError(
                f"No two of the teachers {names} rank the sentences alike, so nothing says which of them is right. "
                f"Give graded pairs and their scores, or leave out those that you do not trust.\n{report}"
            )
        weights, choice = report.calibrated_weights(drop_flagged=drop_flagged), None
    else:
        # However well they rank: an ensemble in which they are heard has scores that hardly differ, too.
        heard = [k for k in range(len(names)) if k not in report.narrow]
        choice = choose_weights(
            [embeddings[k] for k in heard],
            *graded,
            names=[names[k] for k in heard],
            folds=folds,
            standard_errors=standard_errors,
            seed=seed,
        )
        weights = [0.0] * len(names)
        for k, weight in zip(heard, choice.weights, strict=True):
            weights[k] = weight
    return TeacherSelection(ensemble.with_weights(weights), report, choice)


def _equal(teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike], **kwargs: Any) -> TeacherEnsemble:
    """The candidates, of which none has weight 0, which would not be run."""
    if isinstance(teachers, TeacherEnsemble):
        return teachers.with_weights([1.0] * len(teachers.teachers))
    return TeacherEnsemble([replace(one, weight=1.0) for one in as_teachers(teachers)], **kwargs)


def _ends(pairs: Sequence[Sequence[str]]) -> list[str]:
    """The texts of all pairs, one pair after the other."""
    pairs = list(pairs)
    for position, pair in enumerate(pairs):
        if isinstance(pair, str | Mapping) or len(pair) != 2:
            raise ValueError(f"Each pair must be two texts, but the one at {position} is {pair!r}.")
    for side in (0, 1):
        check_texts([pair[side] for pair in pairs], f"{('first', 'second')[side]} texts of the pairs")
    return [text for pair in pairs for text in pair]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names, numbered where several teachers have the same one (one model with two prompts)."""
    counts, seen = Counter(names), Counter[str]()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(f"{name} ({seen[name]})" if counts[name] > 1 else name)
    return distinct
