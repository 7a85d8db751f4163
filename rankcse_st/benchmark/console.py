"""A benchmark run on the terminal: a line for each result as it comes, tables at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rankcse_st.benchmark.groups import expand_tasks
from rankcse_st.benchmark.models import BenchmarkModel, ModelLike, parse_models
from rankcse_st.benchmark.results import BenchmarkReport, TaskScore
from rankcse_st.benchmark.runner import evaluate_models


def evaluate_on_console(
    models: ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike],
    tasks: str | Sequence[str] = "sts",
    *,
    console: Console | None = None,
    **options: Any,
) -> BenchmarkReport:
    """:func:`~rankcse_st.benchmark.evaluate_models` with progress on a rich console and the tables after it.

    Args:
        models: As there.
        tasks: As there.
        console: Where to print; by default the standard output.
        options: The other arguments of ``evaluate_models``, but for ``on_result``.
    """
    console = console or Console()
    count = len(parse_models(models)) * len(expand_tasks(tasks, local=options.get("data") is not None))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("Loading", total=count)

        def show(model: BenchmarkModel, task: str, outcome: TaskScore | Exception) -> None:
            progress.console.print(_line(model, task, outcome), highlight=False, markup=False)
            progress.update(bar, advance=1, description=model.label)

        report = evaluate_models(models, tasks, on_result=show, **options)
    for table in report.tables():
        console.print(table)
    return report


def _line(model: BenchmarkModel, task: str, outcome: TaskScore | Exception) -> str:
    if isinstance(outcome, Exception):
        return f"{model.label}  {task}  failed: {type(outcome).__name__}: {outcome}"
    return f"{model.label}  {task}  {100 * outcome.score:.2f}  ({outcome.seconds:.0f} s)"
