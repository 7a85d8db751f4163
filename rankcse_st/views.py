"""Embedding a batch: two dropout views of one text column, or one view of each of several columns.

Padded token batches of one width share one forward pass, in which every row draws its own dropout mask, so that two
copies of a sentence are two independent views. What has no row axis to stack along (the flat token stream of
``StaticEmbedding``, unpadded flash-attention batches) goes through the model once per view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankcse_st.collator import COLUMN_KEY, TEXT_KEY

Features = dict[str, Any]

# The batch's own dictionary carries what belongs to the batch. Wrapper losses call the inner loss several times with
# the same feature dicts, and AdaptiveLayerLoss hands layer embeddings from its first call to the next ones through
# the dicts that the model was given: these must be the same objects from call to call, and live as long as the batch.
_PLAN = "_rankcse_views"
# Keys that are for the loss, not for the model.
_NOT_FOR_THE_MODEL = frozenset({_PLAN, TEXT_KEY, COLUMN_KEY})


@dataclass
class _Plan:
    """How one batch goes through the model for one loss: feature dicts, and the views that each of them holds."""

    tokens: list[Any]
    forwards: list[tuple[Features, int]]
    compared: bool = False


def embed_views(model: nn.Module, columns: list[Features], views: int, loss: object = None) -> list[Tensor]:
    """Embed a batch.

    Args:
        model: A SentenceTransformer, or a wrapper of one with the same ``forward``.
        columns: One feature dict per text column, as the trainer passes them to a loss.
        views: For a single column, how many times each sentence is embedded, 1 or 2. Several columns are embedded
            once each.
        loss: Whose views they are. Another loss on the same batch has views of its own.

    Returns:
        One (B, d) tensor per view, or per column where there are several.
    """
    plans: dict[int, _Plan] = columns[0].setdefault(_PLAN, {})
    tokens = [features.get("input_ids") for features in columns]
    plan = plans.get(id(loss))
    if plan is None or any(a is not b for a, b in zip(plan.tokens, tokens, strict=True)):
        plan = plans[id(loss)] = _Plan(tokens, list(_plan_forwards(separate_views(columns, views))))
    embeddings: list[Tensor] = []
    for features, count in plan.forwards:
        embeddings += model(features)["sentence_embedding"].chunk(count)
    return embeddings


def separate_views(columns: list[Features], views: int) -> list[Features]:
    """One feature dict for each view of a single column, or for each of several columns, to be embedded one by one."""
    return [_for_the_model(view) for view in (columns * views if len(columns) == 1 else columns)]


def first_comparison(columns: list[Features], loss: object = None) -> bool:
    """Whether this is the first time that a loss compares the views of this batch; True only once per batch."""
    plan: _Plan = columns[0][_PLAN][id(loss)]
    first, plan.compared = not plan.compared, True
    return first


def row_keys(features: Mapping[str, Any]) -> Tensor | None:
    """One 64-bit key per row, equal for rows of equal tokens whatever their padding; None where there are no tokens.

    Returns:
        (B,) int64, the same in every process.
    """
    ids = features.get("input_ids")
    if not isinstance(ids, Tensor) or "cu_seq_lens_q" in features:
        return None
    if ids.ndim == 2:
        kept = features.get("attention_mask")
        kept = torch.ones_like(ids) if not isinstance(kept, Tensor) else kept.to(ids.dtype)
        position = kept.cumsum(1)
        return ((ids + 1) * kept * _multipliers(position)).sum(1)
    offsets = features.get("offsets")
    if ids.ndim == 1 and isinstance(offsets, Tensor):  # StaticEmbedding: rows laid end to end.
        lengths = torch.diff(offsets, append=offsets.new_tensor([len(ids)]))
        row = torch.arange(len(offsets), device=ids.device).repeat_interleave(lengths)
        position = torch.arange(len(ids), device=ids.device) - offsets[row] + 1
        return torch.zeros_like(offsets).scatter_add_(0, row, (ids + 1) * _multipliers(position))
    return None


def _multipliers(position: Tensor) -> Tensor:
    """A fixed pseudo-random odd 64-bit number per position (the mixing steps of splitmix64, in wrapping arithmetic)."""
    x = position.to(torch.int64) * -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return (x ^ ((x >> 31) & 0x1FFFFFFFF)) | 1


def _for_the_model(features: Features) -> Features:
    # A copy: a model writes its outputs into the dict that it is given, so that one dict used for two views would
    # hold one output for both.
    return {key: value for key, value in features.items() if key not in _NOT_FOR_THE_MODEL}


def _plan_forwards(views: list[Features]) -> Iterator[tuple[Features, int]]:
    merged = _merge(views)
    if merged is None:
        yield from ((view, 1) for view in views)
    else:
        yield merged, len(views)


def _merge(views: list[Features]) -> Features | None:
    """All views as one batch, the first view's rows first; None where they cannot or should not be stacked.

    Columns of different widths are not padded to one: with short queries and long documents that costs more than a
    second forward pass.
    """
    ids = views[0].get("input_ids")
    if len(views) == 1:
        return views[0]
    if not isinstance(ids, Tensor) or ids.ndim != 2 or "cu_seq_lens_q" in views[0]:
        return None
    if any(view.keys() != views[0].keys() for view in views):
        return None
    merged: Features = {}
    for key, first in views[0].items():
        values = [view[key] for view in views]
        if isinstance(first, Tensor) and key != "prompt_length":  # which describes the batch, not its rows
            if any(not isinstance(value, Tensor) or value.shape != first.shape for value in values):
                return None
            if first.ndim == 0 or len(first) != len(ids):
                return None
            merged[key] = torch.cat(values)
        elif all(_same(value, first) for value in values):
            merged[key] = first
        else:
            return None
    return merged


def _same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        return isinstance(value, Tensor) and isinstance(other, Tensor) and torch.equal(value, other)
    return type(value) is type(other) and isinstance(value, (str, int, float, bool)) and value == other
