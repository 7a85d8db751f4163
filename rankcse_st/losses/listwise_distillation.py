"""Ranking distillation alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from rankcse_st.losses.base import RankingLoss
from rankcse_st.losses.labels import LabelForm
from rankcse_st.losses.parts import LossParts
from rankcse_st.losses.terms import Method, Terms
from rankcse_st.teachers import TeacherEnsemble, TeacherLike


class ListwiseDistillationLoss(RankingLoss):
    """Makes a student rank lists of texts as teachers, or graded labels, rank them (ListNet or ListMLE).

    The lists are either those of the batch (each sentence against all others, or each anchor against all positives and
    negatives), scored by score vectors, or each anchor's own candidates with explicit scores, of any length, with
    missing entries. A sentence column is embedded once: half the cost of a step with two views, and no dropout needed.

    Args:
        model: The student.
        teachers: Live teachers, as for :class:`~rankcse_st.RankCSELoss`; None where the labels carry the scores.
        method: ``"listnet"`` (the teachers' top-1 probabilities) or ``"listmle"`` (their order alone).
        student_temperature: τ2, of the student's lists. Not given in the paper's notes; 0.05 is τ1.
        teacher_temperature: τ3, of the teachers' lists in ListNet. None: 0.025 for cosines of score vectors (half of
            τ2; not given in the paper's notes), 1.0 for explicit scores, which are mostly grades.
        views: How often each sentence of a single text column is embedded. None: once.
        include_positive: Whether the positive takes part in the lists. None: left out with ListNet and kept with
            ListMLE, as in the paper. With one view of one column a sentence is never in its own list.
        label_form: ``"vectors"`` or ``"lists"``, needed only where the shape of the labels allows both readings, and
            to have live teachers (cross-encoders, say) score each anchor's own candidates.
        normalize_labels: Scale the labels' vectors to length 1 instead of refusing others.
        gather_across_devices: Rank against the batches of all processes, not only the own one. Needs
            ``dataloader_drop_last=True``.
        teacher_cache_size: How many sentences live teachers remember.

    References:
        - RankCSE (knowl 3): https://aclanthology.org/2023.acl-long.771/
        - ListNet: Cao et al. 2007, Learning to rank: from pairwise approach to listwise approach
        - ListMLE: Xia et al. 2008, Listwise approach to learning to rank: theory and algorithm

    Requirements:
        1. One text column; or (anchor, positive, negatives); or an anchor and its candidates.
        2. Score vectors or explicit scores in a label column, or ``teachers``.

    Inputs:
        +-----------------------------------------------+-----------------------------------------------------+
        | Texts                                         | Labels                                              |
        +===============================================+=====================================================+
        | sentence                                      | score vectors (B, D), or none with live teachers    |
        +-----------------------------------------------+-----------------------------------------------------+
        | (anchor, positive)                            | score vectors (B, 2, D), or (B, D) for both columns |
        +-----------------------------------------------+-----------------------------------------------------+
        | (anchor, positive, negative_1, ..., n)        | score vectors (B, 2 + n, D)                         |
        +-----------------------------------------------+-----------------------------------------------------+
        | (anchor, candidate_1, ..., K)                 | explicit scores (B, K), NaN where one is missing    |
        +-----------------------------------------------+-----------------------------------------------------+

    Relations:
        - On explicit scores, ListNet has the gradient of
          :class:`~sentence_transformers.sentence_transformer.losses.DistillKLDivLoss` with cosine similarity, up to
          that loss's factor ``student_temperature**2``.
        - :class:`~rankcse_st.RankCSELoss` adds the contrastive and consistency terms.

    Raises:
        ValueError: For temperatures that are not positive and finite, an unknown method, or labels that do not fit.

    Example:
        Graded candidates, where a row may have fewer than others (score NaN, text ``""``)::

            train_dataset = Dataset.from_dict({
                "query": ["how to sort a list", "open a file"],
                "candidate_1": ["Sorting lists in Python", "Reading and writing files"],
                "candidate_2": ["Linked lists in C", "Closing a window"],
                "candidate_3": ["A list of sorts", ""],
                "scores": [[3.0, 1.0, 0.0], [3.0, 0.0, float("nan")]],
            })
            loss = ListwiseDistillationLoss(model, method="listmle")
    """

    def __init__(
        self,
        model: SentenceTransformer,
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike] | None = None,
        method: Method = "listnet",
        student_temperature: float = 0.05,
        teacher_temperature: float | None = None,
        views: int | None = None,
        *,
        include_positive: bool | None = None,
        label_form: LabelForm | None = None,
        normalize_labels: bool = False,
        gather_across_devices: bool = False,
        teacher_cache_size: int = 65_536,
    ) -> None:
        super().__init__(
            model,
            Terms(
                distillation_weight=1.0,
                method=method,
                student_temperature=student_temperature,
                include_positive=include_positive,
            ),
            teacher_temperature=teacher_temperature,
            teachers=teachers,
            views=views,
            label_form=label_form,
            normalize_labels=normalize_labels,
            gather_across_devices=gather_across_devices,
            teacher_cache_size=teacher_cache_size,
        )

    def get_config_dict(self) -> dict[str, Any]:
        return self._config(without=("contrastive_weight", "consistency_weight", "distillation_weight", "temperature"))

    def _result(self, parts: dict[str, Tensor]) -> Tensor | LossParts:
        return parts["distillation"]
