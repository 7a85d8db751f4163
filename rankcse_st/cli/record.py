"""What a run leaves in its output folder beside the model: its options, its numbers, the sentences it held out."""

from __future__ import annotations

import contextlib
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

RUN_FILE = "rankcse_run.json"
CONFIG_FILE = "train.yaml"
HELD_OUT_FILE = "held_out.txt"

# What may differ when a run is resumed; anything else would go on with another training than the one begun.
MAY_CHANGE = {"epochs", "eval_steps", "save_steps", "cpu"}

_PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "datasets", "torch")


def write_record(output: Path, record: dict[str, Any]) -> None:
    """Write the record of a run."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (output / RUN_FILE).write_text(text + "\n", encoding="utf-8")


def write_config(output: Path, options: dict[str, Any]) -> None:
    """Write options as a file for ``--config``; those without a value are left out."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value not in (None, [], ())}
    (output / CONFIG_FILE).write_text(yaml.safe_dump(given, sort_keys=False, allow_unicode=True), encoding="utf-8")


def check_same_run(output: Path, record: dict[str, Any]) -> None:
    """Refuse to resume a run with other options or sentences than it was begun with.

    Raises:
        ValueError: If they differ; the message says in what.
    """
    path = output / RUN_FILE
    if not path.is_file():
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    if begun["corpus_sha256"] != record["corpus_sha256"]:
        raise ValueError(f"--resume goes on with the same sentences, but the run in {output} was begun with others.")
    differing = [
        f"{name} was {begun['options'].get(name)}, now {value}"
        for name, value in record["options"].items()
        if name not in MAY_CHANGE and begun["options"].get(name) != value
    ]
    if differing:
        raise ValueError(
            f"--resume goes on with the same options, but {'; '.join(differing)}. They are in {output / CONFIG_FILE}."
        )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide about the numbers."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
