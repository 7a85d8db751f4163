from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rankcse_st.evaluation._base import EmbeddingEvaluator
from rankcse_st.evaluation._inputs import check_same_length, check_scores, distinct
from rankcse_st.evaluation.metrics import kendall_tau, ndcg
from rankcse_st.texts import check_texts


class RankingGroup(NamedTuple):
    """A query, its different targets, and the grade of each."""

    query: str
    targets: list[str]
    grades: list[float]

    @property
    def constant(self) -> bool:
        """Whether there is no order to be found: one target, or one grade for all."""
        return len(set(self.grades)) < 2


class GradedRankingEvaluator(EmbeddingEvaluator):
    """How well a model ranks the targets of each query by their grades: Kendall's tau-b and NDCG.

    This is the ranking task that RankCSE builds from pairs with graded similarity; :meth:`from_pairs` builds it.
    Targets are ranked by cosine similarity to the query, whatever ``similarity_fn_name`` the model carries.

    Args:
        queries: One sentence for each group.
        targets: For each query the list of sentences to rank. A target that occurs more than once in a group counts
            once, with the mean of its grades: the result depends neither on how often nor in which order it is given.
        scores: For each query the grade of each target: finite, not negative, on any scale (for STS 0 to 5).
        name: Prefix of the metrics and part of the CSV's name. Defaults to "".
        batch_size: Batch size for the model. Defaults to 32.
        show_progress_bar: Show a progress bar while encoding. Defaults to False.
        write_csv: Append each result to a CSV file in the folder that the call is given. Defaults to True.
        truncate_dim: Rank with embeddings cut to this width; ``None`` for the model's own. Defaults to None.

    References:
        - RankCSE, appendix G: https://aclanthology.org/2023.acl-long.771/
        - Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002

    Raises:
        ValueError: If lengths differ, a sentence is blank, a grade is negative, NaN or infinite, or no
            group has an order to be found; when called, if the model returns NaN.
        TypeError: If a sentence is not a string.

    Metrics:
        ====================== ==================================================================== ==========
        metric                 meaning                                                              range
        ====================== ==================================================================== ==========
        ``kendall`` (primary)  mean of tau-b over the groups; more is better                        -1 to 1
        ``ndcg``               mean NDCG over the groups, grade as gain, log2 discount, whole list  0 to 1
        ``num_groups``         groups that the means are taken over
        ``num_skipped``        groups left out of both means: their targets have one grade
        ====================== ==================================================================== ==========

        A model that gives all targets of a group one similarity scores a tau of 0 there. Tied targets share the mean of
        their gains in NDCG, as in scikit-learn.

    Example:
        ::

            from rankcse_st.evaluation import GradedRankingEvaluator

            evaluator = GradedRankingEvaluator.from_pairs(
                stsb["sentence1"], stsb["sentence2"], stsb["score"], name="stsb-dev"
            )
            evaluator(model)
            # {"stsb-dev_kendall": 0.61, "stsb-dev_ndcg": 0.97, "stsb-dev_num_groups": 18.0, ...}
    """

    metric_names: ClassVar[tuple[str, ...]] = ("kendall", "ndcg", "num_groups", "num_skipped")
    csv_stem: ClassVar[str] = "graded_ranking"

    def __init__(
        self,
        queries: Sequence[str],
        targets: Sequence[Sequence[str]],
        scores: Sequence[ArrayLike],
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        truncate_dim: int | None = None,
    ) -> None:
        queries = check_texts(queries, "queries")
        check_same_length(queries=queries, targets=targets, scores=scores)
        groups = [
            _group(query, check_texts(t, f"targets[{i}]"), check_scores(s, f"scores[{i}]").tolist(), str(i))
            for i, (query, t, s) in enumerate(zip(queries, targets, scores, strict=True))
        ]
        self.groups = [group for group in groups if not group.constant]
        self.num_skipped = len(groups) - len(self.groups)
        if not self.groups:
            raise ValueError(
                f"GradedRankingEvaluator: none of the {len(groups)} groups has two targets with different grades, so "
                "there is no order to be found. From pairs, lower min_targets or leave symmetric=True."
            )
        super().__init__(
            distinct(s for group in self.groups for s in (group.query, *group.targets)),
            primary_metric="kendall",
            name=name,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            write_csv=write_csv,
            truncate_dim=truncate_dim,
        )
        self._row = {sentence: i for i, sentence in enumerate(self.sentences)}

    @classmethod
    def from_pairs(
        cls,
        sentences1: Sequence[str],
        sentences2: Sequence[str],
        scores: ArrayLike,
        min_targets: int = 4,
        symmetric: bool = True,
        **kwargs: Any,
    ) -> GradedRankingEvaluator:
        """Build the groups from pairs with graded similarity, such as STS.

        Args:
            sentences1: First sentence of each pair.
            sentences2: Second sentence of each pair.
            scores: Grade of each pair, not negative.
            min_targets: Different targets that a query must have to make a group; the paper's "more than three" is 4.
            symmetric: Whether both sentences of a pair may be queries, each with the other as a target. The paper
                reports STS15, where no *first* sentence has more than three targets, so it must have done so.
            kwargs: Arguments of the constructor: ``name``, ``batch_size`` and so on.

        Raises:
            ValueError: As the constructor, and if no sentence has ``min_targets`` targets.
        """
        groups = ranking_groups(sentences1, sentences2, scores, min_targets=min_targets, symmetric=symmetric)
        if not groups:
            raise ValueError(
                f"No sentence of these {len(sentences1)} pairs has {min_targets} different targets. Lower min_targets"
                + ("." if symmetric else ", or allow both sides as queries with symmetric=True.")
            )
        queries, targets, grades = zip(*groups, strict=True)
        return cls(queries, targets, grades, **kwargs)

    def compute_metrics(self, embeddings: Tensor) -> dict[str, float]:
        values = self.group_metrics(embeddings)
        kendall, gain = np.mean(values, axis=0)
        return {
            "kendall": float(kendall),
            "ndcg": float(gain),
            "num_groups": len(self.groups),
            "num_skipped": self.num_skipped,
        }

    def group_metrics(self, embeddings: Tensor) -> list[tuple[float, float]]:
        """Tau-b and NDCG of each of ``groups``, from the unit embeddings of ``sentences``."""
        values = []
        for group in self.groups:
            rows = torch.tensor([self._row[target] for target in group.targets])
            cosines = (embeddings[rows] @ embeddings[self._row[group.query]]).numpy()
            values.append((kendall_tau(cosines, group.grades), ndcg(cosines, group.grades)))
        return values


