"""Two students made from their teacher: fewer layers, or none at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from torch import nn

SIF = 1e-4


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

    Frequent tokens say little and count less in the mean over a sentence: they are weighted as SIF does (Arora et al.
    2017, a = 1e-4), by frequencies after Zipf's law, for a WordPiece vocabulary begins with the frequent ones.
    """
    teacher = SentenceTransformer(name, device="cpu")
    tokenizer = teacher.tokenizer
    # Without its Normalize: what it makes of a token that says little is short.
    encoder = nn.Sequential(*(module for module in teacher if isinstance(module, (Transformer, Pooling))))
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = []
    with torch.inference_mode():
        for tokens in torch.arange(len(tokenizer)).split(batch_size):
            ids = torch.stack([torch.full_like(tokens, start), tokens, torch.full_like(tokens, end)], dim=1)
            features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            rows.append(encoder(features)["sentence_embedding"])
    table = torch.cat(rows)
    frequencies = 1 / torch.arange(1, len(table) + 1)
    frequencies /= frequencies.sum()
    table = (table - table.mean(0)) * (SIF / (SIF + frequencies))[:, None]
    table[tokenizer.all_special_ids] = 0
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device="cpu")
