"""Scores read from MTEB's raw JSON, and tables of them. Nothing here needs ``mteb``."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from rankcse_st.benchmark.data import LOCAL_REVISION, base_name
from rankcse_st.benchmark.groups import TASK_GROUPS

#: The seven tasks whose mean the papers report.
PAPER_STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R.test")


@dataclass(frozen=True)
class TaskScore:
    """One task's result.

    Attributes:
        task: The name of the task.
        score: The main score as MTEB gives it (mostly 0 to 1, not per cent), averaged over splits and subsets.
        metrics: All numbers of the first split and subset.
        dataset_revision: The revision of the data.
        path: The JSON file.
        seconds: How long this call took, with 0 for a result that was there.
    """

    task: str
    score: float
    metrics: dict[str, float]
    dataset_revision: str
    path: Path
    seconds: float = 0.0

    @property
    def local(self) -> bool:
        """Whether it was computed on local data."""
        return self.dataset_revision.startswith(LOCAL_REVISION)

    def timed(self, seconds: float) -> TaskScore:
        """A copy that says how long it took."""
        return dataclasses.replace(self, seconds=seconds)


@dataclass
class ModelScores:
    """The results of one model: scores by task, and the errors of the tasks that failed."""

    label: str
    name: str
    revision: str
    scores: dict[str, TaskScore] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def mean(self, tasks: Sequence[str], metric: str | None = None) -> float | None:
        """The mean over tasks, None if one is missing."""
        if not tasks or any(task not in self.scores for task in tasks):
            return None
        values = [self.value(task, metric) for task in tasks]
        return sum(values) / len(values)

    def value(self, task: str, metric: str | None = None) -> float:
        """A metric of a task, its main score by default."""
        score = self.scores[task]
        return score.score if metric is None else score.metrics[metric]


@dataclass
class BenchmarkReport:
    """The results of a run: models in order, tasks in order."""

    tasks: tuple[str, ...]
    models: list[ModelScores] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any task of any model failed."""
        return any(model.errors for model in self.models)

    def tables(self) -> list[Table]:
        """A rich table for each group of tasks, scores times 100 as the papers print them."""
        return [section.to_rich(self.models) for section in self.sections()]

    def to_markdown(self) -> str:
        """The same tables in Markdown."""
        return "\n\n".join(section.to_markdown(self.models) for section in self.sections())

    def sections(self) -> list[Section]:
        """What is shown together."""
        by_group: dict[str, list[str]] = {}
        for task in self.tasks:
            by_group.setdefault(group_of(task), []).append(task)
        sections = []
        for group, tasks in by_group.items():
            if group == "sts":
                paper = [task for task in tasks if task in PAPER_STS]
                averaged = paper if len(paper) == len(PAPER_STS) else tasks
                sections.append(Section("STS: Spearman x 100", tasks, averaged=averaged))
            elif group == "transfer":
                sections.append(Section("Transfer: accuracy x 100", tasks, averaged=tasks))
            elif group == "ranking":
                sections.append(Section("Ranking: Kendall's tau-b x 100", tasks, averaged=tasks, metric="kendall"))
                sections.append(Section("Ranking: NDCG x 100", tasks, averaged=tasks, metric="ndcg"))
            elif group == "geometry":
                sections.append(GeometrySection("Geometry on STS-B dev (lower is better)", tasks))
            else:
                sections.append(Section("MTEB: main score x 100", tasks, averaged=tasks))
        return sections


