"""The study's tables and plots, from its raw results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.study.runs import START, Rates, Run, grid
from benchmarks.study.scores import DEV_SETS, TEST_SETS, choosing_score
from benchmarks.study.suites import SUITES
from rankcse_st.benchmark import read_results
from rankcse_st.evaluation.plots import plot_alignment_uniformity

Rows = dict[str, list[dict[str, Any]]]

GEOMETRY = ("alignment", "uniformity")
AGREEMENT = ("agreement_spearman", "agreement_top10_overlap")
DEV_COLUMNS = (*DEV_SETS, *AGREEMENT)
TEST_COLUMNS = (*TEST_SETS, "STS mean", "kendall mean", "ndcg mean", *GEOMETRY, *AGREEMENT)
SHORT = {
    "STSBenchmark": "STS-B",
    "STSBenchmark.dev-clean": "STS-B dev-clean",
    "SICK-R.dev": "SICK-R dev",
    "STS mean": "**STS mean**",
    "kendall mean": "Kendall",
    "ndcg mean": "NDCG",
    "agreement_spearman": "agreement",
    "agreement_top10_overlap": "top-10 overlap",
}


# What the study's page has of the headline table, between these.
BLOCK = ("<!-- headline: written by python -m benchmarks.study report -->", "<!-- /headline -->")
HEADLINE = ("STS mean", "kendall mean", "ndcg mean", "agreement_spearman", *GEOMETRY)


def write_report(output: Path, rates: Rates) -> None:
    """Write ``report.md`` and the figures beside the results of the suites at these learning rates."""
    suites: dict[str, Iterable[Run]] = {f"grid, {student}": grid(student) for student in START}
    suites |= {name: make(rates) for name, make in SUITES.items()}
    rows = {name: _rows(runs, output / "runs") for name, runs in suites.items()}
    path = output / "differences.json"
    compared = json.loads(path.read_text()) if path.exists() else {}
    lines = ["# Results of the study", "", "Written by `python -m benchmarks.study report` from the JSON here.", ""]
    for name, found in rows.items():
        if found:
            lines += [f"## {name}", "", *table(found), ""]
            if compared.get(name):
                lines += [*_differences(compared[name]), ""]
    if (output / "transfer").exists():
        lines += ["## transfer", "", read_results(output / "transfer").to_markdown(), ""]
    if (output / "case-study.md").exists():
        lines += ["## case study", "", (output / "case-study.md").read_text(encoding="utf-8")]
    (output / "report.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    _plot(rows, output)
    page = output.parent / "README.md"
    if page.exists() and rows["core"]:
        before, _, after = page.read_text(encoding="utf-8").partition(BLOCK[0])
        after = after.partition(BLOCK[1])[2]
        page.write_text("\n".join([before + BLOCK[0], *_headline(rows["core"]), BLOCK[1] + after]), encoding="utf-8")


def _rows(runs: Iterable[Run], folder: Path) -> Rows:
    paths = [(run, folder / f"{run.key}.json") for run in runs]
    return by_row((run, json.loads(path.read_text())) for run, path in paths if path.exists())


def by_row(results: Iterable[tuple[Run, dict[str, Any]]]) -> Rows:
    """Results by the row that they belong to: runs that differ in their seed alone.

    A row has the name of its runs, and their learning rate where others of that name have another.
    """
    results = list(results)
    rates: dict[str, set[float]] = {}
    for run, _ in results:
        rates.setdefault(run.label, set()).add(run.learning_rate)
    rows: Rows = {}
    for run, result in results:
        name = run.label if len(rates[run.label]) == 1 else f"{run.label}, {run.learning_rate:g}"
        rows.setdefault(name, []).append(result)
    return rows


def table(rows: Rows) -> list[str]:
    """The results of the runs of each label, as Markdown: mean and spread over their seeds."""
    tested = all("STS mean" in result["scores"] for results in rows.values() for result in results)
    columns = TEST_COLUMNS if tested else DEV_COLUMNS
    names = [SHORT.get(column, column) for column in columns]
    header = ["", "rate", "seeds", *names, *([] if tested else ["choosing score"]), "steps", "processor seconds"]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    for label, results in rows.items():
        first = results[0]
        cells = [label, f"{first['run']['learning_rate']:g}" if first["training"]["steps"] else "", str(len(results))]
        cells += [_cell([result["scores"][column] for result in results]) for column in columns]
        if not tested:
            cells.append(_cell([choosing_score(result["scores"]) for result in results]))
        cells += [str(first["training"]["steps"]), f"{_seconds(results):.0f}" if _seconds(results) else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _headline(rows: Rows) -> list[str]:
    """The means of what is measured on test sets, and the time of training beside SimCSE's."""
    whole = _seconds(rows["SimCSE"]) if "SimCSE" in rows else 0.0
    names = [SHORT.get(column, column) for column in HEADLINE]
    table = ["| " + " | ".join(["", "seeds", *names, "time"]) + " |", "|---" + "|---:" * (len(names) + 2) + "|"]
    for label, results in rows.items():
        cells = [_cell([result["scores"][column] for result in results]) for column in HEADLINE]
        time = f"{_seconds(results) / whole:.2f}" if whole and _seconds(results) else ""
        table.append("| " + " | ".join([label, str(len(results)), *cells, time]) + " |")
    return table


