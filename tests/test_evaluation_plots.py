"""The pictures: what is drawn is what was measured, nothing needs a display, and without matplotlib the error helps."""

from __future__ import annotations

import importlib
import io
import sys

import numpy as np
import pytest

from rankcse_st.evaluation import AlignmentUniformityEvaluator, plots

pytest.importorskip("matplotlib")


@pytest.fixture
def history(tiny_model, sentences, tmp_path):
    """A CSV file as a training leaves it: three steps, one of them twice after a resume, and a test at the end."""
    evaluator = AlignmentUniformityEvaluator(sentences[:9], sentences[9:18], [5] * 9, name="dev")
    for steps in (0, 10, 20, 20, -1):
        evaluator(tiny_model, output_path=str(tmp_path), epoch=steps / 10, steps=steps)
    return tmp_path / evaluator.csv_file


def test_history_draws_the_csv(history, tmp_path):
    """Prevents: columns mixed up, test results drawn at step -1, repeated steps that draw a line back."""
    figure = plots.plot_alignment_uniformity_history(history)
    for axis, metric in zip(figure.axes, ("alignment", "uniformity"), strict=True):
        (line,) = axis.get_lines()
        assert list(line.get_xdata()) == [0, 10, 20]
        assert metric in axis.get_ylabel()
    assert all(figure.axes[0].get_lines()[0].get_ydata() > 0)
    assert all(figure.axes[1].get_lines()[0].get_ydata() < 0)
    figure.savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 5000
    compared = plots.plot_alignment_uniformity_history({"first": history, "second": str(history)})
    assert [text.get_text() for text in compared.axes[0].get_legend().get_texts()] == ["first", "second"]
    assert len(compared.axes[1].get_lines()) == 2


def test_history_refuses_other_files(tmp_path):
    """Prevents: KeyError, or an empty picture."""
    with pytest.raises(FileNotFoundError, match="write_csv=True"):
        plots.plot_alignment_uniformity_history(tmp_path / "none.csv")
    other = tmp_path / "other.csv"
    other.write_text("epoch,steps,alignment\n1,2,3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks the columns uniformity"):
        plots.plot_alignment_uniformity_history(other)
    other.write_text("epoch,steps,alignment,uniformity\n-1,-1,3,4\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no row of a training"):
        plots.plot_alignment_uniformity_history(other)
    with pytest.raises(ValueError, match="holds no file"):
        plots.plot_alignment_uniformity_history({})


def test_plane_draws_the_models(tiny_model, sentences, tmp_path):
    """Prevents: axes mixed up, and the negative sum read as one of the two metrics."""
    evaluator = AlignmentUniformityEvaluator(sentences[:9], sentences[9:18], [5] * 9, name="dev")
    result = evaluator(tiny_model)
    models = {"tiny": result, "paper: SimCSE": (0.28, -2.5), "plain": {"alignment": 0.5, "uniformity": -1.0}}
    figure = plots.plot_alignment_uniformity(models)
    (axis,) = figure.axes
    expected = [(result["dev_uniformity"], result["dev_alignment"]), (-2.5, 0.28), (-1.0, 0.5)]
    np.testing.assert_allclose(axis.collections[0].get_offsets(), expected)
    assert "uniformity" in axis.get_xlabel()
    assert sorted(text.get_text() for text in axis.texts) == sorted(models)
    scored = plots.plot_alignment_uniformity(models, scores=dict.fromkeys(models, 70.0), score_label="STS-B")
    assert scored.axes[1].get_ylabel() == "STS-B"
    scored.savefig(tmp_path / "plane.png")
    for bad, message in (
        ({}, "empty"),
        ({"a": {"uniformity": 1.0}}, "needs one alignment"),
        ({"a": {"x_alignment": 1, "y_alignment": 1, "uniformity": 1}}, "needs one alignment"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.plot_alignment_uniformity(bad)
    with pytest.raises(ValueError, match="scores lacks plain"):
        plots.plot_alignment_uniformity(models, scores={"tiny": 1.0, "paper: SimCSE": 2.0})


def test_labels_of_near_points_do_not_cover_each_other():
    """Prevents: names that cannot be read where models lie close together."""
    figure = plots.plot_alignment_uniformity(
        {"first model": (0.2, -2.0), "second model": (0.203, -2.02), "far": (0.7, -1)}
    )
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_cosine_distribution_counts_each_pair_once(tmp_path):
    """Prevents: pairs on an edge in two ranges or in none, and ridges on different scales."""
    grades = np.array([0, 0.5, 1, 1, 2, 3, 4, 4.5, 5, 5])
    cosines = grades / 6
    figure = plots.plot_cosine_distribution({"a": cosines, "b": -cosines}, grades)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"{i} to {i + 1}\nn = {n}" for i, n in enumerate([2, 2, 1, 1, 4])]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    medians = [line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_linewidth() > 2]
    np.testing.assert_allclose(medians, [0.25 / 6, 1 / 6, 2 / 6, 3 / 6, 4.75 / 6])
    figure.savefig(tmp_path / "cosines.png")
    part = plots.plot_cosine_distribution(cosines, grades, bins=[1, 3, 3.5])
    assert [label.get_text() for label in part.axes[0].get_yticklabels()] == ["1 to 3\nn = 3", "3 to 3.5\nn = 1"]
    # A collapsed model has one cosine for all, and a range may be empty.
    plots.plot_cosine_distribution(np.ones(10), grades, bins=[0, 4, 6, 7]).savefig(tmp_path / "collapsed.png")


def test_cosine_distribution_refuses_bad_input():
    """Prevents: grades of other pairs, and edges out of order."""
    for arguments, message in (
        (([0.1, 0.2], [1.0]), "cosines has 2, grades has 1"),
        (([0.1, np.nan], [1.0, 2.0]), "NaN or infinite"),
        (([0.1, 0.2], [1.0, 1.0]), "grades that differ"),
        (([0.1, 0.2], [1.0, 2.0], [2.0, 1.0]), "rising edges"),
        (({}, [1.0, 2.0]), "no model"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.plot_cosine_distribution(*arguments)


def test_pair_cosines_are_the_models(tiny_model, sentences):
    """Prevents: pairs out of order."""
    cosines = plots.pair_cosines(tiny_model, sentences[:6], sentences[3:9])
    first, second = tiny_model.encode(sentences[:6]), tiny_model.encode(sentences[3:9])
    np.testing.assert_allclose(cosines, tiny_model.similarity_pairwise(first, second), atol=1e-6)
    assert np.ptp(cosines) > 0.01


def test_without_matplotlib_the_error_gives_the_install_line(monkeypatch):
    """Prevents: a bare ModuleNotFoundError."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'rankcse-st\[plot\]'"):
        plots.plot_alignment_uniformity({"a": (1, 2)})


def test_matplotlib_is_only_loaded_to_draw_and_pyplot_never(monkeypatch):
    """Prevents: matplotlib as a requirement of the evaluators, a backend without a display, figures kept for ever."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        importlib.reload(plots)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    plots.plot_alignment_uniformity({"a": (1, 2)}).savefig(io.BytesIO())
    with pytest.raises(ImportError):
        import matplotlib.pyplot  # noqa: F401
