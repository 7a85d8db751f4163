"""Batches as the trainer passes them to a loss, and a look at what a loss does with its model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor


def features(model: SentenceTransformer, texts: Sequence[str]) -> dict[str, Any]:
    """One text column."""
    return model.preprocess(list(texts))


def columns(model: SentenceTransformer, *texts: Sequence[str]) -> list[dict[str, Any]]:
    """Several text columns."""
    return [features(model, column) for column in texts]


def unit_vectors(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random vectors of length 1, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(vectors, dim=-1).to(dtype)


def total(loss: Tensor | dict[str, Tensor]) -> Tensor:
    """What the trainer back-propagates."""
    return torch.stack(list(loss.values())).sum() if isinstance(loss, dict) else loss


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    """The gradients of all parameters that have one."""
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@contextlib.contextmanager
def forwards_of(model: SentenceTransformer) -> Iterator[list[int]]:
    """Collects the number of rows of every forward pass of ``model``."""
    rows: list[int] = []
    handle = model.register_forward_hook(
        lambda _module, _inputs, output: rows.append(len(output["sentence_embedding"]))
    )
    try:
        yield rows
    finally:
        handle.remove()
