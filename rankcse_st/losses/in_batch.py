"""Lists of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rankcse_st.functional import consistency, contrastive
from rankcse_st.losses.gather import gather, get_rank
from rankcse_st.losses.labels import TeacherVectors
from rankcse_st.losses.rows import detach_inputs, row_ranges, sum_over_rows
from rankcse_st.losses.terms import TermName, Terms


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
        self.candidates = everywhere[0] if self.one_view else _join(everywhere[1:])
        self.swapped_anchors = None if self.one_view else local[1]
        self.swapped_candidates = None if self.one_view else _join([everywhere[0], *everywhere[2:]])

        self.teacher_anchors = self.teacher_candidates = None
        if teacher is not None:
            vectors = teacher.values.unbind(1)
            if len(vectors) == 1:  # Two views of one text have one score vector.
                vectors = vectors * len(local)
            self.teacher_anchors = vectors[0]
            self.teacher_candidates = _join([share(v) for v in (vectors if self.one_view else vectors[1:])])

        self.keys: tuple[Tensor, Tensor, Tensor] | None = None
        if keys is not None and not self.one_view:
            candidate_keys = torch.cat([share(key) for key in keys[1:]])
            if _repeat(keys[0], keys[1], candidate_keys):
                self.keys = keys[0], keys[1], candidate_keys

        self.present: tuple[Tensor, Tensor] | None = None
        if present is not None:
            self.present = present[:, :1], torch.cat([share(column) for column in present.unbind(1)])

    def detach_inputs(self) -> list[tuple[Tensor, Tensor]]:
        """Cut the graph at the normalised, gathered embeddings; the tensors before the cut, each with its leaf.

        The leaves collect the gradients of one range of anchors after another.
        """
        return detach_inputs(self, "anchors", "candidates", "swapped_anchors", "swapped_candidates")

    def counts(self, terms: Terms) -> dict[TermName, Tensor]:
        """For each term that is on, the number of anchors whose list has something to rank, at least two entries."""
        counts: dict[TermName, Tensor] = {}
        for rows in row_ranges(self.anchors, len(self.candidates)):
            for name, mask in self._masks(terms, rows).items():
                if mask is None:
                    count = self.positives.new_tensor(len(self.anchors[rows]) if len(self.candidates) > 1 else 0)
                else:
                    count = (mask.sum(1) > 1).sum()
                counts[name] = counts[name] + count if name in counts else count
        return counts

    def sums(self, terms: Terms, rows: slice = slice(None)) -> dict[TermName, Tensor]:
        """Each term, weighted, summed over the lists of a range of anchors."""
        if self.one_view and terms.needs_two_views:
            raise ValueError("The contrastive and consistency terms need two views, but there is one.")
        scores = self._product(self.anchors, self.candidates, rows)
        matrices = [scores]
        if terms.consistency_weight:
            # Of a plain batch, the second lists are the columns of the first ones' matrix.
            square = scores.shape[0] == scores.shape[1] and len(self.anchors) == len(self.candidates)
            matrices.append(scores.T if square else self._product(self.swapped_anchors, self.swapped_candidates, rows))
        anchors = range(self.size)[rows]
        names: list[TermName] = list(self._masks(terms, slice(0, 0)))

        def some_rows(part: slice, scores: Tensor, swapped: Tensor | None = None) -> tuple[Tensor, ...]:
            some = anchors[part]
            values = self._values(terms, slice(some.start, some.stop), scores, swapped)
            return tuple(terms.weight(name) * values[name].sum() for name in names)

        return dict(zip(names, sum_over_rows(some_rows, *matrices), strict=True))

    def _values(self, terms: Terms, rows: slice, scores: Tensor, swapped: Tensor | None) -> dict[TermName, Tensor]:
        values: dict[TermName, Tensor] = {}
        for name, mask in self._masks(terms, rows).items():
            if name == "contrastive":
                values[name] = contrastive(
                    scores, self.positives[rows], temperature=terms.temperature, mask=mask, reduction="none"
                )
            elif name == "consistency":
                assert swapped is not None
                values[name] = consistency(scores, swapped, temperature=terms.temperature, mask=mask, reduction="none")
            else:
                teacher_scores = self._product(self.teacher_anchors, self.teacher_candidates, rows)
                values[name] = terms.distillation(scores, teacher_scores, mask)
        return values

    def _masks(self, terms: Terms, rows: slice) -> dict[TermName, Tensor | None]:
        """For each term that is on, True where a candidate belongs to an anchor's list; None for all of them."""
        masks: dict[TermName, Tensor | None] = {}
        if terms.contrastive_weight:
            masks["contrastive"] = self._present(rows, self._without_duplicates(rows))
        if terms.consistency_weight:
            masks["consistency"] = self._present(rows, None)
        if terms.distillation_weight:
            keep = terms.keeps_positive and not self.one_view
            masks["distillation"] = None if keep else self._without_positive(rows)
        return masks

    def _without_positive(self, rows: slice) -> Tensor:
        positives = self.positives[rows].unsqueeze(1)
        mask = torch.ones(len(positives), len(self.candidates), dtype=torch.bool, device=positives.device)
        return mask.scatter_(1, positives, False)

    def _without_duplicates(self, rows: slice) -> Tensor | None:
        """True at the positive and at every candidate whose text is neither the anchor's nor the positive's."""
        if self.keys is None:
            return None
        anchor_keys, positive_keys, candidate_keys = self.keys
        same = candidate_keys == anchor_keys[rows].unsqueeze(1)
        same |= candidate_keys == positive_keys[rows].unsqueeze(1)
        return (~same).scatter_(1, self.positives[rows].unsqueeze(1), True)

    def _present(self, rows: slice, mask: Tensor | None) -> Tensor | None:
        if self.present is None:
            return mask
        has_positive, candidate_present = self.present
        present = candidate_present & has_positive[rows]  # An anchor without its positive has no list.
        return present if mask is None else mask & present

    @staticmethod
    def _product(anchors: Tensor | None, candidates: Tensor | None, rows: slice) -> Tensor:
        assert anchors is not None  # There for every term that is on.
        assert candidates is not None
        return anchors[rows] @ candidates.T


def _repeat(anchor_keys: Tensor, positive_keys: Tensor, candidate_keys: Tensor) -> bool:
    """Whether any text occurs twice, other than as an anchor and its own positive."""
    keys = torch.cat([anchor_keys[anchor_keys != positive_keys], candidate_keys])
    return len(torch.unique(keys)) < len(keys)


def _join(tensors: list[Tensor]) -> Tensor:
    """Their rows; of one tensor that tensor itself, where ``torch.cat`` would copy it."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
