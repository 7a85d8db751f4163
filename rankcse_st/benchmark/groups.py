"""The groups of tasks, and tasks from their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankcse_st.benchmark._mteb import import_mteb, quiet_mteb
from rankcse_st.benchmark.data import LocalData

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark")
TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")

#: The paper's families. ``sts`` scores SICK-R both ways: ``SICK-R.test`` is the papers', ``SICK-R`` is MTEB's.
TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "sts": (*STS_TASKS, "SICK-R.test", "SICK-R"),
    "transfer": TRANSFER_TASKS,
    "ranking": (*(f"{name}Ranking" for name in STS_TASKS), "SICK-RRanking"),
    "geometry": ("STSBenchmarkGeometry",),
}

#: Tasks that exist only on local data: MTEB's SICK-R on the hub does not tell test rows from the others, and the hub
#: has no copy of SentEval's data.
LOCAL_ONLY = ("SICK-R.test", "SICK-RRanking", *TRANSFER_TASKS)

#: Tasks that are this package's and not MTEB's.
OWN_TASKS = frozenset(("SICK-R.test", *TASK_GROUPS["transfer"], *TASK_GROUPS["ranking"], *TASK_GROUPS["geometry"]))


def expand_tasks(tasks: str | Sequence[str], *, local: bool) -> list[str]:
    """The names of the tasks, groups replaced by their members, each once.

    Args:
        tasks: Groups and names; one string may hold several, separated by commas.
        local: Whether there are local data. Without them a group leaves out the tasks that need them, if it has others.

    Raises:
        ValueError: If nothing is left, or a task was named that needs local data.
    """
    names = [name.strip() for part in ([tasks] if isinstance(tasks, str) else tasks) for name in part.split(",")]
    expanded: dict[str, None] = {}
    for name in filter(None, names):
        members = TASK_GROUPS.get(name, (name,))
        usable = members if local else [member for member in members if member not in LOCAL_ONLY]
        if not usable:
            raise ValueError(
                f"{name!r} needs local data, which the hub does not have: give the folder (data=..., or --data on the "
                "command line)."
            )
        expanded.update(dict.fromkeys(usable))
    if not expanded:
        raise ValueError(f"No tasks to run. Groups: {', '.join(TASK_GROUPS)}; or any names of MTEB tasks.")
    return list(expanded)


def make_tasks(
    names: Sequence[str],
    data: LocalData | None = None,
    *,
    nested: bool = False,
    symmetric: bool = True,
) -> list[Any]:
    """MTEB task instances for names, on local data if given.

    Args:
        names: Names of tasks (no groups).
        data: The folder that stands in for the hub.
        nested: The transfer tasks choose C in each outer fold.
        symmetric: The ranking tasks take both sentences of a pair as queries.

    Raises:
        ValueError: If MTEB has no task of a name, or local data are incomplete.
        FileNotFoundError: If local data lack a file.
    """
    tasks = [_make_task(name, nested=nested, symmetric=symmetric) for name in names]
    if data is None:
        return tasks
    from rankcse_st.benchmark.tasks.local import localize

    return [localize(task, data) for task in tasks]


def _make_task(name: str, *, nested: bool, symmetric: bool) -> Any:
    mteb = import_mteb()
    if name in TASK_GROUPS["transfer"]:
        from rankcse_st.benchmark.tasks.transfer import make_transfer_task

        return make_transfer_task(name, nested=nested)
    if name in OWN_TASKS:
        from rankcse_st.benchmark.tasks import evaluators

        if name == "SICK-R.test":
            return evaluators.sick_test_task()
        if name in TASK_GROUPS["geometry"]:
            return evaluators.geometry_task()
        return evaluators.ranking_task(name.removesuffix("Ranking"), symmetric=symmetric)
    try:
        with quiet_mteb():
            return mteb.get_task(name)
    except KeyError as error:
        raise ValueError(
            f"There is no task {name!r}. Groups: {', '.join(TASK_GROUPS)}; or names of MTEB tasks "
            "(`mteb available-tasks` lists them)."
        ) from error
