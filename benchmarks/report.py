"""Set results beside the paper's figures: ``python -m benchmarks.report RESULTS --backbone BERT-base``.

With ``--compare FIRST SECOND`` it also says, by paired bootstrap, whether one of our models is better than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.paper import TABLES, PaperRow, PaperTable, citation, load_table
from rankcse_st.benchmark.groups import TASK_GROUPS
from rankcse_st.benchmark.results import PAPER_STS, BenchmarkReport, ModelScores, read_results


@dataclass
class Sheet:
    """A table as text: our models first, then the cited figures."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    def to_rich(self) -> Table:
        table = Table(title=self.title, caption="; ".join(self.notes) or None)
        for position, column in enumerate(self.header):
            table.add_column(column, justify="left" if position < 2 else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        lines = [self.header, ["---", "---", *["---:"] * (len(self.header) - 2)], *self.rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        notes = "".join(f"\n- {note}." for note in self.notes)
        return f"## {self.title}\n\n{text}\n{notes}"


def make_sheets(report: BenchmarkReport, backbones: Sequence[str] = (), tables: Sequence[str] = TABLES) -> list[Sheet]:
    """One sheet for each table of the paper, two for ranking: what we measured over what it reports.

    Args:
        report: Our results; may be empty to show the paper's figures alone.
        backbones: Show only the paper's rows of these; all by default.
        tables: Which of the paper's tables.
    """
    sheets = []
    for name in tables:
        table = load_table(name)
        rows = [row for row in table.rows if not backbones or row.backbone in backbones]
        sheets += [
            _sheet(table, [row for row in rows if row.metric == metric], report.models, metric)
            for metric in dict.fromkeys(row.metric for row in rows)
        ]
    return sheets


def _sheet(table: PaperTable, cited: Sequence[PaperRow], ours: Sequence[ModelScores], metric: str) -> Sheet:
    columns = list(cited[0].scores)
    measured = [(model, [_measured(table, model, column, metric) for column in columns]) for model in ours]
    rows = [[model.label, "ours", *cells] for model, cells in measured if any(cells)]
    rows += [[row.label, row.backbone, *(_figure(row.scores[column]) for column in columns)] for row in cited]
    notes = [f"Cited figures as reported in section {table.section} of RankCSE, {citation('rankcse')}"]
    notes += [
        f"{row.method}: {citation(row.source)}"
        for row in {r.source: r for r in cited}.values()
        if row.source != "rankcse"
    ]
    if table.note:
        notes.append(f"The paper's figures: {table.note}")
    if any(model.scores[task].local for model in ours for task in model.scores):
        notes.append("Ours are on local data")
    if table.group == "transfer":
        notes.append("Ours are by scikit-learn, the paper's by SentEval's torch branch: see benchmarks/README.md")
    name = {"kendall": ": Kendall's tau x 100", "ndcg": ": NDCG x 100"}.get(metric, f": {table.metric}")
    return Sheet(table.title + name, ["Model", "Encoder", *(c.removesuffix("Ranking") for c in columns)], rows, notes)


def _measured(table: PaperTable, model: ModelScores, column: str, metric: str) -> str:
    """Our figure for a column of the paper, empty where we have none."""
    if table.name == "geometry":
        task = TASK_GROUPS["geometry"][0]
        return f"{model.value(task, column):.3f}" if task in model.scores else ""
    averages = {
        "sts": PAPER_STS,
        "transfer": TASK_GROUPS["transfer"],
        "ranking": TASK_GROUPS["ranking"],
    }
    tasks: Sequence[str] = {
        "Avg.": averages.get(table.group, ()),
        "STS Avg.": PAPER_STS,
        "Transfer Avg.": TASK_GROUPS["transfer"],
    }.get(column, (column,))
    mean = model.mean(tasks, metric or None)
    return "" if mean is None else f"{100 * mean:.2f}"


def _figure(value: float | list[float]) -> str:
    if isinstance(value, list):
        low, high = value
        return f"≈ {low:.2f}" if low == high else f"≈ {low:.2f} to {high:.2f}"
    return f"{value:.2f}"


def main(
    results: Annotated[Path, typer.Argument(help="The folder of results that the evaluation wrote.")],
    backbone: Annotated[list[str], typer.Option(help="Show the paper's rows of this encoder only; repeatable.")] = [],  # noqa: B006
    table: Annotated[list[str], typer.Option(help=f"Of {', '.join(TABLES)}; repeatable. All by default.")] = [],  # noqa: B006
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file too.")] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two of our models, by their names in the tables.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The local data of the results, for --compare.")] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Resamples of the bootstrap.")] = 1000,
) -> None:
    """Tables of our results beside the paper's figures."""
    report = read_results(results)
    sheets = make_sheets(report, backbone, table or TABLES)
    if compare is not None:
        from benchmarks.compare import compare_models

        sheets += compare_models(results, report, *compare, data=data, resamples=resamples)
    console = Console()
    for sheet in sheets:
        console.print(sheet.to_rich())
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        markdown.write_text("\n\n".join(sheet.to_markdown() for sheet in sheets) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
