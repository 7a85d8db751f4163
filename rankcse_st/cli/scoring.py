"""Scores and evaluators, as ``train``, ``score`` and ``evaluate`` use them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankcse_st.cli.files import Pairs

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator
    from torch import Tensor

    from rankcse_st.scores.layout import LabelDtype
    from rankcse_st.teachers import TeacherEnsemble


def score_sentences(
    sentences: Sequence[str],
    teachers: TeacherEnsemble,
    cache_dir: Path,
    *,
    dtype: LabelDtype = "float32",
    calibrate: bool = False,
) -> Dataset:
    """Score vectors of sentences; what ``cache_dir`` holds already is not computed again."""
    from rankcse_st.data import TeacherScoreDataset

    return TeacherScoreDataset.from_sentences(
        sentences, teachers, cache_dir=cache_dir, dtype=dtype, calibrate=calibrate
    )


def load_scores(folder: Path) -> Dataset:
    """The dataset that ``rankcse-st score`` wrote.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is a dataset of something else.
    """
    from datasets import Dataset, load_from_disk

    if not (folder / "dataset_info.json").is_file():
        raise FileNotFoundError(f"There is no scored dataset at {folder}: give a folder that 'rankcse-st score' wrote.")
    dataset = load_from_disk(str(folder))
    if not isinstance(dataset, Dataset) or not {"sentence", "label"} <= set(dataset.column_names):
        raise ValueError(f"{folder} must have the columns sentence and label, but has {dataset.column_names}.")
    return dataset


def score_vectors(scored: Dataset, rows: Sequence[int]) -> Tensor:
    """The labels of some rows, (rows, D) in float32."""
    import numpy as np
    import torch

    labels = scored.select(rows).with_format("numpy")["label"][:]
    return torch.from_numpy(np.asarray(labels, dtype=np.float32))


def scores_sha256(scored: Dataset) -> str:
    """Identity of score vectors, told from a thousand of them or a few more, spread over the dataset."""
    rows = range(0, len(scored), max(1, len(scored) // 1000))
    return hashlib.sha256(score_vectors(scored, rows).numpy().tobytes()).hexdigest()


def teachers_of(scored: Dataset) -> list[dict[str, Any]]:
    """What made the scores, as the dataset's record says; none if it has no record, or those of several ensembles."""
    from rankcse_st.data import TeacherScoreDataset

    try:
        (record,) = TeacherScoreDataset.records(scored)
    except ValueError:
        return []
    return list(record["teachers"])


def sts_evaluators(pairs: Sequence[Pairs], *, batch_size: int = 64) -> list[BaseEvaluator]:
    """One Spearman correlation for each file of graded pairs."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    return [
        EmbeddingSimilarityEvaluator(
            one.sentences1, one.sentences2, one.scores, name=one.name, main_similarity="cosine", batch_size=batch_size
        )
        for one in pairs
    ]


def measure(model: SentenceTransformer, evaluators: Sequence[BaseEvaluator]) -> dict[str, float]:
    """Run evaluators on a model; Pearson correlations are left out."""
    metrics: dict[str, float] = {}
    for evaluator in evaluators:
        results = evaluator(model)
        metrics |= {name: float(value) for name, value in results.items() if "pearson" not in name}
    return metrics