def ranking_groups(
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    scores: ArrayLike,
    min_targets: int = 4,
    symmetric: bool = True,
) -> list[RankingGroup]:
    """The groups of :meth:`GradedRankingEvaluator.from_pairs`, in the order in which their queries first appear.

    Groups whose grades are all equal are among them.
    """
    if min_targets < 2:
        raise ValueError(f"min_targets must be at least 2 for an order to exist, got {min_targets}.")
    sentences1, sentences2 = check_texts(sentences1, "sentences1"), check_texts(sentences2, "sentences2")
    grades = check_scores(scores, "scores")
    check_same_length(sentences1=sentences1, sentences2=sentences2, scores=grades)
    ranked: dict[str, list[tuple[str, float]]] = {}
    for first, second, grade in zip(sentences1, sentences2, grades.tolist(), strict=True):
        ranked.setdefault(first, []).append((second, grade))
        if symmetric:
            ranked.setdefault(second, []).append((first, grade))
    groups = [_group(query, [t for t, _ in pairs], [g for _, g in pairs], query) for query, pairs in ranked.items()]
    return [group for group in groups if len(group.targets) >= min_targets]


def _group(query: str, targets: Sequence[str], grades: Sequence[float], label: str) -> RankingGroup:
    check_same_length(**{f"targets[{label}]": targets, f"scores[{label}]": grades})
    if any(grade < 0 for grade in grades):
        raise ValueError(
            f"scores[{label}]: grades must not be negative, as NDCG takes them as gains, got {min(grades):g}. "
            "Shift the scale so that the lowest grade is 0."
        )
    by_target: dict[str, list[float]] = {}
    for target, grade in zip(targets, grades, strict=True):
        by_target.setdefault(target, []).append(grade)
    # fsum, so that the mean does not depend on the order of the rows.
    return RankingGroup(query, list(by_target), [math.fsum(g) / len(g) for g in by_target.values()])
