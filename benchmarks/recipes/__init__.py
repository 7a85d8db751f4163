"""Recipes for the paper's rows as config files of ``rankcse-st train``.

This module says what each recipe sets and where that is from; ``python -m benchmarks.recipes`` writes the YAML files
beside it. Every one needs the hub, a GPU and the million sentences that SimCSE and RankCSE train on::

    rankcse-st train --config benchmarks/recipes/bert-base-listnet.yaml --sentences wiki1m_for_simcse.txt
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

# Where a value is from. Only the first two are known to be those of the figures.
PAPER = "the paper"
SIMCSE = "SimCSE's README"
COMMUNITY = "unconfirmed: the community script's, for BERT-base"
UNCONFIRMED = "unconfirmed"
OURS = "ours"

ENCODERS = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "roberta-base": "roberta-base",
    "roberta-large": "roberta-large",
}
BACKBONES = {
    "bert-base": "BERT-base",
    "bert-large": "BERT-large",
    "roberta-base": "RoBERTa-base",
    "roberta-large": "RoBERTa-large",
}
METHODS = {"listnet": "ListNet", "listmle": "ListMLE"}
SIMCSE_BERT = {size: f"princeton-nlp/unsup-simcse-bert-{size}-uncased" for size in ("base", "large")}
SIMCSE_ROBERTA = {size: f"princeton-nlp/unsup-simcse-roberta-{size}" for size in ("base", "large")}
DIFFCSE_BERT = "voidism/diffcse-bert-base-uncased-sts"
#: The six settings of the table that compares teachers: name, teachers as the table calls them, checkpoints.
TEACHER_SETTINGS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("simcse-base", ("SimCSE-base",), (SIMCSE_BERT["base"],)),
    ("diffcse-base", ("DiffCSE-base",), (DIFFCSE_BERT,)),
    ("simcse-large", ("SimCSE-large",), (SIMCSE_BERT["large"],)),
    ("simcse-base-diffcse-base", ("SimCSE-base", "DiffCSE-base"), (SIMCSE_BERT["base"], DIFFCSE_BERT)),
    ("simcse-base-simcse-large", ("SimCSE-base", "SimCSE-large"), (SIMCSE_BERT["base"], SIMCSE_BERT["large"])),
    ("diffcse-base-simcse-large", ("DiffCSE-base", "SimCSE-large"), (DIFFCSE_BERT, SIMCSE_BERT["large"])),
)
_TERMS = ("contrastive", "consistency", "distillation")


@dataclass(frozen=True)
class Setting:
    """A value and where it is from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Recipe:
    """A config file.

    Attributes:
        name: Its name without suffix.
        rows: The rows of the paper that it is for, as (table, encoder, row's label).
        settings: Options of ``rankcse-st train`` in order.
        notes: What to know before comparing with the row.
    """

    name: str
    rows: tuple[tuple[str, str, str], ...]
    settings: dict[str, Setting]
    notes: tuple[str, ...] = ()

    def to_yaml(self) -> str:
        """The config file, each value with its source."""
        head = ["Written by `python -m benchmarks.recipes`; change benchmarks/recipes/__init__.py, not this file."]
        head += [
            f"For the row {label!r} of {encoder} in the table {table!r} of RankCSE."
            for table, encoder, label in self.rows
        ]
        lines = [f"# {line}" for line in (*head, *self.notes)]
        for key, setting in self.settings.items():
            # JSON is YAML, except that YAML 1.1 takes 3e-05 for text.
            value = json.dumps(setting.value).replace("3e-05", "3.0e-5").replace("1e-05", "1.0e-5")
            lines.append(f"{key}: {value}  # {setting.source}")
        return "\n".join(lines) + "\n"


def _encoder(encoder: str) -> dict[str, Setting]:
    return {
        "student": Setting(ENCODERS[encoder], PAPER),
        "sentences": Setting("wiki1m_for_simcse.txt", PAPER),
        "pooling": Setting("cls", SIMCSE),
        "projection-head": Setting(True, SIMCSE),
        "max-seq-length": Setting(32, COMMUNITY if encoder == "bert-base" else UNCONFIRMED),
        "temperature": Setting(0.05, PAPER),
        "seed": Setting(42, UNCONFIRMED),
    }


def _teachers(names: tuple[str, ...], source: str = PAPER, weights_source: str = PAPER) -> dict[str, Setting]:
    teachers = {"teacher": Setting(list(names), source), "teacher-pooling": Setting("cls", SIMCSE)}
    if len(names) == 2:
        # alpha = 1/3 on the first: weights are relative.
        teachers["teacher-weight"] = Setting([1, 2], weights_source)
    return teachers


