from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rankcse_st.evaluation._base import EmbeddingEvaluator, kept_random_states
from rankcse_st.evaluation._inputs import (
    as_score_vectors,
    check_score_vectors,
    check_unit_length,
    distinct,
)
from rankcse_st.evaluation.metrics import CHUNK_ELEMENTS, FloatArray, spearman, top_k_overlap
from rankcse_st.teachers import TeacherEnsemble, TeacherLike
from rankcse_st.texts import check_texts

logger = logging.getLogger(__name__)

TOP_K = 10


class TeacherAgreementEvaluator(EmbeddingEvaluator):
    """How well a student ranks held-out sentences as its teachers do: a number that needs no labels.

    Every sentence is ranked against all the others, once by the student's cosine similarities and once by the teachers'
    scores ``t_i . t_j = sum_k w_k cos_k(i, j)``. The two lists are compared by Spearman's rank correlation and by the
    share of the teachers' ten best that are among the student's ten best, each averaged over the sentences.

    The teachers are run once, when the evaluator is built: what is wrong with them shows before the training begins,
    and they are not kept afterwards. The student's similarity is always the cosine, whatever its
    ``similarity_fn_name`` says.

    Args:
        sentences: Held-out sentences, three or more; a thousand are plenty. A repeated sentence would be a trivial
            first place, so each text is kept once and a log line says how many were dropped.
        teachers: A :class:`~rankcse_st.teachers.TeacherEnsemble`; or one teacher or several, in any form that it
            accepts (name, path, model, :class:`~rankcse_st.teachers.Teacher`); or score vectors computed before, of
            shape (sentences, D) and length 1, as in the ``label`` column of a score dataset.
        name: Prefix of the metrics and part of the CSV's name. Defaults to "".
        batch_size: Batch size for the student. Defaults to 32.
        show_progress_bar: Show progress bars, for the teachers as well. Defaults to False.
        write_csv: Append each result to a CSV file in the folder that the call is given. Defaults to True.
        truncate_dim: Compare with the student's embeddings cut to this width; ``None`` for the model's own. Never
            applied to the teachers. Defaults to None.
        column: Name of the text column that the sentences come from, for teachers with one prompt for each column.

    Raises:
        ValueError: If fewer than three different sentences are given, one is blank, the score vectors have the wrong
            shape, are not of length 1, hold NaN, or are all equal; when called, if the student returns NaN.
        TypeError: If a sentence is not a string, or a teacher is nothing that the ensemble accepts.

    Metrics:
        ============================ ========================================================== ==========
        metric                       meaning                                                    range
        ============================ ========================================================== ==========
        ``spearman`` (primary)       mean rank correlation of the lists; more is better         -1 to 1
        ``top10_overlap``            mean overlap of the ten best; more is better               0 to 1
        ============================ ========================================================== ==========

        A student that gives all sentences one similarity scores 0 on a list. Lists on which the teachers do so are left
        out, and a log line counts them. With eleven sentences or fewer the overlap is 1 whatever the student does.

    Relations:
        - :func:`ranking_agreement` gives the values of the single lists.
        - ``MSEEvaluator`` of sentence-transformers compares embeddings and so needs a student of the teacher's width;
          ranks can be compared across widths and scales.

    Requirements:
        Memory is that of the embeddings and a few row chunks, so 10,000 sentences fit anywhere; time grows with the
        square of their number (1,000: a fraction of a second beside the encoding; 10,000: 20 seconds of one core).

    Example:
        ::

            from rankcse_st.evaluation import TeacherAgreementEvaluator
            from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

            evaluator = TeacherAgreementEvaluator(held_out, "sentence-transformers/all-mpnet-base-v2", name="heldout")
            args = SentenceTransformerTrainingArguments(
                ...,
                eval_strategy="steps",
                save_strategy="steps",
                load_best_model_at_end=True,
                metric_for_best_model=evaluator.primary_metric,  # "heldout_spearman"
            )
            trainer = SentenceTransformerTrainer(model=student, args=args, evaluator=evaluator, ...)
    """

    metric_names: ClassVar[tuple[str, ...]] = ("spearman", "top10_overlap")
    csv_stem: ClassVar[str] = "teacher_agreement"

    def __init__(
        self,
        sentences: Sequence[str],
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike] | Tensor | np.ndarray,
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        truncate_dim: int | None = None,
        column: str | None = None,
    ) -> None:
        given = check_texts(sentences, "sentences")
        kept = distinct(given)
        if len(kept) < 3:
            raise ValueError(
                f"TeacherAgreementEvaluator needs at least 3 different sentences to rank, got {len(kept)} "
                f"(of {len(given)} given)."
            )
        super().__init__(
            kept,
            primary_metric="spearman",
            name=name,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            write_csv=write_csv,
            truncate_dim=truncate_dim,
        )
        if len(kept) < len(given):
            logger.warning("Dropped %d repeated sentences of %d before ranking.", len(given) - len(kept), len(given))
        if len(kept) <= TOP_K + 1:
            logger.warning("With %d sentences top10_overlap is 1 by construction.", len(kept))

        self.teachers: list[dict[str, Any]] = []
        vectors = as_score_vectors(teachers)
        if vectors is not None:
            check_unit_length(check_score_vectors(vectors, len(given)))
            if len(kept) < len(given):
                first = {sentence: i for i, sentence in reversed(list(enumerate(given)))}
                vectors = vectors[[first[sentence] for sentence in kept]]
        else:
            ensemble = TeacherEnsemble.of(teachers)
            # For the model card, which others read: of a folder its name, not its place on this machine.
            self.teachers = [
                {"model": os.path.basename(t.name) if os.path.exists(t.name) else t.name, "weight": round(float(w), 6)}
                for t, w in zip(ensemble.teachers, ensemble.weights, strict=True)
            ]
            with kept_random_states():  # loading a model may draw random numbers
                vectors = ensemble.encode(kept, column=column, show_progress_bar=show_progress_bar)
            vectors = check_score_vectors(vectors.float().cpu(), len(kept))
        if (vectors == vectors[0]).all():
            raise ValueError("teachers: all score vectors are equal, so they rank nothing.")
        self.teacher_vectors = vectors

    def compute_metrics(self, embeddings: Tensor) -> dict[str, float]:
        correlations, overlaps = ranking_agreement(embeddings, self.teacher_vectors, k=TOP_K)
        constant = int(np.isnan(correlations).sum())
        if constant == len(correlations):
            raise ValueError("teachers: every sentence has one score against all others, so there is nothing to rank.")
        if constant:
            logger.warning("Left out %d of %d lists: the teachers' scores are constant.", constant, len(correlations))
        return {"spearman": float(np.nanmean(correlations)), "top10_overlap": float(np.nanmean(overlaps))}

    def get_config_dict(self) -> dict[str, Any]:
        config = {"num_sentences": len(self.sentences), **super().get_config_dict()}
        if self.teachers:
            config["teachers"] = self.teachers
        return config


