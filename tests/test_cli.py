"""The command line, run as a user runs it, on tiny models saved to a folder."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
import yaml
from datasets import load_from_disk
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import TrainerCallback
from typer.testing import CliRunner, Result

from rankcse_st.cli import app, console, job
from rankcse_st.cli.record import check_same_run, write_record
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.losses import RankCSELoss
from rankcse_st.training import LISTMLE_DISTILLATION, LOSSES, TrainingOptions, last_checkpoint
from tests.benchmark_data import WITHOUT_MTEB, write_benchmark_data
from tests.conftest import SENTENCES
from tests.teacher_models import make_cross_encoder

STS = [
    {"sentence1": "The cat sleeps on the sofa.", "sentence2": "The cat sleeps on the sofa.", "score": 5.0},
    {"sentence1": "The cat sleeps on the sofa.", "sentence2": "A dog sleeps on the sofa.", "score": 3.0},
    {"sentence1": "The cat sleeps on the sofa.", "sentence2": "The city waits for the rain.", "score": 0.5},
    {"sentence1": "Anna is late again.", "sentence2": "My neighbour is late again.", "score": 2.5},
]
TEACHER_WIDTHS = (48, 40)


def run(*arguments: Any) -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments: Any) -> str:
    """Call it and expect success."""
    result = run(*arguments)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


@pytest.fixture(scope="module")
def models(make_tiny_model: Callable[..., SentenceTransformer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a student, a student without dropout, and two teachers."""
    folder = tmp_path_factory.mktemp("models")
    make_tiny_model(pooling="cls").save_pretrained(str(folder / "student"))
    make_tiny_model(dropout=0.0).save_pretrained(str(folder / "without-dropout"))
    make_tiny_model(seed=1, dim=48, lowercase=False).save_pretrained(str(folder / "teacher"))
    make_tiny_model(seed=2, dim=40).save_pretrained(str(folder / "teacher2"))
    make_tiny_model(seed=4, lowercase=False).save_pretrained(str(folder / "teacher-of-student-width"))
    make_tiny_model(seed=3)[0].model.save_pretrained(str(folder / "bare"))
    make_tiny_model(seed=3).tokenizer.save_pretrained(str(folder / "bare"))
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """64 sentences, with a blank line and a duplicate."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join([*SENTENCES, "", SENTENCES[0], ""]), encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Graded pairs."""
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in STS), encoding="utf-8")
    return path


@pytest.fixture
def quick(models: Path, corpus: Path, tmp_path: Path) -> list[Any]:
    """A training of six steps on the CPU, its output in ``tmp_path / "out"``."""
    return [
        *("train", "--student", models / "student", "--teacher", models / "teacher", "--sentences", corpus),
        *("--output", tmp_path / "out", "--batch-size", 8, "--held-out", 16, "--learning-rate", "3e-3", "--cpu"),
        # The last step is saved in any case; rendering a card for each checkpoint is most of the time.
        *("--save-steps", 100),
    ]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sentences teachers were asked to encode, call by call."""
    calls: list[int] = []
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # The evaluators encode with the student, which is told from the teachers by its width.
        if self.get_embedding_dimension() in TEACHER_WIDTHS:
            calls.append(len(inputs))
        return encode(self, inputs, *args, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    return calls


def embed(folder: Path) -> torch.Tensor:
    """Embeddings by a saved model."""
    return SentenceTransformer(str(folder), device="cpu").encode(SENTENCES[:8], convert_to_tensor=True)


def test_help_imports_nothing_heavy() -> None:
    """``--help`` and a mistyped option must answer at once: importing torch takes seconds."""
    code = "import sys, rankcse_st.cli; print([m for m in ('torch', 'transformers', 'datasets') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"


@pytest.mark.parametrize("command", ["train", "score", "evaluate"])
def test_help_names_every_option(command: str) -> None:
    """An option nobody can find out about is no option."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    callback = next(one.callback for one in app.registered_commands if one.callback.__name__ == command)
    options = {"json" if name == "json_file" else name for name in inspect.signature(callback).parameters} - {"model"}
    assert len(options) > 10
    for name in options:
        assert f"--{name.replace('_', '-')}" in result.output


@pytest.mark.parametrize("command", ["train", "score", "evaluate"])
def test_help_is_printed_as_written(command: str) -> None:
    """Help is read as markup, so that "rankcse-st[mteb]" became "rankcse-st", which installs something else."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "600", "TERM": "dumb"})
    printed = " ".join(re.sub("[^ -~]", " ", result.output).split())
    options = typer.main.get_command(app).commands[command].params
    texts = [" ".join(option.help.replace("\\[", "[").split()) for option in options if getattr(option, "help", None)]
    assert len(texts) > 10
    assert [text for text in texts if text not in printed] == []
    assert ("Needs rankcse-st[mteb]." in printed) == (command == "evaluate")


def test_console_prints_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A name with brackets or colons must not be read as markup or as an emoji, nor fail."""
    text = r"models/[bold]x[/] :cat: [/red] \[mteb]"
    console.say(text)
    console.fail(text)
    console.print_table("[t]", ["x 100", "sts[dev]_spearman"], [["a[b] :cat:", "[/]"]])
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{text}\n[t]")
    assert captured.err == f"Error: {text}\n"
    for part in ("sts[dev]_spearman", "a[b] :cat:", "[/]"):
        assert part in captured.out.split("\n", 1)[1]


def test_defaults_are_those_of_the_library() -> None:
    """A default that the command repeats must not drift from the loss and the options it stands for."""
    train = next(one.callback for one in app.registered_commands if one.callback.__name__ == "train")
    command = inspect.signature(train).parameters
    loss = inspect.signature(RankCSELoss).parameters
    for name in ("method", "temperature"):
        assert getattr(command[name].default, "value", command[name].default) == loss[name].default
    for name, value in LOSSES["rankcse"]._asdict().items():
        assert value == loss[name].default
    for name in ("student_temperature", "teacher_temperature", "matching_weight"):
        assert getattr(LISTMLE_DISTILLATION, name) == loss[name].default
    for option in fields(TrainingOptions):
        if option.name != "student":
            assert getattr(command[option.name].default, "value", command[option.name].default) == option.default


