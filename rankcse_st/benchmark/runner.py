"""Run models through tasks, one result at a time, each kept as soon as it is there and never computed twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from rankcse_st.benchmark._mteb import import_mteb, preserved_random_state, quiet_mteb
from rankcse_st.benchmark.data import LOCAL_REVISION, LocalData, base_name
from rankcse_st.benchmark.groups import OWN_TASKS, expand_tasks, make_tasks
from rankcse_st.benchmark.models import BenchmarkModel, ModelLike, load_model, parse_models, wrap_for_mteb
from rankcse_st.benchmark.results import BenchmarkReport, ModelScores, TaskScore, read_task_score

#: What ``on_result`` is called with: the model, the task's name, and the score, or the error that stopped the task.
OnResult = Callable[[BenchmarkModel, str, "TaskScore | Exception"], None]


def evaluate_models(
    models: ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike],
    tasks: str | Sequence[str] = "sts",
    *,
    data: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = "benchmark-results",
    batch_size: int = 128,
    device: str | torch.device | None = None,
    nested: bool = False,
    symmetric: bool = True,
    partial_data: bool = False,
    overwrite: bool = False,
    trust_remote_code: bool = False,
    on_result: OnResult | None = None,
) -> BenchmarkReport:
    """Run models through MTEB tasks, this package's task groups among them.

    A result that is complete and was computed on the same revision of the data by the same model is read, not
    computed, so that an interrupted run is taken up by calling this again. A task that raises is reported and the
    others run on. The random generators and the modes of models passed in are left as they were.

    Args:
        models: Paths, names on the hub or loaded models: one, several, or a mapping from the names under which the
            results are to be kept. ``"NAME=PATH"`` names a model too. A name without an organisation gets ``local/``
            in front and the hash of the model behind.
        tasks: Groups (``sts``, ``transfer``, ``ranking``, ``geometry``) and names of MTEB tasks, also in one string
            separated by commas. Defaults to "sts".
        data: A folder of JSONL files that stands in for the hub. Its results are kept apart, among MTEB's experiments,
            and bear ``local-`` and a hash of the files as their revision, so that they do not pass for official ones.
            Defaults to None, which loads from the hub.
        output: The folder of results: ``results/`` in MTEB's layout, ``predictions/`` for significance tests.
        batch_size: Texts that a model encodes at once. Defaults to 128.
        device: Where to load models; by default where sentence-transformers does.
        nested: Choose the regularisation of the transfer tasks in each outer fold, as SentEval does, instead of once.
            Defaults to False.
        symmetric: Both sentences of a pair may be queries of the ranking tasks. Defaults to True.
        partial_data: Accept local data with another number of rows than the full data. Defaults to False.
        overwrite: Compute results anew even if they are there. Defaults to False.
        trust_remote_code: Passed to ``SentenceTransformer``. Defaults to False.
        on_result: Called after each task of each model, for progress.

    Returns:
        The scores of every model on every task.

    Raises:
        ImportError: If ``mteb`` is not installed, with the line that installs it.
        FileNotFoundError: If a model or a file of local data is missing.
        ValueError: If a task is unknown, needs local data that were not given, or they are incomplete.

    Example:
        ::

            from rankcse_st.benchmark import evaluate_models

            report = evaluate_models({"student": "runs/student"}, "sts", data="data", output="results")
            report.models[0].scores["STS12"].score
    """
    sources = parse_models(models)
    local_data = None if data is None else LocalData(Path(data).expanduser().resolve(), check_rows=not partial_data)
    names = expand_tasks(tasks, local=local_data is not None)
    import_mteb()
    with preserved_random_state():
        instances = make_tasks(names, local_data, nested=nested, symmetric=symmetric)
        report = BenchmarkReport(tuple(task.metadata.name for task in instances))
        for source in sources:
            modes = _modes(source.model)
            try:
                with quiet_mteb():
                    model = load_model(source, device=device, trust_remote_code=trust_remote_code)
                run = _ModelRun(model, Path(output).expanduser().resolve(), batch_size, overwrite, on_result)
                report.models.append(run.evaluate(instances))
            finally:
                for module, training in modes:
                    module.training = training
    return report


def _modes(model: object) -> list[tuple[torch.nn.Module, bool]]:
    """Train or eval mode of every module of a loaded model, which ``encode`` sets to eval."""
    return [(m, m.training) for m in model.modules()] if isinstance(model, SentenceTransformer) else []


@dataclass
class _ModelRun:
    """One model and where its results go."""

    model: BenchmarkModel
    output: Path
    batch_size: int
    overwrite: bool
    on_result: OnResult | None

    def evaluate(self, tasks: Sequence[Any]) -> ModelScores:
        scores = ModelScores(self.model.label, self.model.name, self.model.revision)
        wrapper = wrap_for_mteb(self.model)
        meta = wrapper.mteb_model_meta
        cache = import_mteb().ResultCache(self.output)
        for task in tasks:
            name = task.metadata.name
            wrapper.mteb_model_meta = meta.model_copy(update={"experiment_kwargs": experiment_of(task)})
            outcome: TaskScore | Exception
            try:
                outcome = self._evaluate_task(wrapper, task, cache)
                scores.scores[name] = outcome
            except Exception as error:
                outcome = error
                scores.errors[name] = f"{type(error).__name__}: {error}"
            if self.on_result is not None:
                self.on_result(self.model, name, outcome)
        return scores

    def _evaluate_task(self, wrapper: Any, task: Any, cache: Any) -> TaskScore:
        mteb = import_mteb()
        path = cache.get_task_result_path(task.metadata.name, wrapper.mteb_model_meta)
        strategy = self._strategy(path, task)
        predictions = self.output / "predictions" / path.parent.relative_to(self.output / "results")
        _remove_unless_json(predictions / task.prediction_file_name)
        start = time.monotonic()
        with quiet_mteb():
            mteb.evaluate(
                wrapper,
                task,
                cache=cache,
                # MTEB writes into the dictionary it is given.
                encode_kwargs={"batch_size": self.batch_size, "show_progress_bar": False},
                overwrite_strategy=strategy,
                co2_tracker=False,
                show_progress_bar=False,
                prediction_folder=predictions,
            )
        return read_task_score(path).timed(time.monotonic() - start)

    def _strategy(self, path: Path, task: Any) -> str:
        """Whether what is in the cache may be used: MTEB itself would take it whatever data it was computed on."""
        if self.overwrite:
            return "always"
        cached = _remove_unless_json(path)
        if cached is None or cached.get("dataset_revision") == task.metadata.revision:
            return "only-missing"
        return "always"


def _remove_unless_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no file, or one cut short by the end of the process that wrote it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        path.unlink()
        return None
    return found


def experiment_of(task: Any) -> dict[str, str] | None:
    """MTEB's experiment of a task's results: None for what a leaderboard may take, MTEB's task on official data.

    MTEB keeps experiments in a folder of their own, and neither its submission command nor its leaderboard takes them
    for results of the model.
    """
    if task.metadata.revision.startswith(LOCAL_REVISION):
        return {"data": "local"}
    if base_name(task.metadata.name) in OWN_TASKS:
        return {"tasks": "rankcse-st"}
    return None
