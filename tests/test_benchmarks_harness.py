"""The harness around MTEB: identity, resuming, local data, random state, no network."""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmark_data import WITHOUT_MTEB, pairs, write_benchmark_data, write_jsonl
from datasets import Dataset, DatasetDict
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

pytest.importorskip("mteb", reason=WITHOUT_MTEB)

import mteb
from mteb.abstasks import AbsTaskSTS

from rankcse_st.benchmark import BenchmarkReport, evaluate_models, read_results
from rankcse_st.benchmark.groups import TASK_GROUPS, expand_tasks, make_tasks
from rankcse_st.benchmark.models import EncodeOnce, load_model, model_revision, parse_models

STS_FILES = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def evaluate(data: Path, tmp_path: Path) -> Callable[..., BenchmarkReport]:
    """``evaluate_models`` on the tiny data, results in one folder for the whole test."""

    def run(models: Any, tasks: Any, **options: Any) -> BenchmarkReport:
        return evaluate_models(
            models, tasks, **{"data": data, "output": tmp_path / "out", "partial_data": True, **options}
        )

    return run


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each STS task is computed, not read from the cache."""
    counts: Counter[str] = Counter()
    original = AbsTaskSTS._evaluate_subset

    def counting(self: AbsTaskSTS, *args: Any, **kwargs: Any) -> Any:
        counts[self.metadata.name] += 1
        return original(self, *args, **kwargs)

    monkeypatch.setattr(AbsTaskSTS, "_evaluate_subset", counting)
    return counts


def expected_sts(model: SentenceTransformer, path: Path) -> float:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    first, second = (model.encode([row[f"sentence{i}"] for row in rows]) for i in (1, 2))
    cosines = [float(u @ v / (np.linalg.norm(u) * np.linalg.norm(v))) for u, v in zip(first, second, strict=True)]
    return float(spearmanr(cosines, [row["score"] for row in rows]).statistic)


def test_base_then_student_in_one_cache(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path, data: Path
) -> None:
    """MTEB takes a student whose card names its base model for that model and hands it the base model's scores."""
    base = tiny_model
    base.model_card_data.set_base_model("org/base")
    base.save_pretrained(str(tmp_path / "base"))
    student = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.3).add_(0.05)
    student.save_pretrained(str(tmp_path / "student"))
    report = evaluate([tmp_path / "base", tmp_path / "student"], "STS12")
    first, second = report.models
    assert (first.name, first.revision) != (second.name, second.revision)
    for model, scores in ((base, first), (student, second)):
        assert scores.value("STS12") == pytest.approx(expected_sts(model, data / "sts" / "STS12.jsonl"), abs=1e-5)
    assert first.value("STS12") != second.value("STS12"), "canary: the models must differ on these data"


def test_revision_follows_everything_that_scores_depend_on(
    make_tiny_model: Callable[..., SentenceTransformer], tmp_path: Path
) -> None:
    """The same weights read with another pooling, prompt or length are another model; a copy elsewhere is the same."""
    model = make_tiny_model()
    revision = model_revision(model)
    model.save_pretrained(str(tmp_path / "copy"))
    assert model_revision(SentenceTransformer(str(tmp_path / "copy"), device="cpu")) == revision
    others = {"cls": make_tiny_model(pooling="cls"), "weights": make_tiny_model(seed=7)}
    for change in ("prompt", "default", "length", "bias"):
        others[change] = make_tiny_model()
    others["prompt"].prompts = {"STS": "Represent: "}
    others["default"].prompts = {"x": "y"}
    others["default"].default_prompt_name = "x"
    others["length"].max_seq_length = 7
    with torch.no_grad():
        next(p for name, p in others["bias"].named_parameters() if name.endswith("bias")).add_(1e-3)
    revisions = [revision, *(model_revision(other) for other in others.values())]
    assert len(set(revisions)) == len(revisions)


