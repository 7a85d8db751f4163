"""A query, its targets in the order of their grades, and the place that each model gives them (appendix F)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.study.scores import read_pairs
from rankcse_st.evaluation import ranking_groups

SET = "STSBenchmark"


def case_study(cosines: Mapping[str, Any], data: Path) -> list[str]:
    """Markdown lines.

    The query is the one with the most different grades among its targets, the first such one: chosen by the data
    alone, whatever the models make of it.

    Args:
        cosines: For each model the cosines of the pairs of the test sets, in the order of the file.
        data: Folder with ``sts/*.jsonl``.
    """
    pairs = read_pairs(data, SET)
    group = max(
        ranking_groups(pairs["sentence1"], pairs["sentence2"], pairs["score"]), key=lambda one: len(set(one.grades))
    )
    place = {}
    for row, (first, second) in enumerate(zip(pairs["sentence1"], pairs["sentence2"], strict=True)):
        place[first, second] = place[second, first] = row
    rows = [place[group.query, target] for target in group.targets]
    ranks = {name: rankdata(-np.asarray(values[SET])[rows], method="min") for name, values in cosines.items()}
    lines = [
        f"Query, of {SET}: *{group.query}*",
        "",
        "| target | grade | " + " | ".join(cosines) + " |",
        "|---|---:|" + "---:|" * len(cosines),
    ]
    for number in np.argsort(-np.array(group.grades), kind="stable"):
        cells = " | ".join(str(int(ranks[name][number])) for name in cosines)
        lines.append(f"| {group.targets[number]} | {group.grades[number]:.2f} | {cells} |")
    return lines
