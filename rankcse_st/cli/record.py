"""What a run leaves in its output folder beside the model: its options, its numbers, the sentences it held out."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from rankcse_st.training import CHECKPOINTS, last_checkpoint

RUN_FILE = "rankcse_run.json"
CONFIG_FILE = "train.yaml"
HELD_OUT_FILE = "held_out.txt"

# What may differ when a run is resumed; anything else would go on with another training than the one begun.
MAY_CHANGE = {"epochs", "eval_steps", "save_steps", "cpu"}

# What --weights auto found.
SELECTION = "teacher_selection"

# What a run adds to its record.
RESULTS = (SELECTION, "before", "after", "train_seconds")

_PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "datasets", "torch")


def write_record(output: Path, record: dict[str, Any]) -> None:
    """Write the record of a run."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    # Replaced in one step: other processes of the run read it, and a crash must not leave half of it.
    partial = output / f"{RUN_FILE}.partial"
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(output / RUN_FILE)


def read_results(output: Path) -> dict[str, Any]:
    """What a run measured, as far as it came."""
    begun = read_record(output)
    return {name: begun[name] for name in RESULTS if name in begun}


def write_config(output: Path, options: dict[str, Any]) -> None:
    """Write options as a file for ``--config``; those without a value are left out."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value not in (None, [], ())}
    (output / CONFIG_FILE).write_text(yaml.safe_dump(given, sort_keys=False, allow_unicode=True), encoding="utf-8")


def check_output(output: Path, *, resume: bool, projection_head: bool) -> None:
    """Refuse a folder where something would be overwritten, or from which ``--resume`` cannot go on.

    Raises:
        ValueError: If it is one; the message says why.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"The output {output} is a file: give a folder.")
    has_model = (output / "modules.json").is_file()
    is_run = (output / RUN_FILE).is_file()
    if has_model and not (is_run and last_checkpoint(output, projection_head=projection_head)):
        head = " that holds the projection head" if last_checkpoint(output) else ""
        missing = f"no checkpoint{head} to go on from" if is_run else f"no {RUN_FILE}: this command did not train it"
        raise ValueError(
            f"The output folder {output} already holds a model, but {missing}. Nothing is overwritten: choose "
            "another --output."
        )
    if resume:
        if last_checkpoint(output) and not is_run:
            raise ValueError(
                f"The output folder {output} holds checkpoints, but no {RUN_FILE} that says how they were "
                "trained, so --resume cannot go on from them: choose another --output."
            )
        return
    if has_model:
        raise ValueError(
            f"The output folder {output} already holds a model: choose another one, or train it further with --resume."
        )
    if (output / CHECKPOINTS).is_dir() and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        raise ValueError(
            f"The output folder {output} holds a training that was not finished: go on with --resume, or "
            "choose another one."
        )


def check_same_run(output: Path, record: dict[str, Any]) -> None:
    """Refuse to resume a run with other options, sentences, teachers or scores than it was begun with.

    Other teachers would give the rest of the training other targets, and another held-out set would hold sentences
    that the student was trained on.

    Raises:
        ValueError: If they differ; the message says in what.
    """
    begun = read_record(output)
    if not begun:
        return
    if begun.get("corpus_sha256") != record["corpus_sha256"]:
        raise ValueError(f"--resume goes on with the same sentences, but the run in {output} was begun with others.")
    options = begun.get("options", {})
    differing = [
        f"{name} was {options.get(name)}, now {value}"
        for name, value in record["options"].items()
        if name not in MAY_CHANGE and options.get(name) != value
    ]
    differing += [
        f"{name} was {begun.get(name)}, now {record[name]}"
        for name in ("held_out", "calibrate")
        if begun.get(name) != record[name]
    ]
    differing += _other_teachers(begun.get("teachers", []), record["teachers"])
    if begun.get("scores_sha256") != record["scores_sha256"]:
        differing.append("the scores of --scores are others")
    if begun.get("sts_sha256", {}) != record["sts_sha256"]:
        was, now = (", ".join(one.get("sts_sha256", {})) or "none" for one in (begun, record))
        differing.append(f"the pairs of --sts were {was}, now {now}" + (" with other content" if was == now else ""))
    if differing:
        raise ValueError(
            f"--resume goes on with the same options, but {'; '.join(differing)}. They are in {output / CONFIG_FILE}; "
            "to train with others, choose another --output."
        )


def _other_teachers(begun: list[dict[str, Any]], teachers: list[dict[str, Any]]) -> list[str]:
    """What differs in the scores of teachers; a teacher that was moved to another folder is the same.

    One that cannot be identified may be another at every start, so it never counts as the same.
    """
    if len(begun) != len(teachers):
        return [f"there were {len(begun)} teachers, now {len(teachers)}"]
    differing = []
    for number, (was, now) in enumerate(zip(begun, teachers, strict=True), start=1):
        if was["weight"] == now["weight"] == 0:
            continue  # Read neither then nor now.
        known, found = was.get("fingerprint"), now.get("fingerprint")
        if found is not None and (known, was["weight"]) == (found, now["weight"]):
            continue
        if found is None and now["weight"] > 0:
            differing.append(
                f"nothing tells whether teacher {number}, {now['model']!r}, is the same as before: its weights cannot "
                "be read (ONNX, OpenVINO)"
            )
            continue
        names = [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]
        told = [f"{name} was {was.get(name)!r}, now {now.get(name)!r}" for name in names if name != "fingerprint"]
        differing.append(f"of teacher {number}, {' and '.join(told) or 'the weights of the model are others'}")
    return differing


def check_epochs_left(checkpoint: Path | None, epochs: float) -> None:
    """Refuse to go on with a run for fewer epochs than it has been trained for.

    Raises:
        ValueError: If it has been trained for more.
    """
    if checkpoint is None:
        return
    done = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["epoch"]
    # A share of an epoch may be rounded up to a step.
    if done > 1.01 * epochs and done - epochs > 0.1:
        raise ValueError(
            f"The run has been trained for {done:g} epochs already, but --epochs is {epochs:g}: give more to go on, or "
            "choose another --output."
        )


def read_record(output: Path) -> dict[str, Any]:
    """The record of a run; an empty one if there is none."""
    path = output / RUN_FILE
    if not path.is_file():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"{path} is not the record of a run: choose another --output.")
    return record


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide about the numbers."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