def test_names(tmp_path: Path, tiny_model: SentenceTransformer) -> None:
    """Two folders called ``final`` are two models; a name the caller gives is kept; a typo is no hub download."""
    for run, pooling in (("a", "mean"), ("b", "cls")):
        model = SentenceTransformer(modules=[tiny_model[0], Pooling(32, pooling)], device="cpu")
        model.save_pretrained(str(tmp_path / run / "final"))
    loaded = [load_model(source) for source in parse_models([tmp_path / "a" / "final", tmp_path / "b" / "final"])]
    assert all(model.name.startswith("local/final-") for model in loaded)
    assert loaded[0].name != loaded[1].name
    (source,) = parse_models(f"org/student={tmp_path / 'a' / 'final'}")
    assert load_model(source).name == "org/student"
    assert load_model(*parse_models({"my student": tiny_model})).name.startswith("local/my-student-")
    with pytest.raises(FileNotFoundError, match=r"no model at '\./missing'"):
        parse_models("./missing")
    tiny_model[0].model.save_pretrained(tmp_path / "bare")
    tiny_model.tokenizer.save_pretrained(tmp_path / "bare")
    with pytest.warns(UserWarning, match="bare transformer checkpoint, which is read with mean pooling"):
        load_model(*parse_models(tmp_path / "bare"))
    with pytest.raises(ValueError, match="a was given more than once"):
        parse_models([f"a={tmp_path}", f"a={tmp_path}"])
    with pytest.raises(ValueError, match="No models"):
        parse_models([])


def test_an_interrupted_run_computes_nothing_twice(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, computed: Counter[str]
) -> None:
    """A run of hours that dies in its last task must not begin again from the start."""

    def stop_at(task_name: str) -> Callable[..., None]:
        def on_result(model: Any, task: str, outcome: Any) -> None:
            if task == task_name:
                raise KeyboardInterrupt

        return on_result

    with pytest.raises(KeyboardInterrupt):
        evaluate({"m": tiny_model}, "sts", on_result=stop_at("STS14"))
    assert dict(computed) == {"STS12": 1, "STS13": 1, "STS14": 1}
    report = evaluate({"m": tiny_model}, "sts")
    assert set(report.models[0].scores) == set(TASK_GROUPS["sts"])
    assert set(computed.values()) == {1}
    assert evaluate({"m": tiny_model}, "sts").models[0].scores.keys() == report.models[0].scores.keys()
    assert set(computed.values()) == {1}
    evaluate({"m": tiny_model}, "STS12", overwrite=True)
    assert computed["STS12"] == 2, "canary: the counter counts"


def test_files_cut_short_are_computed_again(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path
) -> None:
    """MTEB does not write atomically: a process killed while it writes leaves half a JSON that then fails every run."""
    before = evaluate(tiny_model, "STS12").models[0]
    path = before.scores["STS12"].path
    (predictions,) = (tmp_path / "out" / "predictions").rglob("STS12_predictions.json")
    for file in (path, predictions):
        file.write_text(file.read_text(encoding="utf-8")[:40], encoding="utf-8")
    after = evaluate(tiny_model, "STS12").models[0]
    assert after.errors == {}
    assert after.value("STS12") == before.value("STS12")
    json.loads(predictions.read_text(encoding="utf-8"))


def test_results_of_other_data_are_not_reused(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path, data: Path
) -> None:
    """MTEB reuses a complete result whatever the revision of the data that it was computed on."""
    before = evaluate(tiny_model, "STS12").models[0]
    changed = shutil.copytree(data, tmp_path / "changed")
    write_jsonl(changed / "sts" / "STS12.jsonl", pairs(12345))
    after = evaluate(tiny_model, "STS12", data=changed).models[0]
    assert before.scores["STS12"].dataset_revision != after.scores["STS12"].dataset_revision
    assert after.value("STS12") == pytest.approx(expected_sts(tiny_model, changed / "sts" / "STS12.jsonl"), abs=1e-5)
    assert after.value("STS12") != before.value("STS12")


