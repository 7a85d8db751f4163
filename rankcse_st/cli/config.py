"""A YAML file that stands for options: its keys are their names, and the command line wins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
import yaml

from rankcse_st.cli.console import fail

# Given where the command is called, never in a file.
_NOT_IN_FILES = {"config", "help"}


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Callback of ``--config``: make the file's values the defaults of the options.

    It must belong to an eager option, so that it runs before the others are read.
    """
    if path is None or context.resilient_parsing:
        return path
    options = {parameter.name: parameter for parameter in context.command.params if parameter.name not in _NOT_IN_FILES}
    values: dict[str, Any] = {}
    for key, value in _read_mapping(path).items():
        name = str(key).replace("-", "_")
        if name not in options:
            raise fail(_unknown(path, str(key), filter(None, options)))
        if value is None:
            continue
        several = options[name].nargs == -1 or getattr(options[name], "multiple", False)
        if isinstance(value, (dict, list)) and not (several and isinstance(value, list)):
            raise fail(f"{path}: {key!r} takes one value, but got {value!r}.")
        values[name] = value if isinstance(value, list) or not several else [value]
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _read_mapping(path: Path) -> dict[Any, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise fail(f"The config file {path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise fail(f"The config file {path} must hold option names and values, like 'batch-size: 128'.")
    return content


def _unknown(path: Path, key: str, names: Iterable[str]) -> str:
    spelled = sorted(name.replace("_", "-") for name in names)
    close = difflib.get_close_matches(key.replace("_", "-"), spelled, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"The options are {', '.join(spelled)}."
    return f"{path}: unknown option {key!r}. {hint}"
