"""What the losses need to know of the model that is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from accelerate.utils import extract_model_from_parallel
from sentence_transformers import SentenceTransformer
from torch import nn


def unwrap(model: nn.Module) -> SentenceTransformer:
    """The SentenceTransformer inside whatever DDP or ``torch.compile`` has put around it."""
    return cast("SentenceTransformer", extract_model_from_parallel(model, keep_torch_compile=False))


@contextmanager
def untruncated(model: SentenceTransformer) -> Iterator[None]:
    """The model as it is trained: ``truncate_dim`` cuts the embeddings of ``encode`` alone."""
    truncate_dim, model.truncate_dim = model.truncate_dim, None
    try:
        yield
    finally:
        model.truncate_dim = truncate_dim


def embedding_width(model: SentenceTransformer) -> int | None:
    """Dimensions of the embeddings that are trained."""
    with untruncated(model):
        return cast("int | None", model.get_embedding_dimension())
