"""The study: what its runs are, what its losses compute, and what its tables say of results."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

import benchmarks.study.__main__ as study
from benchmarks.study import case_study, differences, execute, scores
from benchmarks.study.report import by_row, write_report
from benchmarks.study.runs import LEARNING_RATES, METHODS, START, Run, grid, read_rates, search
from benchmarks.study.scores import TEST_SETS, Embedded
from benchmarks.study.suites import DIFFERENCES, SUITES, core, with_student
from benchmarks.study.train import RankingAndMatching, make_loss
from rankcse_st import RankCSELoss
from tests.conftest import SENTENCES

RATES = {student: dict.fromkeys(METHODS, 1e-3) for student in START}


def test_no_two_runs_share_a_result() -> None:
    """Two rows of which one would silently show the other's numbers."""
    for make in SUITES.values():
        runs = list(make(RATES))
        assert len({run.key for run in runs}) == len(runs)
        assert len({(run.label, run.seed, run.learning_rate) for run in runs}) == len(runs)
    plain = Run("a", "b", "ListNet")
    assert plain.key == Run("c", "d", "ListNet", distillation=1.0).key
    assert plain.key != Run("a", "b", "ListNet", matching=1.0).key


def test_rates_are_those_of_the_teacher() -> None:
    """Matching by a projection at a rate that was chosen for matching without one."""
    rates = {name: dict.fromkeys(METHODS, 0.5 if "mpnet" in name else 0.25) for name in START}
    for run in SUITES["teachers"](rates):
        assert run.learning_rate == (0.5 if "mpnet" in run.teachers else 0.25)
        assert ("mpnet" in run.label) == ("mpnet" in run.teachers)
    assert {run.teachers for run in grid("minilm-3 from mpnet")} == {("mpnet",)}


def test_another_student_is_matched_in_its_own_space() -> None:
    """A student of another width matched by a projection that was to be learned in a few steps."""
    for run in core(RATES):
        changed = with_student(run, "other")
        assert changed.student == "other"
        assert changed.fitted == (run.label == "ListNet at 0.1 + EmbedDistill") == ("fitted" in changed.label)


def test_rows_that_are_compared_exist() -> None:
    """A bootstrap that fails after hours of runs, for a label that was renamed."""
    for suite, pairs in DIFFERENCES.items():
        assert {label for pair in pairs for label in pair} <= {run.label for run in SUITES[suite](RATES)}


@pytest.mark.parametrize("best", [LEARNING_RATES[0], 1e-4, 3e-2, LEARNING_RATES[-1]])
def test_search_finds_the_best_rate_and_tries_both_neighbours(best: float) -> None:
    """A method that loses because its best learning rate lay outside of those that were tried."""
    tried: list[Run] = []

    def score(run: Run) -> float:
        assert run.dev_only, "chosen on a test set"
        tried.append(run)
        return -abs(LEARNING_RATES.index(run.learning_rate) - LEARNING_RATES.index(best))

    found = search(score)
    assert found == {student: dict.fromkeys(starts, best) for student, starts in START.items()}
    position = LEARNING_RATES.index(best)
    neighbours = set(LEARNING_RATES[max(0, position - 1) : position + 2])
    for student, starts in START.items():
        for name in starts:
            rates = {run.learning_rate for run in set(tried) & set(grid(student)) if run.label == name}
            assert neighbours <= rates
    assert len(tried) == len({run.key for run in tried})


def test_grid_has_every_method_with_its_own_settings() -> None:
    """RankCSE's rows of the grid run without two of its three terms."""
    weights = {run.label: (run.contrastive, run.consistency) for run in grid("minilm-3")}
    assert weights["RankCSE-ListNet"] == weights["RankCSE-ListMLE"] == (1.0, 1.0)
    assert weights["ListNet"] == (0.0, 0.0)


def scored(width: int) -> Dataset:
    labels = torch.nn.functional.normalize(torch.randn(8, width, generator=torch.Generator().manual_seed(0)), dim=-1)
    return Dataset.from_dict({"sentence": SENTENCES[:8], "label": labels.tolist()})


def test_ranking_and_matching_is_the_sum_of_both(tiny_model: SentenceTransformer) -> None:
    """A combined loss in which one of the two has no weight, sees other embeddings, or is trained without its head."""
    run, width = Run("a", "b", "ListNet", matching=2.0), tiny_model.get_embedding_dimension() or 0
    assert make_loss(run, tiny_model, scored(width)).get_config_dict()["matching_weight"] == 2.0
    labels = torch.tensor(scored(width + 3)["label"])
    features = tiny_model.preprocess(SENTENCES[:8])
    fitted = make_loss(replace(run, fitted=True), tiny_model, scored(width + 3)).get_config_dict()
    assert (fitted["matching_weight"], fitted["teacher_projection"]) == (2.0, (width + 3, width))
    loss = make_loss(run, tiny_model.eval(), scored(width + 3))
    assert isinstance(loss, RankingAndMatching)
    assert "matching.projection.weight" in dict(loss.named_parameters())
    parts = loss([dict(features)], labels)
    ranking = RankCSELoss(tiny_model, contrastive_weight=0, consistency_weight=0)([dict(features)], labels)
    matching = loss.matching([dict(features)], labels)
    assert parts["distillation"].item() == pytest.approx(ranking["distillation"].item(), rel=1e-5)
    assert parts["matching"].item() == pytest.approx(2 * matching.item(), rel=1e-5)
    assert parts["matching"].item() > 0.1


