"""Paired bootstrap of two of our models on every task that both have, from what the evaluation kept of each item."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Sheet
from rankcse_st.benchmark.data import LocalData, read_jsonl, revision_of
from rankcse_st.benchmark.results import BenchmarkReport, ModelScores, group_of
from rankcse_st.benchmark.significance import (
    Comparison,
    PairedItems,
    mean_of,
    paired_bootstrap,
    read_predictions,
    spearman_of,
)


def compare_models(
    results: str | os.PathLike[str],
    report: BenchmarkReport,
    first: str,
    second: str,
    *,
    data: Path | None = None,
    resamples: int = 1000,
) -> list[Sheet]:
    """A sheet for each group of tasks that both models have results of.

    Args:
        results: The folder of results.
        report: What was read from it.
        first: The label of the model whose advantage is measured.
        second: The label of the other.
        data: The folder of local data, which has the gold scores of the STS tasks. Without it they are left out.
        resamples: Resamples of the bootstrap.

    Raises:
        ValueError: If a model has no results, both have no task in common, or the data are not those of the results.
    """
    models = [_find(report, label) for label in (first, second)]
    common = [task for task in report.tasks if all(task in model.scores for model in models)]
    sheets = []
    for group, metric in (("sts", ""), ("transfer", ""), ("ranking", "kendall"), ("ranking", "ndcg")):
        tasks = [task for task in common if group_of(task) == group and (group != "sts" or task != "SICK-R")]
        if group == "sts" and data is None:
            continue
        items = [_items(task, group, metric, models, results, data) for task in tasks]
        if items:
            sheets.append(_sheet(group, metric, models, paired_bootstrap(items, resamples=resamples), resamples))
    if not sheets:
        raise ValueError(f"{first} and {second} have no task in common that can be resampled (STS needs --data).")
    return sheets


def _find(report: BenchmarkReport, label: str) -> ModelScores:
    found = [model for model in report.models if label in (model.label, model.name)]
    if len(found) != 1:
        labels = ", ".join(model.label for model in report.models)
        raise ValueError(
            f"Expected one model called {label!r} in the results, found {len(found)}. There are: {labels}."
        )
    return found[0]


def _items(
    task: str,
    group: str,
    metric: str,
    models: Sequence[ModelScores],
    results: str | os.PathLike[str],
    data: Path | None,
) -> PairedItems:
    predictions = [read_predictions(results, model.scores[task].path) for model in models]
    if group == "sts" and data is not None:
        gold = _gold(task, models, LocalData(data, check_rows=False))
        first, second = (spearman_of(kept["cosine_scores"], gold) for kept in predictions)
        return PairedItems(task, first, second, len(gold))
    values = [np.asarray(kept[metric or "correct"], dtype=np.float64) for kept in predictions]
    return PairedItems(task, mean_of(values[0]), mean_of(values[1]), len(values[0]))


def _gold(task: str, models: Sequence[ModelScores], data: LocalData) -> list[Any]:
    files = data.files(task)
    revision = revision_of(files)
    for model in models:
        used = model.scores[task].dataset_revision
        if used != revision:
            raise ValueError(
                f"{model.label} was evaluated on other data for {task}: revision {used}, where the files here are "
                f"{revision}. Give the folder that the results are from."
            )
    return read_jsonl(files["test"])["score"]


def _sheet(
    group: str, metric: str, models: Sequence[ModelScores], comparisons: Sequence[Comparison], resamples: int
) -> Sheet:
    rows = [
        [c.task, group, f"{100 * c.difference:+.2f}", f"{100 * c.low:+.2f} to {100 * c.high:+.2f}", f"{c.p_value:.3f}"]
        for c in comparisons
    ]
    names = {"sts": "Spearman", "transfer": "accuracy", "kendall": "Kendall's tau", "ndcg": "NDCG"}
    title = f"{models[0].label} minus {models[1].label}: {names[metric or group]} x 100"
    note = (
        f"Paired bootstrap over test items, {resamples} resamples, 95% percentile interval, two-sided p; the spread of "
        "training runs is not in it"
    )
    return Sheet(title, ["Task", "Group", "Difference", "95% interval", "p"], rows, [note])