def test_train_improves_agreement_and_saves_a_plain_model(
    quick: list[Any], models: Path, pairs: Path, tmp_path: Path
) -> None:
    """The main job: a better student, numbers before and after, a model that needs nothing of this package."""
    # 48 sentences say nothing about others to a student that knows nothing: this one is its teacher, blurred.
    quick[4] = models / "teacher-of-student-width"
    student = SentenceTransformer(str(quick[4]), device="cpu")
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise)
    quick[2] = tmp_path / "blurred"
    student.save_pretrained(str(quick[2]))
    output = succeed(*quick, "--epochs", 4, "--sts", pairs)
    folder = tmp_path / "out"
    assert "64 sentences (1 blank lines skipped, 1 duplicates dropped)" in output
    record = json.loads((folder / "rankcse_run.json").read_text())
    assert set(record["after"]) == {"held_out_spearman", "held_out_top10_overlap", "pairs_spearman_cosine"}
    assert record["after"]["held_out_spearman"] > record["before"]["held_out_spearman"] + 0.05
    assert "before and after" in " ".join(output.split())
    assert f"SentenceTransformer('{folder}').encode" in output.replace("\n", "")
    types = [module["type"] for module in json.loads((folder / "modules.json").read_text())]
    assert types
    assert all(one.startswith("sentence_transformers.") for one in types)
    card = (folder / "README.md").read_text()
    assert "RankCSELoss" in card
    assert '"teacher_temperature": 0.1' in card
    assert "RankCSE: Unsupervised Sentence Representations" in card.replace("{R}ank{CSE}", "RankCSE")
    assert len((folder / "held_out.txt").read_text().splitlines()) == 16

    # None in sys.modules makes an import fail as if the package were not installed.
    code = (
        "import sys; sys.modules['rankcse_st'] = None\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"print(SentenceTransformer({str(folder)!r}, device='cpu').encode(['The cat is late again.']).tolist())"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    expected = SentenceTransformer(str(folder), device="cpu").encode(["The cat is late again."])
    torch.testing.assert_close(torch.tensor(json.loads(loaded)), torch.from_numpy(expected), rtol=1e-4, atol=1e-5)


BAD_INPUT: dict[str, tuple[list[Any], list[str]]] = {
    "missing file": (["--sentences", "nowhere.txt"], ["nowhere.txt", "does not exist"]),
    "folder for a file": (["--sentences", "."], ["is a folder"]),
    "empty file": (["--sentences", "{empty}"], ["holds 0 sentences", "at least 2"]),
    "one sentence": (["--sentences", "{one}"], ["holds 1 sentences (2 duplicates dropped)", "at least 2"]),
    "not UTF-8": (["--sentences", "{latin}"], ["line 2", "not UTF-8", "iconv"]),
    "missing student": (["--student", "./nobody"], ["no student at './nobody'", "folder or a name"]),
    "missing teacher": (["--teacher", "./nobody"], ["no teacher at './nobody'"]),
    "one weight for two teachers": (
        ["--teacher", "{models}/teacher2", "--teacher-weight", 1],
        ["2 teachers but 1 weights", "--teacher-weight once for each"],
    ),
    "negative weight": (["--teacher-weight", -1], ["not negative", "-1"]),
    "all weights zero": (["--teacher-weight", 0], ["All 1 values", "are 0"]),
    "weight not a number": (["--teacher-weight", "nan"], ["finite"]),
    "three lengths for one teacher": (
        ["--teacher-max-seq-length", 5, "--teacher-max-seq-length", 6, "--teacher-max-seq-length", 7],
        ["1 teachers but 3 values of --teacher-max-seq-length"],
    ),
    "temperature zero": (["--temperature", 0], ["temperature must be positive", "0.0"]),
    "student temperature infinite": (["--student-temperature", "inf"], ["student_temperature must be positive"]),
    "teacher temperature not a number": (["--teacher-temperature", "nan"], ["teacher_temperature must be positive"]),
    "negative term weight": (["--consistency-weight", -1], ["consistency_weight must be finite and not negative"]),
    "all terms off": (
        ["--contrastive-weight", 0, "--consistency-weight", 0, "--distillation-weight", 0],
        ["all three terms are 0"],
    ),
    "learning rate": (["--learning-rate", 0], ["learning_rate must be positive"]),
    "epochs": (["--epochs", -1], ["epochs must be positive"]),
    "batch of one": (["--batch-size", 1], ["batch_size must be at least 2"]),
    "dropout": (["--dropout", 1], ["dropout must be at least 0 and below 1"]),
    "two precisions": (["--bf16", "--fp16"], ["exclude each other"]),
    "save steps beside eval steps": (["--eval-steps", 4, "--save-steps", 3], ["leave save_steps out"]),
    "two held out": (["--held-out", 2], ["0 or at least 3"]),
    "all held out": (["--held-out", 64], ["64 sentences, of which 64 are held out"]),
    "scores beside teachers": (["--scores", "."], ["leave out --teacher and --sentences"]),
    "scores beside calibration": (
        ["--scores", ".", "--calibrate", "--cache-dir", "."],
        ["leave out --teacher and --sentences and --calibrate and --cache-dir"],
    ),
    "scores beside a batch size of teachers": (
        ["--scores", ".", "--teacher-batch-size", 8],
        ["leave out --teacher and --sentences and --teacher-batch-size"],
    ),
    "matching weight": (["--matching-weight", "inf"], ["matching_weight must be finite and not negative"]),
    "matching without distillation": (
        ["--loss", "simcse", "--matching-weight", 20],
        ["--matching-weight has no effect", "distillation term is off"],
    ),
    # 20 is what the loss says, but not of a term that is off.
    "matching with distillation weighed 0": (
        ["--contrastive-weight", 1, "--distillation-weight", 0, "--matching-weight", 20],
        ["--matching-weight has no effect", "distillation term is off"],
    ),
    "temperature of terms that are off": (
        ["--temperature", 0.1],
        ["--temperature has no effect", "consistency term are off", "Leave out"],
    ),
    "distillation's options without distillation": (
        ["--loss", "simcse", "--method", "listmle", "--teacher-temperature", 0.1],
        ["--method and --teacher-temperature have no effect", "distillation term is off"],
    ),
    "teacher temperature of ListMLE": (
        ["--method", "listmle", "--teacher-temperature", 0.1],
        ["--teacher-temperature has no effect", "order only"],
    ),
    "teacher for nothing": (
        ["--loss", "simcse", "--held-out", 0],
        ["--teacher only measures agreement", "--held-out is 0"],
    ),
    "evaluation of nothing": (["--held-out", 0, "--eval-steps", 100], ["--eval-steps has nothing to measure"]),
    "private without upload": (["--private"], ["--private is for what --push-to-hub uploads"]),
    "automatic weights of one teacher": (["--weights", "auto"], ["chooses among teachers, but there are 1"]),
    "pairs without automatic weights": (["--pairs", "{two}"], ["add --weights auto"]),
    "automatic weights beside weights": (
        ["--teacher", "{models}/teacher2", "--weights", "auto", "--teacher-weight", 1, "--teacher-weight", 2],
        ["--weights auto and --teacher-weight exclude each other"],
    ),
    "automatic weights beside calibration": (
        ["--teacher", "{models}/teacher2", "--weights", "auto", "--calibrate"],
        ["leave --calibrate out"],
    ),
    "few pairs to choose weights by": (
        ["--teacher", "{models}/teacher2", "--weights", "auto", "--pairs", "{two}"],
        ["holds 2 pairs", "at least 20"],
    ),
    "automatic weights beside scores": (
        ["--scores", ".", "--weights", "auto", "--pairs", "{two}"],
        ["leave out --teacher and --sentences and --weights and --pairs"],
    ),
    "output is a model": (["--output", "{models}/teacher"], ["already holds a model", "choose another --output"]),
    "resume from a model": (
        ["--output", "{models}/teacher", "--resume"],
        ["already holds a model", "no rankcse_run.json", "choose another --output"],
    ),
    "output is a file": (["--output", "{empty}"], ["is a file"]),
    "hub while offline": (["--push-to-hub", "me/model"], ["HF_HUB_OFFLINE"]),
    "missing pairs": (["--sts", "nowhere.csv"], ["nowhere.csv", "does not exist"]),
    "pairs of another format": (["--sts", "pairs.parquet"], [".jsonl, .csv or .tsv"]),
    "pairs without score": (["--sts", "{noscore}"], ["row 1", "no score"]),
    "score is text": (["--sts", "{badscore}"], ["row 2", "finite number", "'high'"]),
    "unknown config key": (["--config", "{unknown}"], ["unknown option 'batchsize'", "'batch-size'"]),
    "config not a mapping": (["--config", "{one}"], ["must hold option names"]),
    "config list for one value": (["--config", "{listed}"], ["'seed' takes one value"]),
    "missing config": (["--config", "nowhere.yaml"], ["nowhere.yaml", "cannot be read"]),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_fails_before_models_are_loaded(
    case: str, quick: list[Any], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message, exit code 2, no traceback, nothing loaded, nothing written."""
    files = {
        "empty": b"\n\n",
        "one": b"A cat.\nA cat.\nA cat.\n",
        "latin": "A cat.\nUn caf\u00e9.\n".encode("latin-1"),
        "noscore": b'{"sentence1": "a", "sentence2": "b"}\n',
        "two": b'{"sentence1": "a", "sentence2": "b", "score": 1}\n{"sentence1": "c", "sentence2": "d", "score": 2}\n',
        "badscore": b"sentence1,sentence2,score\na,b,high\n",
        "unknown": b"batchsize: 3\n",
        "listed": b"seed: [1, 2]\n",
    }
    names = {"models": str(models)}
    for name, content in files.items():
        path = tmp_path / f"{name}{'.csv' if name == 'badscore' else '.jsonl'}"
        path.write_bytes(content)
        names[name] = str(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(job, "load_student", never)
    arguments, expected = BAD_INPUT[case]
    result = run(*quick, *(str(argument).format(**names) for argument in arguments))
    assert result.exit_code == 2, result.output
    message = " ".join(result.output.split())
    assert "Error:" in message
    assert "Traceback" not in message
    for part in expected:
        assert part in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--teacher-batch-size", 8, "--calibrate"], "--calibrate and --teacher-batch-size act on scoring only"),
        (["--cache-dir", "scores"], "--cache-dir acts on scoring only"),
        (["--weights", "auto"], "--weights acts on scoring only"),
        (["--eval-steps", 2], "--eval-steps has nothing to measure"),
    ],
)
def test_options_that_need_a_teacher(
    options: list[Any], expected: str, models: Path, corpus: Path, tmp_path: Path
) -> None:
    """An option that has nothing to act on must not seem to act."""
    arguments = ["--student", models / "student", "--sentences", corpus, "--output", tmp_path / "out"]
    result = run("train", *arguments, "--loss", "simcse", *options)
    assert result.exit_code == 2
    assert expected in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("left_out", "expected"), [("--teacher", "Distillation needs a teacher"), ("--sentences", "No sentences are given")]
)
def test_missing_sources(left_out: str, expected: str, quick: list[Any]) -> None:
    """What is needed depends on the other options, so that the parser cannot tell."""
    position = quick.index(left_out)
    result = run(*quick[:position], *quick[position + 2 :])
    assert result.exit_code == 2
    assert expected in result.output


def test_two_sentences(models: Path, tmp_path: Path) -> None:
    """Whoever never heard of --held-out must learn what to do about it; without it, they can be trained on."""
    corpus = tmp_path / "two.txt"
    corpus.write_text("The cat is late.\nThe dog is late.\n")
    # Of two sentences, each has only one other to rank: what trains is matching.
    arguments = ["train", "--student", models / "student", "--teacher", models / "teacher-of-student-width"]
    arguments += ["--sentences", corpus, "--output", tmp_path / "out", "--cpu", "--learning-rate", "1e-3"]
    refused = run(*arguments)
    assert refused.exit_code == 2
    message = " ".join(refused.output.split())
    assert "There are 2 sentences, too few to hold out 3, as is done by default" in message
    assert "give more text, or hold none out with --held-out 0" in message
    start = embed(models / "student")
    output = succeed(*arguments, "--held-out", 0)
    assert "Note: all 2 training sentences fit in one batch (of 128)" in output
    assert "A smaller --batch-size, more text or more --epochs" in output
    assert (embed(tmp_path / "out") - start).abs().max() > 1e-4


def test_student_is_its_own_teacher(quick: list[Any], models: Path, tmp_path: Path) -> None:
    """Its agreement can only fall, for which anyone would blame the training."""
    remark = f"Warning: the student {models / 'student'} is its own teacher"
    other = [*quick]
    assert remark not in succeed(*other, "--output", tmp_path / "other")
    shutil.copytree(models / "student", tmp_path / "copy")
    quick[4] = tmp_path / "copy"
    output = succeed(*quick, "--max-seq-length", 16)
    assert output.count(remark) == 1
    assert "can only move it away" in output
    assert json.loads((tmp_path / "out" / "rankcse_run.json").read_text())["before"]["held_out_spearman"] > 0.999
    # Beside another teacher, or told apart by a prompt, it has something to learn.
    for more in (["--teacher", models / "teacher"], ["--teacher-prompt", "Anna: "]):
        assert remark not in succeed(*quick, *more, "--output", tmp_path / more[0])

    succeed("score", *quick[3:7], "--output", tmp_path / "scores", "--cpu")
    options = [*quick[:3], "--scores", tmp_path / "scores", *quick[9:], "--output", tmp_path / "from-scores"]
    assert remark in succeed(*options)


def test_student_without_dropout(quick: list[Any], models: Path, encoded: list[int]) -> None:
    """Two equal views must be noticed before the teachers have scored a corpus, and the message names both remedies."""
    quick[2] = models / "without-dropout"
    quick += ["--loss", "rankcse"]
    result = run(*quick)
    assert result.exit_code == 2
    assert "No dropout acts" in result.output
    assert "distillation" in result.output
    assert not encoded
    succeed(*quick, "--dropout", 0.1)
    assert encoded


def test_distillation_alone_needs_no_dropout(quick: list[Any], models: Path, tmp_path: Path) -> None:
    """The cheap setting: one view, only the distillation term is in the log."""
    quick[2] = models / "without-dropout"
    output = succeed(*quick, "--method", "listmle")
    assert "Loss: distillation (ListMLE, student temperature 0.05); embeddings are not matched" in output
    card = (tmp_path / "out" / "README.md").read_text()
    assert '"method": "listmle"' in card
    logs = log_history(tmp_path / "out")
    assert any("distillation" in entry for entry in logs)
    assert not any("contrastive" in entry or "consistency" in entry for entry in logs)


def test_default_is_what_the_study_recommends(quick: list[Any], models: Path, tmp_path: Path) -> None:
    """Other temperatures than said, matching left out or kept secret, or another training from the run's train.yaml."""
    quick[4] = models / "teacher-of-student-width"
    output = succeed(*quick)
    assert (
        "Loss: distillation (ListNet, student temperature 0.1, teacher temperature 0.1) + 20 x embedding matching."
        in output
    )
    folder = tmp_path / "out"
    recommended = {"student_temperature": 0.1, "teacher_temperature": 0.1, "matching_weight": 20.0}
    assert json.loads((folder / "rankcse_run.json").read_text())["options"].items() >= recommended.items()
    config = yaml.safe_load((folder / "train.yaml").read_text())
    assert {name.replace("_", "-"): value for name, value in recommended.items()}.items() <= config.items()
    trained = next(entry for entry in log_history(folder) if "distillation" in entry)
    assert trained["matching"] > 1
    assert not {"contrastive", "consistency"} & trained.keys()

    succeed("train", "--config", folder / "train.yaml", "--output", tmp_path / "again")
    torch.testing.assert_close(embed(tmp_path / "again"), embed(folder), rtol=0, atol=1e-6)
    succeed(*quick, "--matching-weight", 0, "--output", tmp_path / "unmatched")
    assert (embed(tmp_path / "unmatched") - embed(folder)).abs().max() > 0.01
    assert not any("matching" in entry for entry in log_history(tmp_path / "unmatched"))

    succeed(*quick, "--resume", "--epochs", 2)
    refused = run(*quick, "--resume", "--epochs", 2, "--matching-weight", 5)
    assert refused.exit_code == 2
    assert "matching_weight was 20.0, now 5.0" in " ".join(refused.output.split())


def test_teachers_of_other_widths_are_matched(quick: list[Any], models: Path, tmp_path: Path) -> None:
    """Half of what is recommended left out where teacher and student differ in width, or an error in the first step."""
    brought = "Matching: score vectors of {} dimensions, brought into the student's space of 32."
    output = succeed(*quick, "--teacher", models / "teacher2", "--output", tmp_path / "two")
    assert brought.format(88) in output
    assert brought.format(48) in succeed(*quick)
    assert json.loads((tmp_path / "out" / "rankcse_run.json").read_text())["options"]["matching_weight"] == 20
    trained = next(entry for entry in log_history(tmp_path / "out") if "distillation" in entry)
    assert trained["matching"] > 1
    assert "teacher_projection" in (tmp_path / "out" / "README.md").read_text()
    assert not any("projection" in path.name for path in (tmp_path / "out").rglob("*"))

    source = ["--sentences", quick[6], "--output", tmp_path / "scores", "--cpu"]
    succeed("score", "--teacher", models / "teacher", *source)
    options = [*quick[:3], *quick[quick.index("--output") + 2 :], "--scores", tmp_path / "scores"]
    assert brought.format(48) in succeed(*options, "--output", tmp_path / "from-scores")
    torch.testing.assert_close(embed(tmp_path / "from-scores"), embed(tmp_path / "out"), rtol=0, atol=1e-6)
    assert "Matching" not in succeed(*options, "--matching-weight", 0, "--output", tmp_path / "unmatched")


def test_rankcse_is_the_papers_loss(quick: list[Any], models: Path, tmp_path: Path) -> None:
    """What is recommended for distillation alone must not leak into the paper's own loss."""
    quick[4] = models / "teacher-of-student-width"
    output = succeed(*quick, "--loss", "rankcse", "--consistency-weight", 0.5)
    assert (
        "Loss: contrastive (temperature 0.05) + 0.5 x consistency (temperature 0.05) + distillation (ListNet, student "
        "temperature 0.05, teacher temperature 0.025); embeddings are not matched.\n" in output
    )
    trained = next(entry for entry in log_history(tmp_path / "out") if "distillation" in entry)
    assert {"contrastive", "consistency"} <= trained.keys()
    assert "matching" not in trained


def test_simcse_needs_no_teacher(models: Path, corpus: Path, tmp_path: Path, encoded: list[int]) -> None:
    """The baseline runs on text alone."""
    arguments = ["--student", models / "student", "--sentences", corpus, "--output", tmp_path / "out", "--cpu"]
    output = succeed("train", *arguments, "--loss", "simcse", "--batch-size", 8, "--save-steps", 100)
    assert "Loss: contrastive (temperature 0.05)." in output
    assert not encoded
    # The rate that acted, for none was given.
    assert json.loads((tmp_path / "out" / "rankcse_run.json").read_text())["options"]["learning_rate"] == 3e-5
    again = ["train", "--config", tmp_path / "out" / "train.yaml", "--output", tmp_path / "again"]
    assert "Loss: contrastive" in succeed(*again)
    assert any("contrastive" in entry or "loss" in entry for entry in log_history(tmp_path / "out"))


class Interrupt(TrainerCallback):
    """What Ctrl-C does after the fifth step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 5:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("loss", "head"), [("distillation", ()), ("rankcse", ("--projection-head",))], ids=["one view", "projection head"]
)
def test_resume_after_interruption_equals_uninterrupted(
    loss: str,
    head: tuple[str, ...],
    quick: list[Any],
    tmp_path: Path,
    encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted run goes on from its last checkpoint: no score is computed again, and the result is the same."""
    quick += ["--save-steps", 4, "--loss", loss, *head]
    build_trainer = job.build_trainer

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        trainer = build_trainer(*args, **kwargs)
        trainer.add_callback(Interrupt())
        return trainer

    monkeypatch.setattr(job, "build_trainer", interrupted)
    result = run(*quick)
    assert result.exit_code == 130
    folder = tmp_path / "out"
    assert "--resume" in result.output
    assert not (folder / "modules.json").exists()
    assert last_checkpoint(folder) == folder / "checkpoints" / "checkpoint-4"
    assert sum(encoded) == 64
    encoded.clear()
    monkeypatch.setattr(job, "build_trainer", build_trainer)

    refused = run(*quick)
    assert refused.exit_code == 2
    assert "not finished" in refused.output

    # Checkpoints that a crash cut short are passed over: before the trainer's last file, and before the head's.
    (folder / "checkpoints" / "checkpoint-9").mkdir()
    if head:
        shutil.copytree(folder / "checkpoints" / "checkpoint-4", folder / "checkpoints" / "checkpoint-8")
        (folder / "checkpoints" / "checkpoint-8" / "projection_head.safetensors").unlink()
        assert last_checkpoint(folder) == folder / "checkpoints" / "checkpoint-8"
        assert last_checkpoint(folder, projection_head=True) == folder / "checkpoints" / "checkpoint-4"
    output = succeed("train", "--config", folder / "train.yaml", "--resume")
    assert "checkpoint-4" in output
    assert not encoded

    quick[quick.index("--output") + 1] = tmp_path / "whole"
    succeed(*quick, "--save-steps", 100)
    torch.testing.assert_close(embed(folder), embed(tmp_path / "whole"), rtol=0, atol=1e-6)
    start = embed(Path(str(quick[2])))
    assert (embed(folder) - start).abs().max() > 0.01


def test_resume_refuses_other_options_and_sentences(quick: list[Any], corpus: Path, tmp_path: Path) -> None:
    """Going on with another seed or text would be a training that nobody asked for, and is not what resuming means."""
    succeed(*quick)
    result = run(*quick, "--resume", "--seed", 7)
    assert result.exit_code == 2
    assert "seed was 42, now 7" in " ".join(result.output.split())
    more = succeed(*quick, "--resume", "--epochs", 2)
    assert "checkpoint-6" in more
    begun = (tmp_path / "out" / "rankcse_run.json").read_text()
    fewer = run(*quick, "--resume", "--epochs", 1)
    assert fewer.exit_code == 2
    assert "trained for 2 epochs already, but --epochs is 1" in " ".join(fewer.output.split())
    assert (tmp_path / "out" / "rankcse_run.json").read_text() == begun
    quick += ["--epochs", 2]
    corpus.write_text(corpus.read_text().replace("sofa", "beach"), encoding="utf-8")
    result = run(*quick, "--resume")
    assert result.exit_code == 2
    assert "begun with others" in " ".join(result.output.split())


def test_resume_refuses_other_teachers_and_other_held_out_sentences(
    quick: list[Any], models: Path, pairs: Path, tmp_path: Path, encoded: list[int]
) -> None:
    """Another teacher would be distilled from the middle on, and sentences trained on would be held out."""
    succeed(*quick)
    begun = (tmp_path / "out" / "rankcse_run.json").read_text()
    encoded.clear()
    other = quick.copy()
    other[4] = models / "teacher2"
    for arguments, expected in [
        (other, "of teacher 1, model was"),
        ([*quick, "--teacher-prompt", "query: "], "prompt was '', now 'query: '"),
        ([*quick, "--teacher", models / "teacher2"], "there were 1 teachers, now 2"),
        ([*quick, "--held-out", 8], "held_out was 16, now 8"),
        ([*quick, "--calibrate"], "calibrate was False, now True"),
        ([*quick, "--sts", pairs], "pairs of --sts were none, now pairs"),
    ]:
        result = run(*arguments, "--resume")
        assert result.exit_code == 2, result.output
        message = " ".join(result.output.split())
        assert expected in message
        assert "choose another --output" in message
        assert (tmp_path / "out" / "rankcse_run.json").read_text() == begun
    assert not encoded
    # The same teacher from another folder is the same.
    shutil.copytree(models / "teacher", tmp_path / "moved")
    other[4] = tmp_path / "moved"
    succeed(*other, "--resume")


def test_resume_keeps_a_finished_model_without_checkpoints(quick: list[Any], tmp_path: Path) -> None:
    """There is nothing to go on from, and starting anew would overwrite the model."""
    succeed(*quick)
    shutil.rmtree(tmp_path / "out" / "checkpoints")
    for resume in ((), ("--resume",)):
        result = run(*quick, *resume)
        assert result.exit_code == 2
        assert "no checkpoint to go on from" in " ".join(result.output.split())


def test_second_run_computes_no_scores_again(quick: list[Any], tmp_path: Path, encoded: list[int]) -> None:
    """Runs that share --cache-dir share the teachers' work."""
    quick += ["--cache-dir", tmp_path / "cache"]
    succeed(*quick)
    assert sum(encoded) == 64
    quick[quick.index("--output") + 1] = tmp_path / "out2"
    succeed(*quick, "--student-temperature", 0.2, "--seed", 7)
    assert sum(encoded) == 64


def test_score_then_train(models: Path, corpus: Path, quick: list[Any], tmp_path: Path, encoded: list[int]) -> None:
    """Training on a scored folder is the training with the teachers themselves."""
    teachers = ["--teacher", models / "teacher", "--teacher", models / "teacher2", "--teacher-weight", 2]
    teachers += ["--teacher-weight", 1, "--sentences", corpus]
    succeed("score", *teachers, "--output", tmp_path / "scores", "--cpu")
    assert sum(encoded) == 128
    assert [path.name for path in tmp_path.glob("scores*")] == ["scores"]
    refused = run("score", *teachers, "--output", tmp_path / "scores")
    assert refused.exit_code == 2
    assert "not empty" in refused.output
    options = [*quick[:3], *quick[quick.index("--output") + 2 :]]
    succeed(*options, "--scores", tmp_path / "scores", "--output", tmp_path / "from-scores")
    assert sum(encoded) == 128
    succeed("score", *teachers[:2], "--sentences", corpus, "--output", tmp_path / "other-scores", "--cpu")
    other = run(*options, "--scores", tmp_path / "other-scores", "--output", tmp_path / "from-scores", "--resume")
    assert other.exit_code == 2
    assert "the scores of --scores are others" in " ".join(other.output.split())
    succeed(*options, *teachers, "--output", tmp_path / "from-teachers")
    torch.testing.assert_close(embed(tmp_path / "from-scores"), embed(tmp_path / "from-teachers"), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Teachers that see a hidden meaning through noise, one that sees nothing, and pairs graded by the meaning."""
    folder = tmp_path_factory.mktemp("candidates")
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((len(SENTENCES), 8))
    for name, width, noise in (("good", 48, 0.8), ("fair", 40, 1.0), ("random", 44, None)):
        vectors = rng.standard_normal((len(SENTENCES), width))
        if noise is not None:
            vectors = meaning @ np.linalg.qr(rng.standard_normal((width, 8)))[0].T + noise * vectors / width**0.5
        save_table(vectors, folder / name)
    unit = meaning / np.linalg.norm(meaning, axis=1, keepdims=True)
    for name in ("graded", "others"):
        rows = [(i, j) for i, j in rng.integers(0, len(SENTENCES), (400, 2)).tolist() if i != j]
        pairs = [
            {"sentence1": SENTENCES[i], "sentence2": SENTENCES[j], "score": float(unit[i] @ unit[j])} for i, j in rows
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


def save_table(vectors: np.ndarray, folder: Path) -> None:
    """Save a model that gives each of ``SENTENCES`` its own vector."""
    # Nothing splits a text into words, so that a whole sentence is one entry of the vocabulary.
    vocabulary = {sentence: row for row, sentence in enumerate([*SENTENCES, "[UNK]"])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    weights = np.concatenate([vectors, np.ones((1, vectors.shape[1]))]).astype(np.float32)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")
    model.save_pretrained(str(folder))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many sentences the teachers of each width were asked to encode."""
    counts: Counter[int] = Counter()
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        counts[self.get_embedding_dimension()] += len(inputs)
        return encode(self, inputs, *args, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    return counts


@pytest.mark.parametrize("graded", [False, True], ids=["agreement", "graded pairs"])
def test_score_with_automatic_weights(
    graded: bool, candidates: Path, corpus: Path, models: Path, tmp_path: Path, asked: Counter[int]
) -> None:
    """Random vectors among good teachers must count nothing, nor be computed for the corpus; the folder stays plain."""
    teachers = [argument for name in ("good", "random", "fair") for argument in ("--teacher", candidates / name)]
    arguments = ["--sentences", corpus, *teachers, "--weights", "auto", "--cpu"]
    arguments += ["--pairs", candidates / "graded.jsonl"] if graded else []
    output = " ".join(succeed("score", *arguments, "--output", tmp_path / "scores").split())
    assert "Agreement over 64 sentences" in output
    assert ("graded pairs; the ensemble held out" in output) == graded
    assert f"{candidates / 'random'} 0 (dropped)" in output
    assert asked == {48: 128, 44: 64, 40: 128}
    evidence = json.loads((tmp_path / "scores" / "teachers.json").read_text())
    good, random, fair = evidence["weights"]
    assert random == 0
    assert min(good, fair) > 0
    assert good + fair == pytest.approx(1)
    assert evidence["chosen_by"] == ("graded pairs" if graded else "calibration")
    assert evidence["pairs"] == ("graded" if graded else None)
    assert evidence["agreement"]["teachers"][1]["unrelated"]
    scored = load_from_disk(str(tmp_path / "scores"))
    assert scored.column_names == ["sentence", "label"]
    assert np.asarray(scored[0]["label"]).shape == (88,)
    (record,) = TeacherScoreDataset.records(scored)
    assert [teacher["weight"] for teacher in record["teachers"]] == pytest.approx(evidence["weights"])
    # The weights given by hand make the same scores, and the folder can be trained on.
    given = [argument for weight in evidence["weights"] for argument in ("--teacher-weight", weight)]
    succeed("score", "--sentences", corpus, *teachers, *given, "--cpu", "--output", tmp_path / "given")
    assert (tmp_path / "given" / "teachers.json").exists() is False
    again = load_from_disk(str(tmp_path / "given"))
    np.testing.assert_array_equal(np.asarray(again["label"][:]), np.asarray(scored["label"][:]))
    training = ["--student", models / "student", "--scores", tmp_path / "scores", "--output", tmp_path / "out"]
    succeed("train", *training, "--loss", "distillation", "--batch-size", 32, "--save-steps", 100, "--cpu")


def test_automatic_weights_refuse_a_cross_encoder(
    candidates: Path, corpus: Path, tmp_path: Path, asked: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teacher without embeddings must be noticed before the others have encoded."""
    make_cross_encoder(tmp_path / "cross")
    monkeypatch.setattr(CrossEncoder, "predict", None)
    teachers = ["--teacher", candidates / "good", "--teacher", tmp_path / "cross"]
    result = run("score", "--sentences", corpus, *teachers, "--weights", "auto", "--output", tmp_path / "scores")
    assert result.exit_code == 2
    assert "is a cross-encoder" in " ".join(result.output.split())
    assert not asked
    assert not (tmp_path / "scores").exists()


def test_train_with_automatic_weights(
    candidates: Path, corpus: Path, models: Path, tmp_path: Path, asked: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen is written down as if given; a resumed run goes on with it and chooses nothing anew."""
    folder = tmp_path / "out"
    command = ["train", "--student", models / "student", "--sentences", corpus, "--output", folder, "--cpu"]
    command += [argument for name in ("random", "good", "fair") for argument in ("--teacher", candidates / name)]
    command += ["--loss", "distillation", "--batch-size", 16, "--save-steps", 100, "--learning-rate", "3e-3"]
    auto = ["--weights", "auto", "--pairs", candidates / "graded.jsonl"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "a launcher started several" in " ".join(run(*command, *auto).output.split())
    monkeypatch.delenv("WORLD_SIZE")
    output = succeed(*command, *auto)
    assert "Agreement over 64 sentences" in output
    record = json.loads((folder / "rankcse_run.json").read_text())
    weights = record["teacher_selection"]["weights"]
    assert weights[0] == 0
    assert min(weights[1:]) > 0
    assert [teacher["weight"] for teacher in record["teachers"]] == pytest.approx(weights)
    config = yaml.safe_load((folder / "train.yaml").read_text())
    assert config["teacher-weight"] == weights
    assert not {"weights", "pairs"} & set(config)
    assert asked.keys() >= {40, 44, 48}
    for width in (40, 44, 48):
        del asked[width]

    succeed("train", "--config", folder / "train.yaml", "--resume", "--epochs", 2)
    succeed(*command, *auto, "--resume", "--epochs", 3)
    assert not asked.keys() & {40, 44, 48}
    assert json.loads((folder / "rankcse_run.json").read_text())["teacher_selection"] == record["teacher_selection"]
    for arguments, expected in [
        ([], "weight was 0.0, now 0.33"),
        (["--weights", "auto"], "chosen by other pairs"),
        (["--weights", "auto", "--pairs", candidates / "others.jsonl"], "chosen by other pairs"),
        ([*auto, "--teacher", candidates / "fair"], "there were 3 teachers, now 4"),
    ]:
        refused = run(*command, *arguments, "--resume", "--epochs", 3)
        assert refused.exit_code == 2, refused.output
        assert expected in " ".join(refused.output.split())
    (folder / "rankcse_run.json").write_text(json.dumps({**record, "teacher_selection": None}))
    refused = run(*command, *auto, "--resume", "--epochs", 3)
    assert "begun without --weights auto" in " ".join(refused.output.split())
    assert not asked.keys() & {40, 44, 48}


def test_teacher_without_fingerprint_is_never_the_same(tmp_path: Path) -> None:
    """None equals None, but two models of which nothing is known may differ in all their weights."""
    record: dict[str, Any] = {"corpus_sha256": "a", "options": {}, "held_out": 3, "calibrate": False}
    record |= {"scores_sha256": None, "sts_sha256": {}}
    known = {"model": "a", "weight": 0.5, "fingerprint": "abc"}
    unknown = {"model": "onnx", "weight": 0.5, "fingerprint": None}
    dropped = {"model": "b", "weight": 0.0}
    write_record(tmp_path, {**record, "teachers": [known, dropped]})
    check_same_run(tmp_path, {**record, "teachers": [known, dropped]})
    for begun in (known, unknown):
        write_record(tmp_path, {**record, "teachers": [begun, dropped]})
        with pytest.raises(ValueError, match="nothing tells whether teacher 1, 'onnx', is the same") as error:
            check_same_run(tmp_path, {**record, "teachers": [unknown, dropped]})
        assert "another --output" in str(error.value)
        assert "teacher 2" not in str(error.value)


@pytest.mark.parametrize(("option", "value"), [("--teacher-weight", 2), ("--teacher-prompt", "a: ")])
def test_scores_take_no_options_of_teachers(option: str, value: Any, models: Path, tmp_path: Path) -> None:
    """Scores are computed already: an option that cannot act must not seem to."""
    arguments = ["--student", models / "student", "--scores", tmp_path, "--output", tmp_path / "out"]
    result = run("train", *arguments, option, value)
    assert result.exit_code == 2
    assert f"No --teacher is given that {option}" in " ".join(result.output.split())


def test_score_refuses_a_launcher(
    models: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[int]
) -> None:
    """Several processes would write one dataset folder, and remove what the others still read."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run("score", "--teacher", models / "teacher", "--sentences", corpus, "--output", tmp_path / "scores")
    assert result.exit_code == 2
    assert "TeacherScoreDataset.from_sentences(..., cache_dir=DIR)" in " ".join(result.output.split())
    assert not encoded


def test_config_file_stands_for_options_and_the_command_line_wins(models: Path, corpus: Path, tmp_path: Path) -> None:
    """Required, repeated and flag options can come from a file."""
    config = tmp_path / "config.yaml"
    values = {"student": str(models / "student"), "teacher": [str(models / "teacher"), str(models / "teacher2")]}
    values |= {
        "sentences": str(corpus),
        "output": str(tmp_path / "out"),
        "batch_size": 16,
        "seed": 3,
        "cpu": True,
        "save-steps": 9,
    }
    config.write_text(yaml.safe_dump({**values, "teacher-weight": [1, 3], "loss": "distillation"}))
    succeed("train", "--config", config, "--seed", 5)
    record = json.loads((tmp_path / "out" / "rankcse_run.json").read_text())
    assert record["options"]["seed"] == 5
    assert record["options"]["batch_size"] == 16
    assert record["options"]["loss"] == "distillation"
    assert [teacher["weight"] for teacher in record["teachers"]] == pytest.approx([0.25, 0.75])


def test_example_config_trains(models: Path, corpus: Path, tmp_path: Path) -> None:
    """An example that names an option of yesterday, or a combination that is refused."""
    example = Path(__file__).parents[1] / "examples" / "train.yaml"
    arguments = ["--student", models / "student", "--teacher", models / "teacher", "--teacher", models / "teacher2"]
    arguments += ["--sentences", corpus, "--output", tmp_path / "out", "--cache-dir", tmp_path / "scores", "--cpu"]
    # The tiny student has no positions beyond.
    output = succeed("train", "--config", example, *arguments, "--max-seq-length", 32, "--batch-size", 16)
    assert "Loss: distillation (ListNet, student temperature 0.1, teacher temperature 0.1)" in output


def test_bare_student_and_cls_teacher(models: Path, corpus: Path, tmp_path: Path) -> None:
    """Checkpoints that do not say how they are pooled: the options do, for the student and for each teacher."""
    arguments = ["--student", models / "bare", "--teacher", models / "bare", "--sentences", corpus, "--cpu"]
    arguments += [
        "--output",
        tmp_path / "out",
        "--pooling",
        "cls",
        "--teacher-pooling",
        "cls",
        "--batch-size",
        16,
        "--save-steps",
        100,
    ]
    output = succeed("train", *arguments)
    pooling = SentenceTransformer(str(tmp_path / "out"), device="cpu")[1]
    assert pooling.pooling_mode == "cls"
    record = json.loads((tmp_path / "out" / "rankcse_run.json").read_text())
    assert record["teachers"][0]["pooling"] == ["cls"]
    # The student starts as its own teacher, which is said.
    assert "is its own teacher" in output
    assert record["before"]["held_out_spearman"] == pytest.approx(1.0)
    refused = run(*["train", *arguments, "--student", models / "student", "--output", tmp_path / "other"])
    assert refused.exit_code == 2
    assert "has a pooling of its own" in " ".join(refused.output.split())


def test_eval_steps_keep_the_best_checkpoint(quick: list[Any], tmp_path: Path) -> None:
    """What is saved is the checkpoint with the best agreement, not the last one."""
    ranking = ["--matching-weight", 0, "--learning-rate", "5e-2"]  # By which agreement rises and falls again.
    succeed(*quick[:-2], "--epochs", 3, "--eval-steps", 3, *ranking)
    state = json.loads((last_checkpoint(tmp_path / "out") / "trainer_state.json").read_text())
    agreements = [
        entry["eval_held_out_spearman"] for entry in state["log_history"] if "eval_held_out_spearman" in entry
    ]
    assert len(agreements) >= 5
    after = json.loads((tmp_path / "out" / "rankcse_run.json").read_text())["after"]["held_out_spearman"]
    assert after == pytest.approx(max(agreements), abs=1e-6)
    assert after > agreements[-1]
    assert card_metrics(tmp_path / "out")["held_out_spearman"] == pytest.approx(after, abs=1e-9)


def card_metrics(folder: Path) -> dict[str, float]:
    """What a model's card says was measured, in the data at its top."""
    metadata = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    found = {}
    for result in metadata["model-index"][0]["results"]:
        for metric in result["metrics"]:
            found[f"{result['dataset']['type']}_{metric['type']}"] = metric["value"]
    return found


def test_card_reports_the_saved_model(quick: list[Any], pairs: Path, tmp_path: Path) -> None:
    """What was measured before training would be published as what the trained model does."""
    succeed(*quick, "--sts", pairs)
    folder = tmp_path / "out"
    record = json.loads((folder / "rankcse_run.json").read_text())
    metrics = card_metrics(folder)
    assert len(record["after"]) == 3
    for name, value in record["after"].items():
        assert metrics[name] == pytest.approx(value, abs=1e-9)
    assert abs(record["after"]["held_out_spearman"] - record["before"]["held_out_spearman"]) > 1e-3
    assert f"**{record['after']['held_out_spearman']:.4f}**".rstrip("0*") in (folder / "README.md").read_text()
    assert not (folder / "checkpoints" / "README.md").exists()
    checkpoint = last_checkpoint(folder)
    assert checkpoint is not None
    assert "model-index" not in (checkpoint / "README.md").read_text()


def test_evaluate_compares_models(models: Path, corpus: Path, pairs: Path, tmp_path: Path) -> None:
    """A teacher agrees fully with itself, and another model does not; pairs are read from CSV and TSV as well."""
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        rows = [separator.join(map(str, pair.values())) for pair in STS]
        (tmp_path / f"as{suffix[1:]}{suffix}").write_text("\n".join([separator.join(STS[0]), *rows]))
    files = [
        argument for path in (pairs, tmp_path / "ascsv.csv", tmp_path / "astsv.tsv") for argument in ("--sts", path)
    ]
    arguments = [models / "teacher", models / "student", "--teacher", models / "teacher", "--sentences", corpus, *files]
    output = succeed("evaluate", *arguments, "--json", tmp_path / "results" / "all.json", "--cpu")
    results = json.loads((tmp_path / "results" / "all.json").read_text())
    teacher, student = results[str(models / "teacher")], results[str(models / "student")]
    assert teacher["agreement_spearman"] == pytest.approx(1.0)
    assert student["agreement_spearman"] < 0.9
    assert teacher["pairs_spearman_cosine"] == teacher["ascsv_spearman_cosine"] == teacher["astsv_spearman_cosine"]
    assert "100.00" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Nothing to measure"),
        (["--teacher", "{models}/teacher"], "both --teacher and --sentences"),
        (["--sts", "{pairs}", "--teacher-prompt", "query: "], "No --teacher is given that --teacher-prompt"),
        (["--sts", "{pairs}", "--sts", "{pairs}"], "Two files of pairs are called 'pairs'"),
        (["--sts", "{pairs}", "--data", "x", "--results", "y"], "No --tasks are given that --data and --results"),
        (["name={models}/student", "--sts", "{pairs}"], "There is no model at 'name="),
        (["--sts", "{pairs}", "--json", "{models}"], "takes a file to write"),
        (["--tasks", "transfer"], "'transfer' needs local data"),
        (["--tasks", "sts", "--data", "nowhere"], "no folder of benchmark data"),
    ],
)
def test_evaluate_bad_input(arguments: list[str], expected: str, models: Path, pairs: Path) -> None:
    """What to measure is said before a model is loaded."""
    filled = [argument.format(models=models, pairs=pairs) for argument in arguments]
    result = run("evaluate", models / "student", *filled)
    assert result.exit_code == 2
    assert expected in " ".join(result.output.split())


def test_evaluate_tasks_without_mteb(
    models: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing must be said with the line that installs it, before anything is loaded or measured."""
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.setattr(SentenceTransformer, "__init__", None)
    result = run("evaluate", models / "student", "--sts", pairs, "--tasks", "sts", "--results", tmp_path / "results")
    assert result.exit_code == 2, result.output
    message = " ".join(result.output.split())
    assert 'pip install "rankcse-st[mteb]"' in message
    assert "Traceback" not in message


def test_evaluate_tasks(models: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks stand alone or beside pairs, their scores are in the JSON, and a failed one is the exit status."""
    pytest.importorskip("mteb", reason=WITHOUT_MTEB)
    from mteb.abstasks import AbsTaskSTS

    from rankcse_st.benchmark import console

    data = write_benchmark_data(tmp_path / "data")
    refused = run("evaluate", models / "student", "--tasks", "STS12", "--data", data)
    assert refused.exit_code == 2
    assert "Complete the data" in " ".join(refused.output.split())
    monkeypatch.setattr(console, "evaluate_models", partial(console.evaluate_models, partial_data=True))
    arguments = ["evaluate", models / "student", models / "teacher", "--data", data, "--cpu"]
    arguments += ["--results", tmp_path / "results", "--json", tmp_path / "all.json"]
    output = succeed(*arguments, "--tasks", "STS12,STS13", "--tasks", "MR")
    assert "STS: Spearman x 100" in output
    assert "Transfer: accuracy x 100" in output
    alone = json.loads((tmp_path / "all.json").read_text())
    student, teacher = str(models / "student"), str(models / "teacher")
    assert set(alone) == {student, teacher}
    assert set(alone[student]) == {"STS12", "STS13", "MR"}
    assert alone[student]["STS12"] != alone[teacher]["STS12"]
    assert f"{100 * alone[teacher]['STS12']:.2f}" in output
    assert any((tmp_path / "results").rglob("STS12.json"))

    original = AbsTaskSTS._evaluate_subset

    def fail_on_one(self: AbsTaskSTS, *args: Any, **kwargs: Any) -> Any:
        if self.metadata.name == "STS14":
            raise RuntimeError("planted")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(AbsTaskSTS, "_evaluate_subset", fail_on_one)
    result = run(*arguments, "--tasks", "STS12,STS14", "--sts", pairs)
    assert result.exit_code == 1, result.output
    assert f"These tasks failed: STS14 of {student}, STS14 of {teacher}." in " ".join(result.output.split())
    beside = json.loads((tmp_path / "all.json").read_text())
    assert set(beside[student]) == {"STS12", "pairs_spearman_cosine"}
    assert beside[student]["STS12"] == alone[student]["STS12"]


@pytest.mark.parametrize("data", [False, True])
def test_evaluate_says_when_the_hub_was_out_of_reach(
    data: bool, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without network, the same command would fail for ever."""
    errors = {"STS12": "ConnectionError: Couldn't reach 'mteb/sts12-sts' on the Hub (OfflineModeIsEnabled)"}

    def failing(*args: Any) -> Any:
        return SimpleNamespace(models=[SimpleNamespace(scores={}, errors=errors)])

    # By its name, it is the command that the package exports.
    monkeypatch.setattr(sys.modules["rankcse_st.cli.evaluate"], "run_tasks", failing)
    arguments = ["evaluate", models / "student", "--tasks", "STS12", *(["--data", tmp_path] if data else [])]
    result = run(*arguments)
    assert result.exit_code == 1
    assert ("The Hub could not be reached" in result.output) != data
    assert ("--data DIR reads local files" in result.output) != data
    errors["STS12"] = "RuntimeError: out of memory"
    assert "failed: STS12" in (result := run(*arguments)).output
    assert "The same command tries them again." in result.output


def test_failed_upload_keeps_the_model(quick: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of training must not be lost to a network error at the end."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    refused = run(*quick, "--push-to-hub", "me/model")
    assert refused.exit_code == 2
    assert "hf auth login" in refused.output
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    uploads: list[str] = []

    def upload(self: SentenceTransformer, repo_id: str, **kwargs: Any) -> str:
        uploads.append(repo_id)
        raise OSError("no route to host")

    monkeypatch.setattr(SentenceTransformer, "push_to_hub", upload)
    result = run(*quick, "--push-to-hub", "me/model")
    assert uploads == ["me/model"]
    assert result.exit_code == 1
    assert "is saved in" in " ".join(result.output.split())
    embed(tmp_path / "out")


def test_failed_evaluation_keeps_the_model(quick: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor to an evaluation that fails after them."""
    measured: list[dict[str, float]] = []
    measure = job.TrainingJob._measure

    def fail_at_the_end(self: job.TrainingJob) -> dict[str, float]:
        if measured:
            raise RuntimeError("out of memory")
        measured.append(measure(self))
        return measured[0]

    monkeypatch.setattr(job.TrainingJob, "_measure", fail_at_the_end)
    assert isinstance(run(*quick).exception, RuntimeError)
    assert (embed(tmp_path / "out") - embed(Path(str(quick[2])))).abs().max() > 0.01
    record = json.loads((tmp_path / "out" / "rankcse_run.json").read_text())
    assert record["before"] == measured[0] != {}
    assert "model-index" not in (tmp_path / "out" / "README.md").read_text()
    assert "after" not in record


def test_traceback_on_request(quick: list[Any]) -> None:
    """Whoever looks for a bug gets the exception itself."""
    result = run(*quick, "--temperature", 0, "--traceback")
    assert isinstance(result.exception, ValueError)


def log_history(folder: Path) -> list[dict[str, Any]]:
    """What the trainer logged, from the last checkpoint."""
    checkpoint = last_checkpoint(folder)
    assert checkpoint is not None
    return json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
