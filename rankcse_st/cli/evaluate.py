"""``rankcse-st evaluate``: models side by side, on agreement with teachers, graded pairs and MTEB's tasks."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from rankcse_st.cli import options as shared
from rankcse_st.cli.console import console, errors_as_messages, fail, percent, print_table, say
from rankcse_st.cli.files import check_model_name, read_all_pairs, read_sentences
from rankcse_st.cli.options import DATA, EVALUATION, OUTPUT
from rankcse_st.cli.teachers import TeacherOptions

if TYPE_CHECKING:
    from sentence_transformers.base.evaluation import BaseEvaluator

    from rankcse_st.benchmark import BenchmarkReport


def evaluate(
    model: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Models to compare: folders or names on the Hub.")
    ],
    teacher: shared.Teachers = [],  # noqa: B006
    teacher_weight: shared.TeacherWeights = [],  # noqa: B006
    teacher_pooling: shared.TeacherPoolings = [],  # noqa: B006
    teacher_prompt: shared.TeacherPrompts = [],  # noqa: B006
    teacher_max_seq_length: shared.TeacherLengths = [],  # noqa: B006
    sentences: shared.Sentences = None,
    sts: shared.StsFiles = [],  # noqa: B006
    tasks: Annotated[
        list[str],
        typer.Option(
            metavar="TASKS",
            rich_help_panel=EVALUATION,
            help="MTEB tasks, separated by commas: the groups sts, transfer, ranking and geometry, or any names. Needs "
            # Help is read as markup: without the backslash, the brackets would be gone.
            r"rankcse-st\[mteb].",
        ),
    ] = [],  # noqa: B006
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            rich_help_panel=EVALUATION,
            help="JSONL files that stand in for the Hub, for --tasks. 'transfer' needs them.",
        ),
    ] = None,
    results: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Where results of --tasks are kept; what is there is not computed again. Default: benchmark-results.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, rich_help_panel=DATA, help="Sentences encoded at once.")] = 64,
    json_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", metavar="FILE", rich_help_panel=OUTPUT, help="Write the results to this file as well."),
    ] = None,
    cpu: shared.Cpu = False,
    config: shared.Config = None,
    traceback: shared.Traceback = False,
) -> None:
    """Compare models: agreement with teachers on sentences, Spearman on graded pairs, and MTEB's tasks.

    Agreement needs --teacher and --sentences (such as held_out.txt, which 'train' writes), pairs need --sts, tasks
    --tasks; give any of the three. The exit status is 1 if a task failed.
    """
    with errors_as_messages(traceback=traceback):
        for name in model:
            check_model_name(name, "model")
            if "=" in name and not Path(name).exists():
                raise ValueError(f"There is no model {name!r}: give a folder or a name on the Hub, nothing before it.")
        if json_file is not None and json_file.is_dir():
            raise ValueError(f"--json takes a file to write, but {json_file} is a folder.")
        modes = [mode.value for mode in teacher_pooling]
        teachers = TeacherOptions.if_given(teacher, teacher_weight, modes, teacher_prompt, teacher_max_seq_length)
        if bool(teacher) != (sentences is not None):
            raise ValueError("Agreement with teachers needs both --teacher and --sentences.")
        if not teacher and not sts and not tasks:
            raise ValueError("Nothing to measure: give --teacher and --sentences, or --sts, or --tasks.")
        idle = [option for option, value in (("--data", data), ("--results", results)) if value is not None]
        if idle and not tasks:
            raise ValueError(f"No --tasks are given that {' and '.join(idle)} could serve: name some, or leave it out.")
        corpus = None if sentences is None else read_sentences(sentences, minimum=3)
        pairs = read_all_pairs(sts)
        # First, as it checks the tasks before it loads a model, and computes nothing twice if the rest fails.
        if tasks and data is not None and all(Path(one).exists() for one in (*model, *teacher)):
            # Everything is here: nothing may wait for a Hub that cannot be reached. Read as its client is imported.
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        report = run_tasks(model, tasks, data, results, batch_size, cpu) if tasks else None

        from rankcse_st.cli.scoring import sts_evaluators

        evaluators = sts_evaluators(pairs, batch_size=batch_size)
        if teachers is not None and corpus is not None:
            from rankcse_st.evaluation import TeacherAgreementEvaluator

            ensemble = teachers.load(batch_size=batch_size, cpu=cpu)
            evaluators.insert(
                0, TeacherAgreementEvaluator(corpus.sentences, ensemble, batch_size=batch_size, name="agreement")
            )
        measured = compare(model, evaluators, cpu=cpu) if evaluators else {name: {} for name in model}
    if evaluators:
        names = list(dict.fromkeys(name for metrics in measured.values() for name in metrics))
        rows = [[one, *(percent(metrics.get(name)) for name in names)] for one, metrics in measured.items()]
        print_table("x 100", ["model", *names], rows)
    failed: list[str] = []
    errors: list[str] = []
    if report is not None:
        for name, scores in zip(model, report.models, strict=True):
            measured[name] |= {task: score.score for task, score in scores.scores.items()}
            failed += [f"{task} of {name}" for task in scores.errors]
            errors += scores.errors.values()
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
        say(f"Written to {json_file}.")
    if failed:
        remedy = "The same command tries them again."
        if data is None and any(_is_about_the_hub(error) for error in errors):
            remedy = "The Hub could not be reached: the same command tries again, and --data DIR reads local files."
        raise fail(f"These tasks failed: {', '.join(failed)}. {remedy}", 1)


def compare(models: Sequence[str], evaluators: Sequence[BaseEvaluator], *, cpu: bool) -> dict[str, dict[str, float]]:
    """Metrics of each model, loaded one after the other."""
    from sentence_transformers import SentenceTransformer

    from rankcse_st.cli.scoring import measure

    return {name: measure(SentenceTransformer(name, device="cpu" if cpu else None), evaluators) for name in models}


def _is_about_the_hub(error: str) -> bool:
    return any(sign in error for sign in ("ConnectionError", "ConnectError", "Offline", "LocalEntryNotFound"))


def run_tasks(
    models: Sequence[str], tasks: Sequence[str], data: Path | None, results: Path | None, batch_size: int, cpu: bool
) -> BenchmarkReport:
    """Hand over to the benchmark, which prints its tables.

    Raises:
        ImportError: If ``mteb`` is not installed, with the line that installs it.
        ValueError: If a task is unknown or its data are incomplete.
    """
    from rankcse_st.benchmark.console import evaluate_on_console

    return evaluate_on_console(
        models,
        tasks,
        console=console(),
        data=data,
        output=results or "benchmark-results",
        batch_size=batch_size,
        device="cpu" if cpu else None,
    )
