"""This package's evaluators as MTEB tasks: graded ranking from the STS tasks, geometry of STS-B dev, SICK-R test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import torch
from mteb.abstasks import AbsTask

from rankcse_st.benchmark._mteb import quiet_mteb
from rankcse_st.benchmark.data import FIRST_ONLY
from rankcse_st.benchmark.tasks.encoding import encode_texts
from rankcse_st.evaluation import AlignmentUniformityEvaluator, GradedRankingEvaluator
from rankcse_st.evaluation.metrics import unit

RANKCSE_URL = "https://aclanthology.org/2023.acl-long.771/"


class SentencePairTask(AbsTask):  # type: ignore[misc]
    """A task on pairs with graded similarity that one of this package's evaluators scores."""

    def make_evaluator(self, rows: Any) -> Any:
        """The evaluator of the pairs ``sentence1``, ``sentence2`` and ``score`` in ``rows``."""
        raise NotImplementedError

    def predictions(self, evaluator: Any, embeddings: torch.Tensor) -> dict[str, Any]:
        """What is kept for significance tests."""
        return {}

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
    ) -> dict[str, float]:
        evaluator = self.make_evaluator(data_split)
        embeddings = unit(
            torch.from_numpy(
                encode_texts(
                    model,
                    evaluator.sentences,
                    metadata=self.metadata,
                    split=hf_split,
                    subset=hf_subset,
                    encode_kwargs=encode_kwargs,
                )
            )
        )
        predictions = self.predictions(evaluator, embeddings)
        if prediction_folder is not None and predictions:
            self._save_task_predictions(predictions, model, prediction_folder, hf_subset=hf_subset, hf_split=hf_split)
        return {name: float(value) for name, value in evaluator.compute_metrics(embeddings).items()}

    def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> dict[str, Any]:
        return {"num_samples": len(self.dataset[split])}


class GradedRankingTask(SentencePairTask):
    """Rank the targets of each sentence of an STS task that has more than three.

    Attributes:
        symmetric: Whether both sentences of a pair may be queries (the paper reports STS15, which needs it).
    """

    symmetric: bool = True

    def make_evaluator(self, rows: Any) -> GradedRankingEvaluator:
        return GradedRankingEvaluator.from_pairs(
            list(rows["sentence1"]), list(rows["sentence2"]), list(rows["score"]), symmetric=self.symmetric
        )

    def predictions(self, evaluator: Any, embeddings: torch.Tensor) -> dict[str, Any]:
        kendall, ndcg = zip(*evaluator.group_metrics(embeddings), strict=True)
        return {"kendall": list(kendall), "ndcg": list(ndcg)}


class GeometryTask(SentencePairTask):
    """Alignment of the positive pairs and uniformity of the sentences of STS-B dev."""

    def make_evaluator(self, rows: Any) -> AlignmentUniformityEvaluator:
        return AlignmentUniformityEvaluator(list(rows["sentence1"]), list(rows["sentence2"]), list(rows["score"]))


def ranking_task(source: str, *, symmetric: bool = True) -> AbsTask:
    """The graded ranking task of an STS task, named after it: ``STS12`` makes ``STS12Ranking``.

    With ``symmetric=False``, where only the first sentences are queries, it is another task by name.
    """
    with quiet_mteb():
        metadata = mteb.get_task(source).metadata
    metadata = metadata.model_copy(
        update={
            "name": f"{source}Ranking" + ("" if symmetric else FIRST_ONLY),
            "description": f"Graded ranking (Kendall's tau-b, NDCG) built from the pairs of {source}.",
            "reference": RANKCSE_URL,
            "main_score": "kendall",
            "superseded_by": None,
        }
    )
    name = f"{source.replace('-', '')}Ranking"
    return type(name, (GradedRankingTask,), {"metadata": metadata, "symmetric": symmetric})()


def geometry_task() -> AbsTask:
    """``STSBenchmarkGeometry``, on STS-B's validation split."""
    with quiet_mteb():
        metadata = mteb.get_task("STSBenchmark").metadata
    metadata = metadata.model_copy(
        update={
            "name": "STSBenchmarkGeometry",
            "description": "Alignment and uniformity on STS-B dev.",
            "reference": RANKCSE_URL,
            "eval_splits": ["validation"],
            "main_score": "negative_alignment_plus_uniformity",
            "superseded_by": None,
        }
    )
    return type("STSBenchmarkGeometry", (GeometryTask,), {"metadata": metadata})()


def sick_test_task() -> AbsTask:
    """``SICK-R.test``: the 4,927 test rows that SentEval and the papers score, by MTEB's own STS protocol."""
    sick = mteb.get_task("SICK-R")
    metadata = sick.metadata.model_copy(
        update={
            "name": "SICK-R.test",
            "description": "SICK-R on its 4,927 test rows only, as in SentEval. MTEB's SICK-R scores all 9,927 rows.",
        }
    )
    return type("SickrTestSTS", (type(sick),), {"metadata": metadata})()
