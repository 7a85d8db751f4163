"""The figures that the paper reports, for its own methods and for others, as data with their sources."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TABLES = ("sts", "transfer", "ablation", "teachers", "ranking", "geometry")


@dataclass(frozen=True)
class PaperRow:
    """One row of a table: cited figures, in the unit of its table.

    Attributes:
        backbone: The pretrained encoder, e.g. ``BERT-base``.
        method: The method, or the terms left out of it.
        source: Key of the method's own paper in ``sources.json``.
        scores: Figures by column. A pair is a range read off a figure.
        metric: ``kendall`` or ``ndcg`` in the ranking table, else empty.
        teachers: The teachers in the table that compares them.
    """

    backbone: str
    method: str
    source: str
    scores: dict[str, float | list[float]]
    metric: str = ""
    teachers: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the row is called beside others of its backbone."""
        return f"{self.method} ({' + '.join(self.teachers)})" if self.teachers else self.method


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        name: The name of its file.
        title: What it measures.
        metric: The unit of the figures.
        section: Where it is in the paper that reports it.
        rows: Its rows in order.
        note: What to mind when comparing.
        group: The group of tasks that measures the same; empty if none does.
    """

    name: str
    title: str
    metric: str
    section: str
    rows: tuple[PaperRow, ...]
    note: str = ""
    group: str = ""


def load_table(name: str) -> PaperTable:
    """One of ``TABLES``.

    Raises:
        ValueError: If there is no such table.
    """
    if name not in TABLES:
        raise ValueError(f"There is no table {name!r} of the paper, only {', '.join(TABLES)}.")
    raw: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    rows = tuple(PaperRow(**{**row, "teachers": tuple(row.get("teachers", ()))}) for row in raw["rows"])
    return PaperTable(
        name, raw["title"], raw["metric"], raw["section"], rows, raw.get("note", ""), raw.get("group", "")
    )


def citation(source: str) -> str:
    """The full reference of a source."""
    entry = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))[source]
    return " ".join(filter(None, (entry["citation"], entry.get("url"))))