@dataclass
class Section:
    """One table: models by tasks."""

    title: str
    tasks: list[str]
    averaged: Sequence[str] = ()
    metric: str | None = None

    def header(self) -> list[str]:
        average = ["Avg."] if len(self.averaged) > 1 else []
        return ["Model", *(task.removesuffix("Ranking") for task in self.tasks), *average]

    def rows(self, models: Sequence[ModelScores]) -> list[list[str]]:
        """Of the models that have been given any of the tasks."""
        return [self.row(one) for one in models if any(task in one.scores or task in one.errors for task in self.tasks)]

    def row(self, model: ModelScores) -> list[str]:
        cells = [self.cell(model, task) for task in self.tasks]
        if len(self.averaged) > 1:
            mean = model.mean(self.averaged, self.metric)
            cells.append("" if mean is None else f"{100 * mean:.2f}")
        return [model.label, *cells]

    def cell(self, model: ModelScores, task: str) -> str:
        if task in model.errors:
            return "failed"
        return f"{100 * model.value(task, self.metric):.2f}" if task in model.scores else ""

    def note(self, models: Iterable[ModelScores]) -> str:
        """What a reader must know about where the numbers are from."""
        scores = [model.scores[task] for model in models for task in self.tasks if task in model.scores]
        notes = []
        if any(score.local for score in scores):
            notes.append("on local data: not for submission to a leaderboard")
        if "SICK-R" in self.tasks and "SICK-R" not in self.averaged:
            notes.append("Avg. with SICK-R.test (4,927 rows, as the papers); SICK-R is MTEB's (9,927 rows)")
        return "; ".join(notes)

    def to_rich(self, models: Sequence[ModelScores]) -> Table:
        first, *others = self.header()
        table = Table(title=self.title, caption=self.note(models) or None)
        table.add_column(first, overflow="fold")
        for column in others:
            table.add_column(column, justify="right")
        for row in self.rows(models):
            table.add_row(*row)
        return table

    def to_markdown(self, models: Sequence[ModelScores]) -> str:
        header = self.header()
        lines = [
            "| " + " | ".join(header) + " |",
            "|---|" + "---:|" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in self.rows(models)),
        ]
        note = self.note(models)
        return f"**{self.title}**\n\n" + "\n".join(lines) + (f"\n\n{note}." if note else "")


@dataclass
class GeometrySection(Section):
    """Two columns for the one task, not in per cent."""

    def header(self) -> list[str]:
        return ["Model", "alignment", "uniformity"]

    def row(self, model: ModelScores) -> list[str]:
        task = self.tasks[0]
        if task not in model.scores:
            return [model.label, *2 * ["failed" if task in model.errors else ""]]
        return [model.label, *(f"{model.value(task, metric):.3f}" for metric in ("alignment", "uniformity"))]


def group_of(task: str) -> str:
    """The group that a task is shown with; ``mteb`` for one that is in none."""
    return next((group for group, tasks in TASK_GROUPS.items() if base_name(task) in tasks), "mteb")


def read_task_score(path: Path) -> TaskScore:
    """A result from MTEB's JSON.

    Raises:
        ValueError: If the file is not a result.
    """
    raw = json.loads(path.read_text(encoding="utf-8"))
    try:
        entries: list[dict[str, Any]] = [entry for split in raw["scores"].values() for entry in split]
        main_scores = [float(entry["main_score"]) for entry in entries]
        numbers = {k: float(v) for k, v in entries[0].items() if isinstance(v, (int, float))}
        score = sum(main_scores) / len(main_scores)
        return TaskScore(raw["task_name"], score, numbers, raw["dataset_revision"], path)
    except (KeyError, TypeError, IndexError, ZeroDivisionError) as error:
        raise ValueError(f"{path} is not a result of MTEB: {error!r}") from error


def read_results(output: str | os.PathLike[str]) -> BenchmarkReport:
    """All results in a folder that :func:`evaluate_models` wrote, without running anything.

    A model evaluated on local and on official data is two rows. Tasks come in the order of their groups.

    Raises:
        FileNotFoundError: If there are no results.
    """
    root = Path(output).expanduser() / "results"
    models: dict[tuple[str, str, bool], ModelScores] = {}
    # MODEL/REVISION/TASK.json, or MODEL/REVISION/experiments/EXPERIMENT/TASK.json
    for path in sorted(root.glob("*/*/**/*.json")):
        if path.name == "model_meta.json":
            continue
        score = read_task_score(path)
        folder, revision = path.relative_to(root).parts[:2]
        name = folder.replace("__", "/", 1)
        model = ModelScores(name.removeprefix("local/"), name, revision)
        models.setdefault((folder, revision, score.local), model).scores[score.task] = score
    if not models:
        raise FileNotFoundError(f"There are no results in {os.fspath(root)!r}: run the benchmark first.")
    found = {task for model in models.values() for task in model.scores}
    known = [task for tasks in TASK_GROUPS.values() for task in tasks]
    order = sorted(found, key=lambda t: (known.index(base_name(t)) if base_name(t) in known else len(known), t))
    return BenchmarkReport(tuple(order), list(models.values()))