def test_projection_only_where_widths_differ(tiny_model: SentenceTransformer) -> None:
    """EmbedDistillLoss hampered by a projection that it does not need, or failing for want of one."""
    width = tiny_model.get_embedding_dimension() or 0
    run = Run("a", "b", "EmbedDistill")
    assert make_loss(run, tiny_model, scored(width)).projection is None
    assert make_loss(run, tiny_model, scored(width + 3)).projection.out_features == width + 3


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """A set of pairs that stands in for every set of the study, with a query of four targets."""
    first = SENTENCES[:12]
    second = [SENTENCES[40]] * 4 + SENTENCES[41:49]
    found = {
        "sentence1": first,
        "sentence2": second,
        "score": [5.0, 3.0, 1.0, 0.0, 2.0, 4.0, 5.0, 1.0, 2.0, 0.0, 3.0, 1.5],
    }
    for module in (scores, differences, case_study):
        monkeypatch.setattr(module, "read_pairs", lambda data, name: found)
    return found


def test_embedded_scores_are_those_of_each_set_by_itself(
    tiny_model: SentenceTransformer, pairs: dict[str, list[Any]]
) -> None:
    """Cosines of one pair counted for another, after all the sets' sentences were sorted and encoded together."""
    embedded = Embedded(tiny_model, Path(), (*TEST_SETS, scores.GEOMETRY_SET))
    sides = [tiny_model.encode(pairs[side], normalize_embeddings=True) for side in ("sentence1", "sentence2")]
    cosines = (sides[0] * sides[1]).sum(1)
    np.testing.assert_allclose(embedded.cosines("STS12"), cosines, atol=1e-5)
    assert np.std(cosines) > 1e-3
    assert embedded.sts()["STS12"] == pytest.approx(100 * spearmanr(cosines, pairs["score"]).statistic, abs=1e-3)
    assert scores.GEOMETRY_SET not in embedded.sts()
    assert set(embedded.ranking()) == {"kendall mean", "ndcg mean"}
    assert embedded.geometry()["uniformity"] < 0


