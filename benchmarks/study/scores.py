"""Scoring one student: STS, agreement with the teacher."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from rankcse_st.evaluation import TeacherAgreementEvaluator

TEST_SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")
DEV_SETS = ("STSBenchmark.dev-clean", "SICK-R.dev")


def read_pairs(data: Path, name: str) -> list[dict[str, object]]:
    """The rows of one set: sentence1, sentence2, score."""
    with (data / "sts" / f"{name}.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sts(model: SentenceTransformer, data: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Spearman correlation x 100 of cosines and gold scores on each set; every sentence is encoded once."""
    sets = {name: read_pairs(data, name) for name in names}
    texts = sorted({str(row[side]) for rows in sets.values() for row in rows for side in ("sentence1", "sentence2")})
    position = {text: i for i, text in enumerate(texts)}
    embeddings = model.encode(texts, batch_size=128, normalize_embeddings=True, show_progress_bar=True)
    scores = {}
    for name, rows in sets.items():
        left, right = (embeddings[[position[row[side]] for row in rows]] for side in ("sentence1", "sentence2"))
        cosines = (left.astype(np.float64) * right).sum(1)
        scores[name] = 100 * float(spearmanr(cosines, [row["score"] for row in rows]).statistic)
    return scores


def agreement(model: SentenceTransformer, evaluator: TeacherAgreementEvaluator) -> dict[str, float]:
    """How the student ranks held-out sentences beside the teacher, x 100."""
    return {name: 100 * value for name, value in evaluator(model).items()}


def choosing_score(scores: dict[str, float]) -> float:
    """What settings are chosen by: the mean of held-out agreement and the two development sets."""
    return float(np.mean([scores["agreement_spearman"], *(scores[name] for name in DEV_SETS)]))
