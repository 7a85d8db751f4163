from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rankcse_st.evaluation._base import EmbeddingEvaluator
from rankcse_st.evaluation._inputs import check_same_length, check_scores, distinct
from rankcse_st.evaluation.metrics import UNIFORMITY_MAX_PAIRS, alignment, uniformity
from rankcse_st.texts import check_texts


class AlignmentUniformityEvaluator(EmbeddingEvaluator):
    """Geometry of the embeddings on the unit sphere: are positive pairs close, and do sentences spread out?

    ``alignment = E ||f(x) - f(x+)||^2`` over the positive pairs and ``uniformity = log E exp(-2 ||f(x) - f(y)||^2)``
    over pairs of different sentences, on L2-normalised embeddings; lower is better for both. Embeddings that collapse
    show as a uniformity that rises towards 0, embeddings that only spread as an alignment that rises.

    Args:
        sentences1: First sentence of each pair.
        sentences2: Second sentence of each pair.
        scores: Graded similarity of each pair (STS: 0 to 5).
        positive_threshold: Pairs with this score or more are positive. Defaults to 4.0. (SimCSE writes "higher than 4";
            the scripts that the field uses take 4.0 as well. On the STS-B dev set that is 264 pairs instead of 208.)
        name: Prefix of the metrics and part of the CSV's name. Defaults to "".
        batch_size: Batch size for the model. Defaults to 32.
        show_progress_bar: Show a progress bar while encoding. Defaults to False.
        write_csv: Append each result to a CSV file in the folder that the call is given. Defaults to True.
        truncate_dim: Measure embeddings cut to this width; ``None`` for the model's own. Defaults to None.
        max_pairs: Pairs of sentences up to which uniformity is exact (the default is enough for 10,000 sentences);
            above, that many are sampled, see :func:`~rankcse_st.evaluation.metrics.uniformity`.
        seed: Seed of that sample. The same sentences are paired at every call, so that values can be compared.

    References:
        - Wang and Isola, Understanding contrastive representation learning through alignment and uniformity on the
          hypersphere, ICML 2020
        - RankCSE, appendix H: https://aclanthology.org/2023.acl-long.771/

    Raises:
        ValueError: If lengths differ, a sentence is blank, a score is NaN or infinite, or no pair is
            positive; when called, if the model returns NaN.
        TypeError: If a sentence is not a string.

    Metrics:
        ================================================= ================================================== =========
        metric                                            meaning                                            range
        ================================================= ================================================== =========
        ``alignment``                                     as above, over the positive pairs                  0 to 4
        ``uniformity``                                    as above; each different text counts once          -8 to 0
        ``negative_alignment_plus_uniformity`` (primary)  ``-(alignment + uniformity)``; more is better      -4 to 8
        ================================================= ================================================== =========

        The sum weighs both as Wang and Isola's objective does. It serves to watch a training; to choose a checkpoint,
        a ranking metric (:class:`TeacherAgreementEvaluator`, Spearman on graded pairs) says more.

    Relations:
        - :mod:`rankcse_st.evaluation.plots` draws the CSV over the training, and models in the plane of both values.

    Example:
        ::

            from rankcse_st.evaluation import AlignmentUniformityEvaluator

            evaluator = AlignmentUniformityEvaluator(
                stsb["sentence1"], stsb["sentence2"], stsb["score"], name="stsb-dev"
            )
            evaluator(model)
            # {"stsb-dev_alignment": 0.19, "stsb-dev_uniformity": -2.3, ...}
    """

    metric_names: ClassVar[tuple[str, ...]] = ("alignment", "uniformity", "negative_alignment_plus_uniformity")
    csv_stem: ClassVar[str] = "alignment_uniformity"

    def __init__(
        self,
        sentences1: Sequence[str],
        sentences2: Sequence[str],
        scores: ArrayLike,
        positive_threshold: float = 4.0,
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        truncate_dim: int | None = None,
        max_pairs: int = UNIFORMITY_MAX_PAIRS,
        seed: int = 0,
    ) -> None:
        sentences1, sentences2 = check_texts(sentences1, "sentences1"), check_texts(sentences2, "sentences2")
        grades = check_scores(scores, "scores")
        check_same_length(sentences1=sentences1, sentences2=sentences2, scores=grades)
        positive = np.flatnonzero(grades >= positive_threshold)
        if not len(positive):
            found = f"{grades.min():g} to {grades.max():g}" if len(grades) else "none at all"
            raise ValueError(
                f"AlignmentUniformityEvaluator: no pair has a score of positive_threshold={positive_threshold:g} or "
                f"more (scores: {found}). Set positive_threshold on the scale of the scores."
            )
        sentences = distinct([*sentences1, *sentences2])
        if len(sentences) < 2:
            raise ValueError("AlignmentUniformityEvaluator needs at least two different sentences, got one.")
        super().__init__(
            sentences,
            primary_metric="negative_alignment_plus_uniformity",
            name=name,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            write_csv=write_csv,
            truncate_dim=truncate_dim,
        )
        self.positive_threshold = positive_threshold
        self.max_pairs = max_pairs
        self.seed = seed
        row = {sentence: i for i, sentence in enumerate(sentences)}
        self._positives = torch.tensor([(row[sentences1[i]], row[sentences2[i]]) for i in positive]).T

    def compute_metrics(self, embeddings: Tensor) -> dict[str, float]:
        first, second = self._positives
        align = alignment(embeddings[first], embeddings[second])
        uniform = uniformity(embeddings, max_pairs=self.max_pairs, seed=self.seed)
        return {
            "alignment": align,
            "uniformity": uniform,
            "negative_alignment_plus_uniformity": -(align + uniform),
        }

    @property
    def description(self) -> str:
        return "Alignment and Uniformity"

    def get_config_dict(self) -> dict[str, Any]:
        return {
            "positive_threshold": self.positive_threshold,
            "num_positive_pairs": self._positives.shape[1],
            "num_sentences": len(self.sentences),
            **super().get_config_dict(),
        }
