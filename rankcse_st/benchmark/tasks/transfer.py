"""The seven transfer tasks of SentEval as MTEB task classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from mteb.abstasks import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata

from rankcse_st.benchmark.data import NESTED
from rankcse_st.benchmark.senteval import (
    Features,
    Labels,
    TransferScore,
    choose_on_dev,
    choose_on_train,
    cross_validate,
    pair_features,
    senteval_order,
)
from rankcse_st.benchmark.tasks.encoding import encode_texts

_SENTEVAL = """@inproceedings{conneau-kiela-2018-senteval,
  author = {Conneau, Alexis and Kiela, Douwe},
  booktitle = {Proceedings of the Eleventh International Conference on Language Resources and Evaluation (LREC 2018)},
  title = {{S}ent{E}val: An Evaluation Toolkit for Universal Sentence Representations},
  year = {2018},
}"""


def _metadata(name: str, description: str) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        # There is no dataset on the hub with SentEval's rows and splits: these tasks run on local data.
        dataset={"path": f"local/{name}", "revision": "none"},
        description=f"{description} Logistic regression on frozen embeddings by SentEval's protocol.",
        reference="https://github.com/facebookresearch/SentEval",
        type="Classification",
        category="t2c",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="accuracy",
        bibtex_citation=_SENTEVAL,
    )


class SentEvalTask(AbsTask):  # type: ignore[misc]
    """A transfer task: what all seven share.

    Attributes:
        nested: Choose C in each outer fold, as SentEval does, instead of once. Only the tasks without a test set have
            outer folds.
        text_columns: The columns with the texts: one, or two for MRPC.
    """

    metadata: ClassVar[TaskMetadata]
    nested: bool = False
    text_columns: ClassVar[tuple[str, ...]] = ("text",)

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        raise FileNotFoundError(
            f"The transfer task {self.metadata.name} has no data on the hub: give a folder with its files "
            "(data=..., or --data on the command line)."
        )

    def score(self, parts: dict[str, tuple[Features, Labels]]) -> TransferScore:
        """The score from features and labels of each split."""
        raise NotImplementedError

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Any,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        from sklearn.metrics import f1_score

        parts = self.embed(model, encode_kwargs, hf_subset)
        score = self.score(parts)
        labels = parts[hf_split][1]
        if prediction_folder is not None:
            self._save_task_predictions(
                {"correct": (score.predictions == labels).astype(int).tolist()},
                model,
                prediction_folder,
                hf_subset=hf_subset,
                hf_split=hf_split,
            )
        return {
            "accuracy": score.accuracy,
            "dev_accuracy": score.dev_accuracy,
            "f1": float(f1_score(labels, score.predictions, average="binary" if labels.max() == 1 else "macro")),
            "chosen_c": list(score.chosen_c),
            "fold_accuracies": list(score.fold_accuracies),
            "nested": self.nested,
        }

    def embed(self, model: Any, encode_kwargs: Any, subset: str = "default") -> dict[str, tuple[Features, Labels]]:
        """Features and labels of each split, in SentEval's order, of the data that were loaded."""
        return {
            split: self._features(model, rows, split, subset, encode_kwargs) for split, rows in self.dataset.items()
        }

    def _features(self, model: Any, rows: Any, split: str, subset: str, encode_kwargs: Any) -> tuple[Features, Labels]:
        missing = {*self.text_columns, "label"} - set(rows.column_names)
        if missing:
            raise ValueError(f"Task {self.metadata.name} needs the columns {sorted(missing)} in its {split} split.")
        texts = [list(rows[column]) for column in self.text_columns]
        lengths = [tuple(len(text.split()) for text in row) for row in zip(*texts, strict=True)]
        labels = list(rows["label"])
        order = senteval_order(lengths, labels)
        features = [
            encode_texts(
                model,
                [column[row] for row in order],
                metadata=self.metadata,
                split=split,
                subset=subset,
                encode_kwargs=encode_kwargs,
            )
            for column in texts
        ]
        return self.combine(*features), np.asarray([labels[row] for row in order])

    def combine(self, *features: Features) -> Features:
        """One matrix of features from the embeddings of each text column."""
        return features[0]

    def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> dict[str, Any]:
        return {"num_samples": len(self.dataset[split])}


class CrossValidatedTask(SentEvalTask):
    """One set of rows, scored by ten-fold cross-validation."""

    def score(self, parts: dict[str, tuple[Features, Labels]]) -> TransferScore:
        return cross_validate(*parts["test"], nested=self.nested)


class HeldOutTask(SentEvalTask):
    """Train and test; C by cross-validation on train."""

    def score(self, parts: dict[str, tuple[Features, Labels]]) -> TransferScore:
        return choose_on_train(parts["train"], parts["test"])


class MR(CrossValidatedTask):
    metadata = _metadata("MR", "Sentiment of movie reviews (Pang and Lee, 2005).")


class CR(CrossValidatedTask):
    metadata = _metadata("CR", "Sentiment of customer reviews (Hu and Liu, 2004).")


class SUBJ(CrossValidatedTask):
    metadata = _metadata("SUBJ", "Subjective or objective sentences (Pang and Lee, 2004).")


class MPQA(CrossValidatedTask):
    metadata = _metadata("MPQA", "Polarity of opinion phrases (Wiebe et al., 2005).")


class SST2(SentEvalTask):
    metadata = _metadata("SST2", "Binary sentiment of the Stanford Sentiment Treebank (Socher et al., 2013).")

    def score(self, parts: dict[str, tuple[Features, Labels]]) -> TransferScore:
        return choose_on_dev(parts["train"], parts["dev"], parts["test"])


class TREC(HeldOutTask):
    metadata = _metadata("TREC", "Six types of questions (Voorhees and Tice, 2000).")


class MRPC(HeldOutTask):
    metadata = _metadata("MRPC", "Paraphrases in news (Dolan and Brockett, 2005), from |u - v| and u * v.")
    text_columns = ("sentence1", "sentence2")

    def combine(self, *features: Features) -> Features:
        return pair_features(*features)


TRANSFER_TASKS: dict[str, type[SentEvalTask]] = {
    cls.metadata.name: cls for cls in (MR, CR, SUBJ, MPQA, SST2, TREC, MRPC)
}


def make_transfer_task(name: str, *, nested: bool = False) -> SentEvalTask:
    """A transfer task; nested cross-validation is another task by name, so that their results are kept apart."""
    cls = TRANSFER_TASKS[name]
    if not nested or not issubclass(cls, CrossValidatedTask):
        return cls()
    metadata = cls.metadata.model_copy(update={"name": name + NESTED})
    instance: SentEvalTask = type(f"Nested{name}", (cls,), {"metadata": metadata, "nested": True})()
    return instance
