"""Is one row of a table better than another, or were the test pairs kind to it? Paired bootstrap."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.study.runs import Run
from benchmarks.study.scores import TEST_SETS, read_pairs
from rankcse_st.benchmark.significance import PairedItems, Statistic, paired_bootstrap, spearman_of


def differences(
    runs: Iterable[Run], pairs: Iterable[tuple[str, str]], data: Path, output: Path, *, resamples: int = 1000
) -> list[dict[str, Any]]:
    """First minus second, in points of the mean of the test sets, with 95 % intervals over the test pairs.

    What is resampled is the mean over the seeds that both rows have, the same test pairs for all; the spread of the
    seeds themselves is in the headline table.

    Args:
        runs: Those of the suite that have a result; the cosines that they left under ``output`` are read.
        pairs: Labels of the rows to compare; those of which one has no result are left out.
        data: Folder with ``sts/*.jsonl``.
        output: The study's folder of results.
        resamples: How often to draw.

    Raises:
        FileNotFoundError: If a run has not left its cosines here, as after a fresh clone.
    """
    rows: dict[str, dict[int, Any]] = {}
    pairs = list(pairs)
    wanted = {label for pair in pairs for label in pair}
    for run in runs:
        if run.label not in wanted:
            continue
        path = output / "models" / f"{run.key}.npz"
        if not path.exists():
            raise FileNotFoundError(
                f"The bootstrap needs the cosines of every run: those of {run.label}, seed {run.seed}, are not here. "
                f"Remove runs/{run.key}.json and run the suite again."
            )
        rows.setdefault(run.label, {})[run.seed] = np.load(path, allow_pickle=False)
    found = []
    for first, second in pairs:
        seeds = sorted(rows.get(first, {}).keys() & rows.get(second, {}).keys())
        if not seeds:
            continue
        both = [[rows[label][seed] for seed in seeds] for label in (first, second)]
        items = [
            PairedItems(name, *(_mean_spearman(cosines, name, data) for cosines in both), size)
            for name in TEST_SETS
            for size in [len(read_pairs(data, name)["score"])]
        ]
        mean = paired_bootstrap(items, resamples=resamples)[-1]
        low, high, difference = (100 * value for value in (mean.low, mean.high, mean.difference))
        found.append(
            {
                "first": first,
                "second": second,
                "difference": difference,
                "low": low,
                "high": high,
                "p_value": mean.p_value,
                "seeds": seeds,
                "resamples": resamples,
            }
        )
    return found


def _mean_spearman(seeds: list[Any], name: str, data: Path) -> Statistic:
    gold = read_pairs(data, name)["score"]
    statistics = [spearman_of(cosines[name], gold) for cosines in seeds]

    def mean(drawn: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(np.mean([statistic(drawn) for statistic in statistics], axis=0), dtype=np.float64)

    return mean
