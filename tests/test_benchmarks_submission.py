"""From results to the leaderboard: what is taken, what is refused, and that MTEB loads it."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmark_data import WITHOUT_MTEB, pairs, write_benchmark_data
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer

pytest.importorskip("mteb", reason=WITHOUT_MTEB)

import mteb

from rankcse_st.benchmark import evaluate_models
from rankcse_st.benchmark import models as benchmark_models
from rankcse_st.benchmark.submission import prepare_submission

NAME = "org/my-student"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = """---
language:
- en
license: apache-2.0
base_model: org/base
---
A student.
"""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "README.md").write_text(CARD, encoding="utf-8")
    return tmp_path / "card"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tiny_model: SentenceTransformer) -> None:
    """A hub with the model at one commit and with MTEB's datasets."""

    def load_data(self: Any, *args: Any, **kwargs: Any) -> None:
        self.dataset = DatasetDict({"test": Dataset.from_list(pairs(len(self.metadata.name)))})
        self.data_loaded = True

    monkeypatch.setattr(mteb.AbsTask, "load_data", load_data)
    monkeypatch.setattr(benchmark_models, "open_model", lambda name, **options: tiny_model)
    monkeypatch.setattr(benchmark_models, "hub_commit", lambda name: COMMIT)


@pytest.mark.usefixtures("hub")
def test_submission_is_what_mteb_loads(tmp_path: Path, card: Path) -> None:
    """The layout, the scores and the meta must be those that MTEB reads, and local results must stay out."""
    out = tmp_path / "out"
    report = evaluate_models(NAME, "STS12,STSBenchmark,STS12Ranking", output=out)
    (scores,) = report.models
    assert scores.errors == {}
    assert (scores.name, scores.revision) == (NAME, COMMIT)
    data = write_benchmark_data(tmp_path / "data")
    evaluate_models(NAME, "STS13,CR", data=data, output=out, partial_data=True)

    submission = prepare_submission(out, NAME, tmp_path / "to submit", card=card)
    assert submission.tasks == ("STS12", "STSBenchmark")
    folder = tmp_path / "to submit" / "results" / "org__my-student" / COMMIT
    names = {path.name for path in folder.iterdir()}
    assert names == {"STS12.json", "STSBenchmark.json", "model_meta.json", "run_settings.jsonl"}
    (loaded,) = mteb.ResultCache(tmp_path / "to submit").load_results(include_remote=False).model_results
    assert {r.task_name: r.get_score() for r in loaded.task_results} == pytest.approx(
        {task: scores.value(task) for task in submission.tasks}
    )
    meta = json.loads((folder / "model_meta.json").read_text(encoding="utf-8"))
    expected = {"name": NAME, "revision": COMMIT, "license": "apache-2.0", "languages": ["eng-Latn"]}
    expected |= {"adapted_from": "org/base", "embed_dim": 32, "open_weights": True, "experiment_kwargs": None}
    assert expected.items() <= meta.items()
    assert meta["n_parameters"] > 1000
    drafted = runpy.run_path(str(submission.meta_file))["my_student"]
    assert (drafted.name, drafted.revision, drafted.license) == (NAME, COMMIT, "apache-2.0")
    assert set(submission.to_fill_in) >= {"training_datasets", "public_training_code"}


@pytest.mark.usefixtures("hub")
def test_what_is_refused(tmp_path: Path, card: Path, tiny_model: SentenceTransformer) -> None:
    """Local data, local models, other data and broken scores must not reach the leaderboard."""
    data = write_benchmark_data(tmp_path / "data")
    out = tmp_path / "out"

    def prepare(name: str = NAME, **options: Any) -> None:
        prepare_submission(options.pop("output", out), name, tmp_path / "new", card=card, **options)

    with pytest.raises(ValueError, match=r"found none\. Evaluate the model by this name first"):
        prepare()
    evaluate_models(NAME, "STS13", data=data, output=out, partial_data=True)
    with pytest.raises(ValueError, match="What is here is on local data, which never counts"):
        prepare()
    evaluate_models({"org/copy": tiny_model}, "STS12", output=out)
    with pytest.raises(ValueError, match="no commit of the hub"):
        prepare("org/copy")
    with pytest.raises(ValueError, match="'local/thing' is no name on the hub"):
        prepare("local/thing")
    evaluate_models(NAME, "STS12", output=out)
    (out / "results" / "org__my-student" / ("f" * 40)).mkdir()
    with pytest.raises(ValueError, match="Say which one"):
        prepare()
    path = out / "results" / "org__my-student" / COMMIT / "STS12.json"
    for key, value, message in (
        ("dataset_revision", "local-123", "evaluated on revision local-123 of its data"),
        (
            "scores",
            {"test": [{"main_score": float("nan"), "hf_subset": "default", "languages": []}]},
            "score of STS12 is nan",
        ),
    ):
        broken = shutil.copytree(out, tmp_path / key)
        result = json.loads(path.read_text(encoding="utf-8"))
        target = broken / path.relative_to(out)
        target.write_text(json.dumps({**result, key: value}), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            prepare(output=broken, revision=COMMIT)
    assert not (tmp_path / "new").exists()
    prepare(revision=COMMIT)
    with pytest.raises(FileExistsError, match="not an empty folder"):
        prepare(revision=COMMIT)
