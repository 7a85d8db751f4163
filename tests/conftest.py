"""Fixtures shared by every test: nothing is downloaded, every model is built here and is tiny."""

from __future__ import annotations

import gc
import os
import socket

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

# The trainer collects garbage as it starts, which takes most of a second among the objects of all these libraries.
gc.freeze()

SUBJECTS = ["The cat", "A dog", "My neighbour", "The old train", "A small boat", "The river", "Anna", "The city"]
PREDICATES = [
    "sleeps on the sofa",
    "runs along the beach",
    "is late again",
    "likes warm bread",
    "was painted green",
    "never sings at night",
    "waits for the rain",
    "crossed the narrow bridge",
]
SENTENCES = [f"{subject} {predicate}." for subject in SUBJECTS for predicate in PREDICATES]


def free_port() -> str:
    """A port on which processes can meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def build_tokenizer(*, lowercase: bool = True, max_length: int = 32) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the words of ``SENTENCES``, with BERT's special tokens."""
    words = {word for sentence in SENTENCES for word in sentence.replace(".", " .").split()}
    if lowercase:
        words = {word.lower() for word in words}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=max_length,
    )


@pytest.fixture(scope="session")
def make_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SentenceTransformer]:
    """A factory of tiny BERT encoders: ``make_tiny_model(seed=0, dim=32, layers=2, dropout=0.1, pooling="mean")``."""
    folders: dict[tuple, Path] = {}

    def make(
        *,
        seed: int = 0,
        dim: int = 32,
        layers: int = 2,
        dropout: float = 0.1,
        pooling: str = "mean",
        lowercase: bool = True,
        max_length: int = 32,
    ) -> SentenceTransformer:
        key = (seed, dim, layers, dropout, lowercase, max_length)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("bert")
            tokenizer = build_tokenizer(lowercase=lowercase, max_length=max_length)
            config = BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=dim,
                num_hidden_layers=layers,
                num_attention_heads=4,
                intermediate_size=2 * dim,
                max_position_embeddings=64,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
                # The usual 0.02 leaves a model this small with almost the same embedding for every sentence.
                initializer_range=0.3,
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                BertModel(config).save_pretrained(folders[key])
            tokenizer.save_pretrained(folders[key])
        transformer = Transformer(str(folders[key]))
        return SentenceTransformer(
            modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling)], device="cpu"
        )

    return make


@pytest.fixture
def tiny_model(make_tiny_model: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """A fresh student: BERT with two layers of 32 dimensions, dropout 0.1, mean pooling, lower-case vocabulary."""
    return make_tiny_model()


@pytest.fixture
def tiny_teacher(make_tiny_model: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """A teacher that differs from ``tiny_model`` in weights, width (48) and vocabulary (cased)."""
    return make_tiny_model(seed=1, dim=48, lowercase=False)


@pytest.fixture
def sentences() -> list[str]:
    """64 different short English sentences that the tiny vocabularies know."""
    return list(SENTENCES)
