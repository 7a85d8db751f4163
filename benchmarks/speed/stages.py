"""The loss by itself, forward and backward, from embeddings: time and peak memory."""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models
from torch import Tensor, nn

from benchmarks.speed.steps import random_model
from rankcse_st import CachedRankCSELoss, RankCSELoss
from rankcse_st.functional import consistency, contrastive, listnet
from rankcse_st.losses.cached_rankcse import Batch


def inputs(rows: int, width: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Two views' embeddings, near each other, and the teachers' score vectors."""
    generator = torch.Generator().manual_seed(rows)
    u = torch.randn(rows, width, generator=generator)
    v = u + 0.3 * torch.randn(rows, width, generator=generator)
    labels = nn.functional.normalize(torch.randn(rows, width, generator=generator), dim=-1)
    return [u.to(device).requires_grad_(), v.to(device).requires_grad_()], labels.to(device)


def no_model(width: int) -> SentenceTransformer:
    """The least that is a model: the losses are given embeddings."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=width)], device="cpu")


def tiny_model() -> SentenceTransformer:
    """A transformer, which is what the cached loss takes, for its embeddings are given as well."""
    with tempfile.TemporaryDirectory() as folder:
        return random_model("tiny", ["a few words"], Path(folder), torch.device("cpu"), seed=0)


def whole_matrices(embeddings: list[Tensor], labels: Tensor) -> Tensor:
    """The three terms by plain autograd over whole matrices, as the paper's equations read."""
    u, v = (nn.functional.normalize(e, dim=-1) for e in embeddings)
    scores, teacher_scores = u @ v.T, labels @ labels.T
    off_diagonal = ~torch.eye(len(u), dtype=torch.bool, device=u.device)
    return contrastive(scores) + consistency(scores, v @ u.T) + listnet(scores, teacher_scores, mask=off_diagonal)


def stages(rows: int, width: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """What is compared at one batch size."""
    views, labels = inputs(rows, width, device)
    model = no_model(width)
    simcse, ours = MultipleNegativesRankingLoss(model), RankCSELoss(model)
    listmle = RankCSELoss(model, method="listmle")
    return {
        "contrastive of sentence-transformers": lambda: simcse.compute_loss_from_embeddings(views, None).backward(),
        "three terms, ListNet": lambda: ours.compute_loss_from_embeddings(views, labels).backward(),
        "three terms, ListMLE": lambda: listmle.compute_loss_from_embeddings(views, labels).backward(),
        "whole matrices, ListNet": lambda: whole_matrices(views, labels).backward(),
    }


def peak_memory(kind: str, rows: int, width: int) -> float:
    """MiB that the loss takes at its peak above its inputs, measured in a fresh process (CPU)."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    process = context.Process(target=_measure, args=(kind, rows, width, queue))
    process.start()
    result = json.loads(queue.get())
    process.join()
    return float(result)


def _measure(kind: str, rows: int, width: int, queue: Any) -> None:
    device = torch.device("cpu")
    _run(kind, *inputs(64, width, device), width)  # Warm-up: threads, libraries.
    embeddings, labels = inputs(rows, width, device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _run(kind, embeddings, labels, width)
    queue.put(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def _run(kind: str, embeddings: list[Tensor], labels: Tensor, width: int) -> None:
    if kind == "plain":
        RankCSELoss(no_model(width)).compute_loss_from_embeddings(embeddings, labels).backward()
    else:
        loss = CachedRankCSELoss(tiny_model())
        loss.calculate_loss([[e] for e in embeddings], Batch([{}], labels), with_backward=True)