def _seconds(results: list[dict[str, Any]]) -> float:
    return mean(result["training"].get("processor_seconds", 0.0) for result in results)


def _cell(values: list[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def _differences(found: list[Mapping[str, Any]]) -> list[str]:
    table = [
        "Differences of the STS mean, with 95 % intervals of a paired bootstrap over the test pairs "
        f"({found[0]['resamples']} resamples, the mean over the seeds in each):",
        "",
        "| | difference | from | to | p | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        values = " | ".join(f"{one[key]:+.2f}" for key in ("difference", "low", "high"))
        table.append(f"| {one['first']} - {one['second']} | {values} | {one['p_value']:.3f} | {len(one['seeds'])} |")
    return table


def _plot(rows: Mapping[str, Rows], output: Path) -> None:
    """``learning-rates.svg``: each method's choosing score over the ladder; ``time.svg``: STS over training time;
    ``geometry.svg``: the headline rows in the plane of uniformity and alignment.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "study"  # The same file for the same results.
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    curves: dict[str, list[tuple[float, float]]] = {}
    for label, (result, *_) in rows["grid, minilm-3"].items():
        curves.setdefault(label.rsplit(",", 1)[0], []).append(
            (result["run"]["learning_rate"], choosing_score(result["scores"]))
        )
    for name, points in curves.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axes.set(xscale="log", xlabel="learning rate", ylabel="choosing score (development sets, agreement)")
    if curves:
        axes.legend(frameon=False)
    figure.savefig(output / "learning-rates.svg", metadata={"Date": None})

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, results in rows["core"].items():
        values = [result["scores"]["STS mean"] for result in results]
        spread = stdev(values) if len(values) > 1 else 0.0
        axes.errorbar(_seconds(results), mean(values), yerr=spread, marker="o", capsize=3)
        axes.annotate(label, (_seconds(results), mean(values)), xytext=(6, 4), textcoords="offset points")
    axes.margins(x=0.2)
    axes.set(xlabel="processor seconds of training", ylabel="mean of seven STS tasks")
    figure.savefig(output / "time.svg", metadata={"Date": None})
    points = {label: tuple(_mean(results, name) for name in GEOMETRY) for label, results in rows["core"].items()}
    sts = {label: _mean(results, "STS mean") for label, results in rows["core"].items()}
    if points:
        plot_alignment_uniformity(points, sts).savefig(output / "geometry.svg", metadata={"Date": None})


def _mean(results: list[dict[str, Any]], score: str) -> float:
    return mean(result["scores"][score] for result in results)
