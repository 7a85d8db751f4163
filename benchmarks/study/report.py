"""The study's tables, from its raw results."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.study.runs import grid
from benchmarks.study.scores import DEV_SETS, TEST_SETS, choosing_score
from benchmarks.study.suites import SUITES

DEV_COLUMNS = (*DEV_SETS, "agreement_spearman", "agreement_top10_overlap")


def write_report(output: Path) -> None:
    """Write ``report.md`` beside the results."""
    rates = json.loads((output / "learning-rates.json").read_text())
    lines = ["# Results of the study", "", "Written by `python -m benchmarks.study report` from `runs/*.json`.", ""]
    for suite, runs in {"grid": grid(), **{name: make(rates) for name, make in SUITES.items()}}.items():
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for run in runs:
            path = output / "runs" / f"{run.key}.json"
            if path.exists():
                label = f"{run.label}, {run.learning_rate:g}" if suite == "grid" else run.label
                rows[label].append(json.loads(path.read_text()))
        if rows:
            lines += [f"## {suite}", "", *_table(rows), ""]
    (output / "report.md").write_text("\n".join(lines), encoding="utf-8")


def _table(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    tested = all("STS mean" in result["scores"] for results in rows.values() for result in results)
    columns = (*TEST_SETS, "STS mean", *DEV_COLUMNS) if tested else DEV_COLUMNS
    header = ["", "rate", "seeds", *columns, *([] if tested else ["choosing score"]), "steps", "seconds"]
    table = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for label, results in rows.items():
        first = results[0]
        cells = [label, f"{first['run']['learning_rate']:g}" if first["training"]["steps"] else "", str(len(results))]
        cells += [_cell([result["scores"][column] for result in results]) for column in columns]
        if not tested:
            cells.append(_cell([choosing_score(result["scores"]) for result in results]))
        cells += [str(first["training"]["steps"]), f"{mean(r['training']['seconds'] for r in results):.0f}"]
        table.append("| " + " | ".join(cells) + " |")
    return table


def _cell(values: list[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
