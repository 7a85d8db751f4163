"""The lists that a batch's embeddings form, and the terms of RankCSE on any range of their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rankcse_st.functional import consistency, contrastive, list_lengths, listmle, listnet
from rankcse_st.losses.gather import gather, get_rank
from rankcse_st.losses.labels import TeacherScores, TeacherVectors

Method = Literal["listnet", "listmle"]


@dataclass(frozen=True)
class Terms:
    """Which terms are on, with what weights and temperatures; a weight of 0 turns a term off.

    Raises:
        ValueError: For weights that are negative, not finite or all 0, temperatures that are not positive and finite,
            or an unknown method.
    """

    contrastive_weight: float = 0.0
    consistency_weight: float = 0.0
    distillation_weight: float = 0.0
    method: Method = "listnet"
    temperature: float = 0.05
    student_temperature: float = 0.05
    teacher_temperature: float = 0.025
    include_positive: bool | None = None

    def __post_init__(self) -> None:
        for name in ("contrastive_weight", "consistency_weight", "distillation_weight"):
            weight = getattr(self, name)
            if not 0 <= weight < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {weight}.")
        if not (self.contrastive_weight or self.consistency_weight or self.distillation_weight):
            raise ValueError("The weights of all terms are 0: give at least one of them a positive weight.")
        for name in ("temperature", "student_temperature", "teacher_temperature"):
            temperature = getattr(self, name)
            if not 0 < temperature < math.inf:
                raise ValueError(f"{name} must be a positive finite number, got {temperature}.")
        if self.method not in ("listnet", "listmle"):
            raise ValueError(f'method must be "listnet" or "listmle", got {self.method!r}.')

    @property
    def needs_two_views(self) -> bool:
        """Whether a term is on that compares two views of each anchor."""
        return bool(self.contrastive_weight or self.consistency_weight)

    @property
    def keeps_positive(self) -> bool:
        """Whether the positive takes part in the lists to be distilled."""
        return self.method == "listmle" if self.include_positive is None else self.include_positive

    def distillation(self, scores: Tensor, teacher_scores: Tensor, mask: Tensor | None) -> Tensor:
        """ListNet or ListMLE, one value per list."""
        if self.method == "listmle":
            return listmle(
                scores, teacher_scores, student_temperature=self.student_temperature, mask=mask, reduction="none"
            )
        return listnet(
            scores,
            teacher_scores,
            student_temperature=self.student_temperature,
            teacher_temperature=self.teacher_temperature,
            mask=mask,
            reduction="none",
        )


class InBatchLists:
    """Every anchor's list is the whole batch: the positives and hard negatives of all rows, on all processes.

    Args:
        embeddings: One (B, d) tensor per view or column: anchors u; positives v; hard negatives n. Anchors alone are
            ranked among themselves, each without itself.
        teacher: The teachers' score vectors (B, C, D), or None where distillation is off.
        keys: (B,) keys of the rows' texts per view or column, equal for equal texts, or None.
        present: (B, K) for K candidate columns, False where a candidate is missing; None where all are there.
        across_devices: Gather candidates from all processes.
    """

    def __init__(
        self,
        embeddings: Sequence[Tensor],
        teacher: TeacherVectors | None,
        keys: Sequence[Tensor] | None = None,
        present: Tensor | None = None,
        across_devices: bool = False,
    ) -> None:
        share = gather if across_devices else (lambda tensor: tensor)
        local = [F.normalize(embedding, dim=-1) for embedding in embeddings]
        everywhere = [share(embedding) for embedding in local]
        self.anchors, self.one_view = local[0], len(local) == 1
        self.size = len(self.anchors)
        self.positives = torch.arange(self.size, device=self.anchors.device)
        if across_devices:
            self.positives = self.positives + get_rank() * self.size
        # First list cos(u_i, [v; n]), second list cos(v_i, [u; n]).
        self.candidates = torch.cat(everywhere[1:]) if not self.one_view else everywhere[0]
        self.swapped_anchors = local[1] if not self.one_view else None
        self.swapped_candidates = torch.cat([everywhere[0], *everywhere[2:]]) if not self.one_view else None

        self.teacher_anchors = self.teacher_candidates = None
        if teacher is not None:
            vectors = teacher.values.unbind(1)
            if len(vectors) == 1:  # Two views of one text have one score vector.
                vectors = vectors * len(local)
            self.teacher_anchors = vectors[0]
            self.teacher_candidates = torch.cat([share(v) for v in (vectors if self.one_view else vectors[1:])])

        self.anchor_keys = self.positive_keys = self.candidate_keys = None
        if keys is not None and not self.one_view:
            self.anchor_keys, self.positive_keys = keys[0], keys[1]
            self.candidate_keys = torch.cat([share(key) for key in keys[1:]])

        self.has_positive = self.candidate_present = None
        if present is not None:
            self.has_positive = present[:, :1]
            self.candidate_present = torch.cat([share(column) for column in present.unbind(1)])

    def masks(self, terms: Terms, rows: slice) -> dict[str, Tensor | None]:
        """For each term that is on, True where a candidate belongs to an anchor's list; None for all of them."""
        masks: dict[str, Tensor | None] = {}
        if terms.contrastive_weight:
            masks["contrastive"] = self._present(rows, self._without_duplicates(rows))
        if terms.consistency_weight:
            masks["consistency"] = self._present(rows, None)
        if terms.distillation_weight:
            keep = terms.keeps_positive and not self.one_view
            masks["distillation"] = None if keep else self._without_positive(rows)
        return masks

    def values(self, terms: Terms, rows: slice) -> dict[str, tuple[Tensor, Tensor]]:
        """Each term's values and list lengths, one per anchor of a range of rows; weights not applied."""
        scores = self.anchors[rows] @ self.candidates.T
        values: dict[str, tuple[Tensor, Tensor]] = {}
        for name, mask in self.masks(terms, rows).items():
            if name == "contrastive":
                value = contrastive(
                    scores, self.positives[rows], temperature=terms.temperature, mask=mask, reduction="none"
                )
            elif name == "consistency":
                assert self.swapped_anchors is not None and self.swapped_candidates is not None
                swapped = self.swapped_anchors[rows] @ self.swapped_candidates.T
                value = consistency(scores, swapped, temperature=terms.temperature, mask=mask, reduction="none")
            else:
                assert self.teacher_anchors is not None and self.teacher_candidates is not None
                teacher_scores = self.teacher_anchors[rows] @ self.teacher_candidates.T
                value = terms.distillation(scores, teacher_scores, mask)
            values[name] = value, list_lengths(mask, scores)
        return values

    def _without_positive(self, rows: slice) -> Tensor:
        positives = self.positives[rows].unsqueeze(1)
        mask = torch.ones(len(positives), len(self.candidates), dtype=torch.bool, device=positives.device)
        return mask.scatter_(1, positives, False)

    def _without_duplicates(self, rows: slice) -> Tensor | None:
        """True at the positive and at every candidate whose text is neither the anchor's nor the positive's."""
        if self.candidate_keys is None or self.anchor_keys is None or self.positive_keys is None:
            return None
        same = self.candidate_keys == self.anchor_keys[rows].unsqueeze(1)
        same |= self.candidate_keys == self.positive_keys[rows].unsqueeze(1)
        return (~same).scatter_(1, self.positives[rows].unsqueeze(1), True)

    def _present(self, rows: slice, mask: Tensor | None) -> Tensor | None:
        if self.candidate_present is None or self.has_positive is None:
            return mask
        present = self.candidate_present & self.has_positive[rows]  # An anchor without its positive has no list.
        return present if mask is None else mask & present


class ExplicitLists:
    """Every anchor has its own list of candidates, with the teachers' score of each; missing ones are NaN.

    Args:
        embeddings: (B, d) anchors, then one (B, d) tensor per candidate column.
        teacher: The teachers' scores (B, K).
    """

    def __init__(self, embeddings: Sequence[Tensor], teacher: TeacherScores) -> None:
        self.anchors = F.normalize(embeddings[0], dim=-1)
        self.candidates = F.normalize(torch.stack(list(embeddings[1:]), dim=1), dim=-1)
        self.teacher_scores = teacher.values
        self.present = ~teacher.values.isnan()
        self.size = len(self.anchors)

    def masks(self, terms: Terms, rows: slice) -> dict[str, Tensor | None]:
        """True where an anchor has a candidate."""
        return {"distillation": self.present[rows]}

    def values(self, terms: Terms, rows: slice) -> dict[str, tuple[Tensor, Tensor]]:
        """The distillation term's values and list lengths, one per anchor of a range of rows."""
        scores = torch.einsum("bd,bkd->bk", self.anchors[rows], self.candidates[rows])
        present = self.present[rows]
        return {
            "distillation": (
                terms.distillation(scores, self.teacher_scores[rows], present),
                list_lengths(present, scores),
            )
        }
