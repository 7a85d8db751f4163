"""What the losses need to know of the model that is trained."""

from __future__ import annotations

from typing import cast

from accelerate.utils import extract_model_from_parallel
from sentence_transformers import SentenceTransformer
from torch import nn


def unwrap(model: nn.Module) -> SentenceTransformer:
    """The SentenceTransformer inside whatever DDP or ``torch.compile`` has put around it."""
    return cast("SentenceTransformer", extract_model_from_parallel(model, keep_torch_compile=False))


def embedding_width(model: SentenceTransformer) -> int | None:
    """Dimensions of the embeddings that are trained: ``truncate_dim`` cuts those of ``encode`` alone."""
    truncate_dim, model.truncate_dim = model.truncate_dim, None
    try:
        return cast("int | None", model.get_embedding_dimension())
    finally:
        model.truncate_dim = truncate_dim
