"""Training one run's student."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from scipy.stats import ortho_group
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn

from benchmarks.demo.students import keep_layers, static_student
from benchmarks.study.runs import Run
from rankcse_st import RankCSELoss, Teacher, TeacherScoreDataset, fit_teacher_projection
from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch

# Of the six layers of all-MiniLM-L6-v2, numbered from 0.
LAYERS = (1, 3, 5)
EVALUATION_LENGTH = 128
# Students that need no folder of their own.
MADE_FROM_MINILM = ("minilm-3", "static")


def make_student(run: Run, folders: Mapping[str, Path]) -> SentenceTransformer:
    """The student before training."""
    if run.student == "static":
        return deepcopy(_static_student(folders["minilm"]))
    if run.student == "minilm-3":
        model = keep_layers(str(folders["minilm"]), LAYERS)
    else:
        model = SentenceTransformer(str(folders[run.student]), device="cpu")
    if has_length(model):
        model.max_seq_length = EVALUATION_LENGTH
    return model


@cache
def _static_student(teacher: Path) -> SentenceTransformer:
    """Made once: a minute on one core, where its training takes seconds."""
    return static_student(str(teacher))


def has_length(model: SentenceTransformer) -> bool:
    """Whether sentences may be cut for it: not a table of token embeddings, which costs next to nothing."""
    return not isinstance(model[0], StaticEmbedding)


def make_dataset(run: Run, sentences: list[str], folders: Mapping[str, Path], cache: Path) -> Dataset:
    """The sentences with what the method takes for labels."""
    if run.method == "SimCSE":
        return Dataset.from_dict({"sentence": sentences, "again": sentences})
    teachers = [
        Teacher(str(folders[name]), weight=weight) for name, weight in zip(run.teachers, run.weights, strict=True)
    ]
    dataset = TeacherScoreDataset.from_sentences(sentences, teachers, cache_dir=cache)
    return dataset.map(_turn, batched=True) if run.turned else dataset


def _turn(batch: dict[str, Any]) -> dict[str, Any]:
    """Products stay what they are."""
    return {"label": batch["label"] @ torch.from_numpy(_rotation(batch["label"].shape[-1])).float()}


@cache
def _rotation(width: int) -> np.ndarray:
    rotation: np.ndarray = ortho_group.rvs(width, random_state=0)
    return rotation


class RankingAndMatching(nn.Module):
    """Ranking, and matching by a projection that is to be learned, as EmbedDistillLoss has it."""

    def __init__(self, ranking: RankCSELoss, matching: EmbedDistillLoss, weight: float) -> None:
        super().__init__()
        self.model = ranking.model
        self.ranking = ranking
        self.matching = matching
        self.weight = weight

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of both, which the trainer logs and sums."""
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        parts = self.ranking.compute_loss_from_embeddings(embeddings, labels)
        matching = self.weight * self.matching.compute_loss_from_embeddings(embeddings, [labels] * len(embeddings))
        return {**cast(dict[str, torch.Tensor], parts), "matching": matching}


def make_loss(run: Run, model: SentenceTransformer, dataset: Dataset) -> nn.Module:
    """SimCSE and embedding distillation are those of sentence-transformers."""
    if run.method == "SimCSE":
        return MultipleNegativesRankingLoss(model)
    width = dataset.with_format("torch", columns=["label"])[0]["label"].shape[-1]
    same_width = width == model.get_embedding_dimension()
    if run.method == "EmbedDistill":
        # A projection where the widths differ, as its documentation says; it is thrown away after training.
        return EmbedDistillLoss(model, projection_dim=None if same_width else width)
    learned = bool(run.matching) and not (run.fitted or same_width)
    ranking = RankCSELoss(
        model,
        method="listnet" if run.method == "ListNet" else "listmle",
        student_temperature=run.student_temperature,
        teacher_temperature=run.teacher_temperature,
        contrastive_weight=run.contrastive,
        consistency_weight=run.consistency,
        distillation_weight=run.distillation,
        views=run.views,
        matching_weight=0.0 if learned else run.matching,
        teacher_projection=fit_teacher_projection(model, dataset, show_progress_bar=False) if run.fitted else None,
    )
    if not learned:
        return ranking
    return RankingAndMatching(ranking, EmbedDistillLoss(model, projection_dim=width), run.matching)


def _rate_of_projection(run: Run, loss: nn.Module) -> dict[str, float]:
    """Where there is one to be learned; the trainer refuses a rate of what is not there."""
    pattern = r"(^|\.)projection\."
    learned = any(re.search(pattern, name) for name, _ in loss.named_parameters())
    return {pattern: run.projection_rate} if learned and run.projection_rate is not None else {}


def train(run: Run, model: SentenceTransformer, dataset: Dataset) -> dict[str, Any]:
    """Train the student in place.

    Returns:
        Steps, wall and processor seconds of training alone, and the loss over training.
    """
    if has_length(model):
        model.max_seq_length = run.max_seq_length
    started = time.perf_counter(), time.process_time()
    loss = make_loss(run, model, dataset)
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=run.epochs,
            per_device_train_batch_size=run.batch_size,
            learning_rate=run.learning_rate,
            learning_rate_mapping=_rate_of_projection(run, loss),
            warmup_steps=0.1,
            dataloader_drop_last=True,
            seed=run.seed,
            save_strategy="no",
            logging_steps=8,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
            batch_sampler=NeighbourBatchSampler.with_options(group_size=run.group_size)
            if run.group_size > 1
            else "batch_sampler",
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=args,
            train_dataset=dataset,
            loss=loss,
            callbacks=[SetSamplerEpoch()],
        )
        trainer.train()
        ended = time.perf_counter(), time.process_time()
        if has_length(model):
            model.max_seq_length = EVALUATION_LENGTH
    losses = [(log["step"], log["loss"]) for log in trainer.state.log_history if "loss" in log]
    return {
        "steps": trainer.state.global_step,
        "seconds": ended[0] - started[0],
        # What the step cost whoever else was at work on the machine, for comparing methods at equal time.
        "processor_seconds": ended[1] - started[1],
        "losses": losses,
    }
