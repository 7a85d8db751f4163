"""RankCSE: contrastive learning, ranking consistency and ranking distillation in one loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from rankcse_st.losses.base import RankingLoss
from rankcse_st.losses.labels import LabelForm
from rankcse_st.losses.terms import Method, Terms
from rankcse_st.teachers import TeacherEnsemble, TeacherLike


class RankCSELoss(RankingLoss):
    """Trains a sentence encoder without labels so that its similarities rank as its teachers' do.

    For a batch of N sentences, each embedded twice with different dropout masks, the loss is

    ``contrastive + consistency_weight · consistency + distillation_weight · distillation``

    (knowl 1), where *contrastive* pulls the two views of a sentence together and all others apart (SimCSE),
    *consistency* makes both views rank the batch alike (Jensen-Shannon divergence), and *distillation* makes the
    student rank the batch as the teachers do (ListNet or ListMLE). Each term is the mean over the batch's anchors, is
    logged by the trainer under its own name (weight applied), and costs nothing when its weight is 0.

    Args:
        model: The student.
        teachers: Live teachers, which score each batch as it comes: one or several names, paths,
            ``SentenceTransformer`` models or :class:`~rankcse_st.Teacher`, or a :class:`~rankcse_st.TeacherEnsemble`.
            None where the dataset's labels carry the scores, which is much faster over several epochs.
        method: ``"listnet"`` (the teachers' top-1 probabilities) or ``"listmle"`` (their order alone).
        temperature: τ1, of the contrastive and consistency terms. The paper's default, 0.05.
        student_temperature: τ2, of the student's lists in distillation. Not given in the paper's notes; 0.05 is τ1.
        teacher_temperature: τ3, of the teachers' lists in ListNet. Not given in the paper's notes; 0.025 is half of τ2,
            so that the student sees a sharper distribution than its own. It fits cosines. For explicit grades (0 to 3,
            say) use 1.0 or so.
        contrastive_weight: Weight of the contrastive term. The paper's default, 1.
        consistency_weight: β. The paper's default, 1.
        distillation_weight: γ. The paper's default, 1.
        views: How often each sentence of a single text column is embedded. None: once if only distillation has
            weight (each sentence is then ranked against all others), else twice.
        include_positive: Whether the positive takes part in the lists to be distilled. None: as in the paper, left
            out with ListNet and kept with ListMLE.
        in_batch_terms: With explicit scores, whether the contrastive and consistency terms are computed as well, with
            the first candidate as the positive. Off by default: a first candidate need not be a positive.
        label_form: ``"vectors"`` or ``"lists"``, needed only where the shape of the labels allows both readings, and
            to have live teachers score each anchor's own candidates.
        normalize_labels: Scale the labels' vectors to length 1 instead of refusing others.
        mask_duplicates: Whether sentences of equal tokens are left out of each other's negatives.
        gather_across_devices: Rank against the batches of all processes, not only the own one. Needs
            ``dataloader_drop_last=True``.
        teacher_cache_size: How many sentences live teachers remember (each takes 4 bytes times their dimensions).
        matching_weight: Weight of a fourth term, which is not in the paper: ``1 - cos`` of each embedding and its score
            vector, as in
            :class:`~sentence_transformers.sentence_transformer.losses.EmbedDistillLoss`. Off by default; the
            benchmarks' study recommends 20. Under ``MatryoshkaLoss`` it acts on whole embeddings only.
        teacher_projection: For matching, ``(D, d)``: brings score vectors of D dimensions to the student's d and into
            its space (:func:`~rankcse_st.fit_teacher_projection`). None is for one teacher whose embeddings are the
            student's own space already: the model that the student was cut from, say.

    References:
        - RankCSE: Unsupervised Sentence Representations Learning via Learning to Rank, https://aclanthology.org/2023.acl-long.771/
        - The contrastive term is that of SimCSE, https://aclanthology.org/2021.emnlp-main.552/
        - The matching term is that of EmbedDistill, https://huggingface.co/papers/2301.12005

    Requirements:
        1. Sentences: one text column, or the same text in two columns, or (anchor, positive, negatives).
        2. The teachers' scores, in a label column (see :class:`~rankcse_st.TeacherScoreDataset`) or from ``teachers``.
        3. Dropout in the student, unless only distillation has weight.

    Inputs:
        +-----------------------------------------------+-----------------------------------------------------+
        | Texts                                         | Labels                                              |
        +===============================================+=====================================================+
        | sentence                                      | score vectors (B, D), or none with live teachers    |
        +-----------------------------------------------+-----------------------------------------------------+
        | (sentence, same sentence), (anchor, positive) | score vectors (B, 2, D), or (B, D) for both columns |
        +-----------------------------------------------+-----------------------------------------------------+
        | (anchor, positive, negative_1, ..., n)        | score vectors (B, 2 + n, D)                         |
        +-----------------------------------------------+-----------------------------------------------------+
        | (anchor, candidate_1, ..., K)                 | explicit scores (B, K), NaN where one is missing    |
        +-----------------------------------------------+-----------------------------------------------------+

    Relations:
        - With ``consistency_weight=0, distillation_weight=0`` this is SimCSE, and equals
          :class:`~sentence_transformers.sentence_transformer.losses.MultipleNegativesRankingLoss` at scale 20.
        - :class:`~rankcse_st.ListwiseDistillationLoss` and :class:`~rankcse_st.RankingConsistencyLoss` are its terms
          by themselves.

    Raises:
        ValueError: At construction for weights that are negative or all 0, temperatures that are not positive and
            finite, an unknown method, one view where two are needed, or a projection that does not fit the student; in
            training for labels that do not fit the columns or the projection, and for views that are equal because no
            dropout acts.

    Example:
        ::

            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from rankcse_st import RankCSELoss, TeacherScoreDataset

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = TeacherScoreDataset.from_sentences(sentences, teachers=["all-mpnet-base-v2"])
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=RankCSELoss(model))
            trainer.train()

        With live teachers, which need the raw text that :class:`~rankcse_st.TextCollator` carries along::

            loss = RankCSELoss(model, teachers=["all-mpnet-base-v2"])
            trainer = SentenceTransformerTrainer(model=model, train_dataset=dataset_of_sentences, loss=loss)
            trainer.data_collator = TextCollator(trainer.data_collator)
            trainer.train()
    """

    def __init__(
        self,
        model: SentenceTransformer,
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike] | None = None,
        method: Method = "listnet",
        temperature: float = 0.05,
        student_temperature: float = 0.05,
        teacher_temperature: float = 0.025,
        contrastive_weight: float = 1.0,
        consistency_weight: float = 1.0,
        distillation_weight: float = 1.0,
        views: int | None = None,
        *,
        include_positive: bool | None = None,
        in_batch_terms: bool = False,
        label_form: LabelForm | None = None,
        normalize_labels: bool = False,
        mask_duplicates: bool = True,
        gather_across_devices: bool = False,
        teacher_cache_size: int = 65_536,
        matching_weight: float = 0.0,
        teacher_projection: Tensor | None = None,
    ) -> None:
        super().__init__(
            model,
            Terms(
                contrastive_weight=contrastive_weight,
                consistency_weight=consistency_weight,
                distillation_weight=distillation_weight,
                method=method,
                temperature=temperature,
                student_temperature=student_temperature,
                include_positive=include_positive,
            ),
            teacher_temperature=teacher_temperature,
            teachers=teachers,
            views=views,
            in_batch_terms=in_batch_terms,
            label_form=label_form,
            normalize_labels=normalize_labels,
            mask_duplicates=mask_duplicates,
            gather_across_devices=gather_across_devices,
            teacher_cache_size=teacher_cache_size,
            matching_weight=matching_weight,
            teacher_projection=teacher_projection,
        )

    def get_config_dict(self) -> dict[str, Any]:
        projection = None if self.teacher_projection is None else tuple(self.teacher_projection.shape)
        return {**self._config(), "matching_weight": self.matching_weight, "teacher_projection": projection}
