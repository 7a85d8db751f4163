"""Two students made from their teacher: fewer layers, or none at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from torch import nn


def keep_layers(name: str, layers: Sequence[int]) -> SentenceTransformer:
    """A BERT-like sentence-transformers model cut down to some of its layers, numbered from 0.

    Embeddings, pooling and tokenizer stay as they are.
    """
    model = SentenceTransformer(name, device="cpu")
    transformer = model[0]
    assert isinstance(transformer, Transformer)
    encoder = transformer.model.encoder
    encoder.layer = nn.ModuleList([encoder.layer[index] for index in layers])
    transformer.model.config.num_hidden_layers = len(layers)
    return model


def static_student(name: str, *, batch_size: int = 2048) -> SentenceTransformer:
    """A ``StaticEmbedding`` whose table is what the teacher makes of each token by itself.

    Tokens are weighted by the logarithm of their rank, so that frequent ones, which come first in a WordPiece
    vocabulary and say little, count less in the mean over a sentence.
    """
    teacher = SentenceTransformer(name, device="cpu")
    tokenizer = teacher.tokenizer
    encoder = nn.Sequential(*(module for module in teacher if isinstance(module, (Transformer, Pooling, Normalize))))
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = []
    with torch.inference_mode():
        for tokens in torch.arange(len(tokenizer)).split(batch_size):
            ids = torch.stack([torch.full_like(tokens, start), tokens, torch.full_like(tokens, end)], dim=1)
            features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            rows.append(encoder(features)["sentence_embedding"])
    table = torch.cat(rows)
    table = table - table.mean(0)
    table = table / table.norm(dim=1, keepdim=True) * torch.log1p(torch.arange(len(table)))[:, None]
    table[tokenizer.all_special_ids] = 0
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device="cpu")
