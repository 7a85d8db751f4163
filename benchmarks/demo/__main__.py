"""``make demo``: distil all-MiniLM-L6-v2 into two smaller students on the docstrings of Python's standard library.

It calls ``rankcse-st`` as a user would, and ends with a table. Everything it writes is in one folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer

from benchmarks.demo.corpus import docstring_sentences
from benchmarks.demo.students import keep_layers, static_student
from benchmarks.demo.table import COLUMNS, rows
from benchmarks.demo.weights import minilm_folder
from rankcse_st.cli import app
from rankcse_st.cli.record import HELD_OUT_FILE, RUN_FILE, versions

PAIRS = Path(__file__).with_name("pairs.jsonl")
LAYERS = (1, 3, 5)
# Each at the learning rate that the study below benchmarks/ found for this student by development data.
SHARED = ("--max-seq-length", "32", "--batch-size", "64")
RUNS = {
    "layers3-simcse": ("layers3", ("--loss", "simcse", "--learning-rate", "1e-4", *SHARED)),
    "layers3-rankcse": ("layers3", ("--loss", "rankcse", "--learning-rate", "3e-4", *SHARED)),
    "layers3-default": ("layers3", ("--learning-rate", "1e-3", *SHARED)),
    "static-default": ("static", ("--learning-rate", "0.03", "--epochs", "2")),
}


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder to write to; emptied first")
    parser.add_argument("--json", type=Path, help="where the numbers go (default: OUTPUT/results.json)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--sentences", type=int, default=3600, help="how many to use, drawn at random (seed 0)")
    arguments = parser.parse_args()
    try:
        teacher = minilm_folder()
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"Error: {error}") from None
    Demo(teacher, arguments.output, arguments.seed, arguments.sentences).run(
        arguments.json or arguments.output / "results.json"
    )


class Demo:
    """The steps of the demo, and the time each takes."""

    def __init__(self, teacher: Path, output: Path, seed: int, sentences: int) -> None:
        self.console = Console(highlight=False)
        self.output = output
        self.seed = seed
        self.sentences = sentences
        self.folders = {"teacher": teacher}
        self.seconds: dict[str, dict[str, float]] = {}
        self.text = output / "docstrings.txt"

    def run(self, json_file: Path) -> None:
        """Do everything, print the table and write the numbers."""
        if self.output.exists():
            if not (self.output / ".rankcse-demo").exists():
                raise SystemExit(f"Error: {self.output} is there already and was not made by the demo: choose another.")
            shutil.rmtree(self.output)
        self.output.mkdir(parents=True)
        (self.output / ".rankcse-demo").touch()
        self.step("text", self.write_text)
        self.step("students", self.make_students)
        for name in RUNS:
            self.step(name, lambda name=name: self.train(name))
        results = self.step("evaluation", self.evaluate)
        speeds = self.step("speed", self.measure_speed)
        for name, speed in speeds.items():
            results[name]["sentences_per_second"] = round(speed, 1)
        self.report(results)
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(self.summary(results), indent=2) + "\n", encoding="utf-8")
        self.console.print(f"\nNumbers: {json_file}   Models: {self.output}   Next: rankcse-st train --help")

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Run one step and note its time: by the clock, and of all processors together."""
        self.console.rule(f"[bold]{name}", align="left")
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.seconds[name] = {
            "wall": round(time.perf_counter() - wall, 1),
            "cpu": round(time.process_time() - cpu, 1),
        }
        self.console.print(f"{name}: {self.seconds[name]['wall']} s")
        return result

    def write_text(self) -> None:
        """Collect the corpus."""
        everything = docstring_sentences()
        chosen = random.Random(0).sample(everything, min(self.sentences, len(everything)))
        self.text.write_text("".join(f"{sentence}\n" for sentence in chosen), encoding="utf-8")
        self.console.print(
            f"{len(chosen):,} of {len(everything):,} sentences from the docstrings of Python's standard library"
        )

    def make_students(self) -> None:
        """Make the two students from the teacher's weights."""
        teacher = str(self.folders["teacher"])
        for name, student in (("layers3", keep_layers(teacher, LAYERS)), ("static", static_student(teacher))):
            self.folders[name] = self.output / "students" / name
            student.save_pretrained(str(self.folders[name]))

    def train(self, name: str) -> None:
        """Train one student by ``rankcse-st train``."""
        student, options = RUNS[name]
        self.folders[name] = self.output / name
        self.call(
            *("train", "--student", self.folders[student], "--teacher", self.folders["teacher"]),
            *("--sentences", self.text, "--output", self.folders[name], "--cache-dir", self.output / "scores"),
            *("--sts", PAIRS, "--seed", self.seed, "--save-steps", 1000, "--cpu", *options),
        )

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Compare all models by ``rankcse-st evaluate``, on sentences that none was trained on."""
        file = self.output / "evaluation.json"
        held_out = self.folders["layers3-rankcse"] / HELD_OUT_FILE
        self.call(
            *("evaluate", *self.folders.values(), "--teacher", self.folders["teacher"]),
            *("--sentences", held_out, "--sts", PAIRS, "--json", file, "--cpu"),
        )
        found = json.loads(file.read_text(encoding="utf-8"))
        return {name: found[str(folder)] for name, folder in self.folders.items()}

    def measure_speed(self, rounds: int = 3, sentences: int = 300) -> dict[str, float]:
        """Sentences encoded in a second: the best of some rounds, in each of which every model has its turn."""
        texts = self.text.read_text(encoding="utf-8").splitlines()[:sentences]
        models = {name: SentenceTransformer(str(folder), device="cpu") for name, folder in self.folders.items()}
        best = dict.fromkeys(models, 0.0)
        for _ in range(rounds):
            for name, model in models.items():
                start = time.perf_counter()
                model.encode(texts, batch_size=64, show_progress_bar=False)
                best[name] = max(best[name], len(texts) / (time.perf_counter() - start))
        return best

    def call(self, *arguments: Any) -> None:
        """Call the command line in this process, which saves its start-up time."""
        words = [str(argument) for argument in arguments]
        self.console.print(f"$ rankcse-st {shlex.join(words)}", soft_wrap=True, markup=False)
        code = app(words, standalone_mode=False)
        if code:
            raise SystemExit(code)

    def report(self, results: dict[str, dict[str, Any]]) -> None:
        """Print the table."""
        total = sum(step["wall"] for step in self.seconds.values())
        table = Table(title=f"all-MiniLM-L6-v2 and its students, in {total:.0f} seconds", title_justify="left")
        for position, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if position else "left")
        for row in rows(results):
            table.add_row(*row)
        self.console.print(table)
        self.console.print(
            "Agreement and top-10: how the model ranks held-out sentences, compared with the teacher (x 100).\n"
            "Pairs: Spearman correlation with the grades of the project's own sentence pairs (x 100)."
        )

    def summary(self, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Everything there is to know about this run."""
        record = json.loads((self.folders["layers3-rankcse"] / RUN_FILE).read_text(encoding="utf-8"))
        return {
            "command": "make demo",
            "seed": self.seed,
            "sentences": record["sentences"],
            "held_out": len((self.folders["layers3-rankcse"] / HELD_OUT_FILE).read_text("utf-8").splitlines()),
            "pairs": len(PAIRS.read_text("utf-8").splitlines()),
            "corpus_sha256": record["corpus_sha256"],
            "runs": {name: shlex.join(options) for name, (_, options) in RUNS.items()},
            "results": results,
            "seconds": self.seconds,
            "versions": versions(),
            "machine": {"cpus": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.system()},
        }


if __name__ == "__main__":
    main()
