"""SentEval's transfer protocol against runs of scikit-learn written out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from benchmark_data import WITHOUT_MTEB, write_benchmark_data
from sentence_transformers import SentenceTransformer

pytest.importorskip("sklearn", reason='needs scikit-learn: pip install "rankcse-st[mteb]"')
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from rankcse_st.benchmark.senteval import (
    C_GRID,
    C_GRID_HELD_OUT,
    choose_on_dev,
    choose_on_train,
    cross_validate,
    pair_features,
    senteval_order,
)


def blobs(rows: int, classes: int = 2, seed: int = 0, dim: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes, so that C matters and accuracies are far from 0 and 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    centres = np.random.default_rng(99).normal(size=(classes, dim)) * 0.5
    return (centres[labels] + rng.normal(size=(rows, dim))).astype(np.float32), labels


def stratified(folds: int = 10) -> StratifiedKFold:
    return StratifiedKFold(n_splits=folds, shuffle=True, random_state=1111)


def search(features: np.ndarray, labels: np.ndarray, grid: tuple[float, ...], folds: int = 10) -> GridSearchCV:
    """A grid search that compares means at two decimals of a per cent, as SentEval does."""

    def first_best(results: dict[str, np.ndarray]) -> int:
        return int(np.argmax(np.round(100 * results["mean_test_score"], 2)))

    estimator = LogisticRegression(max_iter=1000)
    return GridSearchCV(estimator, {"C": list(grid)}, cv=stratified(folds), refit=first_best).fit(features, labels)


def test_cross_validation_equals_scikit_learn() -> None:
    """Accuracy by folds must be scikit-learn's own: a test fold that leaks into training or a score averaged over rows
    instead of folds would shift every published comparison by tenths of a point.
    """
    features, labels = blobs(203)
    ours = cross_validate(features, labels)
    first_train, _ = next(stratified().split(features, labels))
    c = search(features[first_train], labels[first_train], C_GRID).best_params_["C"]
    theirs = cross_val_score(LogisticRegression(C=c, max_iter=1000), features, labels, cv=stratified())
    assert ours.chosen_c == (c,)
    np.testing.assert_allclose(ours.fold_accuracies, theirs, rtol=0, atol=1e-12)
    assert ours.accuracy == pytest.approx(theirs.mean(), abs=1e-12)
    assert 0.5 < ours.accuracy < 0.95, "the data must leave room for a difference"


def test_nested_cross_validation_equals_scikit_learn() -> None:
    """With ``nested`` every outer fold must choose its own C on its own training rows, as SentEval does."""
    features, labels = blobs(90, seed=3)
    ours = cross_validate(features, labels, folds=4, nested=True)
    accuracies, chosen = [], []
    for train, test in stratified(4).split(features, labels):
        best = search(features[train], labels[train], C_GRID, folds=4)
        chosen.append(best.best_params_["C"])
        accuracies.append(best.best_estimator_.score(features[test], labels[test]))
    assert list(ours.chosen_c) == chosen
    assert len(set(chosen)) > 1, "canary: one C for all folds would pass the quick protocol too"
    np.testing.assert_allclose(ours.fold_accuracies, accuracies, rtol=0, atol=1e-12)


def test_held_out_test_equals_scikit_learn() -> None:
    """TREC and MRPC search another grid than the rest (0.5 to 32) and are refitted on all of train."""
    train, test = blobs(150, classes=4), blobs(100, classes=4, seed=1)
    ours = choose_on_train(train, test)
    theirs = search(*train, C_GRID_HELD_OUT).best_estimator_
    assert ours.chosen_c == (theirs.C,)
    assert ours.accuracy == pytest.approx(theirs.score(*test), abs=1e-12)
    assert (ours.predictions == theirs.predict(test[0])).all()
    assert (C_GRID[0], C_GRID[-1], C_GRID_HELD_OUT[0], C_GRID_HELD_OUT[-1]) == (0.25, 8.0, 0.5, 32.0)


def test_dev_split_equals_scikit_learn() -> None:
    """SST2 chooses on dev and fits on train alone: fitting on train and dev together is the usual mistake."""
    train, dev, test = blobs(60), blobs(300, seed=1), blobs(100, seed=2)
    ours = choose_on_dev(train, dev, test)
    accuracies = [LogisticRegression(C=c, max_iter=1000).fit(*train).score(*dev) for c in C_GRID]
    c = C_GRID[int(np.argmax(accuracies))]
    assert ours.chosen_c == (c,)
    assert ours.accuracy == pytest.approx(LogisticRegression(C=c, max_iter=1000).fit(*train).score(*test), abs=1e-12)
    both = np.concatenate([train[0], dev[0]]), np.concatenate([train[1], dev[1]])
    with_dev = LogisticRegression(C=c, max_iter=1000).fit(*both).predict(test[0])
    assert (with_dev != ours.predictions).any(), "canary: fitting on dev as well would differ"


def test_ties_go_to_the_smallest_c() -> None:
    """SentEval compares accuracies rounded to 0.01 per cent and takes the first of the best."""
    features, labels = blobs(100)
    separable = features + 100 * labels[:, None].astype(np.float32)
    score = choose_on_train((separable, labels), (separable, labels))
    assert score.accuracy == 1.0
    assert score.chosen_c == (C_GRID_HELD_OUT[0],)


def test_order_is_senteval_s() -> None:
    """The folds depend on the order of the rows: by token count, then label, then place in the file."""
    lengths, labels = [(3,), (1,), (1,), (3,), (1,)], [0, 1, 0, 0, 1]
    assert senteval_order(lengths, labels) == [2, 1, 4, 0, 3]
    assert senteval_order([(2, 1), (1, 5), (1, 4)], [0, 0, 1]) == [2, 1, 0]


def test_pair_features_against_loops() -> None:
    """MRPC is symmetric in its sentences: ``|u - v|`` and ``u * v``, nothing else."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 5, 3))
    expected = [[abs(a - b) for a, b in zip(x, y)] + [a * b for a, b in zip(x, y)] for x, y in zip(u, v)]  # noqa: B905
    np.testing.assert_allclose(pair_features(u, v), expected)
    np.testing.assert_allclose(pair_features(u, v), pair_features(v, u))


