"""Lists of candidates, each anchor with its own: the pairs in them, and a teacher's scores of those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rankcse_st.reading import TeacherReader
from rankcse_st.texts import check_texts

# Pairs of embeddings multiplied at once.
_PAIRS_AT_ONCE = 8192


class CandidateLists:
    """Anchors with K candidates each, some of which may be missing.

    Args:
        anchors: n strings.
        candidates: For each anchor its K candidates; None and ``""`` are missing ones.
        anchor_column: Name of the anchors' column, for prompts by column.
        candidate_columns: Names of the candidates' K columns, for prompts by column.

    Raises:
        TypeError: If some texts are not strings.
        ValueError: If some anchors are blank, or if the numbers of anchors, candidates or columns do not fit together.
    """

    def __init__(
        self,
        anchors: Sequence[str],
        candidates: Sequence[Sequence[str | None]],
        anchor_column: str | None = None,
        candidate_columns: Sequence[str | None] | None = None,
    ) -> None:
        self.anchors = check_texts(anchors, "anchors")
        self.width = _check_width(self.anchors, candidates)
        self.anchor_column = anchor_column
        self.candidate_columns = list(candidate_columns) if candidate_columns is not None else [None] * self.width
        if len(self.candidate_columns) != self.width:
            raise ValueError(
                f"There are {self.width} candidates for each anchor, but {len(self.candidate_columns)} columns of them."
            )
        #: Row, place and text of each candidate that is there.
        self.present = [
            (row, place, text) for row, listed in enumerate(candidates) for place, text in enumerate(listed) if text
        ]
        check_texts([text for _, _, text in self.present], "candidates")

    def score(self, reader: TeacherReader, *, show_progress_bar: bool = False) -> Tensor:
        """A teacher's scores, ``(n, K)`` float32, NaN where the candidate is missing."""
        scores = torch.full((len(self.anchors), self.width), torch.nan)
        if self.present:
            ask = self._by_cross_encoder if reader.is_cross_encoder else self._by_bi_encoder
            rows, places, _ = zip(*self.present, strict=True)
            scores[list(rows), list(places)] = ask(reader, show_progress_bar)
        return scores

    def _pairs(self) -> Iterator[tuple[str, str, str | None]]:
        """Anchor, candidate and the candidate's column."""
        for row, place, text in self.present:
            yield self.anchors[row], text, self.candidate_columns[place]

    def _by_bi_encoder(self, reader: TeacherReader, show_progress_bar: bool) -> Tensor:
        # Every text once for each prompt that it is read with.
        wanted: dict[str, dict[str, int]] = {}

        def place(text: str, column: str | None) -> tuple[str, int]:
            prompt = reader.prompt(column)
            texts = wanted.setdefault(prompt, {})
            return prompt, texts.setdefault(text, len(texts))

        pairs = [(place(anchor, self.anchor_column), place(text, column)) for anchor, text, column in self._pairs()]
        embedded = {
            prompt: reader.embed(list(texts), prompt=prompt, show_progress_bar=show_progress_bar)
            for prompt, texts in wanted.items()
        }
        cosines = []
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            left, right = zip(*pairs[start : start + _PAIRS_AT_ONCE], strict=True)
            a = torch.stack([embedded[prompt][row] for prompt, row in left])
            b = torch.stack([embedded[prompt][row] for prompt, row in right])
            cosines.append((a * b).sum(dim=1))
        return torch.cat(cosines)

    def _by_cross_encoder(self, reader: TeacherReader, show_progress_bar: bool) -> Tensor:
        if isinstance(reader.teacher.prompt, str) or reader.teacher.prompt is None:
            prompt = reader.prompt()
            pairs = [(anchor, text) for anchor, text, _ in self._pairs()]
        else:
            # A prompt for each side of a pair; sentence-transformers puts its one prompt before the first side only.
            prompt = ""
            before = reader.prompt(self.anchor_column)
            pairs = [(before + anchor, reader.prompt(column) + text) for anchor, text, column in self._pairs()]
        unique = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        scores = reader.score_pairs(list(unique), prompt=prompt, show_progress_bar=show_progress_bar)
        return scores[torch.tensor([unique[pair] for pair in pairs])]


def _check_width(anchors: Sequence[str], candidates: Sequence[Sequence[str | None]]) -> int:
    if len(candidates) != len(anchors):
        raise ValueError(f"There are {len(anchors)} anchors, but {len(candidates)} lists of candidates.")
    widths = {len(listed) for listed in candidates}
    if len(widths) > 1:
        raise ValueError(
            f"Every list must have the same number of candidates, but got from {min(widths)} to {max(widths)}: fill "
            'short lists up with "", which stands for a missing candidate.'
        )
    width = widths.pop() if widths else 0
    if width == 0:
        raise ValueError("There are no candidates to score.")
    return width
