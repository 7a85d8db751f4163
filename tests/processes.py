"""What ``test_distributed.py`` runs in each of several processes: everything in one start, as starting them is slow.

A check is a loss on a batch whose rows are shared out among the processes. What a process finds is a dictionary of
tensors and strings, written to a file; a check that raises leaves its error there.
"""

from __future__ import annotations

import copy
import datetime
import functools
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from batches import columns, gradients, total, unit_vectors
from conftest import SENTENCES
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from tiny_models import DIMENSION, build_student
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankcse_st import CachedRankCSELoss, ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss, TextCollator

WORLD_SIZE = 2
ROWS = 6  # of each process
TIMEOUT = datetime.timedelta(seconds=120)


@dataclass
class Check:
    """A loss, made for gathering or not, and a batch of ``WORLD_SIZE * ROWS`` rows."""

    make_loss: Callable[..., nn.Module]
    texts: list[list[str]]
    labels: Tensor | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def rows(self, rank: int | None) -> tuple[list[list[str]], Tensor | None]:
        """The rows of one process, or all."""
        rows = slice(None) if rank is None else slice(rank * ROWS, (rank + 1) * ROWS)
        return [column[rows] for column in self.texts], None if self.labels is None else self.labels[rows]


def _texts(count: int, *, duplicates: bool = False) -> list[list[str]]:
    size = WORLD_SIZE * ROWS
    texts = [SENTENCES[k * size : (k + 1) * size] for k in range(count)]
    if duplicates:  # across the processes and within one, between columns too
        texts[0][ROWS] = texts[0][0]
        texts[0][ROWS + 1] = texts[0][ROWS + 2]
        if count > 2:
            texts[1][2] = texts[1][ROWS + 3]
            texts[2][ROWS + 4] = texts[0][1]
    return texts


