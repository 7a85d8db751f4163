"""The demo's table: from the JSON of a run, to the terminal and to README.md.

``python -m benchmarks.demo.table`` brings README.md up to date with ``results/demo.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results") / "demo.json"
README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- demo: written by python -m benchmarks.demo.table -->\n", "<!-- /demo -->"

COLUMNS = ("model", "agreement", "top-10", "pairs", "sentences/s")
LABELS = {
    "teacher": "all-MiniLM-L6-v2, the teacher",
    "layers3": "3 of its 6 layers, as cut",
    "layers3-simcse": "3 layers, SimCSE alone",
    "layers3-rankcse": "3 layers, RankCSE",
    "layers3-default": "3 layers, ranking and matching",
    "static": "StaticEmbedding, as made",
    "static-default": "StaticEmbedding, ranking and matching",
}


def rows(results: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Rows of the table, as text."""
    return [
        [
            LABELS[name],
            f"{100 * metrics['agreement_spearman']:.1f}",
            f"{100 * metrics['agreement_top10_overlap']:.1f}",
            f"{100 * metrics['pairs_spearman_cosine']:.1f}",
            f"{metrics['sentences_per_second']:,.0f}",
        ]
        for name, metrics in results.items()
    ]


def markdown(summary: dict[str, Any]) -> str:
    """The section of README.md that tells the numbers of a run."""
    seconds, machine, found = summary["seconds"], summary["machine"], summary["versions"]
    trained = summary["sentences"] - summary["held_out"]
    lines = [
        f"The text is {summary['sentences']:,} sentences from the docstrings of Python {found['python']}; "
        f"{trained:,} are trained on, {summary['held_out']:,} are held out. The students are layers 1, 3 and 5 "
        "of the teacher's 0 to 5, and a table of token embeddings that needs no transformer. `make demo` printed "
        f"({sum(step['wall'] for step in seconds.values()):.0f} seconds on {machine['cpus']} cores; "
        f"sentence-transformers {found['sentence-transformers']}, torch {found['torch']}, seed {summary['seed']}):",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * (len(COLUMNS) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows(summary["results"])),
        "",
        "*agreement*: Spearman correlation between the rankings of the held-out sentences by model and teacher; "
        "*top-10*: overlap of their ten best; *pairs*: Spearman correlation with the grades of "
        f"[{summary['pairs']} sentence pairs](benchmarks/demo/pairs.jsonl) written for this project; all x 100. One "
        "run with one seed, so differences of a point or so may be chance. Agreement is what is trained for; the table "
        "of tokens gains it at the expense of the pairs. *RankCSE* is the paper's loss, *ranking and matching* what "
        "`rankcse-st train` does by default. Raw numbers, options and times: "
        "[demo.json](benchmarks/demo/results/demo.json).",
        "",
    ]
    return "\n".join(lines)


def update(readme: str, summary: dict[str, Any]) -> str:
    """The text of README.md with the section of this run."""
    head, rest = readme.split(BEGIN)
    return head + BEGIN + markdown(summary) + END + rest.split(END)[1]


if __name__ == "__main__":
    README.write_text(update(README.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8"))), encoding="utf-8")
