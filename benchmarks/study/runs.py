"""What is trained: one ``Run`` for each row of a table, and the suites of runs that make the tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Method = Literal["untouched", "SimCSE", "EmbedDistill", "ListNet", "ListMLE"]

METHODS: tuple[Method, ...] = ("SimCSE", "EmbedDistill", "ListNet", "ListMLE")
# The ladder that every method's learning rate is chosen from, and where the search starts on it.
LEARNING_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
START: dict[Method, float] = {"SimCSE": 1e-4, "EmbedDistill": 1e-3, "ListNet": 3e-4, "ListMLE": 3e-4}
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Run:
    """One training run.

    Args:
        suite: The table that it belongs to.
        label: Its row.
        method: How the student is trained. ListNet and ListMLE are RankCSE with that distillation term.
        student: ``"minilm-3"``, layers 1, 3 and 5 of all-MiniLM-L6-v2, or ``"static"``, a ``StaticEmbedding`` of its
            tokens.
        teachers: Of ``"minilm"`` and ``"mpnet"``, with ``weights``.
        sentences: How many lines of the text are trained on.
        max_seq_length: In tokens, in training; evaluation uses 128.
        group_size: Near neighbours put into a batch together; 1 is plain shuffling.
        contrastive: Weight of the contrastive term, and so on.
        matching: Weight of EmbedDistillLoss added to the loss, on the same embeddings.
        dev_only: Leave the test sets alone, as every run must that something is chosen by.
    """

    suite: str
    label: str
    method: Method
    student: str = "minilm-3"
    teachers: tuple[str, ...] = ("minilm",)
    weights: tuple[float, ...] = (1.0,)
    sentences: int = 8192
    epochs: float = 1.0
    batch_size: int = 128
    learning_rate: float = 5e-4
    max_seq_length: int = 32
    group_size: int = 1
    views: int | None = None
    contrastive: float = 0.0
    consistency: float = 0.0
    distillation: float = 1.0
    matching: float = 0.0
    student_temperature: float = 0.05
    teacher_temperature: float = 0.025
    seed: int = 1
    dev_only: bool = False

    @property
    def key(self) -> str:
        """The name of its result: readable, and different for every different run.

        Made of what differs from the defaults, so that a setting added later leaves the old results their names.
        """
        settings = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("suite", "label") and getattr(self, field.name) != field.default
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.method}-{self.student}-lr{self.learning_rate:g}-seed{self.seed}-{digest}"

    def settings(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return asdict(self)


UNTOUCHED = Run("core", "untouched", "untouched")


def grid() -> Iterator[Run]:
    """Every method at every learning rate, on half the text and the development sets only; the search picks of them."""
    for method in METHODS:
        for learning_rate in LEARNING_RATES:
            yield Run("grid", method, method, learning_rate=learning_rate, seed=0, sentences=4096, dev_only=True)


def search(score: Callable[[Run], float]) -> dict[str, float]:
    """The learning rate of each method whose score is best, found by climbing the ladder.

    Its neighbours on both sides are always tried as well, so that no best one lies at an edge, unless the ladder ends.

    Args:
        score: Runs what has not been run, and returns what the choice is made by.
    """
    best = {}
    for method, start in START.items():
        ladder = [run for run in grid() if run.method == method]
        position, scores = LEARNING_RATES.index(start), dict[int, float]()
        while True:
            for step in (position, position - 1, position + 1):
                if 0 <= step < len(ladder) and step not in scores:
                    scores[step] = score(ladder[step])
            highest = max(scores, key=lambda step: scores[step])
            if highest == position:
                break
            position = highest
        best[method] = ladder[position].learning_rate
    return best