def _explicit(candidates: int) -> Tensor:
    """Grades with missing entries: the second process has fewer lists of two entries or more than the first."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (WORLD_SIZE * ROWS, candidates), generator=generator).double()
    scores[ROWS : ROWS + 3, 1:] = math.nan
    scores[0, 0], scores[1, 1], scores[-1] = math.nan, math.nan, math.nan
    return scores


def _vectors(*columns_: int, width: int = 24) -> Tensor:
    return unit_vectors(WORLD_SIZE * ROWS, *columns_, width, dtype=torch.float64)


def _matryoshka(model: SentenceTransformer, **options: Any) -> nn.Module:
    return MatryoshkaLoss(model, RankCSELoss(model, **options), [DIMENSION, DIMENSION // 2])


CHECKS = {
    "rankcse, listnet": Check(RankCSELoss, _texts(1), _vectors()),
    "rankcse, listmle": Check(RankCSELoss, _texts(1), _vectors(), {"method": "listmle"}),
    "rankcse, duplicates": Check(RankCSELoss, _texts(1, duplicates=True), _vectors()),
    "rankcse, hard negatives": Check(RankCSELoss, _texts(3, duplicates=True), _vectors(3)),
    "rankcse, hard negatives, listmle": Check(RankCSELoss, _texts(3), _vectors(3), {"method": "listmle"}),
    "rankcse, explicit lists": Check(RankCSELoss, _texts(4), _explicit(3), {"teacher_temperature": 1.0}),
    "rankcse, explicit lists and in-batch terms": Check(
        RankCSELoss, _texts(4), _explicit(3), {"teacher_temperature": 1.0, "in_batch_terms": True}
    ),
    "consistency": Check(RankingConsistencyLoss, _texts(1)),
    "consistency, hard negatives": Check(RankingConsistencyLoss, _texts(3)),
    "distillation, listnet": Check(ListwiseDistillationLoss, _texts(1), _vectors()),
    "distillation, listmle": Check(ListwiseDistillationLoss, _texts(1), _vectors(), {"method": "listmle"}),
    "distillation, pairs": Check(ListwiseDistillationLoss, _texts(2), _vectors(2)),
    "distillation, explicit lists": Check(ListwiseDistillationLoss, _texts(4), _explicit(3), {"method": "listmle"}),
    "cached rankcse": Check(CachedRankCSELoss, _texts(1), _vectors(), {"mini_batch_size": 4}),
    "matryoshka": Check(_matryoshka, _texts(1), _vectors(width=DIMENSION)),
}


@functools.cache
def _built(seed: int, dropout: float) -> SentenceTransformer:
    model = build_student("bert", seed=seed, hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0)
    return model.double().train()


def student(seed: int = 0, dropout: float = 0.0) -> SentenceTransformer:
    """A student of float64, by default without dropout: its second view can be a fixed distortion instead."""
    return copy.deepcopy(_built(seed, dropout))


def build_all() -> None:
    """Build every model ahead: once there are several processes, transformers saves on the first one only."""
    for seed, dropout in ((0, 0.0), (0, 0.1), (1, 0.0)):
        _built(seed, dropout)


def distort(model: SentenceTransformer) -> SentenceTransformer:
    """Make the second half of every forward pass of two views another view, the same however rows are shared out."""

    def hook(_module: nn.Module, _inputs: Any, output: dict[str, Tensor]) -> None:
        embeddings = output["sentence_embedding"]
        factor = 1 + 0.5 * torch.arange(embeddings.shape[1], dtype=embeddings.dtype).sin()
        first, second = embeddings.chunk(2)
        output["sentence_embedding"] = torch.cat([first, second * factor])

    model[1].register_forward_hook(hook)
    return model


def evaluate(check: Check, *, rank: int | None, gather: bool) -> dict[str, Any]:
    """The loss and all gradients: of all rows in one process (``rank=None``), or of a process's share of them."""
    model = student()
    texts, labels = check.rows(rank)
    if len(texts) == 1 and check.make_loss is not ListwiseDistillationLoss:
        if check.make_loss is CachedRankCSELoss:
            _distort_second_view(model, len(texts[0]), check.options["mini_batch_size"])
        else:
            distort(model)
    loss = check.make_loss(model, gather_across_devices=gather, **check.options)
    if rank is not None:
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
        wrapped.get_embedding_dimension = model.get_embedding_dimension  # as the trainer does
        loss.model = wrapped
        if isinstance(loss, MatryoshkaLoss):
            loss.loss.model = wrapped
    value = loss(columns(model, *texts), labels)
    parts = dict(value) if isinstance(value, dict) else {"loss": value}
    total(value).backward()
    return {"parts": {k: v.detach() for k, v in parts.items()}, "gradients": gradients(model)}


def _distort_second_view(model: SentenceTransformer, rows: int, mini_batch_size: int) -> None:
    """As ``distort`` where views are embedded one after the other, in mini-batches, twice."""
    steps = math.ceil(rows / mini_batch_size)
    calls = iter(range(10**6))

    def hook(_module: nn.Module, _inputs: Any, output: dict[str, Tensor]) -> None:
        embeddings = output["sentence_embedding"]
        factor = 1 + 0.5 * torch.arange(embeddings.shape[1], dtype=embeddings.dtype).sin()
        if next(calls) // steps % 2:
            output["sentence_embedding"] = embeddings * factor

    model[1].register_forward_hook(hook)


def unequal_batches(rank: int) -> dict[str, Any]:
    """One row less on the second process: each loss must raise on both."""
    model = student()
    texts, labels = _texts(1)[0][: ROWS - rank], _vectors()[: ROWS - rank]
    losses = {
        "rankcse": RankCSELoss(distort(model), gather_across_devices=True),
        "consistency": RankingConsistencyLoss(model, gather_across_devices=True),
        "distillation": ListwiseDistillationLoss(student(), gather_across_devices=True),
    }
    return {name: _said(lambda loss=loss: loss(columns(model, texts), labels)) for name, loss in losses.items()}


