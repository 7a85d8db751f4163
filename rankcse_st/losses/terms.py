"""The terms of RankCSE, their weights and temperatures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rankcse_st.functional import listmle, listnet

Method = Literal["listnet", "listmle"]
TermName = Literal["contrastive", "consistency", "distillation"]


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

    def weight(self, name: TermName) -> float:
        """The weight of a term."""
        return float(getattr(self, f"{name}_weight"))

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