def ranking_agreement(
    student: Tensor, teacher: Tensor, k: int = TOP_K, chunk_elements: int = CHUNK_ELEMENTS
) -> tuple[FloatArray, FloatArray]:
    """Compare how two sets of vectors rank, for each row, all the other rows by dot product.

    Args:
        student: Unit embeddings, shape (n, d), n >= 3.
        teacher: Unit score vectors, shape (n, D).
        k: Length of the top of the list whose overlap is taken.
        chunk_elements: Scores compared at a time; bounds the memory.

    Returns:
        Spearman's correlation and top-k overlap of each row's list of n - 1, both of shape (n,), by
        :func:`~rankcse_st.evaluation.metrics.spearman` and :func:`~rankcse_st.evaluation.metrics.top_k_overlap`.
    """
    n = len(student)
    if n != len(teacher) or n < 3:
        raise ValueError(f"Expected as many student as teacher rows, at least 3, got {n} and {len(teacher)}.")
    correlations, overlaps = [], []
    chunk_size = max(1, chunk_elements // n)
    for start in range(0, n, chunk_size):
        rows = torch.arange(start, min(start + chunk_size, n))
        others = torch.ones(len(rows), n, dtype=torch.bool)
        others[torch.arange(len(rows)), rows] = False
        ours, theirs = (
            (vectors[rows] @ vectors.T)[others].view(len(rows), n - 1).numpy() for vectors in (student, teacher)
        )
        correlations.append(spearman(ours, theirs))
        overlaps.append(top_k_overlap(ours, theirs, k))
    return np.concatenate(correlations), np.concatenate(overlaps)
