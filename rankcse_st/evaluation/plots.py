"""Pictures of what the evaluators measure. Needs matplotlib: ``pip install 'rankcse-st[plot]'``.

Every function returns a matplotlib ``Figure`` of its own, made without ``pyplot``: nothing is shown, no global state is
touched, and ``figure.savefig("picture.png")`` works without a display.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankcse_st.evaluation._base import undisturbed
from rankcse_st.evaluation._inputs import check_same_length, check_scores, distinct
from rankcse_st.evaluation.metrics import unit
from rankcse_st.texts import check_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sentence_transformers import SentenceTransformer

PathLike = str | os.PathLike[str]
# Okabe and Ito's colours, distinct for every kind of colour vision, and markers so that print in grey works too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plot_alignment_uniformity_history(csv_files: PathLike | Mapping[str, PathLike]) -> Figure:
    """Alignment and uniformity over a training, one panel each, from the CSV files of the evaluator.

    Args:
        csv_files: The file that :class:`~rankcse_st.evaluation.AlignmentUniformityEvaluator` wrote (by the trainer:
            ``OUTPUT_DIR/eval/alignment_uniformity_evaluation_NAME_results.csv``), or several trainings to compare, by
            the name that the legend shall give them.

    Returns:
        The figure. Rows written outside a training (``steps`` is -1) are left out.

    Raises:
        ImportError: If matplotlib is missing; with the install line.
        FileNotFoundError: If a file does not exist.
        ValueError: If a file lacks the evaluator's columns or holds no step.
    """
    figure_class = _figure_class()
    runs = {"": csv_files} if isinstance(csv_files, str | os.PathLike) else dict(csv_files)
    histories = {name: _read_history(Path(path)) for name, path in runs.items()}
    if not histories:
        raise ValueError("csv_files holds no file.")
    figure = figure_class(figsize=(7.0, 5.0), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    for axis, metric in zip(axes, ("alignment", "uniformity"), strict=True):
        for i, (name, history) in enumerate(histories.items()):
            style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            axis.plot(history["steps"], history[metric], label=name, markersize=4, linewidth=1.5, **style)
        axis.set_ylabel(f"{metric}\n(lower is better)")
        _tidy(axis)
    axes[-1].set_xlabel("training step")
    if any(runs):
        axes[0].legend(frameon=False)
    return figure


def plot_alignment_uniformity(
    models: Mapping[str, Mapping[str, float] | tuple[float, float]],
    scores: Mapping[str, float] | None = None,
    score_label: str = "STS, Spearman x 100",
) -> Figure:
    """Models in the plane of uniformity and alignment, as in the paper's appendix H: the lower left corner is best.

    Args:
        models: For each model's name its ``(alignment, uniformity)``, or the metrics that the evaluator returned (with
            or without a prefix).
        scores: A further number for each model, shown by colour. Defaults to None.
        score_label: What that number is.

    Returns:
        The figure.

    Raises:
        ImportError: If matplotlib is missing; with the install line.
        ValueError: If ``models`` is empty, lacks a metric, or ``scores`` lacks a model.
    """
    figure_class = _figure_class()
    if not models:
        raise ValueError("models is empty: give at least one name with its (alignment, uniformity).")
    points = {name: _point(name, value) for name, value in models.items()}
    if scores is not None and (missing := [name for name in points if name not in scores]):
        raise ValueError(f"scores lacks {', '.join(missing)}: give a number for every model.")
    align, uniform = np.array(list(points.values())).T
    figure = figure_class(figsize=(7.0, 5.0), layout="constrained")
    axis = figure.subplots()
    if scores is None:
        axis.scatter(uniform, align, color=COLOURS[0], s=50, zorder=3)
    else:
        values = [scores[name] for name in points]
        drawn = axis.scatter(uniform, align, c=values, cmap="viridis", s=60, edgecolors="0.3", zorder=3)
        figure.colorbar(drawn, ax=axis, label=score_label)
    axis.margins(0.15)
    axis.set_xlabel("uniformity (lower is better)")
    axis.set_ylabel("alignment (lower is better)")
    _tidy(axis)
    _label(figure, axis, {name: (x, y) for name, (y, x) in points.items()})
    return figure


def plot_cosine_distribution(
    cosines: ArrayLike | Mapping[str, ArrayLike], grades: ArrayLike, bins: int | Sequence[float] = 5
) -> Figure:
    """Distribution of the cosine similarity of pairs for each range of grades, as in the paper's appendix E.

    A good model gives each range a narrow ridge of its own, in the order of the grades.

    Args:
        cosines: Cosine similarity of each pair (see :func:`pair_cosines`), or those of several models by name, drawn
            side by side on one scale.
        grades: Grade of each pair.
        bins: Number of ranges of equal width from the lowest to the highest grade, or their edges: each range holds its
            lower edge, the last one both. Defaults to 5 (STS: 0-1, 1-2, ..., 4-5).

    Returns:
        The figure: one ridge for each range, all of one area, darker for higher grades, with a mark at the median.

    Raises:
        ImportError: If matplotlib is missing; with the install line.
        ValueError: If lengths differ, a number is not finite, or the edges do not rise.
    """
    figure_class = _figure_class()
    models = cosines if isinstance(cosines, Mapping) else {"": cosines}
    columns = {
        name: check_scores(values, f"cosines[{name!r}]" if name else "cosines") for name, values in models.items()
    }
    if not columns:
        raise ValueError("cosines holds no model.")
    grade = check_scores(grades, "grades")
    for values in columns.values():
        check_same_length(cosines=values, grades=grade)
    edges = _edges(grade, bins)
    members = np.clip(np.searchsorted(edges, grade, side="right") - 1, 0, len(edges) - 2)
    members[(grade < edges[0]) | (grade > edges[-1])] = -1

    low = min(float(values.min()) for values in columns.values())
    high = max(float(values.max()) for values in columns.values())
    cells = np.linspace(low - 1e-6, high + 1e-6, 41)
    count = len(edges) - 1
    figure = figure_class(figsize=(1.5 + 3.4 * len(columns), 1.0 + 0.8 * count), layout="constrained")
    axes = figure.subplots(1, len(columns), sharex=True, sharey=True, squeeze=False)[0]
    for axis, (name, values) in zip(axes, columns.items(), strict=True):
        of_range = [values[members == i] for i in range(count)]
        ridges = [np.histogram(v, bins=cells, density=True)[0] if len(v) else 0 * cells[1:] for v in of_range]
        peak = np.max(ridges) or 1.0
        for i, (ridge, pairs) in enumerate(zip(ridges, of_range, strict=True)):
            shade = str(0.75 - 0.5 * i / max(1, count - 1))  # grades are an order: from light to dark
            axis.axhline(i, color="0.8", linewidth=0.8)
            axis.stairs(i + 0.9 * ridge / peak, cells, baseline=i, fill=True, color=shade)
            if len(pairs):
                axis.plot([np.median(pairs)] * 2, [i, i + 0.4], color=COLOURS[1], linewidth=2.5)
        axis.set_title(name)
        axis.set_xlabel("cosine similarity")
        axis.spines[["top", "right"]].set_visible(False)
    labels = [f"{a:g} to {b:g}\nn = {(members == i).sum()}" for i, (a, b) in enumerate(pairwise(edges))]
    axes[0].set_yticks(np.arange(count) + 0.4, labels)
    axes[0].tick_params(axis="y", length=0)
    axes[0].set_ylim(-0.05, count)
    axes[0].set_ylabel("grade, number of pairs")
    return figure


def pair_cosines(
    model: SentenceTransformer,
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    batch_size: int = 32,
    show_progress_bar: bool = False,
) -> NDArray[np.float64]:
    """Cosine similarity of each pair of sentences, shape (pairs,); the model's mode is left as it is found."""
    import torch

    sentences1, sentences2 = check_texts(sentences1, "sentences1"), check_texts(sentences2, "sentences2")
    check_same_length(sentences1=sentences1, sentences2=sentences2)
    texts = distinct([*sentences1, *sentences2])
    with undisturbed(model):
        embeddings = model.encode(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
    rows = {text: i for i, text in enumerate(texts)}
    vectors = unit(torch.as_tensor(embeddings)).double()
    first, second = (vectors[[rows[s] for s in side]] for side in (sentences1, sentences2))
    return np.asarray((first * second).sum(dim=1).numpy(), dtype=np.float64)


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib. Install it with: pip install 'rankcse-st[plot]'") from error
    return Figure


def _read_history(path: Path) -> dict[str, list[float]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"No CSV file at {path}. The evaluator writes one when it is called with an output folder and "
            "write_csv=True; a trainer puts it into OUTPUT_DIR/eval."
        )
    history: dict[str, list[float]] = {"steps": [], "alignment": [], "uniformity": []}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := history.keys() - set(reader.fieldnames or ()):
            raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}: it is not this evaluator's CSV.")
        rows = [row for row in reader if int(row["steps"]) >= 0]
    if not rows:
        raise ValueError(f"{path} holds no row of a training (steps of 0 or more).")
    # A resumed training repeats the steps after its checkpoint: the later row of a step is the one that counts.
    for step, row in sorted({int(row["steps"]): row for row in rows}.items()):
        history["steps"].append(step)
        history["alignment"].append(float(row["alignment"]))
        history["uniformity"].append(float(row["uniformity"]))
    return history


