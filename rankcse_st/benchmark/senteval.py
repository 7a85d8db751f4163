"""SentEval's transfer protocol on frozen embeddings: logistic regression, one regularisation search for each task.

Three protocols, as SentEval has them:

- one set of rows (MR, CR, SUBJ, MPQA): the mean accuracy of stratified 10-fold cross-validation,
- train and test (TREC, MRPC): the regularisation is chosen by 10-fold cross-validation on train,
- train, dev and test (SST2): it is chosen on dev; the classifier that scores test is fitted on train alone.

It follows SentEval's scikit-learn branch: ``LogisticRegression``, its grids of C, its seed, its ties (the accuracies
are compared at two decimals, the smallest C wins). Where it differs: today's scikit-learn fits with lbfgs and, for
several classes, one softmax, where SentEval's contemporary used liblinear, one class against the rest; the folds of
``StratifiedKFold`` changed with scikit-learn 0.22; and C is chosen once, on the training part of the first outer
fold, instead of in each of the ten (``nested=True`` restores that at ten times the price).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SEED = 1111
FOLDS = 10
#: SentEval's grids of the inverse regularisation C: the second one where a test set is held out and no dev set given.
C_GRID = tuple(2.0**power for power in range(-2, 4))
C_GRID_HELD_OUT = tuple(2.0**power for power in range(-1, 6))

Features = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TransferScore:
    """What a transfer task gives, accuracies from 0 to 1.

    Attributes:
        accuracy: On the test rows; for cross-validation the mean over the outer folds.
        dev_accuracy: The best accuracy of the search for C (the mean over its searches).
        chosen_c: The C chosen, one for each search: one in all, or one for each outer fold if nested.
        fold_accuracies: One for each outer fold; a single one where a test set is held out.
        predictions: The predicted labels, in the order of the rows scored.
    """

    accuracy: float
    dev_accuracy: float
    chosen_c: tuple[float, ...]
    fold_accuracies: tuple[float, ...]
    predictions: Labels


def cross_validate(
    features: Features, labels: Labels, *, folds: int = FOLDS, grid: Sequence[float] = C_GRID, nested: bool = False
) -> TransferScore:
    """MR, CR, SUBJ, MPQA: the mean accuracy of stratified k-fold cross-validation.

    Args:
        features: (n, d) embeddings. The folds depend on the order of the rows: see :func:`senteval_order`.
        labels: (n,) integer labels.
        folds: The number of outer folds and of the inner ones that choose C.
        grid: The values of C.
        nested: Choose C anew in each outer fold, as SentEval does. By default it is chosen once, on the training part
            of the first outer fold.
    """
    _check(features, labels, folds=folds)
    chosen: list[float] = []
    dev_accuracies: list[float] = []
    accuracies: list[float] = []
    predictions = np.empty_like(labels)
    for train, test in _folds(features, labels, folds):
        if nested or not chosen:
            c, dev_accuracy = _choose_c(features[train], labels[train], folds, grid)
            chosen.append(c)
            dev_accuracies.append(dev_accuracy)
        predictions[test] = _fit(features[train], labels[train], chosen[-1]).predict(features[test])
        accuracies.append(float(np.mean(predictions[test] == labels[test])))
    return TransferScore(
        float(np.mean(accuracies)), float(np.mean(dev_accuracies)), tuple(chosen), tuple(accuracies), predictions
    )


def choose_on_train(
    train: tuple[Features, Labels],
    test: tuple[Features, Labels],
    *,
    folds: int = FOLDS,
    grid: Sequence[float] = C_GRID_HELD_OUT,
) -> TransferScore:
    """TREC, MRPC: C by k-fold cross-validation on train, the accuracy on test of a classifier fitted on train."""
    _check(*train, folds=folds)
    _check(*test)
    c, dev_accuracy = _choose_c(*train, folds, grid)
    return _score_held_out(_fit(*train, c), test, c, dev_accuracy)


def choose_on_dev(
    train: tuple[Features, Labels],
    dev: tuple[Features, Labels],
    test: tuple[Features, Labels],
    *,
    grid: Sequence[float] = C_GRID,
) -> TransferScore:
    """SST2: C by the accuracy on dev, the accuracy on test of the classifier that was fitted on train."""
    for part in (train, dev, test):
        _check(*part)
    dev_accuracies = [float(np.mean(_fit(*train, c).predict(dev[0]) == dev[1])) for c in grid]
    best = _best(dev_accuracies)
    return _score_held_out(_fit(*train, grid[best]), test, grid[best], dev_accuracies[best])


def senteval_order(lengths: Sequence[tuple[int, ...]], labels: Sequence[int]) -> list[int]:
    """The order in which SentEval splits rows into folds: by token counts, then label, then place in the file.

    Args:
        lengths: For each row the number of tokens of its text, or of both texts of a pair.
        labels: For each row its label.
    """
    return sorted(range(len(labels)), key=lambda row: (*lengths[row], labels[row]))


def pair_features(first: Features, second: Features) -> Features:
    """(n, 2d) features of n pairs of (n, d) embeddings, as SentEval's MRPC has them: ``|u - v|`` and ``u * v``."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def _score_held_out(classifier: Any, test: tuple[Features, Labels], c: float, dev_accuracy: float) -> TransferScore:
    predictions = classifier.predict(test[0])
    accuracy = float(np.mean(predictions == test[1]))
    return TransferScore(accuracy, dev_accuracy, (c,), (accuracy,), predictions)


def _choose_c(features: Features, labels: Labels, folds: int, grid: Sequence[float]) -> tuple[float, float]:
    splits = list(_folds(features, labels, folds))
    accuracies = [
        float(
            np.mean(
                [
                    np.mean(_fit(features[train], labels[train], c).predict(features[test]) == labels[test])
                    for train, test in splits
                ]
            )
        )
        for c in grid
    ]
    best = _best(accuracies)
    return grid[best], accuracies[best]


def _best(accuracies: Sequence[float]) -> int:
    """The first of the highest accuracies at SentEval's two decimals of a per cent."""
    return int(np.argmax([round(100 * accuracy, 2) for accuracy in accuracies]))


def _folds(features: Features, labels: Labels, folds: int) -> Iterator[tuple[Labels, Labels]]:
    from sklearn.model_selection import StratifiedKFold

    yield from StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(features, labels)


def _fit(features: Features, labels: Labels, c: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    # 100 iterations, the default, do not always suffice for the larger C; nothing is standardised, as in SentEval.
    return LogisticRegression(C=c, max_iter=1000, random_state=SEED).fit(features, labels)


def _check(features: Features, labels: Labels, *, folds: int | None = None) -> None:
    if features.ndim != 2 or len(features) != len(labels):
        raise ValueError(f"Expected one row of features for each of {len(labels)} labels, got shape {features.shape}.")
    if not np.isfinite(features).all():
        raise ValueError("The embeddings hold NaN or infinity: the model is broken or overflows in half precision.")
    if folds is not None:
        smallest = int(np.unique(labels, return_counts=True)[1].min())
        if smallest < folds:
            raise ValueError(
                f"{folds} stratified folds need {folds} rows of each label, the rarest one has {smallest}."
            )
