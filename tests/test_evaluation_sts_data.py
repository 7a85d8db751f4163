"""The ranking groups of the real STS sets; needs the data folder, named by RANKCSE_DATA (it holds ``sts/*.jsonl``)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rankcse_st.evaluation import GradedRankingEvaluator, ranking_groups


def read(name: str) -> dict[str, list]:
    """The three columns of one set, or a skip that says what is missing."""
    folder = os.environ.get("RANKCSE_DATA")
    if not folder:
        pytest.skip("RANKCSE_DATA is not set")
    path = Path(folder) / "sts" / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {key: [row[column] for row in rows] for key, column in zip(COLUMNS, ("sentence1", "sentence2", "score"))}  # noqa: B905


COLUMNS = ("sentences1", "sentences2", "scores")
# Set, groups by first sentence, groups with both sides as queries, of these constant.
GROUPS = [
    ("STS12", 84, 95, 0),
    ("STS13", 15, 33, 0),
    ("STS14", 17, 66, 0),
    ("STS15", 0, 84, 0),
    ("STS16", 24, 55, 9),
    ("STSBenchmark", 12, 19, 1),
    ("SICK-R", 79, 558, 0),
]


@pytest.mark.parametrize(("name", "by_first", "both", "constant"), GROUPS)
def test_groups_of_the_sts_sets(name, by_first, both, constant):
    """Prevents: repeated targets counted towards the four (STS12 would have 90), and STS15 left without a group."""
    columns = read(name)
    assert len(ranking_groups(**columns, symmetric=False)) == by_first
    groups = ranking_groups(**columns)
    assert len(groups) == both
    assert sum(group.constant for group in groups) == constant
    assert all(len(set(group.targets)) == len(group.targets) >= 4 for group in groups)
    evaluator = GradedRankingEvaluator.from_pairs(**columns)
    assert (len(evaluator.groups), evaluator.num_skipped) == (both - constant, constant)