def _point(name: str, value: Mapping[str, float] | tuple[float, float]) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        align, uniform = value
        return float(align), float(uniform)
    found = {}
    for metric in ("alignment", "uniformity"):
        keys = [k for k in value if k == metric or (k.endswith(f"_{metric}") and "alignment_plus" not in k)]
        if len(keys) != 1:
            raise ValueError(f"models[{name!r}] needs one {metric}, got the metrics {', '.join(value)}.")
        found[metric] = float(value[keys[0]])
    return found["alignment"], found["uniformity"]


def _edges(grade: NDArray[np.float64], bins: int | Sequence[float]) -> NDArray[np.float64]:
    if isinstance(bins, int):
        if bins < 1 or not grade.max() > grade.min():
            raise ValueError(
                f"Expected bins >= 1 and grades that differ, got bins={bins} and grades of {grade.min():g}."
            )
        return np.linspace(grade.min(), grade.max(), bins + 1)
    edges = check_scores(bins, "bins")
    if len(edges) < 2 or (np.diff(edges) <= 0).any():
        raise ValueError(f"bins must be two or more rising edges, got {list(bins)}.")
    return edges


def _label(figure: Figure, axis: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each name beside its point where it covers the fewest points and other names, within the axes."""
    figure.draw_without_rendering()  # so that places on the canvas are final
    taken = [tuple(axis.transData.transform(point)) for point in points.values()]
    for name, point in points.items():
        texts = [
            axis.annotate(
                name,
                point,
                xytext=(right, above),
                textcoords="offset points",
                ha="left" if right > 0 else "right",
                va="bottom" if above > 0 else "top",
                fontsize=9,
            )
            for above, right in product((4, -4, 16, -16), (7, -7))
        ]
        boxes = [text.get_window_extent() for text in texts]
        covered = [
            sum(box.padded(2).contains(*place) for place in taken)
            + 100 * sum(not axis.bbox.containsx(side) for side in (box.x0, box.x1))
            for box in boxes
        ]
        best = covered.index(min(covered))
        for text in texts[:best] + texts[best + 1 :]:
            text.remove()
        box = boxes[best]
        taken += [(x, y) for x in np.linspace(box.x0, box.x1, 12) for y in np.linspace(box.y0, box.y1, 3)]


def _tidy(axis: Any) -> None:
    axis.grid(color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
