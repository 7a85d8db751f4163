"""Score lists of candidates: each anchor with its own, by bi-encoders and cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from torch import Tensor

from rankcse_st.checkpoints import as_teacher
from rankcse_st.texts import check_texts

if TYPE_CHECKING:
    from rankcse_st.teachers import TeacherEnsemble


def score_lists_each(
    ensemble: TeacherEnsemble,
    anchors: Sequence[str],
    candidates: Sequence[Sequence[str | None]],
    anchor_column: str | None = None,
    candidate_columns: Sequence[str] | None = None,
    show_progress_bar: bool = False,
    indices: Sequence[int] | None = None,
) -> list[Tensor]:
    """One ``(n, K)`` float32 tensor of scores for each teacher of ``indices``, NaN where a candidate is missing.

    All active teachers are asked by default. See :meth:`rankcse_st.teachers.TeacherEnsemble.score_lists` for the other
    arguments.
    """
    anchors = check_texts(anchors, "anchors")
    width = _check_candidates(anchors, candidates)
    columns = list(candidate_columns) if candidate_columns is not None else [None] * width
    if len(columns) != width:
        raise ValueError(f"There are {width} candidates for each anchor, but {len(columns)} candidate columns.")
    pairs = [
        (row, place, candidate)
        for row, listed in enumerate(candidates)
        for place, candidate in enumerate(listed)
        if candidate
    ]
    check_texts([candidate for _, _, candidate in pairs], "candidates")
    each = []
    for k in ensemble.active if indices is None else indices:
        scores = torch.full((len(anchors), width), torch.nan)
        if isinstance(ensemble.load(k), CrossEncoder):
            found = _by_cross_encoder(ensemble, k, anchors, pairs, anchor_column, columns, show_progress_bar)
        else:
            found = _by_bi_encoder(ensemble, k, anchors, pairs, anchor_column, columns, show_progress_bar)
        scores[[row for row, _, _ in pairs], [place for _, place, _ in pairs]] = found
        each.append(scores)
    return each


def _check_candidates(anchors: Sequence[str], candidates: Sequence[Sequence[str | None]]) -> int:
    if len(candidates) != len(anchors):
        raise ValueError(f"There are {len(anchors)} anchors, but {len(candidates)} lists of candidates.")
    widths = {len(listed) for listed in candidates}
    if len(widths) > 1:
        raise ValueError(
            f"Every list must have the same number of candidates, but got from {min(widths)} to {max(widths)}: "
            'fill short lists up with "", which stands for a missing candidate.'
        )
    width = widths.pop() if widths else 0
    if width == 0:
        raise ValueError("There are no candidates to score.")
    return width


def _by_bi_encoder(
    ensemble: TeacherEnsemble,
    index: int,
    anchors: Sequence[str],
    pairs: Sequence[tuple[int, int, str]],
    anchor_column: str | None,
    columns: Sequence[str | None],
    show_progress_bar: bool,
) -> Tensor:
    # Every text once for each prompt that it is read with.
    wanted: dict[str, dict[str, int]] = {}
    names: dict[str, str | None] = {}

    def place(text: str, column: str | None) -> tuple[str, int]:
        prompt = ensemble.prompt(index, column)
        names.setdefault(prompt, column)
        texts = wanted.setdefault(prompt, {})
        return prompt, texts.setdefault(text, len(texts))

    left = [place(anchors[row], anchor_column) for row, _, _ in pairs]
    right = [place(text, columns[position]) for _, position, text in pairs]
    embedded = {
        prompt: ensemble.encode_one(index, list(texts), column=names[prompt], show_progress_bar=show_progress_bar)
        for prompt, texts in wanted.items()
    }
    if not pairs:
        return torch.empty(0)
    chunks = []
    for start in range(0, len(pairs), 8192):
        these = slice(start, start + 8192)
        a = torch.stack([embedded[prompt][row] for prompt, row in left[these]])
        b = torch.stack([embedded[prompt][row] for prompt, row in right[these]])
        chunks.append((a * b).sum(dim=1))
    return torch.cat(chunks)


def _by_cross_encoder(
    ensemble: TeacherEnsemble,
    index: int,
    anchors: Sequence[str],
    pairs: Sequence[tuple[int, int, str]],
    anchor_column: str | None,
    columns: Sequence[str | None],
    show_progress_bar: bool,
) -> Tensor:
    model, teacher = ensemble.load(index), ensemble.teachers[index]
    assert isinstance(model, CrossEncoder)
    if not pairs:
        return torch.empty(0)
    if isinstance(teacher.prompt, str) or teacher.prompt is None:
        prompt = ensemble.prompt(index, None)
        read = [(anchors[row], text) for row, _, text in pairs]
    else:
        # A prompt for each side of the pair; sentence-transformers puts its one prompt before the first side only.
        prompt = ""
        read = [
            (ensemble.prompt(index, anchor_column) + anchors[row], ensemble.prompt(index, columns[place]) + text)
            for row, place, text in pairs
        ]
    unique = list(dict.fromkeys(read))
    with as_teacher(model, teacher.max_seq_length):
        predicted = model.predict(
            unique, prompt=prompt, batch_size=ensemble.batch_size, show_progress_bar=show_progress_bar
        )
    scores = torch.from_numpy(np.asarray(predicted)).float()
    bad = (~torch.isfinite(scores)).nonzero().flatten()
    if len(bad):
        raise ValueError(
            f"Teacher {teacher.name!r} returned NaN or infinite scores for {len(bad)} of {len(unique)} pairs, the "
            f"first of them {unique[int(bad[0])]!r}."
        )
    position = {pair: row for row, pair in enumerate(unique)}
    return scores[torch.tensor([position[pair] for pair in read])]
