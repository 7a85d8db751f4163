"""The paper's figures as data, the report beside them, and the bootstrap."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmark_data import WITHOUT_MTEB, write_benchmark_data
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from benchmarks.paper import FOLDER, TABLES, citation, load_table
from benchmarks.report import make_sheets
from rankcse_st.benchmark.results import BenchmarkReport, read_results
from rankcse_st.benchmark.significance import PairedItems, mean_of, paired_bootstrap, spearman_of


def test_every_row_is_there_and_its_average_is_right() -> None:
    """A digit lost in copying shows in the row's mean, which the paper prints too."""
    assert {name: len(load_table(name).rows) for name in TABLES} == {
        "sts": 19,
        "transfer": 15,
        "ablation": 11,
        "teachers": 6,
        "ranking": 6,
        "geometry": 4,
    }
    for name in ("sts", "transfer", "ranking"):
        for row in load_table(name).rows:
            *figures, average = (float(value) for value in row.scores.values() if isinstance(value, float))
            assert len(figures) == 7
            assert abs(np.mean(figures) - average) < 0.0051, row
    methods = {row.method for row in load_table("sts").rows}
    assert methods == {"SimCSE", "DCLR", "ArcCSE", "DiffCSE", "PCL", "RankCSE-ListNet", "RankCSE-ListMLE"}


def test_tables_agree_with_each_other() -> None:
    """The ablation's and the teachers' full rows are the averages of the main tables."""
    averages = {
        (name, row.method): row.scores["Avg."]
        for name in ("sts", "transfer")
        for row in load_table(name).rows
        if row.backbone == "BERT-base"
    }
    for row in load_table("ablation").rows:
        method = row.method.removesuffix(" baseline")
        if ("sts", method) in averages:
            assert row.scores == {"STS Avg.": averages["sts", method], "Transfer Avg.": averages["transfer", method]}
    default = next(row for row in load_table("teachers").rows if row.teachers == ("SimCSE-base", "SimCSE-large"))
    assert default.scores == {method: averages["sts", f"RankCSE-{method}"] for method in ("ListNet", "ListMLE")}


def test_every_figure_has_a_source() -> None:
    """A number without a citation cannot be published."""
    for name in TABLES:
        table = load_table(name)
        assert table.section
        assert all(len(citation(row.source)) > 60 for row in table.rows)
    sources = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))
    assert set(sources) == {"rankcse", "simcse", "dclr", "arccse", "diffcse", "pcl"}
    with pytest.raises(ValueError, match="no table 'nonsense'"):
        load_table("nonsense")


def test_sheets_of_the_paper_alone() -> None:
    """The report must print the figures as the paper does, and only the encoder asked for."""
    sheets = make_sheets(BenchmarkReport(()), ["BERT-base"])
    assert len(sheets) == 7, "ranking has two"
    assert all(row[1] == "BERT-base" for sheet in sheets for row in sheet.rows)
    sts = sheets[0].to_markdown()
    assert "| RankCSE-ListMLE | BERT-base | 75.66 | 86.27 | 77.81 | 84.74 | 81.10 | 81.80 | 75.13 | 80.36 |" in sts
    assert "Gao, Xingcheng Yao" in sts
    assert "≈ -2.40 to -2.25" in sheets[-1].to_markdown()


def test_readme_shows_the_raw_results() -> None:
    """The tables of the README are those of the JSON beside it."""
    folder = FOLDER.parent
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert read_results(folder / "results").to_markdown() in readme


def test_bootstrap_against_loops() -> None:
    """Difference, interval and p-value from resamples drawn one at a time, with scipy's Spearman."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, size=60).astype(float)
    first, second = gold + rng.normal(size=60) * 1.5, gold + rng.normal(size=60) * 3
    right = rng.random((2, 40)) < np.array([[0.8], [0.6]])
    items = [
        PairedItems("sts", spearman_of(first, gold), spearman_of(second, gold), 60),
        PairedItems("cr", mean_of(right[0]), mean_of(right[1]), 40),
    ]
    result = {c.task: c for c in paired_bootstrap(items, resamples=200, seed=3)}

    draws = np.random.default_rng(3)
    sts = [
        spearmanr(first[d], gold[d])[0] - spearmanr(second[d], gold[d])[0] for d in draws.integers(60, size=(200, 60))
    ]
    cr = [right[0][d].mean() - right[1][d].mean() for d in draws.integers(40, size=(200, 40))]
    mean = [(a + b) / 2 for a, b in zip(sts, cr, strict=True)]
    for task, values in (("sts", sts), ("cr", cr), ("Avg.", mean)):
        np.testing.assert_allclose((result[task].low, result[task].high), np.quantile(values, [0.025, 0.975]))
        beyond = min(sum(v <= 0 for v in values), sum(v >= 0 for v in values))
        assert result[task].p_value == pytest.approx(min(1, 2 * (beyond + 1) / 201))
    observed = spearmanr(first, gold)[0] - spearmanr(second, gold)[0]
    assert result["sts"].difference == pytest.approx(observed)
    assert result["Avg."].difference == pytest.approx((observed + right[0].mean() - right[1].mean()) / 2)


def test_bootstrap_is_paired_and_leaves_no_trace() -> None:
    """Resampled apart, two models that differ by little on every item would never differ significantly."""
    rng = np.random.default_rng(1)
    hard = rng.normal(size=200) * 10
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    (paired,) = paired_bootstrap([PairedItems("t", mean_of(hard + 0.1), mean_of(hard), 200)])
    assert np.random.get_state()[1].tolist() == before
    assert paired.low == pytest.approx(0.1)
    assert paired.p_value < 0.01
    (same,) = paired_bootstrap([PairedItems("t", mean_of(hard), mean_of(hard), 200)])
    assert (same.difference, same.p_value) == (0, 1)
    with pytest.raises(ValueError, match="No task"):
        paired_bootstrap([])


def test_report_command_end_to_end(
    tmp_path: Path, tiny_model: SentenceTransformer, tiny_teacher: SentenceTransformer
) -> None:
    """From raw JSON to a file with our rows over the cited ones and the bootstrap of two models."""
    pytest.importorskip("mteb", reason=WITHOUT_MTEB)
    import typer

    from benchmarks.report import main
    from rankcse_st.benchmark import evaluate_models

    data = write_benchmark_data(tmp_path / "data")
    out = tmp_path / "out"
    evaluate_models(
        {"a": tiny_model, "b": tiny_teacher}, "sts,ranking,geometry,CR", data=data, output=out, partial_data=True
    )
    app = typer.Typer()
    app.command()(main)
    names = [path.name.removeprefix("local__") for path in sorted((out / "results").iterdir())]
    arguments = [str(out), "--backbone", "BERT-base", "--markdown", str(tmp_path / "r.md"), "--resamples", "50"]
    result = CliRunner().invoke(app, [*arguments, "--compare", *names, "--data", str(data)], catch_exceptions=False)
    assert result.exit_code == 0
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert f"| {names[0]} | ours |" in text
    assert "| SimCSE | BERT-base | 68.40 |" in text
    assert f"{names[0]} minus {names[1]}: Spearman x 100" in text
    for title in ("accuracy x 100", "Kendall's tau x 100", "NDCG x 100"):
        assert f"minus {names[1]}: {title}" in text
    (data / "sts" / "STS12.jsonl").write_text('{"score": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="evaluated on other data for STS12"):
        CliRunner().invoke(app, [*arguments, "--compare", *names, "--data", str(data)], catch_exceptions=False)
