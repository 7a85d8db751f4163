"""What is trained: one ``Run`` for each row of a table, and the suites of runs that make the tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

Method = Literal["untouched", "SimCSE", "EmbedDistill", "ListNet", "ListMLE"]

# What the package does where teacher and student are not of one space.
FITTED = "ListNet at 0.1 + fitted matching"
EVEN = {"method": "ListNet", "student_temperature": 0.1, "teacher_temperature": 0.1}
# What is compared, by the settings in which each differs: RankCSE as the paper has it, with all three terms on two
# views; its distillation term alone on one view, which costs half; and what the explore suite found.
METHODS: dict[str, dict[str, Any]] = {
    "SimCSE": {"method": "SimCSE"},
    "EmbedDistill": {"method": "EmbedDistill"},
    "ListNet": {"method": "ListNet"},
    "ListMLE": {"method": "ListMLE"},
    "RankCSE-ListNet": {"method": "ListNet", "contrastive": 1.0, "consistency": 1.0},
    "RankCSE-ListMLE": {"method": "ListMLE", "contrastive": 1.0, "consistency": 1.0},
    "ListNet at 0.1": EVEN,
    "ListNet at 0.1 + EmbedDistill": {**EVEN, "matching": 20.0},
    FITTED: {**EVEN, "matching": 20.0, "fitted": True},
}
# Those that differ where the student is made of its teacher: a fitted projection is then none.
OF_ONE_SPACE = tuple(name for name in METHODS if name != FITTED)
# Where teacher and student differ in width, embeddings are matched by a projection, whose learning rate decides whether
# that teaches anything: the projection suite is what this one was chosen by.
PROJECTION_RATE = 0.1
# What a student can learn by that has no dropout, and so no two views.
_OF_ONE_VIEW = ("EmbedDistill", "ListNet", "ListNet at 0.1", "ListNet at 0.1 + EmbedDistill")
# The ladder that every learning rate is chosen from, and where the search starts on it.
LEARNING_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
# A student of the name alone learns from MiniLM.
START: dict[str, dict[str, float]] = {
    "minilm-3": dict.fromkeys(OF_ONE_SPACE, 3e-4)
    | {"SimCSE": 1e-4, "EmbedDistill": 1e-3, "ListNet at 0.1 + EmbedDistill": 1e-3},
    # Another teacher, of another width than the student.
    "minilm-3 from mpnet": {
        **dict.fromkeys(("EmbedDistill", "ListNet at 0.1", "ListNet at 0.1 + EmbedDistill"), 3e-4),
        FITTED: 1e-3,
    },
    "static": dict.fromkeys(_OF_ONE_VIEW, 1e-2),
    "model2vec": {**dict.fromkeys(_OF_ONE_VIEW, 1e-2), FITTED: 3e-2},
}
# How many lines of the text each is trained on; one that has no layers is done in seconds.
SENTENCES = {"minilm-3": 8192, "minilm-3 from mpnet": 8192, "static": 32768, "model2vec": 32768}
# Learning rates by student and method, as the search chose them.
Rates = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Run:
    """One training run.

    Args:
        suite: The table that it belongs to.
        label: Its row.
        method: How the student is trained. ListNet and ListMLE are RankCSE with that distillation term.
        student: ``"minilm-3"``, layers 1, 3 and 5 of all-MiniLM-L6-v2; ``"static"``, a ``StaticEmbedding`` of its
            tokens; ``"model2vec"``, that which model2vec distils from it, of 256 dimensions; or the name of a model
            that is given.
        teachers: Of ``"minilm"`` and ``"mpnet"``, with ``weights``.
        turned: Whether the teachers' embeddings are turned at random, as another model's would be.
        text: ``"wiki"``; ``"reviews"``, sentences of film reviews; or the name of a file that is given.
        sentences: How many lines of the text are trained on.
        projection_rate: Learning rate of EmbedDistillLoss's projection to another width; None for the student's.
        max_seq_length: In tokens, in training; evaluation uses 128.
        group_size: Near neighbours put into a batch together; 1 is plain shuffling.
        contrastive: Weight of the contrastive term, and so on.
        matching: Weight of EmbedDistillLoss added to the loss, on the same embeddings.
        fitted: Whether matching goes by :func:`~rankcse_st.fit_teacher_projection`, not by a projection to be learned.
        dev_only: Leave the test sets alone, as every run must that something is chosen by.
    """

    suite: str
    label: str
    method: Method
    student: str = "minilm-3"
    teachers: tuple[str, ...] = ("minilm",)
    weights: tuple[float, ...] = (1.0,)
    turned: bool = False
    text: str = "wiki"
    sentences: int = 8192
    epochs: float = 1.0
    batch_size: int = 128
    learning_rate: float = 5e-4
    projection_rate: float | None = None
    max_seq_length: int = 32
    group_size: int = 1
    views: int | None = None
    contrastive: float = 0.0
    consistency: float = 0.0
    distillation: float = 1.0
    matching: float = 0.0
    fitted: bool = False
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


def grid(student: str) -> Iterator[Run]:
    """Every method at every learning rate, on half the text and the development sets only; the search picks of them."""
    model, _, teacher = student.partition(" from ")
    for name in START[student]:
        for rate in LEARNING_RATES:
            yield Run(
                "grid",
                name,
                student=model,
                teachers=(teacher or "minilm",),
                learning_rate=rate,
                seed=0,
                sentences=SENTENCES[student] // 2,
                dev_only=True,
                projection_rate=PROJECTION_RATE if teacher and "EmbedDistill" in name else None,
                **METHODS[name],
            )


def search(score: Callable[[Run], float], students: Iterable[str] = tuple(START)) -> dict[str, dict[str, float]]:
    """The learning rate of each student and method whose score is best, found by climbing the ladder.

    Its neighbours on both sides are always tried as well, so that no best one lies at an edge, unless the ladder ends.

    Args:
        score: Runs what has not been run, and returns what the choice is made by.
        students: Those to choose for.
    """
    return {
        student: {
            name: _climb([run for run in grid(student) if run.label == name], start, score)
            for name, start in START[student].items()
        }
        for student in students
    }


def read_rates(path: Path, *, complete: bool) -> Rates:
    """The learning rates that were chosen.

    Args:
        path: The file that ``choose`` wrote.
        complete: Whether rates that were not chosen yet are an error; else the search's start stands for them, under
            which there are no results to be found.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If one is missing and ``complete``.
    """
    chosen = json.loads(path.read_text())
    missing = [
        f"{name} ({student})"
        for student, starts in START.items()
        for name in starts.keys() - chosen.get(student, {}).keys()
    ]
    if complete and missing:
        raise ValueError(f"{path} lacks the rates of {', '.join(sorted(missing))}: run 'choose' first")
    return {student: {**starts, **chosen.get(student, {})} for student, starts in START.items()}


def _climb(ladder: list[Run], start: float, score: Callable[[Run], float]) -> float:
    position, scores = LEARNING_RATES.index(start), dict[int, float]()
    while True:
        for step in (position, position - 1, position + 1):
            if 0 <= step < len(ladder) and step not in scores:
                scores[step] = score(ladder[step])
        highest = max(scores, key=lambda step: scores[step])
        if highest == position:
            return ladder[position].learning_rate
        position = highest