def test_a_run_is_made_once_and_says_nothing_of_where_it_was_made(
    make_tiny_model: Callable[..., SentenceTransformer],
    pairs: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results of another student or text shown for the study's own; a folder of the machine in what is published."""
    for name, seed in (("teacher", 1), ("student", 2)):
        make_tiny_model(seed=seed).save_pretrained(str(tmp_path / name))
    (tmp_path / "text").write_text("\n".join(SENTENCES))
    monkeypatch.setattr(execute, "HELD_OUT", slice(-16, None))
    paths = {"minilm": tmp_path / "teacher", "student": tmp_path / "student", "text": tmp_path / "text", "mpnet": None}
    executor = execute.Executor(tmp_path, tmp_path / "results", paths)
    run = Run("core", "a", "EmbedDistill", student="student", text="text", sentences=32, batch_size=8)
    run = replace(run, projection_rate=0.1)  # As a student that is given has, though this one needs no projection.
    result = executor.result(run)
    assert result["training"]["steps"] == 4
    assert {"STS mean", "kendall mean", "uniformity", "agreement_spearman"} <= result["scores"].keys()
    assert str(tmp_path) not in json.dumps(result["run"])
    assert (tmp_path / "results" / "models" / run.key / "modules.json").exists()
    monkeypatch.setattr(execute, "train", lambda *_: pytest.fail("trained again"))
    assert executor.result(run) == result
    with pytest.raises(typer.BadParameter, match=r"trains on 60 lines, and 16 more are held out"):
        executor.result(replace(run, sentences=60))
    with pytest.raises(typer.BadParameter, match="needs a folder"):
        executor.result(replace(run, teachers=("mpnet",)))


def test_a_file_is_known_by_its_contents(tmp_path: Path) -> None:
    """Results of one text shown for another of the same name."""
    (tmp_path / "a.txt").write_text("one")
    first = study._name(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("two")
    assert first.startswith("a-")
    assert study._name(tmp_path / "a.txt") != first


def test_differences_are_of_the_means_over_seeds(tmp_path: Path, pairs: dict[str, list[Any]]) -> None:
    """A bootstrap of one seed, or with rows exchanged."""
    runs = [Run("core", label, "ListNet", seed=seed) for label in ("good", "bad") for seed in (1, 2)]
    runs = [Run(run.suite, run.label, run.method, seed=run.seed, matching=float(run.label == "bad")) for run in runs]
    (tmp_path / "models").mkdir()
    rng, gold, expected = np.random.default_rng(0), np.array(pairs["score"]), dict[str, list[float]]()
    for run in runs:
        cosines = gold + (0.5 if run.label == "good" else 3.0) * rng.normal(size=len(gold))
        np.savez(tmp_path / "models" / f"{run.key}.npz", **dict.fromkeys(TEST_SETS, cosines))
        expected.setdefault(run.label, []).append(float(spearmanr(cosines, gold).statistic))
    wanted = [("good", "bad"), ("good", "not run yet")]
    (found,) = differences.differences(runs, wanted, Path(), tmp_path, resamples=50)
    assert found["difference"] == pytest.approx(100 * (np.mean(expected["good"]) - np.mean(expected["bad"])))
    assert found["difference"] > 5
    assert found["seeds"] == [1, 2]
    with pytest.raises(FileNotFoundError, match="run the suite again"):
        differences.differences([Run("core", "absent", "SimCSE")], [("absent", "a")], Path(), tmp_path)


def test_case_study_orders_by_grade_and_ranks_each_model(pairs: dict[str, list[Any]]) -> None:
    """Ranks of one target beside the text of another."""
    cosines = {"right": {case_study.SET: pairs["score"]}, "wrong": {case_study.SET: [-s for s in pairs["score"]]}}
    lines = case_study.case_study(cosines, Path())
    assert SENTENCES[40] in lines[0]
    cells = [line.strip("| ").split(" | ") for line in lines[4:]]
    assert [row[0] for row in cells] == SENTENCES[:4]
    assert [(row[2], row[3]) for row in cells] == [("1", "4"), ("2", "3"), ("3", "2"), ("4", "1")]


def test_report_has_means_and_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one seed that looks like three, or a development score in a column of the test sets."""
    pytest.importorskip("matplotlib")
    (tmp_path / "runs").mkdir()
    columns: Callable[[float], dict[str, float]] = lambda value: {  # noqa: E731
        **dict.fromkeys((*TEST_SETS, *scores.DEV_SETS, "STS mean", "kendall mean", "ndcg mean"), value),
        **dict.fromkeys(("alignment", "uniformity", "agreement_spearman", "agreement_top10_overlap"), value),
    }
    for run in core(RATES):
        if run.label in ("untouched", "EmbedDistill"):
            result = SimpleNamespace(run=run.settings(), scores=columns(70.0 + run.seed), training={"steps": 64})
            (tmp_path / "runs" / f"{run.key}.json").write_text(json.dumps(vars(result)))
    write_report(tmp_path, RATES)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| EmbedDistill | 0.001 | 3 | 72.00 ± 1.00 |" in text
    assert (tmp_path / "time.svg").exists()


def test_runs_of_two_learning_rates_are_no_two_seeds() -> None:
    """The mean and spread of a good and a bad learning rate, shown as those of a method."""
    runs = [Run("a", "b", "ListNet", learning_rate=rate, seed=seed) for rate in (1e-4, 1e-3) for seed in (1, 2)]
    rows = by_row((run, run.settings()) for run in [*runs, Run("a", "c", "ListNet")])
    assert {name: len(results) for name, results in rows.items()} == {"b, 0.0001": 2, "b, 0.001": 2, "c": 1}


def test_tables_are_those_of_the_results(tmp_path: Path) -> None:
    """Tables that were written before a run was made again."""
    pytest.importorskip("matplotlib")
    results = tmp_path / "results"
    local = shutil.ignore_patterns("models", "scores", "predictions")
    shutil.copytree(study.RESULTS, results, ignore=local)
    page = study.RESULTS.parent / "README.md"
    shutil.copy(page, tmp_path)
    write_report(results, read_rates(results / "learning-rates.json", complete=True))
    for kept, written in ((study.RESULTS / "report.md", results / "report.md"), (page, tmp_path / page.name)):
        assert written.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")


def test_pages_have_no_score_that_the_results_lack() -> None:
    """A number on a page that no run has, or no longer."""
    root, score = study.RESULTS.parents[2], re.compile(r"(?<![\d.,])\d{2}\.\d\d(?![\d.])")
    known = set[str]()
    for path in (study.RESULTS / "report.md", root / "benchmarks" / "README.md"):  # The second has the teachers.
        known |= set(score.findall(path.read_text(encoding="utf-8")))
    for path in (study.RESULTS / "selection.json", *root.glob("benchmarks/paper/*.json")):
        values = map(float, re.findall(r"-?\d+\.\d+", path.read_text(encoding="utf-8")))
        known |= {f"{scale * value:.2f}" for value in values for scale in (1, 100)}
    for page, start in (("benchmarks/study/README.md", "# "), ("README.md", "## What to train with")):
        text = (root / page).read_text(encoding="utf-8").partition(start)[2].partition("\n## Teachers\n")[0]
        found = set(score.findall(text))
        assert len(found) > 5
        assert found <= known, f"{page}: {sorted(found - known)}"
