"""How far SentEval's torch classifier is from ours: ``python -m benchmarks.senteval_torch MODEL --data DIR``.

The papers' transfer scores come from a linear layer trained with Adam. This runs the same protocol with it on the same
embeddings and the same folds, so that the difference is the classifier's alone.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

#: SentEval's settings as SimCSE and its successors evaluate with them.
BATCH_SIZE, EPOCHS_PER_CHECK, TENACITY, MOST_EPOCHS = 64, 4, 5, 200
WEIGHT_DECAYS = tuple(10.0**power for power in range(-5, -1))
SEED = 1111


class AdamClassifier:
    """A linear layer trained with Adam until the accuracy on dev has not risen for six checks.

    Args:
        weight_decay: Of Adam.
        dev: Features and labels to stop on; by default a twentieth of the rows that it is fitted on.
    """

    def __init__(self, weight_decay: float, dev: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        self.weight_decay = weight_decay
        self.dev = dev

    def fit(self, features: np.ndarray, labels: np.ndarray) -> AdamClassifier:
        """Train on (n, d) features and (n,) labels."""
        generator = torch.Generator().manual_seed(SEED)
        rows, targets = torch.from_numpy(features).float(), torch.from_numpy(labels).long()
        if self.dev is None:
            order = torch.randperm(len(rows), generator=generator)
            held = int(0.05 * len(rows))
            dev_rows, dev_targets = rows[order[:held]], targets[order[:held]]
            rows, targets = rows[order[held:]], targets[order[held:]]
        else:
            dev_rows, dev_targets = torch.from_numpy(self.dev[0]).float(), torch.from_numpy(self.dev[1]).long()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            layer = torch.nn.Linear(rows.shape[1], int(labels.max()) + 1)
        optimizer = torch.optim.Adam(layer.parameters(), weight_decay=self.weight_decay)
        best_accuracy, stale, epochs = -1.0, 0, 0
        while stale <= TENACITY and epochs <= MOST_EPOCHS:
            for _ in range(EPOCHS_PER_CHECK):
                for batch in torch.randperm(len(rows), generator=generator).split(BATCH_SIZE):
                    # The mean over the batch: SentEval's flag for the sum has had no effect since torch 1.
                    loss = torch.nn.functional.cross_entropy(layer(rows[batch]), targets[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            epochs += EPOCHS_PER_CHECK
            with torch.no_grad():
                accuracy = float((layer(dev_rows).argmax(dim=1) == dev_targets).float().mean())
            if accuracy > best_accuracy:
                best_accuracy, self.layer = accuracy, copy.deepcopy(layer)
            else:
                stale += 1
        return self

    @torch.no_grad()
    def predict(self, features: np.ndarray) -> np.ndarray:
        """The (n,) labels of (n, d) features."""
        return self.layer(torch.from_numpy(features).float()).argmax(dim=1).numpy()


def torch_scores(task: str, parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> float:
    """Accuracy of a task by the torch classifier, its weight decay chosen as the protocol chooses C.

    Args:
        task: The name of the transfer task.
        parts: Features and labels of each split, in SentEval's order.
    """
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(n_splits=10, shuffle=True, random_state=SEED)

    def choose(features: np.ndarray, labels: np.ndarray) -> float:
        accuracies = []
        for decay in WEIGHT_DECAYS:
            fold_accuracies = []
            for train, test in folds.split(features, labels):
                # SentEval stops on the very fold that it then scores.
                classifier = AdamClassifier(decay, (features[test], labels[test])).fit(features[train], labels[train])
                fold_accuracies.append((classifier.predict(features[test]) == labels[test]).mean())
            accuracies.append(round(100 * float(np.mean(fold_accuracies)), 2))
        return WEIGHT_DECAYS[int(np.argmax(accuracies))]

    if task == "SST2":
        fitted = [AdamClassifier(decay, parts["dev"]).fit(*parts["train"]) for decay in WEIGHT_DECAYS]
        on_dev = [round(100 * _accuracy(classifier, parts["dev"]), 2) for classifier in fitted]
        return _accuracy(fitted[int(np.argmax(on_dev))], parts["test"])
    if "train" in parts:
        return _accuracy(AdamClassifier(choose(*parts["train"])).fit(*parts["train"]), parts["test"])
    features, labels = parts["test"]
    decay, accuracies = None, []
    for train, test in folds.split(features, labels):
        if decay is None:
            decay = choose(features[train], labels[train])
        classifier = AdamClassifier(decay).fit(features[train], labels[train])
        accuracies.append(_accuracy(classifier, (features[test], labels[test])))
    return float(np.mean(accuracies))


def _accuracy(classifier: AdamClassifier, part: tuple[np.ndarray, np.ndarray]) -> float:
    return float((classifier.predict(part[0]) == part[1]).mean())


def main(
    model: Annotated[str, typer.Argument(help="A model's path or name.")],
    data: Annotated[Path, typer.Option(help="The folder of local data.")],
    tasks: Annotated[str, typer.Option(help="Transfer tasks, comma-separated.")] = "CR,SST2,TREC,MRPC",
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at once.")] = 128,
) -> None:
    """Score the tasks with both classifiers, and the cross-validated ones with C chosen in every fold as well."""
    from rankcse_st.benchmark import senteval
    from rankcse_st.benchmark._mteb import preserved_random_state
    from rankcse_st.benchmark.data import LocalData
    from rankcse_st.benchmark.groups import make_tasks
    from rankcse_st.benchmark.models import load_model, parse_models, wrap_for_mteb

    table = Table("Task", "scikit-learn", "C in every fold", "torch", "torch - scikit-learn", "torch's seconds")
    with preserved_random_state():
        wrapper = wrap_for_mteb(load_model(*parse_models(model)))
        for task in make_tasks([name.strip() for name in tasks.split(",")], LocalData(data)):
            task.load_data()
            parts = task.embed(wrapper, {"batch_size": batch_size, "show_progress_bar": False})
            ours = task.score(parts).accuracy
            nested = (
                "" if "train" in parts else f"{100 * senteval.cross_validate(*parts['test'], nested=True).accuracy:.2f}"
            )
            start = time.monotonic()
            theirs = torch_scores(task.metadata.name, parts)
            seconds = time.monotonic() - start
            row = (
                task.metadata.name,
                f"{100 * ours:.2f}",
                nested,
                f"{100 * theirs:.2f}",
                f"{100 * (theirs - ours):+.2f}",
            )
            table.add_row(*row, f"{seconds:.0f}")
            Console().print(*row, f"{seconds:.0f} s", highlight=False)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
