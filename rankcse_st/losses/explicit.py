"""Lists of each anchor's own candidates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rankcse_st.losses.labels import TeacherScores
from rankcse_st.losses.rows import detach_inputs
from rankcse_st.losses.terms import TermName, Terms


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

    def detach_inputs(self) -> list[tuple[Tensor, Tensor]]:
        """Cut the graph at the normalised embeddings; the tensors before the cut, each with its leaf."""
        return detach_inputs(self, "anchors", "candidates")

    def counts(self, terms: Terms) -> dict[TermName, Tensor]:
        """For each term that is on, the number of lists with something to rank."""
        return {"distillation": (self.present.sum(1) > 1).sum()}

    def sums(self, terms: Terms, rows: slice = slice(None)) -> dict[TermName, Tensor]:
        """Each term, weighted, summed over the lists of a range of anchors."""
        scores = torch.einsum("bd,bkd->bk", self.anchors[rows], self.candidates[rows])
        values = terms.distillation(scores, self.teacher_scores[rows], self.present[rows])
        return {"distillation": terms.distillation_weight * values.sum()}