def test_bad_input_is_refused_before_fitting() -> None:
    """NaN embeddings make scikit-learn fail deep inside, and too few rows of a label make silent, unequal folds."""
    features, labels = blobs(50)
    with pytest.raises(ValueError, match="NaN or infinity"):
        cross_validate(np.full_like(features, np.nan), labels)
    with pytest.raises(ValueError, match="10 rows of each label, the rarest one has 3"):
        cross_validate(features, np.array([1] * 3 + [0] * 47))
    with pytest.raises(ValueError, match="one row of features for each of 49 labels"):
        cross_validate(features, labels[:-1])


def test_transfer_tasks_equal_an_independent_run(
    tmp_path: Path, make_tiny_model: Callable[..., SentenceTransformer]
) -> None:
    """End to end through MTEB: texts in SentEval's order, right columns, right split scored, nothing lost."""
    pytest.importorskip("mteb", reason=WITHOUT_MTEB)
    from rankcse_st.benchmark import evaluate_models

    data = write_benchmark_data(tmp_path / "data")
    model = make_tiny_model(dim=16)
    report = evaluate_models(model, "MR,SST2,MRPC", data=data, output=tmp_path / "out", partial_data=True)
    (scores,) = report.models
    assert scores.errors == {}

    def load(name: str, *columns: str) -> tuple[list[np.ndarray], np.ndarray]:
        lines = (data / "transfer" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        rows.sort(key=lambda row: (*(len(row[column].split()) for column in columns), row["label"]))
        return [model.encode([row[c] for row in rows]) for c in columns], np.array([row["label"] for row in rows])

    (features,), labels = load("MR", "text")
    assert scores.value("MR") == pytest.approx(cross_validate(features, labels).accuracy, abs=1e-6)

    parts = {split: load(f"SST2.{split}", "text") for split in ("train", "dev", "test")}
    train, dev, test = ((features, labels) for (features,), labels in parts.values())
    assert scores.value("SST2") == pytest.approx(choose_on_dev(train, dev, test).accuracy, abs=1e-6)

    pairs = {split: load(f"MRPC.{split}", "sentence1", "sentence2") for split in ("train", "test")}
    (train, test) = ((np.concatenate([abs(u - v), u * v], axis=1), labels) for (u, v), labels in pairs.values())
    best = search(*train, C_GRID_HELD_OUT).best_estimator_
    assert scores.value("MRPC") == pytest.approx(best.score(*test), abs=1e-6)
    assert scores.value("MRPC", "f1") == pytest.approx(f1_score(test[1], best.predict(test[0])), abs=1e-6)


def test_nested_results_are_kept_apart(
    tmp_path: Path, tiny_model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached score of the quick protocol must not be handed out for the nested one, or the other way round."""
    pytest.importorskip("mteb", reason=WITHOUT_MTEB)
    from rankcse_st.benchmark import evaluate_models
    from rankcse_st.benchmark.tasks import transfer

    # Three folds where the protocol has ten: a hundred fits instead of seven hundred.
    monkeypatch.setattr(transfer, "cross_validate", partial(cross_validate, folds=3))
    data = write_benchmark_data(tmp_path / "data")
    options = {"data": data, "output": tmp_path / "out", "partial_data": True}
    quick = evaluate_models(tiny_model, "CR", **options)
    nested = evaluate_models(tiny_model, "CR", nested=True, **options)
    assert (quick.tasks, nested.tasks) == (("CR",), ("CR.nested",))
    raw = [json.loads(report.models[0].scores[report.tasks[0]].path.read_text()) for report in (quick, nested)]
    assert [len(result["scores"]["test"][0]["chosen_c"]) for result in raw] == [1, 3]
    assert type(transfer.make_transfer_task("TREC", nested=True)) is transfer.TREC, "no outer folds, nothing to nest"