def test_sts_scores_against_scipy_and_sick_both_ways(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, data: Path, tmp_path: Path
) -> None:
    """The right rows and columns: SICK-R is train, dev and test together for MTEB, test alone for the papers."""
    scores = evaluate(tiny_model, "sts").models[0]
    assert scores.errors == {}
    for name in STS_FILES:
        assert scores.value(name) == pytest.approx(expected_sts(tiny_model, data / "sts" / f"{name}.jsonl"), abs=1e-5)
    assert scores.value("SICK-R.test") == pytest.approx(
        expected_sts(tiny_model, data / "sts" / "SICK-R.jsonl"), abs=1e-5
    )
    whole = tmp_path / "whole.jsonl"
    whole.write_text("".join((data / "sts" / f"SICK-R{part}.jsonl").read_text() for part in (".train", ".dev", "")))
    assert scores.value("SICK-R") == pytest.approx(expected_sts(tiny_model, whole), abs=1e-5)
    assert scores.value("SICK-R") != scores.value("SICK-R.test")


def test_random_state_does_not_leak(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, data: Path
) -> None:
    """MTEB seeds everything with 42: a training that evaluates would repeat its masks, batches and augmentations."""

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    def seeded() -> None:
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)

    seeded()
    expected = draw()
    tiny_model.train()
    tiny_model[0].eval()
    seeded()
    assert evaluate(tiny_model, "STS12,STS12Ranking").models[0].errors == {}
    assert draw() == expected
    assert tiny_model.training
    assert not tiny_model[0].training, "a part frozen in eval mode stays so"
    seeded()
    with pytest.raises(FileNotFoundError):
        evaluate(tiny_model, "NoSuchTask", data=data / "missing")
    assert draw() == expected
    seeded()
    mteb.get_task("STS12")
    assert draw() != expected, "canary: MTEB does seed"


def test_error_without_mteb(monkeypatch: pytest.MonkeyPatch, tiny_model: SentenceTransformer, data: Path) -> None:
    """Without the optional dependency the error must say what to type, before any model is loaded."""
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(ImportError, match=r'pip install "rankcse-st\[mteb\]"'):
        evaluate_models(tiny_model, "sts", data=data)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Sockets that raise and note the attempt, with the hub not told that it is offline."""
    attempts: list[object] = []

    def refuse(self: object, address: object) -> None:
        attempts.append(address)
        raise OSError("no network in this test")

    def refuse_lookup(host: object, *args: object, **kwargs: object) -> None:
        attempts.append(host)
        raise socket.gaierror("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_lookup)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return attempts


def test_network_off_spaces_and_non_ascii_letters(
    evaluate: Callable[..., BenchmarkReport],
    tiny_model: SentenceTransformer,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_network: list[object],
) -> None:
    """A relative path asks the hub first, and half a minute of retries passes for each model without a network."""
    # Writing a model card asks the hub for the base model.
    tiny_model.save_pretrained(str(tmp_path / "Modèle élève № 1 [final]"), create_model_card=False)
    local = shutil.copytree(data, tmp_path / "Daten für [alle]")
    monkeypatch.chdir(tmp_path)
    report = evaluate("Modèle élève № 1 [final]", "STS13,CR", data=local.name)
    (scores,) = report.models
    assert scores.errors == {}
    assert scores.name.startswith("local/Modèle-élève-1-final-")
    assert scores.value("STS13") == pytest.approx(expected_sts(tiny_model, data / "sts" / "STS13.jsonl"), abs=1e-5)
    assert no_network == [], "nothing may even try"
    again = read_results(tmp_path / "out").models[0]
    assert again.value("STS13") == scores.value("STS13")


def test_local_results_cannot_be_submitted(
    evaluate: Callable[..., BenchmarkReport],
    tiny_model: SentenceTransformer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MTEB's own submission command takes whatever lies in the cache: it must find nothing that was local."""
    (scores,) = evaluate({"org/student": tiny_model}, "STS12,CR,STS13Ranking").models
    assert all(score.dataset_revision.startswith("local-") for score in scores.scores.values())
    cache = mteb.ResultCache(tmp_path / "out")
    # The name is a real one, so that only the marking stands between these results and the leaderboard.
    monkeypatch.setattr(type(cache), "download_from_remote", lambda self: self.remote_repo_path)
    for models in (None, "org/student"):
        with pytest.raises(ValueError, match=r"No models found|not found in local cache"):
            cache.submit_results(models, create_pr=False)
    meta = mteb.models.ModelMeta.create_empty({"name": "org/student", "revision": scores.revision})
    assert cache.submit_results(meta, create_pr=False)["status"] == "no_changes"
    assert not cache.load_results(include_remote=False).model_results
    everything = cache.load_results(include_remote=False, load_experiments="match_name").model_results
    assert {result.task_name for model in everything for result in model.task_results} == set(scores.scores)


