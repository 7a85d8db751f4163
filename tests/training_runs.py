"""Short runs of the real trainer on tiny data, for the tests that need one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from conftest import SENTENCES
from datasets import Dataset, IterableDataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor, nn

LABEL_WIDTH = 12

LossFactory = Callable[[SentenceTransformer], nn.Module]


def score_vectors(width: int = LABEL_WIDTH) -> Tensor:
    """One unit vector for each of ``SENTENCES``, as a teacher would give them. Shape (64, width)."""
    vectors = torch.randn(len(SENTENCES), width, generator=torch.Generator().manual_seed(5))
    return nn.functional.normalize(vectors, dim=1)


def scored(rows: slice = slice(None), width: int = LABEL_WIDTH) -> Dataset:
    """Sentences with their score vectors."""
    return Dataset.from_dict({"sentence": SENTENCES[rows], "label": score_vectors(width)[rows].tolist()})


def pairs() -> Dataset:
    """The same text in two columns, as in SimCSE."""
    return Dataset.from_dict({"sentence": SENTENCES, "again": SENTENCES})


def train(
    model: SentenceTransformer,
    folder: Path,
    loss: LossFactory | nn.Module | Mapping[str, nn.Module],
    dataset: Dataset | IterableDataset | dict[str, Dataset],
    *,
    callbacks: list[Any] | None = None,
    evaluator: Any = None,
    eval_dataset: Any = None,
    resume: str | None = None,
    **arguments: Any,
) -> SentenceTransformerTrainer:
    """Train for a few steps on the CPU; ``arguments`` are those of the trainer that differ from the defaults here."""
    defaults: dict[str, Any] = {
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 1,
    }
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(output_dir=str(folder), **(defaults | arguments)),
        train_dataset=dataset,
        eval_dataset=eval_dataset,
        loss=loss if isinstance(loss, (nn.Module, Mapping)) else loss(model),
        evaluator=evaluator,
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def logged(trainer: SentenceTransformerTrainer, key: str) -> list[float]:
    """What the trainer logged under a key, in order."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]
