"""Teachers for the tests: tiny checkpoints on disk, cross-encoders, and models whose scores are known or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from conftest import build_tokenizer
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Module
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedModel, RobertaConfig

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def save_checkpoint(folder: Path, model_class: Any = BertModel, seed: int = 0, **config: Any) -> PreTrainedModel:
    """Save a bare transformer checkpoint, as ``transformers`` alone would, and return its model."""
    tokenizer = build_tokenizer()
    config_class = RobertaConfig if "Roberta" in model_class.__name__ else BertConfig
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config_class(vocab_size=len(tokenizer), **{**TINY, **config}))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval()


def make_cross_encoder(folder: Path, **config: Any) -> CrossEncoder:
    """A tiny cross-encoder, saved as a bare classification checkpoint."""
    save_checkpoint(folder, BertForSequenceClassification, **{"num_labels": 1, **config})
    return CrossEncoder(str(folder), device="cpu")


class Lookup(Module):
    """An encoder that looks embeddings up by text, and counts what it was asked."""

    def __init__(self, table: dict[str, list[float]]) -> None:
        super().__init__()
        self.table = table
        self.asked: list[str] = []
        self.scale = torch.nn.Parameter(torch.ones(1))

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> dict[str, torch.Tensor]:
        self.asked += [(prompt or "") + text for text in inputs]
        return {"rows": torch.tensor([self.table[text] for text in inputs], dtype=torch.float32)}

    def forward(self, features: dict[str, torch.Tensor], **kwargs: Any) -> dict[str, torch.Tensor]:
        features["sentence_embedding"] = features["rows"] * self.scale
        return features

    def get_config_dict(self) -> dict[str, Any]:
        return {"table": self.table}

    def get_embedding_dimension(self) -> int:
        return len(next(iter(self.table.values())))

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError


def lookup(table: dict[str, list[float]]) -> tuple[SentenceTransformer, list[str]]:
    """A model that gives each text of ``table`` its vector, and the list of texts that it is asked for."""
    module = Lookup(table)
    return SentenceTransformer(modules=[module], device="cpu"), module.asked