def test_official_data_go_where_the_leaderboard_looks(
    tiny_model: SentenceTransformer, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results on the hub's data and on local data of one model must not overwrite each other."""

    def load_from_hub(self: Any, *args: Any, **kwargs: Any) -> None:
        self.dataset = DatasetDict({"test": Dataset.from_list(pairs(77))})
        self.data_loaded = True

    monkeypatch.setattr(type(mteb.get_task("STS12")), "load_data", load_from_hub)
    out = tmp_path / "out"
    official = evaluate_models({"org/student": tiny_model}, "STS12", output=out).models[0].scores["STS12"]
    local = evaluate_models({"org/student": tiny_model}, "STS12", data=data, output=out, partial_data=True)
    revision = local.models[0].revision
    assert official.path == out.resolve() / "results" / "org__student" / revision / "STS12.json"
    assert not official.local
    assert official.dataset_revision == mteb.get_task("STS12").metadata.revision
    assert local.models[0].value("STS12") != official.score
    assert [len(model.scores) for model in read_results(out).models] == [1, 1]
    submitted = mteb.ResultCache(out).load_results(include_remote=False).model_results
    assert [(model.model_name, model.model_revision) for model in submitted] == [("org/student", revision)]


def test_data_and_task_errors_come_before_any_model(
    tmp_path: Path, data: Path, tiny_model: SentenceTransformer
) -> None:
    """A missing file or a typo must not surface after an hour, nor a truncated file as a score."""
    with pytest.raises(ValueError, match=r"Task STS12 has 3108 rows in its test split, the files .* have 24"):
        evaluate_models(tiny_model, "STS12", data=data, output=tmp_path)
    with pytest.raises(ValueError, match="Task MR has 10662 rows"):
        evaluate_models(tiny_model, "MR", data=data, output=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"Task SST2 needs SST2.train.jsonl, SST2.dev.jsonl, SST2.test.jsonl in"
    ):
        evaluate_models(tiny_model, "SST2", data=tmp_path / "empty", output=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"Banking77Classification.test.jsonl or Banking77Classification.jsonl"):
        evaluate_models(tiny_model, "Banking77Classification", data=data, output=tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder of benchmark data"):
        evaluate_models(tiny_model, "sts", data=tmp_path / "nowhere", output=tmp_path)
    with pytest.raises(ValueError, match=r"There is no task 'STS99'\. Groups: sts, transfer, ranking, geometry"):
        evaluate_models(tiny_model, "STS99", output=tmp_path)
    with pytest.raises(ValueError, match="'transfer' needs local data"):
        evaluate_models(tiny_model, "sts,transfer", output=tmp_path)
    with pytest.raises(ValueError, match="STS17 has several subsets"):
        evaluate_models(tiny_model, "STS17", data=data, output=tmp_path)
    with pytest.raises(ValueError, match="No tasks to run"):
        evaluate_models(tiny_model, " , ", output=tmp_path)


def test_groups() -> None:
    """Without local data a group runs what the hub has; each task runs once however often it is named."""
    assert expand_tasks("sts", local=False) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R"]
    assert expand_tasks(["STS13", "sts"], local=True)[:3] == ["STS13", "STS12", "STS14"]
    names = expand_tasks(",".join(TASK_GROUPS), local=True)
    assert len(names) == 8 + 7 + 7 + 1
    assert [task.metadata.name for task in make_tasks(names)] == names


def test_a_failing_task_does_not_stop_the_others(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path, data: Path
) -> None:
    """One broken file among thirty must cost its own result only, and must not look like success."""
    broken = shutil.copytree(data, tmp_path / "broken")
    write_jsonl(broken / "sts" / "STS12.jsonl", [{"sentence1": "The cat", "sentence2": "A dog"}])
    seen: list[tuple[str, bool]] = []
    report = evaluate(
        tiny_model,
        "STS12,STS13",
        data=broken,
        on_result=lambda m, task, s: seen.append((task, isinstance(s, Exception))),
    )
    assert seen == [("STS12", True), ("STS13", False)]
    assert report.failed
    assert "KeyError" in report.models[0].errors["STS12"] or "score" in report.models[0].errors["STS12"]
    assert "failed" in report.to_markdown()


@pytest.mark.parametrize("similarity", ["euclidean", "manhattan", "dot"])
def test_every_similarity_function_works(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, similarity: str, data: Path
) -> None:
    """MTEB's STS tasks raise for a model whose similarity is a distance."""
    tiny_model.similarity_fn_name = similarity
    scores = evaluate(tiny_model, "STS12").models[0]
    assert scores.errors == {}
    assert scores.value("STS12") == pytest.approx(expected_sts(tiny_model, data / "sts" / "STS12.jsonl"), abs=1e-5)


def test_ranking_and_geometry_equal_the_evaluators(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, data: Path
) -> None:
    """As MTEB tasks the evaluators must see the same pairs and give the same numbers as on their own."""
    from rankcse_st.evaluation import AlignmentUniformityEvaluator, GradedRankingEvaluator

    report = evaluate(tiny_model, "STS15Ranking,geometry")
    (scores,) = report.models
    assert scores.errors == {}

    def columns(name: str) -> tuple[list[Any], ...]:
        rows = [json.loads(line) for line in (data / "sts" / f"{name}.jsonl").read_text().splitlines()]
        return tuple([row[column] for row in rows] for column in ("sentence1", "sentence2", "score"))

    expected = GradedRankingEvaluator.from_pairs(*columns("STS15"))(tiny_model)
    for metric in ("kendall", "ndcg", "num_groups"):
        assert scores.value("STS15Ranking", metric) == pytest.approx(expected[metric], abs=1e-5)
    assert scores.value("STS15Ranking") == scores.value("STS15Ranking", "kendall")
    expected = AlignmentUniformityEvaluator(*columns("STSBenchmark.dev"))(tiny_model)
    for metric in ("alignment", "uniformity"):
        assert scores.value("STSBenchmarkGeometry", metric) == pytest.approx(expected[metric], abs=1e-5)
    first_only = evaluate(tiny_model, "STS15Ranking", symmetric=False)
    assert first_only.tasks == ("STS15Ranking.first-only",)
    assert first_only.models[0].value("STS15Ranking.first-only", "num_groups") == 4


def test_any_mteb_task_runs_on_local_files(
    evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path
) -> None:
    """Beyond the table of known files: a classification task of MTEB needs its train split as well as test."""
    folder = tmp_path / "more"
    for split, count in (("train", 32), ("test", 10)):
        rows = [
            {"text": f"The cat sleeps {i} The river" if i % 2 else f"A dog runs {i}", "label": i % 2}
            for i in range(count)
        ]
        write_jsonl(folder / f"Banking77Classification.{split}.jsonl", rows)
    (scores,) = evaluate(tiny_model, "Banking77Classification", data=folder).models
    assert scores.errors == {}
    assert scores.scores["Banking77Classification"].local
    assert scores.value("Banking77Classification") > 0.9


def test_encode_once(tiny_model: SentenceTransformer, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembered embeddings must be those of the same text under the same prompt, in the order asked for."""
    encoded: list[str] = []
    original = SentenceTransformer.encode

    def counting(self: SentenceTransformer, texts: Any, **kwargs: Any) -> Any:
        encoded.extend(texts)
        return original(self, texts, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    once = EncodeOnce(tiny_model)
    queries = [*sentences[:5], sentences[2], *sentences[8:10]]
    np.testing.assert_allclose(once.encode(queries, batch_size=4), original(tiny_model, queries), atol=1e-5)
    assert len(encoded) == 7
    np.testing.assert_allclose(
        once.encode(sentences[3:12], prompt=None), original(tiny_model, sentences[3:12]), atol=1e-5
    )
    count = len(encoded)
    np.testing.assert_allclose(
        once.encode(sentences[3:12], prompt=None), original(tiny_model, sentences[3:12]), atol=1e-5
    )
    assert len(encoded) == count
    prompted = once.encode(sentences[:2], prompt="The cat ")
    np.testing.assert_allclose(prompted, original(tiny_model, sentences[:2], prompt="The cat "), atol=1e-5)
    assert len(encoded) == count + 2
    assert not np.allclose(prompted, original(tiny_model, sentences[:2]), atol=1e-3), "canary: the prompt matters"
    assert once.similarity_fn_name == "cosine"
    forgetful = EncodeOnce(tiny_model, capacity=10)
    encoded.clear()
    for _ in range(2):
        forgetful.encode(sentences[:3])
    assert len(encoded) == 6


def test_tables(evaluate: Callable[..., BenchmarkReport], tiny_model: SentenceTransformer, tmp_path: Path) -> None:
    """The mean of the papers takes SICK-R's test rows, once; what is read from disk is what was measured."""
    report = evaluate({"a": tiny_model}, "sts,ranking,geometry")
    markdown = report.to_markdown()
    scores = report.models[0]
    paper = [scores.value(task) for task in (*STS_FILES, "SICK-R.test")]
    assert f"| {100 * np.mean(paper):.2f} |" in markdown
    assert "not for submission" in markdown
    assert len(report.tables()) == 4
    again = read_results(tmp_path / "out")
    assert again.to_markdown() == markdown
    with pytest.raises(FileNotFoundError, match="run the benchmark first"):
        read_results(tmp_path / "nothing")


def test_command(data: Path, tmp_path: Path, tiny_model: SentenceTransformer) -> None:
    """The command's options must reach the harness; a failed task must show in the exit status."""
    import typer
    from typer.testing import CliRunner

    from benchmarks.evaluate import main

    app = typer.Typer()
    app.command()(main)
    tiny_model.save_pretrained(str(tmp_path / "student"), create_model_card=False)
    arguments = [f"mine={tmp_path / 'student'}", "--tasks", "STS12,geometry", "--data", str(data), "--partial-data"]
    arguments += ["--output", str(tmp_path / "out"), "--device", "cpu"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    scores = read_results(tmp_path / "out").models[0]
    assert f"STS12  {100 * scores.value('STS12'):.2f}" in result.output
    assert "uniformity" in result.output
    broken = shutil.copytree(data, tmp_path / "broken")
    write_jsonl(broken / "sts" / "STS12.jsonl", [{"sentence1": "The cat", "sentence2": "A dog"}])
    arguments[arguments.index(str(data))] = str(broken)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    assert "STS12  failed" in result.output
