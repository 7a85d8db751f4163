"""Is one model better than another, or were the test pairs kind to it? Paired bootstrap over a task's items."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankcse_st.evaluation.metrics import spearman

FloatArray = npt.NDArray[np.float64]
#: From indices (resamples, items) to the metric's value in each resample.
Statistic = Callable[[npt.NDArray[np.intp]], FloatArray]

# Indices drawn at once: a few hundred resamples of a task, some ten megabytes for each temporary.
_CHUNK_ELEMENTS = 1_000_000


@dataclass(frozen=True)
class PairedItems:
    """What two models gave on the same items of a task.

    Attributes:
        task: The name of the task.
        first: The statistic of the first model.
        second: The statistic of the second model.
        size: The number of items.
    """

    task: str
    first: Statistic
    second: Statistic
    size: int


@dataclass(frozen=True)
class Comparison:
    """The difference of two models, first minus second, in the unit of the metric.

    Attributes:
        task: The name of the task, or ``Avg.``.
        difference: On the items as they are.
        low: Lower end of the percentile interval.
        high: Upper end of the percentile interval.
        p_value: Two-sided, for the difference being 0: twice the share of resamples on the other side of 0 (at least
            ``2 / (resamples + 1)``, at most 1).
    """

    task: str
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    tasks: Iterable[PairedItems], *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> list[Comparison]:
    """Compare two models on each task and, if there are several, on their mean.

    The items of each task (pairs, sentences, ranking groups) are drawn with replacement, the same for both models;
    the mean takes one resample of every task. It says how much the choice of test items matters. The spread of
    training runs is another matter: for that, compare models trained with several seeds.

    Args:
        tasks: What both models gave.
        resamples: How often to draw. Defaults to 1000.
        confidence: The share of resamples inside the interval. Defaults to 0.95.
        seed: The seed of the draws. The global random state is not touched.
    """
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError(f"Expected resamples >= 1 and 0 < confidence < 1, got {resamples} and {confidence}.")
    rng = np.random.default_rng(seed)
    comparisons, differences, observed = [], [], []
    for items in tasks:
        everything = np.arange(items.size)[None]
        observed.append(float((items.first(everything) - items.second(everything))[0]))
        differences.append(_resampled_differences(items, resamples, rng))
        comparisons.append(_compare(items.task, observed[-1], differences[-1], confidence))
    if not comparisons:
        raise ValueError("No task to compare on.")
    if len(comparisons) > 1:
        comparisons.append(_compare("Avg.", float(np.mean(observed)), np.mean(differences, axis=0), confidence))
    return comparisons


def _resampled_differences(items: PairedItems, resamples: int, rng: np.random.Generator) -> FloatArray:
    step = max(1, _CHUNK_ELEMENTS // items.size)
    chunks = []
    for start in range(0, resamples, step):
        drawn = rng.integers(items.size, size=(min(step, resamples - start), items.size))
        chunks.append(items.first(drawn) - items.second(drawn))
    return np.concatenate(chunks)


def _compare(task: str, observed: float, differences: FloatArray, confidence: float) -> Comparison:
    # A resample of a tiny task may hold one gold score only, which has no correlation.
    differences = differences[np.isfinite(differences)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences, [tail, 1 - tail]) if len(differences) else (np.nan, np.nan)
    beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(differences) + 1))
    return Comparison(task, observed, float(low), float(high), p_value)


def spearman_of(scores: npt.ArrayLike, gold: npt.ArrayLike) -> Statistic:
    """Spearman's correlation of ``scores`` (items,) with ``gold`` (items,) in each resample."""
    scores, gold = np.asarray(scores, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    return lambda drawn: spearman(scores[drawn], gold[drawn])


def mean_of(values: npt.ArrayLike) -> Statistic:
    """The mean of ``values`` (items,), e.g. right or wrong, or a group's tau, in each resample."""
    values = np.asarray(values, dtype=np.float64)
    return lambda drawn: np.asarray(values[drawn].mean(axis=1), dtype=np.float64)


def read_predictions(output: str | os.PathLike[str], results: Path) -> dict[str, Any]:
    """What :func:`~rankcse_st.benchmark.evaluate_models` kept of a result's items, by name.

    Args:
        output: The folder of results.
        results: The path of the result's JSON in it.

    Raises:
        FileNotFoundError: If nothing was kept, as for tasks that have no items to resample.
    """
    root = Path(output).expanduser().resolve()
    folder = root / "predictions" / results.resolve().parent.relative_to(root / "results")
    path = folder / f"{results.stem}_predictions.json"
    if not path.is_file():
        raise FileNotFoundError(f"There are no predictions of {results.stem} at {path}: run it again with overwrite.")
    raw = json.loads(path.read_text(encoding="utf-8"))
    splits = raw["default"]
    kept: dict[str, Any] = next(iter(splits.values()))
    return kept
