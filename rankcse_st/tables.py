"""Evidence as people and programs read it: tables as plain text, records as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console, RenderableType


def plain_text(table: RenderableType) -> str:
    """A table, or several, as text without colours."""
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def json_able(value: Any) -> Any:
    """``value`` with NaN as None and tuples as lists, inside dictionaries too."""
    if isinstance(value, dict):
        return {key: json_able(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_able(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
