"""What the three losses share: from the trainer's features and labels to the weighted parts of the loss."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from rankcse_st.live import LiveTeachers
from rankcse_st.losses.explicit import ExplicitLists
from rankcse_st.losses.gather import check_equal_batches, mean_over_processes
from rankcse_st.losses.in_batch import InBatchLists
from rankcse_st.losses.labels import LabelForm, TeacherScores, TeacherVectors, read_labels, undo_truncation
from rankcse_st.losses.matching import Matching, check_matching, correlation
from rankcse_st.losses.parts import LossParts
from rankcse_st.losses.terms import TermName, Terms
from rankcse_st.student import embedding_width, unwrap
from rankcse_st.teachers import TeacherEnsemble, TeacherLike
from rankcse_st.views import Features, embed_views, first_comparison, row_keys

# Cosines of normalised embeddings are sharpened to the paper's scale; grades such as 0 to 3 must not be.
COSINE_TEACHER_TEMPERATURE = 0.025
GRADE_TEACHER_TEMPERATURE = 1.0
# Below it, one grade more makes a candidate e^5 times as likely, and the others count for nothing.
SHARP_FOR_GRADES = 0.2
# Correlation of embeddings and score vectors; layers of the teacher itself have 0.4 to 0.9 before any training.
UNRELATED = 0.1
FEWEST_TO_CORRELATE = 16

logger = logging.getLogger(__name__)

CITATION = """
@inproceedings{liu-etal-2023-rankcse,
    title = "{R}ank{CSE}: Unsupervised Sentence Representations Learning via Learning to Rank",
    author = "Liu, Jiduan and Liu, Jiahao and Wang, Qifan and Wang, Jingang and Wu, Wei and Xian, Yunsen and Zhao, Dongyan and Chen, Kai and Yan, Rui",
    booktitle = "Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics (Volume 1: Long Papers)",
    month = jul,
    year = "2023",
    address = "Toronto, Canada",
    publisher = "Association for Computational Linguistics",
    url = "https://aclanthology.org/2023.acl-long.771/",
    doi = "10.18653/v1/2023.acl-long.771",
    pages = "13785--13802",
}
"""  # noqa: E501


def at_least_single(tensor: Tensor) -> Tensor:
    """In float32, or float64 as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class RankingLoss(nn.Module):
    """Base of the losses: not for use by itself.

    ``self.model`` is at top level, where the trainer swaps in the wrapped model; the teachers are in no module, so
    that they are in no ``parameters()``, ``state_dict()``, optimizer or checkpoint and are never taken for the student.
    """

    teacher_projection: Tensor | None

    def __init__(
        self,
        model: SentenceTransformer,
        terms: Terms,
        *,
        teacher_temperature: float | None = None,
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike] | None = None,
        views: int | None = None,
        in_batch_terms: bool = False,
        label_form: LabelForm | None = None,
        normalize_labels: bool = False,
        mask_duplicates: bool = True,
        gather_across_devices: bool = False,
        teacher_cache_size: int = 65_536,
        matching_weight: float = 0.0,
        teacher_projection: Tensor | None = None,
    ) -> None:
        super().__init__()
        if matching_weight or teacher_projection is not None:
            width = embedding_width(unwrap(model))
            check_matching(matching_weight, terms.distillation_weight, teacher_projection, width)
        if teacher_temperature is not None:
            terms = replace(terms, teacher_temperature=teacher_temperature)
        if views not in (None, 1, 2):
            raise ValueError(f"views must be None, 1 or 2, got {views!r}.")
        if views == 1 and terms.needs_two_views:
            raise ValueError(
                "views=1 leaves the contrastive and consistency terms nothing to compare: they need two views. "
                "Pass views=2 or None, or set contrastive_weight=0 and consistency_weight=0."
            )
        if label_form not in (None, "vectors", "lists"):
            raise ValueError(f'label_form must be None, "vectors" or "lists", got {label_form!r}.')
        if teachers is not None and not terms.distillation_weight:
            raise ValueError(
                "teachers are given but distillation_weight is 0: give it a weight, or leave teachers out."
            )
        self.model = model
        self.terms = terms
        self.teacher_temperature = teacher_temperature
        self.teachers = None if teachers is None else LiveTeachers(teachers, cache_size=teacher_cache_size)
        self.views = views
        self.in_batch_terms = in_batch_terms
        self.label_form = label_form
        self.normalize_labels = normalize_labels
        self.mask_duplicates = mask_duplicates
        self.matching_weight = matching_weight
        # Moves with the loss to its device; in no state_dict, so in no checkpoint.
        fixed = None if teacher_projection is None else teacher_projection.detach()
        self.register_buffer("teacher_projection", fixed, persistent=False)
        self.gather_across_devices = gather_across_devices
        self._scale_questioned = self._sharing_questioned = False
        self._space_questioned = self._length_questioned = False

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor | LossParts:
        columns = list(sentence_features)
        self._check_one_teacher(labels)
        embeddings = embed_views(self.model, columns, self._number_of_views(len(columns)), loss=self)
        teacher = self._teacher(columns, labels, embeddings)
        # Once per batch: the earlier layers that AdaptiveLayerLoss asks for may well lack dropout.
        if not isinstance(teacher, TeacherScores) and first_comparison(columns, loss=self):
            self._check_views_differ(embeddings)
        return self._loss(embeddings, teacher, self._keys(columns, len(embeddings)))

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None
    ) -> Tensor | LossParts:
        """The loss of embeddings computed elsewhere.

        Args:
            embeddings: One (B, d) tensor per view or text column.
            labels: As for the loss itself; two views of one column share (B, D) score vectors.
        """
        if len(embeddings) == 1 and self.terms.needs_two_views:
            raise ValueError(
                "The contrastive and consistency terms need two views' embeddings, but there is one tensor."
            )
        if labels is None and self.terms.distillation_weight:
            raise ValueError("labels are needed: score vectors or explicit scores of the embeddings' texts.")
        teacher = None if labels is None else self._read(labels, embeddings, len(embeddings))
        return self._loss(embeddings, teacher, None)

    def _check_one_teacher(self, labels: Tensor | None) -> None:
        if labels is not None and self.teachers is not None:
            raise ValueError(
                f"{type(self).__name__} has live teachers and the dataset has a label column as well: which of the two "
                "is meant? Remove the label column, or construct the loss without teachers."
            )

    def _number_of_views(self, columns: int) -> int:
        if columns == 1:
            return self.views or (2 if self.terms.needs_two_views else 1)
        if self.views == 1:
            raise ValueError(f"views=1 is for a single text column, but the dataset has {columns}.")
        return 1

    def _read(
        self, labels: Tensor, embeddings: Sequence[Tensor], columns: int
    ) -> TeacherVectors | TeacherScores | None:
        if not self.terms.distillation_weight:
            return None
        width = embedding_width(unwrap(self.model))
        labels = undo_truncation(labels, embeddings[0].shape[-1], width)
        return read_labels(
            labels,
            batch_size=len(embeddings[0]),
            columns=columns,
            form=self.label_form,
            normalize=self.normalize_labels,
            in_batch_terms=self.in_batch_terms and self.terms.needs_two_views,
        )

    def _teacher(
        self, columns: list[Features], labels: Tensor | None, embeddings: Sequence[Tensor]
    ) -> TeacherVectors | TeacherScores | None:
        """The teachers' word on a batch, from its labels or from live teachers."""
        if not self.terms.distillation_weight:
            return None
        if labels is None:
            if self.teachers is None:
                raise ValueError(
                    f"{type(self).__name__} distils from teachers, but the dataset has no label column and no live "
                    "teachers were given. Attach scores with TeacherScoreDataset.from_dataset(dataset, teachers), pass "
                    "teachers=[...] to the loss, or set distillation_weight=0."
                )
            labels = self.teachers(self.model, columns, explicit=self.label_form == "lists").to(embeddings[0].device)
        elif labels.ndim == 2 and len(columns) == 2 and self.label_form is None and not self._sharing_questioned:
            keys = [row_keys(features) for features in columns]
            if keys[0] is not None and keys[1] is not None and bool((keys[0] != keys[1]).float().mean() > 0.5):
                self._sharing_questioned = True
                logger.warning(
                    "The dataset has two text columns that differ and one score vector for both in each row: the "
                    "teachers are taken to score them alike. Give each column its own vectors, (B, 2, D), as "
                    "TeacherScoreDataset.from_dataset does; remove the column that is no text to be ranked; or, if it "
                    "is meant, pass label_form='vectors'."
                )
        return self._read(labels, embeddings, len(columns))

    def _check_views_differ(self, embeddings: Sequence[Tensor]) -> None:
        """Two equal views make the contrastive term trivial and the consistency term 0, without anyone being told."""
        if self.model.training and self.terms.needs_two_views and torch.equal(embeddings[0], embeddings[1]):
            raise ValueError(
                "The two views of a training batch are equal: no dropout acts in the model, so that the contrastive "
                "and consistency terms have nothing to learn from. Many current encoders ship with dropout 0.0: turn "
                "it on with rankcse_st.set_dropout(model, 0.1). Where a model has none at all, as StaticEmbedding, "
                "train by distillation alone: contrastive_weight=0, consistency_weight=0. (In a training loop of your "
                "own, call model.train() first.)"
            )

    def _keys(self, columns: list[Features], views: int) -> list[Tensor] | None:
        if not (self.mask_duplicates and self.terms.contrastive_weight):
            return None
        keys = [row_keys(features) for features in columns]
        keys = keys * views if len(keys) == 1 else keys
        present = [key for key in keys if key is not None]
        return present if len(present) == len(keys) else None

    def _loss(
        self,
        embeddings: Sequence[Tensor],
        teacher: TeacherVectors | TeacherScores | None,
        keys: Sequence[Tensor] | None,
    ) -> Tensor | LossParts:
        # Similarities in half precision would tie what differs: everything from here on is in float32 at least.
        with torch.autocast(embeddings[0].device.type, enabled=False):
            embeddings = [at_least_single(embedding) for embedding in embeddings]
            parts: dict[str, Tensor] = {}
            for terms, lists in self._lists(embeddings, teacher, keys):
                counts = self._counts(lists, terms)
                parts |= {name: total / counts[name] for name, total in lists.sums(terms).items()}
            return self._result(parts | self._matching(embeddings, teacher))

    def _lists(
        self,
        embeddings: Sequence[Tensor],
        teacher: TeacherVectors | TeacherScores | None,
        keys: Sequence[Tensor] | None,
    ) -> list[tuple[Terms, InBatchLists | ExplicitLists]]:
        """The lists that the batch forms, each with the terms to compute on it."""
        terms = replace(self.terms, teacher_temperature=self._teacher_temperature(teacher))
        if self.gather_across_devices:
            check_equal_batches(len(embeddings[0]), embeddings[0].device, self.model.training)
        elif self.model.training and not self._length_questioned:
            # The first batch only: the last one of an epoch may well be of one row.
            self._length_questioned = True
            if len(embeddings[0]) == 1 and len(embeddings) <= 2 and not isinstance(teacher, TeacherScores):
                logger.warning(
                    "The first batch has one row, which has no other to be ranked against: nothing is learned from its "
                    "lists. Raise per_device_train_batch_size; 64 to 512 are usual."
                )
        if not isinstance(teacher, TeacherScores):
            lists = InBatchLists(embeddings, teacher, keys, across_devices=self.gather_across_devices)
            return [(terms, lists)]
        result: list[tuple[Terms, InBatchLists | ExplicitLists]] = [
            (replace(terms, contrastive_weight=0, consistency_weight=0), ExplicitLists(embeddings, teacher))
        ]
        if self.in_batch_terms and terms.needs_two_views:
            present = ~teacher.values.isnan()
            lists = InBatchLists(embeddings, None, keys, present, across_devices=self.gather_across_devices)
            result.append((replace(terms, distillation_weight=0), lists))
        return result

    def _teacher_temperature(self, teacher: TeacherVectors | TeacherScores | None) -> float:
        if not isinstance(teacher, TeacherScores):
            return self.teacher_temperature or COSINE_TEACHER_TEMPERATURE
        temperature = self.teacher_temperature or GRADE_TEACHER_TEMPERATURE
        if self.terms.method == "listnet" and not self._scale_questioned:
            scores = teacher.values.nan_to_num()
            are_grades = bool((scores.abs() > 1).any())
            if are_grades and temperature < SHARP_FOR_GRADES:
                self._scale_questioned = True
                logger.warning(
                    "teacher_temperature=%s is for cosines, but the explicit scores reach beyond 1, as grades do: only "
                    "the best candidate of each list will count. Pass teacher_temperature=1.0 or so, or "
                    "method='listmle'.",
                    temperature,
                )
            elif self.teacher_temperature is None and not are_grades and bool((scores != scores.round()).any()):
                self._scale_questioned = True
                logger.warning(
                    "The explicit scores lie between -1 and 1, as cosines do, and no teacher_temperature was given: "
                    "1.0, which is for grades, makes them nearly equal. Pass teacher_temperature=0.025 if they are "
                    "cosines, 1.0 if they are not."
                )
        return temperature

    def _matching(
        self, embeddings: Sequence[Tensor], teacher: TeacherVectors | TeacherScores | None
    ) -> dict[str, Tensor]:
        """The part of embedding matching, where it is on."""
        if not self.matching_weight:
            return {}
        matched = Matching.of(embeddings, teacher, embedding_width(unwrap(self.model)), self.teacher_projection)
        if matched is None:
            return {}
        if self.model.training and not self._space_questioned and len(matched.targets) >= FEWEST_TO_CORRELATE:
            self._space_questioned = True
            with torch.no_grad():
                found = correlation(*matched).item()
            if found < UNRELATED:
                logger.warning(
                    "The student's embeddings and the score vectors%s are not of one space (correlation %.2f in the "
                    "first batch): matching them would undo what the student knows. Pass "
                    "teacher_projection=fit_teacher_projection(model, train_dataset), of this student and dataset.",
                    "" if self.teacher_projection is None else ", as teacher_projection brings them,",
                    found,
                )
        return {"matching": self.matching_weight * matched.loss()}

    def _counts(self, lists: InBatchLists | ExplicitLists, terms: Terms) -> dict[TermName, Tensor]:
        """The number of lists that each term's sum is to be divided by."""
        counts = lists.counts(terms)
        if self.gather_across_devices:
            counts = {name: mean_over_processes(count) for name, count in counts.items()}
        return {name: torch.where(count > 0, count, 1) for name, count in counts.items()}

    def _result(self, parts: dict[str, Tensor]) -> Tensor | LossParts:
        """The parts as the trainer is to see them: a dict that it logs, or the one part of a loss of one term."""
        return LossParts(parts)

    @property
    def citation(self) -> str:
        return CITATION

    def _config(self, without: Collection[str] = ()) -> dict[str, Any]:
        config = {
            **asdict(self.terms),
            "teacher_temperature": self.teacher_temperature,
            "include_positive": self.terms.keeps_positive,
            "views": self.views,
            "teachers": None if self.teachers is None else self.teachers.names,
            "gather_across_devices": self.gather_across_devices,
        }
        return {name: value for name, value in config.items() if name not in without}
