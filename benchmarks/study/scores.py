"""Scoring one student: STS, ranking, geometry, agreement with the teacher, from one encoding of all their sentences."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from rankcse_st.evaluation import AlignmentUniformityEvaluator, GradedRankingEvaluator, TeacherAgreementEvaluator

TEST_SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")
DEV_SETS = ("STSBenchmark.dev-clean", "SICK-R.dev")
# What the paper measures alignment and uniformity on. Most of it lies in the test sets: for reporting only.
GEOMETRY_SET = "STSBenchmark.dev"


@cache
def read_pairs(data: Path, name: str) -> dict[str, list[Any]]:
    """The columns of one set: sentence1, sentence2, score."""
    with (data / "sts" / f"{name}.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return {column: [row[column] for row in rows] for column in ("sentence1", "sentence2", "score")}


class Embedded:
    """Unit embeddings of all the sentences of some sets, each encoded once."""

    def __init__(self, model: SentenceTransformer, data: Path, names: tuple[str, ...]) -> None:
        self.sets = {name: read_pairs(data, name) for name in names}
        texts = {text for rows in self.sets.values() for side in ("sentence1", "sentence2") for text in rows[side]}
        self._row = {text: row for row, text in enumerate(sorted(texts))}
        self._embeddings = model.encode(
            list(self._row), batch_size=128, normalize_embeddings=True, convert_to_tensor=True, show_progress_bar=False
        )

    def __getitem__(self, sentences: list[str]) -> torch.Tensor:
        return self._embeddings[[self._row[sentence] for sentence in sentences]]

    def cosines(self, name: str) -> NDArray[np.float64]:
        """Those of the pairs of one set."""
        left, right = (self[self.sets[name][side]].double() for side in ("sentence1", "sentence2"))
        return np.asarray((left * right).sum(1))

    def sts(self) -> dict[str, float]:
        """Spearman correlation x 100 of cosines and gold scores on each set."""
        return {
            name: 100 * float(spearmanr(self.cosines(name), rows["score"]).statistic)
            for name, rows in self.sets.items()
            if name != GEOMETRY_SET
        }

    def ranking(self) -> dict[str, float]:
        """Means over the test sets of Kendall's tau-b and NDCG of the graded targets of each sentence, x 100."""
        metrics = []
        for name in TEST_SETS:
            pairs = self.sets[name]
            evaluator = GradedRankingEvaluator.from_pairs(pairs["sentence1"], pairs["sentence2"], pairs["score"])
            metrics.append(evaluator.compute_metrics(self[evaluator.sentences].cpu()))
        return {
            f"{metric} mean": 100 * float(np.mean([one[metric] for one in metrics])) for metric in ("kendall", "ndcg")
        }

    def geometry(self) -> dict[str, float]:
        """Alignment and uniformity on STS-B dev; lower is better."""
        pairs = self.sets[GEOMETRY_SET]
        evaluator = AlignmentUniformityEvaluator(pairs["sentence1"], pairs["sentence2"], pairs["score"])
        metrics = evaluator.compute_metrics(self[evaluator.sentences].cpu())
        return {name: metrics[name] for name in ("alignment", "uniformity")}


def agreement(model: SentenceTransformer, evaluator: TeacherAgreementEvaluator) -> dict[str, float]:
    """How the student ranks held-out sentences beside the teacher, x 100, and whether it is in the teacher's place.

    The mean cosine of a sentence's two embeddings says how much of the teacher's coordinates the student shares; it
    means nothing, and is left out, where the widths differ.
    """
    embeddings = model.encode(
        evaluator.sentences, batch_size=128, normalize_embeddings=True, convert_to_tensor=True, show_progress_bar=False
    ).cpu()
    scores = {f"agreement_{name}": 100 * value for name, value in evaluator.compute_metrics(embeddings).items()}
    if embeddings.shape == evaluator.teacher_vectors.shape:
        scores["cosine to the teacher"] = float((embeddings * evaluator.teacher_vectors).sum(1).mean())
    return scores


def choosing_score(scores: dict[str, float]) -> float:
    """What settings are chosen by: the mean of held-out agreement and the two development sets."""
    return float(np.mean([scores["agreement_spearman"], *(scores[name] for name in DEV_SETS)]))