def _said(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def checkpointing(_rank: int) -> dict[str, Any]:
    """Two steps of SGD under DDP with dropout: plain, with gradient checkpointing, and with the reentrant kind."""
    found: dict[str, Any] = {}
    for kind in ("plain", "checkpointing", "reentrant"):
        model = student(dropout=0.1)
        if kind != "plain":
            model[0].auto_model.gradient_checkpointing_enable({"use_reentrant": kind == "reentrant"})
        loss = RankCSELoss(model, gather_across_devices=True)
        # The pooler of this BERT is unused; frozen, so that DDP need not look for unused parameters.
        model[0].auto_model.pooler.requires_grad_(False)
        loss.model = DistributedDataParallel(model, find_unused_parameters=kind == "reentrant")
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
        torch.manual_seed(10 + dist.get_rank())
        try:
            for step in range(2):
                optimizer.zero_grad()
                texts = SENTENCES[step * ROWS : (step + 1) * ROWS]
                total(loss(columns(model, texts), _vectors()[:ROWS])).backward()
                optimizer.step()
            found[kind] = {name: value.clone() for name, value in model.state_dict().items()}
        except RuntimeError as error:
            found[kind] = str(error)
    return found


class _WithText(SentenceTransformerTrainer):
    """A trainer whose live teachers see the raw text."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data_collator = TextCollator(self.data_collator)


def training(
    folder: Path, rows: int, batch_size: int, *, live: bool = False, gather: bool = True, keep_last: bool = False
):
    """Train through the real trainer, by SGD, on pairs; returns the trainer."""
    model = student()
    teacher = student(seed=1)
    data = {"sentence": SENTENCES[:rows], "positive": SENTENCES[-rows:]}
    if not live:
        data["label"] = unit_vectors(rows, 2, 24).tolist()
    loss = RankCSELoss(model, teacher if live else None, gather_across_devices=gather)
    trainer = (_WithText if live else SentenceTransformerTrainer)(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(folder),
            per_device_train_batch_size=batch_size,
            per_device_eval_batch_size=4,
            optim="sgd",
            learning_rate=0.05,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            max_steps=2,
            logging_steps=1,
        ),
        train_dataset=Dataset.from_dict(data),
        loss=loss,
    )
    if keep_last:  # Sentence Transformers turns dataloader_drop_last on by itself; someone turns it off again.
        trainer.args.dataloader_drop_last = False
    trainer.train()
    return trainer


def trained(folder: Path) -> dict[str, Any]:
    """Training on all pairs in every step: with attached scores, with live teachers, and with a short last batch."""
    found: dict[str, Any] = {}
    trainer = training(folder, 16, 8)
    found["wrapped"] = type(trainer.loss.model).__name__
    found["weights"] = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    found["logged"] = [entry for entry in trainer.state.log_history if "loss" in entry]
    odd = Dataset.from_dict(
        {"sentence": SENTENCES[:13], "positive": SENTENCES[-13:], "label": unit_vectors(13, 2, 24).tolist()}
    )
    found["eval_loss"] = trainer.evaluate(odd)["eval_loss"]
    live = training(folder, 16, 8, live=True)
    found["live"] = {name: value.clone() for name, value in live.model.state_dict().items()}
    found["live logged"] = [entry for entry in live.state.log_history if "loss" in entry]
    alone = training(folder, 16, 8, gather=False)
    found["without gathering"] = {name: value.clone() for name, value in alone.model.state_dict().items()}
    uneven = training(folder, 21, 8)
    found["uneven logged"] = [entry for entry in uneven.state.log_history if "loss" in entry]
    found["said"] = _said(lambda: training(folder, 21, 8, keep_last=True))
    return found


def run(rank: int, folder: str) -> None:
    """All that one process does."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29513", "ACCELERATE_USE_CPU": "true"}
    torch.set_num_threads(1)
    build_all()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD_SIZE, timeout=TIMEOUT
    )
    jobs: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, check in CHECKS.items():
        jobs[name] = lambda check=check: evaluate(check, rank=rank, gather=True)
    jobs["without gathering"] = lambda: evaluate(CHECKS["rankcse, listnet"], rank=rank, gather=False)
    jobs["unequal batches"] = lambda: unequal_batches(rank)
    jobs["checkpointing"] = lambda: checkpointing(rank)
    jobs["training"] = lambda: trained(Path(folder) / "run")
    found: dict[str, Any] = {}
    for name, job in jobs.items():
        try:
            found[name] = copy.deepcopy(job())
        except Exception:
            found[name] = {"error": traceback.format_exc()}
        torch.save(found, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()
