"""Tiny random students of ten architectures, built in a fraction of a second and without a network.

Each has two layers of 32 dimensions over the vocabulary of ``conftest.build_tokenizer`` and its family's own default
dropout, whatever that is (0.0 for ModernBERT and Qwen3; ``StaticEmbedding`` has none to set).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from conftest import build_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)

DIMENSION = 32
LAYERS = 2
HEADS = 4
# The usual 0.02 leaves a model this small with almost the same embedding for every sentence.
INITIALIZER_RANGE = 0.3


class Family(NamedTuple):
    """How to build one architecture: its config and model classes, and the arguments that make it tiny."""

    config: Callable[..., Any]
    model: Callable[[Any], PreTrainedModel]
    arguments: dict[str, Any]
    pooling: str = "mean"
    token_type_ids: bool = False


_BERT_LIKE: dict[str, Any] = {
    "hidden_size": DIMENSION,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * DIMENSION,
    "max_position_embeddings": 64,
    "initializer_range": INITIALIZER_RANGE,
    "pad_token_id": 0,
}

_FAMILIES: dict[str, Family] = {
    "bert": Family(BertConfig, BertModel, _BERT_LIKE, token_type_ids=True),
    "roberta": Family(RobertaConfig, RobertaModel, _BERT_LIKE | {"type_vocab_size": 1}, pooling="cls"),
    "mpnet": Family(MPNetConfig, MPNetModel, _BERT_LIKE),
    "distilbert": Family(
        DistilBertConfig,
        DistilBertModel,
        {
            "dim": DIMENSION,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "hidden_dim": 2 * DIMENSION,
            "max_position_embeddings": 64,
            "initializer_range": INITIALIZER_RANGE,
        },
    ),
    "electra": Family(
        ElectraConfig, ElectraModel, _BERT_LIKE | {"embedding_size": DIMENSION // 2}, pooling="cls", token_type_ids=True
    ),
    "deberta-v2": Family(
        DebertaV2Config,
        DebertaV2Model,
        _BERT_LIKE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
        token_type_ids=True,
    ),
    "modernbert": Family(
        ModernBertConfig,
        ModernBertModel,
        _BERT_LIKE
        | {
            "cls_token_id": 2,
            "bos_token_id": 2,
            "sep_token_id": 3,
            "eos_token_id": 3,
            "local_attention": 16,
            "initializer_cutoff_factor": 3.0,
        },
    ),
    "t5": Family(
        T5Config,
        T5EncoderModel,
        {
            "d_model": DIMENSION,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "d_kv": DIMENSION // HEADS,
            "d_ff": 2 * DIMENSION,
            "pad_token_id": 0,
            "initializer_factor": 1.0,
        },
    ),
    "qwen3": Family(
        Qwen3Config,
        Qwen3Model,
        _BERT_LIKE
        | {"num_key_value_heads": HEADS // 2, "head_dim": DIMENSION // HEADS, "bos_token_id": 2, "eos_token_id": 3},
        pooling="lasttoken",
    ),
}

STATIC = "static-embedding"
TRANSFORMERS: tuple[str, ...] = tuple(_FAMILIES)
STUDENTS: tuple[str, ...] = (*TRANSFORMERS, STATIC)


def build_student(
    family: str = "bert", *, seed: int = 0, modules: tuple[torch.nn.Module, ...] = (), **config: Any
) -> SentenceTransformer:
    """Build a tiny random student on the CPU; the same arguments always give the same weights.

    Args:
        family: One of ``STUDENTS``.
        seed: Of the random weights. The global random state stays as it was.
        modules: Sentence Transformers modules to put after the pooling, e.g. ``Normalize()``.
        config: Fields of the architecture's config that differ from the tiny defaults, e.g. ``attention_dropout=0.1``.
    """
    tokenizer = build_tokenizer()
    if family == STATIC:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            static = StaticEmbedding(tokenizer, embedding_dim=DIMENSION)
        return SentenceTransformer(modules=[static, *modules], device="cpu")
    recipe = _FAMILIES[family]
    return _build_transformer(recipe, tokenizer, seed=seed, modules=modules, **config)


def _build_transformer(
    recipe: Family,
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    modules: tuple[torch.nn.Module, ...],
    **config: Any,
) -> SentenceTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = recipe.model(recipe.config(vocab_size=len(tokenizer), **(recipe.arguments | config)))
    with tempfile.TemporaryDirectory() as folder:
        backbone.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder)
    if recipe.token_type_ids:
        transformer.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    pooling = Pooling(transformer.get_embedding_dimension(), recipe.pooling)
    return SentenceTransformer(modules=[transformer, pooling, *modules], device="cpu")
