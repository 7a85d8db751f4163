"""Training steps: RankCSE with attached scores and with live teachers, beside SimCSE, on one student."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rankcse_st import RankCSELoss, TextCollator

# Hidden size, layers, heads, of randomly initialised models: speed does not depend on the weights.
SHAPES = {"bert-base": (768, 12, 12), "bert-large": (1024, 24, 16), "minilm-6": (384, 6, 12), "tiny": (64, 2, 2)}


def random_model(
    shape: str, sentences: list[str], folder: Path, device: torch.device, seed: int
) -> SentenceTransformer:
    """A BERT of a certain shape with random weights, and a WordPiece vocabulary of the text."""
    hidden, layers, heads = SHAPES[shape]
    path = folder / f"{shape}-{seed}"
    if not path.exists():
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer.train_from_iterator(sentences, trainers.WordPieceTrainer(vocab_size=30_522, special_tokens=special))
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokens = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
        wrapped = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=512, **{f"{name}_token": t for name, t in tokens.items()}
        )
        config = BertConfig(
            vocab_size=30_522,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
        )
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(path)
        wrapped.save_pretrained(path)
    transformer = Transformer(str(path), max_seq_length=32)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean")]
    return SentenceTransformer(modules=modules, device=str(device))


class Steps:
    """Training steps of one student with several losses, each with its own dataloader over the same sentences.

    A step is everything that a trainer does: the batch from the dataloader, to the device, forward, backward,
    optimizer.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        sentences: list[str],
        *,
        label_width: int,
        batch_size: int,
        teachers: list[SentenceTransformer],
        dtype: torch.dtype | None,
    ) -> None:
        self.model = model.train()
        self.device = model.device
        self.dtype = dtype
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
        labels = nn.functional.normalize(torch.randn(len(sentences), label_width), dim=-1)
        single = Dataset.from_dict({"sentence": sentences})
        attached = single.add_column("label", list(labels.numpy())).with_format(
            "torch", columns=["label"], output_all_columns=True
        )
        double = Dataset.from_dict({"sentence": sentences, "again": sentences})
        collator = SentenceTransformerDataCollator(preprocess_fn=model.preprocess)
        only_distillation = {"contrastive_weight": 0.0, "consistency_weight": 0.0}
        losses: dict[str, tuple[nn.Module, Dataset, Any]] = {
            "SimCSE": (MultipleNegativesRankingLoss(model), double, collator),
            "RankCSE, attached scores": (RankCSELoss(model), attached, collator),
            "RankCSE, attached scores, ListMLE": (RankCSELoss(model, method="listmle"), attached, collator),
            "distillation, one view": (RankCSELoss(model, **only_distillation), attached, collator),
        }
        if teachers:
            live = RankCSELoss(model, teachers=teachers, teacher_cache_size=0)  # As in a first epoch.
            losses["RankCSE, two live teachers"] = (live, single, TextCollator(collator))
        self.variants: dict[str, Callable[[], object]] = {
            name: self._step(loss, dataset, collate, batch_size) for name, (loss, dataset, collate) in losses.items()
        }
        self._tokens: list[int] = []

    @property
    def tokens_a_batch(self) -> float:
        """Tokens of a batch's sentences, without padding, on average; a second view of them does not count again."""
        return sum(self._tokens) / len(self._tokens)

    def _step(self, loss: nn.Module, dataset: Dataset, collate: Any, batch_size: int) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(0)  # The same batches for every loss.
        loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate, generator=generator)
        batches = _endless(loader)

        def step() -> None:
            batch = next(batches)
            labels = batch.pop("label", None)
            self._tokens.append(int(next(v for k, v in batch.items() if k.endswith("_attention_mask")).sum()))
            features: dict[str, dict[str, Any]] = {}
            for key, value in batch.items():
                column, _, name = key.partition("_")
                value = value.to(self.device) if isinstance(value, torch.Tensor) else value
                features.setdefault(column, {})[name] = value
            labels = None if labels is None else labels.to(self.device)
            with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype is not None):
                value = loss(list(features.values()), labels)
            (torch.stack(list(value.values())).sum() if isinstance(value, dict) else value).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()

        return step


def _endless(loader: DataLoader[Any]) -> Iterator[dict[str, Any]]:
    while True:
        yield from loader