def _rankcse(
    name: str,
    rows: tuple[tuple[str, str, str], ...],
    encoder: str,
    method: str | None,
    teachers: dict[str, Setting],
    left_out: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Recipe:
    """A recipe of RankCSE; without ``method`` there is no distillation and no teacher."""
    base = encoder == "bert-base"
    trained = COMMUNITY if base else UNCONFIRMED
    settings = _encoder(encoder) | {
        "output": Setting(f"runs/{name}", OURS),
        "loss": Setting("rankcse", PAPER),
        **{f"{term}-weight": Setting(0 if term in left_out else 1, PAPER) for term in _TERMS},
        "epochs": Setting(4, PAPER),
        "batch-size": Setting(128, trained),
        "learning-rate": Setting(3e-5, trained),
    }
    if method is not None:
        settings |= {
            **teachers,
            "method": Setting(method, PAPER),
            "student-temperature": Setting(0.05, trained),
            "teacher-temperature": Setting(0.025, trained),
            "eval-steps": Setting(125, f"{trained}; by agreement with the teachers here, by STS-B dev there"),
        }
    return Recipe(name, rows, settings, notes)


def _main_rows(encoder: str, method: str) -> tuple[tuple[str, str, str], ...]:
    backbone, label = BACKBONES[encoder], f"RankCSE-{METHODS[method]}"
    rows = tuple((table, backbone, label) for table in ("sts", "transfer"))
    if encoder != "bert-base":
        return rows
    return (
        *rows,
        ("ablation", backbone, label),
        ("teachers", backbone, _teachers_row("simcse-base-simcse-large", method)),
    )


def _teachers_row(setting: str, method: str) -> str:
    teachers = next(labels for name, labels, _ in TEACHER_SETTINGS if name == setting)
    return f"RankCSE ({' + '.join(teachers)}), {METHODS[method]}"


def _main() -> list[Recipe]:
    recipes = []
    for encoder in ENCODERS:
        pair = SIMCSE_BERT if encoder.startswith("bert") else SIMCSE_ROBERTA
        source = PAPER if encoder == "bert-base" else f"{UNCONFIRMED} for {BACKBONES[encoder]}"
        teachers = _teachers((pair["base"], pair["large"]), source, source)
        recipes += [
            _rankcse(f"{encoder}-{method}", _main_rows(encoder, method), encoder, method, teachers)
            for method in METHODS
        ]
    return recipes


def _baselines() -> list[Recipe]:
    batch_sizes = {"bert-base": 64, "bert-large": 64, "roberta-base": 512, "roberta-large": 512}
    learning_rates = {"bert-base": 3e-5, "bert-large": 1e-5, "roberta-base": 1e-5, "roberta-large": 3e-5}
    recipes = []
    for encoder, backbone in BACKBONES.items():
        rows = [(table, backbone, "SimCSE") for table in ("sts", "transfer")]
        if encoder == "bert-base":
            rows.append(("ablation", backbone, "SimCSE baseline"))
        settings = _encoder(encoder) | {
            "output": Setting(f"runs/{encoder}-simcse", OURS),
            "loss": Setting("simcse", PAPER),
            "epochs": Setting(1, PAPER),
            "batch-size": Setting(batch_sizes[encoder], SIMCSE),
            "learning-rate": Setting(learning_rates[encoder], SIMCSE),
        }
        notes = ("SimCSE keeps the checkpoint that is best on STS-B dev; this one keeps the last, without labels.",)
        recipes.append(Recipe(f"{encoder}-simcse", tuple(rows), settings, notes))
    return recipes


def _teacher_settings() -> list[Recipe]:
    return [
        _rankcse(
            f"bert-base-{method}-from-{name}",
            (("teachers", "BERT-base", _teachers_row(name, method)),),
            "bert-base",
            method,
            _teachers(checkpoints, PAPER, f"{UNCONFIRMED} for these two"),
        )
        for name, _, checkpoints in TEACHER_SETTINGS
        if name != "simcse-base-simcse-large"  # the main recipes
        for method in METHODS
    ]


def _ablation() -> list[Recipe]:
    teachers = _teachers((SIMCSE_BERT["base"], SIMCSE_BERT["large"]))
    recipes = []
    for method, label in METHODS.items():
        for left_out in (("consistency",), ("contrastive",), ("consistency", "contrastive")):
            row = f"RankCSE-{label} w/o {', '.join(left_out)}"
            notes = (
                ("With distillation alone this package ranks one dropout view; the paper's lists cross two.",)
                if len(left_out) == 2
                else ()
            )
            recipes.append(
                _rankcse(
                    f"bert-base-{method}-without-{'-'.join(left_out)}",
                    (("ablation", "BERT-base", row),),
                    "bert-base",
                    method,
                    teachers,
                    left_out,
                    notes,
                )
            )
    for left_out in (("distillation",), ("contrastive", "distillation")):
        row = ("ablation", "BERT-base", f"RankCSE w/o {', '.join(left_out)}")
        name = f"bert-base-without-{'-'.join(left_out)}"
        recipes.append(_rankcse(name, (row,), "bert-base", None, {}, left_out))
    return recipes


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (*_main(), *_baselines(), *_teacher_settings(), *_ablation())
}


def write_recipes(folder: Path = FOLDER) -> None:
    """Write a YAML file for each recipe into ``folder``."""
    for recipe in RECIPES.values():
        (folder / f"{recipe.name}.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
