"""``python -m benchmarks.study``: run a suite, choose learning rates by the grid, write the tables."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer

from benchmarks.study.report import write_report
from benchmarks.study.runs import Run, read_rates, search
from benchmarks.study.suites import SUITES

if TYPE_CHECKING:
    from rankcse_st.evaluation import TeacherAgreementEvaluator

app = typer.Typer(add_completion=False, help=__doc__)
RESULTS = Path(__file__).parent / "results"
# Lines of the text that no run trains on, on which agreement with the teacher is measured.
HELD_OUT = slice(-1000, None)
PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "datasets", "torch", "numpy", "scipy")

Data = Annotated[Path, typer.Option(help="Folder with sts/*.jsonl and wiki/wiki-55k.txt.", exists=True)]
Model2vec = Annotated[
    Path | None, typer.Option(help="Folder made by benchmarks.study.distil_model2vec, for the static suite.")
]
Mpnet = Annotated[Path | None, typer.Option(help="Folder of all-mpnet-base-v2, for the teachers suite.")]
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
) -> None:
    """Run a suite; a run whose result is there already is skipped."""
    if suite not in SUITES:
        raise typer.BadParameter(f"expected one of {', '.join(SUITES)}, got {suite!r}", param_hint="SUITE")
    try:
        rates = read_rates(output / "learning-rates.json", complete=True)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    runs = [one for one in SUITES[suite](rates) if only is None or only in one.label]
    first, processes = map(int, share.split("/"))
    for number, one in enumerate(runs, 1):
        if (number - first) % processes:
            continue
        print(f"[{number}/{len(runs)}]", end=" ")
        _result(one, data, {"mpnet": mpnet, "model2vec": model2vec}, output)


@app.command()
def choose(data: Data, output: Output = RESULTS) -> None:
    """Choose each method's learning rate by its development scores, climbing one ladder of rates."""
    from benchmarks.study.scores import choosing_score

    rates = search(lambda one: choosing_score(_result(one, data, {}, output)["scores"]))
    (output / "learning-rates.json").write_text(json.dumps(rates, indent=2) + "\n")
    print(rates)


@app.command()
def compare(data: Data, output: Output = RESULTS) -> None:
    """Paired bootstrap of the headline rows, and the case study, from the cosines that 'run core' left here."""
    import numpy as np

    from benchmarks.study.case_study import case_study
    from benchmarks.study.differences import differences
    from benchmarks.study.suites import DIFFERENCES, core

    rates = read_rates(output / "learning-rates.json", complete=False)
    runs = [run for run in core(rates) if (output / "runs" / f"{run.key}.json").exists()]
    found = differences(runs, DIFFERENCES, data, output)
    (output / "differences.json").write_text(json.dumps(found, indent=1) + "\n")
    first = {run.label: run.key for run in reversed(runs)}  # The first seed of each row.
    cosines = {label: np.load(output / "models" / f"{key}.npz") for label, key in reversed(first.items())}
    (output / "case-study.md").write_text("\n".join(case_study(cosines, data)) + "\n", encoding="utf-8")


@app.command()
def report(output: Output = RESULTS) -> None:
    """Write the tables from the results."""
    write_report(output)


def _result(one: Run, data: Path, folders: Mapping[str, Path | None], output: Path) -> dict[str, Any]:
    """The result of a run, which is made if it is not there."""
    print(f"{one.suite}: {one.label} ({one.key})", flush=True)
    path = output / "runs" / f"{one.key}.json"
    if not path.exists():
        _run_one(one, data, folders, path, output)
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def _run_one(one: Run, data: Path, given: Mapping[str, Path | None], path: Path, output: Path) -> None:
    import numpy as np
    import torch
    from transformers import set_seed

    from benchmarks.demo.weights import minilm_folder
    from benchmarks.study.scores import DEV_SETS, GEOMETRY_SET, TEST_SETS, Embedded, agreement
    from benchmarks.study.train import make_dataset, make_student, train

    folders = {"minilm": minilm_folder()} | {name: folder for name, folder in given.items() if folder is not None}
    for name in (*one.teachers, *(["model2vec"] if one.student == "model2vec" else [])):
        if name not in folders:
            raise typer.BadParameter(f"the run {one.label!r} needs a folder", param_hint=f"--{name}")
    lines = _lines(data)
    set_seed(one.seed)
    model = make_student(one, folders)
    training = {"steps": 0, "seconds": 0.0, "processor_seconds": 0.0, "losses": []}
    if one.method != "untouched":
        training = train(one, model, make_dataset(one, lines[: one.sentences], folders, output / "scores"))
    # Always the same teacher, whatever the run's own: the number is for comparing runs.
    scores = agreement(model, _agreement(data, folders["minilm"]))
    if one.dev_only:
        scores |= Embedded(model, data, DEV_SETS).sts()
    else:
        embedded = Embedded(model, data, (*DEV_SETS, *TEST_SETS, GEOMETRY_SET))
        scores |= embedded.sts() | embedded.ranking() | embedded.geometry()
        scores["STS mean"] = sum(scores[name] for name in TEST_SETS) / len(TEST_SETS)
        # For the bootstrap and the case study; not kept in the repository.
        (output / "models").mkdir(parents=True, exist_ok=True)
        np.savez(output / "models" / f"{one.key}.npz", **{name: embedded.cosines(name) for name in TEST_SETS})
        if one.suite == "core" and one.seed == 1:
            model.save_pretrained(str(output / "models" / one.key), create_model_card=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "run": one.settings(),
        "scores": scores,
        "training": training,
        # The folders' names only: where they lie is nobody's business.
        "command": shlex.join(["python", "-m", "benchmarks.study", *(Path(word).name for word in sys.argv[1:])]),
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    partial = path.with_suffix(f".partial-{os.getpid()}")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    partial.replace(path)
    print({name: round(value, 2) for name, value in scores.items()}, f"{training['seconds']:.0f} s", flush=True)


@cache
def _lines(data: Path) -> list[str]:
    return (data / "wiki" / "wiki-55k.txt").read_text(encoding="utf-8").splitlines()


@cache
def _agreement(data: Path, teacher: Path) -> TeacherAgreementEvaluator:
    from rankcse_st.evaluation import TeacherAgreementEvaluator

    return TeacherAgreementEvaluator(_lines(data)[HELD_OUT], str(teacher))


if __name__ == "__main__":
    app()
