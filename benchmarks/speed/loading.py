"""What attached labels add to a batch of the trainer's own dataloader, without workers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks.demo.corpus import docstring_sentences
from benchmarks.speed.steps import random_model
from benchmarks.speed.timing import differences
from rankcse_st import RankCSELoss, TeacherScoreDataset

# Widths of the teachers, as MiniLM's and mpnet's: score vectors of 1152 numbers.
WIDTHS = (384, 768)
BATCH_SIZE = 128
WITHOUT, WITH = "without labels", "with labels"


def static_teacher(student: SentenceTransformer, width: int) -> SentenceTransformer:
    """Random embeddings of the student's tokens: what the scores are does not matter here."""
    torch.manual_seed(width)
    weights = torch.randn(len(student.tokenizer), width)
    return SentenceTransformer(modules=[StaticEmbedding(student.tokenizer, embedding_weights=weights)], device="cpu")


def dataloader(model: SentenceTransformer, dataset: Dataset, folder: Path) -> Any:
    """The dataloader that the trainer makes; both see the same rows in the same order."""
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH_SIZE,
        dataloader_drop_last=True,
        dataloader_num_workers=0,
        use_cpu=True,
        report_to=[],
        seed=0,
    )
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=RankCSELoss(model))
    return trainer.get_train_dataloader()


def by_turns(loaders: dict[str, Any], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each of ``repetitions`` batches of each loader, taking turns, as many epochs as it needs."""
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    while len(seconds[WITHOUT]) < repetitions:
        iterators = {name: iter(loader) for name, loader in loaders.items()}
        for iterator in iterators.values():
            next(iterator)  # The first one fetches two batches and the last one none: accelerate looks ahead.
        for _ in range(min(len(loaders[WITHOUT]) - 2, repetitions - len(seconds[WITHOUT]))):
            for name, iterator in iterators.items():
                started = time.perf_counter()
                next(iterator)
                seconds[name].append(time.perf_counter() - started)
    return seconds


def loading(repetitions: int) -> dict[str, Any]:
    """Batches with and without labels, of one text column with ``(D,)`` and of two with ``(C, D)``."""
    sentences = docstring_sentences()
    result: dict[str, Any] = {"batch_size": BATCH_SIZE, "label_width": sum(WIDTHS), "sentences": len(sentences)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        student = random_model("tiny", sentences, folder, torch.device("cpu"), seed=0)
        teachers = [static_teacher(student, width) for width in WIDTHS]
        one = Dataset.from_dict({"sentence": sentences})
        two = Dataset.from_dict({"anchor": sentences, "positive": sentences[1:] + sentences[:1]})
        options: dict[str, Any] = {"cache_dir": folder / "scores", "show_progress_bar": False}
        cases = {
            "one column": (one, TeacherScoreDataset.from_sentences(sentences, teachers, **options)),
            "two columns": (two, TeacherScoreDataset.from_dataset(two, teachers, **options)),
        }
        for case, datasets in cases.items():
            pairs = zip((WITHOUT, WITH), datasets, strict=True)
            loaders = {name: dataloader(student, dataset, folder / "run") for name, dataset in pairs}
            label = next(iter(loaders[WITH]))["label"]
            assert "label" not in next(iter(loaders[WITHOUT]))
            seconds = by_turns(loaders, repetitions)
            result[case] = {
                "label_shape": list(label.shape),
                "seconds": seconds,
                "added": differences(seconds[WITH], seconds[WITHOUT]),
            }
    return result
