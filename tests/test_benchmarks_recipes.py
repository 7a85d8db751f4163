"""The recipes: every row of the paper has one, every one can be trained, and the files are what the module says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from conftest import SENTENCES
from sentence_transformers import SentenceTransformer
from tiny_models import build_student
from typer.testing import CliRunner

from benchmarks.paper import load_table
from benchmarks.recipes import COMMUNITY, FOLDER, PAPER, RECIPES, SIMCSE, UNCONFIRMED, write_recipes
from rankcse_st.cli import app


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bare checkpoints as the hub has them: no ``modules.json``, so that the pooling of the recipe is what counts."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name, family, seed in (
        ("bert", "bert", 0),
        ("roberta", "roberta", 0),
        ("teacher", "bert", 1),
        ("teacher2", "bert", 2),
    ):
        model = build_student(family, seed=seed)
        model[0].model.save_pretrained(folder / name)
        model.tokenizer.save_pretrained(folder / name)
    (folder / "sentences.txt").write_text("\n".join(SENTENCES[:15]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains(name: str, stand_ins: Path, tmp_path: Path) -> None:
    """An option renamed in the command, or a combination that it refuses, would break a recipe that only a GPU runs."""
    config = FOLDER / f"{name}.yaml"
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    out = tmp_path / "out"
    arguments: list[str | Path] = ["train", "--config", config, "--cpu", "--output", out]
    arguments += ["--student", stand_ins / name.split("-")[0], "--sentences", stand_ins / "sentences.txt"]
    for teacher in ("teacher", "teacher2")[: len(settings.get("teacher", []))]:
        arguments += ["--teacher", stand_ins / teacher]
    # Twelve sentences in two batches; all else is the recipe's.
    arguments += ["--batch-size", "6", "--epochs", "1", "--held-out", "3"]
    arguments += ["--eval-steps", "2"] if "eval-steps" in settings else []
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"

    model = SentenceTransformer(str(out), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"], "the head must be gone"
    assert model[1].pooling_mode == "cls"
    record = json.loads((out / "rankcse_run.json").read_text(encoding="utf-8"))
    options = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in (
        "method",
        "temperature",
        "student_temperature",
        "teacher_temperature",
        "learning_rate",
        "max_seq_length",
    ):
        if key in options:
            assert record["options"][key] == options[key]
    for term in ("contrastive", "consistency", "distillation"):
        assert record["options"][f"{term}_weight"] == options.get(f"{term}_weight")
    assert record["options"]["projection_head"] is True
    teachers = record.get("teachers", [])
    assert [teacher["pooling"] for teacher in teachers] == [["cls"]] * len(options.get("teacher", []))
    if len(teachers) == 2:
        assert [teacher["weight"] for teacher in teachers] == pytest.approx([1 / 3, 2 / 3])


def test_files_are_up_to_date(tmp_path: Path) -> None:
    """The files are what people use, the module is what is reviewed."""
    write_recipes(tmp_path)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    assert committed == written, "run: python -m benchmarks.recipes"


def test_every_row_that_can_be_trained_has_a_recipe() -> None:
    """Rows of RankCSE and of SimCSE; the other methods are cited only."""
    covered = {row for recipe in RECIPES.values() for row in recipe.rows}
    wanted = {
        (table, row.backbone, row.method)
        for table in ("sts", "transfer")
        for row in load_table(table).rows
        if row.method == "SimCSE" or row.method.startswith("RankCSE")
    }
    wanted |= {("ablation", row.backbone, row.method) for row in load_table("ablation").rows}
    wanted |= {
        ("teachers", row.backbone, f"{row.label}, {method}")
        for row in load_table("teachers").rows
        for method in row.scores
    }
    assert covered == wanted
    assert len([row for row in covered if row[0] == "ablation"]) == 11
    assert len([row for row in covered if row[0] == "teachers"]) == 12


def test_sources_and_types() -> None:
    """Each value says where it is from, and what is not known says so; numbers must not be read as text."""
    for name, recipe in RECIPES.items():
        settings = yaml.safe_load(recipe.to_yaml())
        assert settings == {key: setting.value for key, setting in recipe.settings.items()}
        sources = {setting.source for setting in recipe.settings.values()}
        assert all(source.startswith((PAPER, SIMCSE, COMMUNITY, UNCONFIRMED, "ours")) for source in sources)
        if not name.endswith("-simcse"):
            assert recipe.settings["learning-rate"].source.startswith(UNCONFIRMED)
            assert recipe.settings["epochs"].value == 4
