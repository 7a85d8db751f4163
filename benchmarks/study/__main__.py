"""``python -m benchmarks.study``: choose learning rates by the grid, run a suite, write the tables."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer

from benchmarks.study.report import by_row, table, write_report
from benchmarks.study.runs import START, Rates, Run, grid, read_rates, search
from benchmarks.study.suites import SUITES, with_student

app = typer.Typer(add_completion=False, help=__doc__)
RESULTS = Path(__file__).parent / "results"
# The rows that are worth the time of the transfer tasks.
TRANSFER = ("SimCSE", "EmbedDistill", "ListNet at 0.1 + EmbedDistill")

Data = Annotated[Path, typer.Option(help="Folder with sts/*.jsonl and wiki/wiki-55k.txt.", exists=True)]
Model2vec = Annotated[
    Path | None,
    typer.Option(help="Folder made by benchmarks.study.distil_model2vec, for the static suite.", exists=True),
]
Mpnet = Annotated[Path | None, typer.Option(help="Folder of all-mpnet-base-v2, for the teachers suite.", exists=True)]
Output = Annotated[Path, typer.Option(help="Where results are kept; finished runs are not run again.")]


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help=", ".join(SUITES))],
    data: Data,
    mpnet: Mpnet = None,
    model2vec: Model2vec = None,
    output: Output = RESULTS,
    only: Annotated[str | None, typer.Option(help="Only the runs whose label contains this.")] = None,
    share: Annotated[str, typer.Option(help="I/N: this process takes the runs I, I + N, ... of N processes.")] = "1/1",
    seed: Annotated[int | None, typer.Option(help="Another seed, in place of the suite's.")] = None,
    student: Annotated[
        Path | None, typer.Option(help="Folder of another student, at the learning rates of the suite's.", exists=True)
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Another text: a sentence a line.", exists=True)] = None,
    sentences: Annotated[int | None, typer.Option(help="How many lines of it to train on.", min=1)] = None,
) -> None:
    """Run a suite; a run whose result is there already is skipped."""
    from benchmarks.study.execute import Executor

    if suite not in SUITES:
        raise typer.BadParameter(f"expected one of {', '.join(SUITES)}, got {suite!r}", param_hint="SUITE")
    try:
        rates = _rates(output, complete=True)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    names = {path: _name(path) for path in (student, text) if path is not None}
    changes = {"seed": seed, "text": text and names[text], "sentences": sentences}
    changed: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    found = (replace(run, **changed) for run in SUITES[suite](rates) if only is None or only in run.label)
    if student is not None:
        found = (with_student(run, names[student]) for run in found)
    # By key, for what were several seeds of one row are one run under one seed.
    runs = list({run.key: run for run in found}.values())
    executor = Executor(data, output, {"mpnet": mpnet, "model2vec": model2vec} | {v: k for k, v in names.items()})
    for one in runs:
        executor.check(one)  # All of them before the first is run.
    first, processes = map(int, share.split("/"))
    results: list[tuple[Run, dict[str, Any]]] = []
    for number, one in enumerate(runs, 1):
        if (number - first) % processes == 0:
            print(f"[{number}/{len(runs)}]", end=" ")
            results.append((one, executor.result(one)))
    print("", *table(by_row(results)), sep="\n")


@app.command()
def choose(data: Data, mpnet: Mpnet = None, model2vec: Model2vec = None, output: Output = RESULTS) -> None:
    """Choose each method's learning rate by its development scores, climbing one ladder of rates."""
    from benchmarks.study.execute import Executor
    from benchmarks.study.scores import choosing_score

    executor = Executor(data, output, {"mpnet": mpnet, "model2vec": model2vec})
    students = [name for name in START if not executor.missing(next(grid(name)))]
    path = output / "learning-rates.json"
    rates = json.loads(path.read_text()) if path.exists() else {}
    rates |= search(lambda one: choosing_score(executor.result(one)["scores"]), students)
    path.write_text(json.dumps(rates, indent=2) + "\n")
    print(rates)


@app.command("all")
def run_all(data: Data, mpnet: Mpnet, model2vec: Model2vec, output: Output = RESULTS) -> None:
    """The whole study: learning rates, every suite, transfer, bootstrap and tables. What is done is not done again."""
    choose(data, mpnet, model2vec, output)
    for suite in SUITES:
        run(suite, data, mpnet, model2vec, output)
    transfer(data, output)
    compare(data, output)
    report(output)


@app.command()
def transfer(data: Data, output: Output = RESULTS) -> None:
    """The transfer tasks for rows of the headline, seed 1, from the models that 'run core' left here."""
    from rankcse_st.benchmark.console import evaluate_on_console

    models = {run.label: output / "models" / run.key for run in _done("core", output) if run.seed == 1}
    models = {label: folder for label, folder in models.items() if label in TRANSFER}
    absent = [label for label in TRANSFER if not models.get(label, output / "none").exists()]
    if absent:
        raise typer.BadParameter(f"the models of {', '.join(absent)} are not here: remove their results and run 'core'")
    evaluate_on_console(models, "transfer", data=data, output=output / "transfer")


@app.command()
def compare(data: Data, output: Output = RESULTS) -> None:
    """Paired bootstrap of rows, and the case study of the headline, from the cosines that 'run' left here."""
    import numpy as np

    from benchmarks.study.case_study import case_study
    from benchmarks.study.differences import differences
    from benchmarks.study.suites import DIFFERENCES

    found = {name: differences(_done(name, output), pairs, data, output) for name, pairs in DIFFERENCES.items()}
    (output / "differences.json").write_text(json.dumps(found, indent=1) + "\n")
    runs = _done("core", output)
    first = {run.label: run.key for run in reversed(runs)}  # The first seed of each row.
    cosines = {label: np.load(output / "models" / f"{key}.npz") for label, key in reversed(first.items())}
    (output / "case-study.md").write_text("\n".join(case_study(cosines, data)) + "\n", encoding="utf-8")


@app.command()
def report(output: Output = RESULTS) -> None:
    """Write the tables from the results."""
    write_report(output, _rates(output, complete=False))


def _done(suite: str, output: Path) -> list[Run]:
    """The runs of a suite that have a result."""
    runs = SUITES[suite](_rates(output, complete=False))
    return [run for run in runs if (output / "runs" / f"{run.key}.json").exists()]


def _rates(output: Path, *, complete: bool) -> Rates:
    """Those that were chosen there, else the study's."""
    chosen = output / "learning-rates.json"
    return read_rates(chosen if chosen.exists() else RESULTS / chosen.name, complete=complete)


def _name(path: Path) -> str:
    """What results of a student or text that was given are told apart by, wherever it lies: its name and contents."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("**/*.safetensors")) if path.is_dir() else [path]:
        digest.update(file.read_bytes())
    return f"{path.stem}-{digest.hexdigest()[:8]}"


if __name__ == "__main__":
    app()
