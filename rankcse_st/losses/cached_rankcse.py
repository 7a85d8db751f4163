"""RankCSE on lists longer than memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import CachedLossMixin, has_static_embedding_input
from torch import Tensor

from rankcse_st.losses.base import at_least_single
from rankcse_st.losses.in_batch import InBatchLists
from rankcse_st.losses.labels import LabelForm, TeacherScores
from rankcse_st.losses.parts import LossParts
from rankcse_st.losses.rankcse import RankCSELoss
from rankcse_st.losses.rows import row_ranges
from rankcse_st.losses.terms import Method
from rankcse_st.teachers import TeacherEnsemble, TeacherLike
from rankcse_st.views import Features, separate_views

# How many of the ranges in which a score matrix is worked on exist at once here, with their gradients.
_RANGES_AT_ONCE = 8


class Batch(NamedTuple):
    """What the loss needs of a batch besides its embeddings."""

    columns: list[Features]
    labels: Tensor | None


class CachedRankCSELoss(CachedLossMixin, RankCSELoss):  # type: ignore[misc]
    """:class:`~rankcse_st.RankCSELoss` with cached gradients: batches, and so lists, of any length.

    The batch is embedded in mini-batches, whose activations are dropped; the loss is computed and differentiated
    with respect to the embeddings, the N × N work in ranges of rows; then each mini-batch is embedded again, with the
    same dropout masks, to carry the gradients on. Memory is bounded by the mini-batch, for about half as much time
    again. The loss and its gradients are those of :class:`~rankcse_st.RankCSELoss`.

    Args:
        model: The student.
        teachers: As for :class:`~rankcse_st.RankCSELoss`, and so are all other arguments up to ``views``.
        mini_batch_size: Sentences embedded at a time. Defaults to 32.
        show_progress_bar: Whether to show a bar over the mini-batches.
        include_positive: As for :class:`~rankcse_st.RankCSELoss`, and so are those that follow.

    References:
        - GradCache: Gao et al. 2021, https://huggingface.co/papers/2101.06983
        - RankCSE: https://aclanthology.org/2023.acl-long.771/

    Requirements:
        1. As for :class:`~rankcse_st.RankCSELoss`; not for ``StaticEmbedding``, which has no activations to save.

    Inputs:
        As for :class:`~rankcse_st.RankCSELoss`.

    Relations:
        - Equal to :class:`~rankcse_st.RankCSELoss`, for batches that do not fit into memory there.
        - Works inside ``MatryoshkaLoss``; not inside ``AdaptiveLayerLoss``, like all cached losses.

    Raises:
        ValueError: If ``mini_batch_size`` is smaller than 1, the model is a ``StaticEmbedding``, or as for
            :class:`~rankcse_st.RankCSELoss`.

    Example:
        ::

            args = SentenceTransformerTrainingArguments(output_dir, per_device_train_batch_size=4096)
            loss = CachedRankCSELoss(model, mini_batch_size=64)
            trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=train_dataset, loss=loss)
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
        mini_batch_size: int = 32,
        show_progress_bar: bool = False,
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
            teachers,
            method,
            temperature,
            student_temperature,
            teacher_temperature,
            contrastive_weight,
            consistency_weight,
            distillation_weight,
            views,
            include_positive=include_positive,
            in_batch_terms=in_batch_terms,
            label_form=label_form,
            normalize_labels=normalize_labels,
            mask_duplicates=mask_duplicates,
            gather_across_devices=gather_across_devices,
            teacher_cache_size=teacher_cache_size,
            matching_weight=matching_weight,
            teacher_projection=teacher_projection,
        )
        if mini_batch_size < 1:
            raise ValueError(f"mini_batch_size must be at least 1, got {mini_batch_size}.")
        if has_static_embedding_input(model):
            raise ValueError(
                "CachedRankCSELoss cannot split the input of a StaticEmbedding model, which has no activations to "
                "save: use RankCSELoss."
            )
        self.mini_batch_size = mini_batch_size
        self.show_progress_bar = show_progress_bar

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor | LossParts:
        columns = list(sentence_features)
        self._check_one_teacher(labels)
        views = separate_views(columns, self._number_of_views(len(columns)))
        loss: Tensor | LossParts = CachedLossMixin.forward_cached(self, views, Batch(columns, labels))
        return loss if isinstance(loss, LossParts) else LossParts.of(loss)

    def calculate_loss(self, reps: list[list[Tensor]], labels: Batch, *, with_backward: bool = False) -> LossParts:
        """The parts of the loss from the mini-batches' embeddings, which get their gradients if ``with_backward``."""
        embeddings = [at_least_single(torch.cat(view)) for view in reps]
        teacher = self._teacher(labels.columns, labels.labels, embeddings)
        if with_backward and not isinstance(teacher, TeacherScores):
            self._check_views_differ(embeddings)
        parts = LossParts()
        with torch.autocast(embeddings[0].device.type, enabled=False), torch.set_grad_enabled(with_backward):
            for terms, lists in self._lists(embeddings, teacher, self._keys(labels.columns, len(embeddings))):
                counts = self._counts(lists, terms)
                sources = lists.detach_inputs() if with_backward else []
                width = len(lists.candidates) if isinstance(lists, InBatchLists) else 1
                for rows in row_ranges(lists.anchors, width, times=_RANGES_AT_ONCE):
                    some = LossParts({name: total / counts[name] for name, total in lists.sums(terms, rows).items()})
                    if with_backward:
                        some.backward()
                    parts = LossParts({name: value.detach() for name, value in (parts + some).items()})
                used = [(source, leaf.grad) for source, leaf in sources if leaf.grad is not None]
                if used:
                    torch.autograd.backward(*zip(*used, strict=True))  # type: ignore[arg-type]
            if matching := LossParts(self._matching(embeddings, teacher)):
                if with_backward:
                    matching.backward()
                parts = LossParts({name: value.detach() for name, value in (parts + matching).items()})
        return parts

    def get_config_dict(self) -> dict[str, Any]:
        return {**super().get_config_dict(), "mini_batch_size": self.mini_batch_size}
