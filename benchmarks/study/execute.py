"""One run, from text to a result that is kept and not computed again."""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from transformers import set_seed

from benchmarks.demo.weights import minilm_folder
from benchmarks.study.runs import Run
from benchmarks.study.scores import DEV_SETS, GEOMETRY_SET, TEST_SETS, Embedded, agreement
from benchmarks.study.train import MADE_FROM_MINILM, make_dataset, make_student, train
from rankcse_st.evaluation import TeacherAgreementEvaluator

# Lines of the text that no run trains on, on which agreement with the teacher is measured.
HELD_OUT = slice(-1000, None)
PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "datasets", "torch", "numpy", "scipy")


class Executor:
    """Runs what has no result yet.

    Args:
        data: Folder with ``sts/*.jsonl``, and the texts that the runs name.
        output: Where results are kept.
        paths: Models and texts that the runs name and that are not at hand otherwise, each where it lies; None counts
            as not given.
    """

    def __init__(self, data: Path, output: Path, paths: Mapping[str, Path | None] | None = None) -> None:
        given = {name: path for name, path in (paths or {}).items() if path is not None}
        self.data = data
        self.output = output
        self.paths = {"wiki": data / "wiki" / "wiki-55k.txt"} | given
        if "minilm" not in given:
            self.paths["minilm"] = minilm_folder()

    def result(self, run: Run) -> dict[str, Any]:
        """The result of a run, which is made if it is not there.

        Raises:
            typer.BadParameter: As :meth:`check`.
        """
        print(f"{run.suite}: {run.label} ({run.key})", flush=True)
        path = self.output / "runs" / f"{run.key}.json"
        if not path.exists():
            result = self._make(run)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".partial-{os.getpid()}")
            partial.write_text(json.dumps(result, indent=1) + "\n")
            partial.replace(path)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def missing(self, run: Run) -> list[str]:
        """The models that a run needs and that were not given."""
        needed = (*run.teachers, *([] if run.student in MADE_FROM_MINILM else [run.student]))
        return [name for name in needed if name not in self.paths]

    def check(self, run: Run) -> None:
        """Refuse a run that cannot be made, before any other is.

        Raises:
            typer.BadParameter: If it needs a model that was not given, or a longer text.
        """
        for name in self.missing(run):
            raise typer.BadParameter(f"the run {run.label!r} needs a folder", param_hint=f"--{name}")
        lines = self._lines(run.text)
        if run.sentences > len(lines[: HELD_OUT.start]):
            raise typer.BadParameter(
                f"the run {run.label!r} trains on {run.sentences:,} lines, and {-HELD_OUT.start:,} more are held out, "
                f"but the text {run.text!r} has {len(lines):,}: give a longer one, or fewer --sentences"
            )

    def _make(self, run: Run) -> dict[str, Any]:
        self.check(run)
        lines = self._lines(run.text)
        set_seed(run.seed)
        model = make_student(run, self.paths)
        training = {"steps": 0, "seconds": 0.0, "processor_seconds": 0.0, "losses": []}
        if run.method != "untouched":
            dataset = make_dataset(run, lines[: run.sentences], self.paths, self.output / "scores")
            training = train(run, model, dataset)
        # Always the same teacher, whatever the run's own: the number is for comparing runs.
        scores = agreement(model, _agreement(self.paths["minilm"], tuple(lines[HELD_OUT])))
        scores |= self._dev_scores(model) if run.dev_only else self._scores(model, run)
        print({name: round(value, 2) for name, value in scores.items()}, f"{training['seconds']:.0f} s", flush=True)
        return {
            "run": run.settings(),
            "scores": scores,
            "training": training,
            # The folders' names only: where they lie is nobody's business.
            "command": shlex.join(["python", "-m", "benchmarks.study", *(Path(word).name for word in sys.argv[1:])]),
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
            "threads": torch.get_num_threads(),
        }

    def _dev_scores(self, model: Any) -> dict[str, float]:
        return Embedded(model, self.data, DEV_SETS).sts()

    def _scores(self, model: Any, run: Run) -> dict[str, float]:
        embedded = Embedded(model, self.data, (*DEV_SETS, *TEST_SETS, GEOMETRY_SET))
        scores = embedded.sts() | embedded.ranking() | embedded.geometry()
        scores["STS mean"] = sum(scores[name] for name in TEST_SETS) / len(TEST_SETS)
        # For the bootstrap, the case study and the transfer tasks; not kept in the repository.
        models = self.output / "models"
        models.mkdir(parents=True, exist_ok=True)
        np.savez(models / f"{run.key}.npz", **{name: embedded.cosines(name) for name in TEST_SETS})
        if run.suite == "core":
            model.save_pretrained(str(models / run.key), create_model_card=False)
        return scores

    def _lines(self, text: str) -> list[str]:
        if text == "reviews":
            return _reviews(self.data / "transfer" / "MR.jsonl")
        return _read_lines(self.paths[text])


@cache
def _read_lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


@cache
def _reviews(path: Path) -> list[str]:
    """Sentences of film reviews, without their labels, by which the file is ordered."""
    with path.open(encoding="utf-8") as file:
        lines = [json.loads(line)["text"] for line in file]
    random.Random(0).shuffle(lines)
    return lines


@cache
def _agreement(teacher: Path, sentences: tuple[str, ...]) -> TeacherAgreementEvaluator:
    return TeacherAgreementEvaluator(list(sentences), str(teacher))
