"""Bringing teachers' score vectors into the student's space, so that embeddings can be matched."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from torch import Tensor
from torch.nn import functional as F

from rankcse_st.evaluation._base import undisturbed
from rankcse_st.losses.labels import TeacherVectors, read_labels
from rankcse_st.losses.matching import correlation
from rankcse_st.scores.compression import main_dimensions
from rankcse_st.student import embedding_width, untruncated
from rankcse_st.texts import check_texts

__all__ = ["fit_teacher_projection"]

# Correlation of embeddings and score vectors from which on they are of one space. Layers of a teacher with its last
# among them have 0.6 to 0.9 before any training, its first ones 0.4 to 0.5, unrelated models 0.
_ONE_SPACE = 0.5


def fit_teacher_projection(
    model: SentenceTransformer,
    dataset: Dataset,
    *,
    prompts: str | Mapping[str, str] | None = None,
    router_mapping: Mapping[str, str] | None = None,
    sample_size: int = 8192,
    batch_size: int = 64,
    seed: int = 0,
    show_progress_bar: bool = True,
) -> Tensor | None:
    """The fixed projection by which score vectors are matched with a student of another width or another space.

    Two steps in closed form, on a sample of the texts that the student is to be trained on: the d dimensions of the
    score vectors that keep most of their products (d is the student's width), turned so that they lie as near as a
    rotation can bring them to the student's embeddings as they are now (orthogonal Procrustes). Products of score
    vectors stay what they were but for the dimensions that are left out; a teacher of fewer dimensions loses none.
    There is nothing to train, so no learning rate to choose for it, and nothing that the saved model could need.

    Args:
        model: The student, before training.
        dataset: Text columns and, as ``label``, score vectors, ``(D,)`` or one for each of C text columns, as
            :class:`~rankcse_st.TeacherScoreDataset` makes it.
        prompts: Those of the training arguments: one for all text columns, or one for each by its name.
        router_mapping: That of the training arguments, for a student with a ``Router``.
        sample_size: How many rows it is fitted on; all of a smaller dataset.
        batch_size: How many texts the student encodes at once.
        seed: Seed of the sample.
        show_progress_bar: Whether to show one.

    Returns:
        The ``teacher_projection`` of :class:`~rankcse_st.RankCSELoss`: ``(D, d)`` in float32 on the CPU, or None where
        D = d and the score vectors lie in the student's space as they are, because it was made of the teacher.

    Raises:
        TypeError: If ``model`` is no ``SentenceTransformer``, ``dataset`` no ``datasets.Dataset``, or texts no strings.
        ValueError: If the dataset has no rows or no score vectors, texts are blank, ``sample_size`` is less than the
            student's width, a student with a ``Router`` has no ``router_mapping``, or its embeddings are not finite.

    References:
        - Orthogonal Procrustes: Schönemann 1966, https://doi.org/10.1007/BF02289451

    Example:
        ::

            train_dataset = TeacherScoreDataset.from_sentences("sentences.txt", "all-mpnet-base-v2")  # 768 dimensions
            model = SentenceTransformer("microsoft/MiniLM-L12-H384-uncased")  # 384
            loss = RankCSELoss(
                model, matching_weight=20, teacher_projection=fit_teacher_projection(model, train_dataset)
            )
    """
    if not isinstance(model, SentenceTransformer):
        raise TypeError(f"Expected the student, a SentenceTransformer, but got {type(model).__name__}.")
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"Expected a datasets.Dataset of texts and score vectors, but got {type(dataset).__name__}: of a stream "
            "take a sample, Dataset.from_list(list(stream.take(8192))), and of a dictionary of datasets one."
        )
    columns = [name for name in dataset.column_names if name != "label"]
    if "label" not in dataset.column_names or not columns or len(dataset) == 0:
        raise ValueError(
            f"Expected rows of texts and a label column of score vectors, but got {len(dataset)} rows of "
            f"{dataset.column_names}. TeacherScoreDataset attaches them."
        )
    routes = dict(router_mapping or {})
    if any(isinstance(module, Router) for module in model.modules()) and not set(columns) <= set(routes):
        raise ValueError(
            f"The student has a Router: give router_mapping for the columns {columns}, as for the trainer, but "
            f"got {router_mapping}."
        )
    width = embedding_width(model)
    if not isinstance(sample_size, int) or sample_size < min(width or 1, len(dataset)):
        raise ValueError(
            f"sample_size must be an integer of at least the student's {width} dimensions, but got {sample_size!r}."
        )
    rows = np.sort(np.random.default_rng(seed).permutation(len(dataset))[:sample_size])
    labels = dataset.with_format("torch", columns=["label"])[rows]["label"]
    if not isinstance(labels, Tensor):
        raise ValueError("The label column must hold numbers, as many in each row: score vectors.")
    teacher = read_labels(labels, batch_size=len(rows), columns=len(columns), normalize=True)
    if not isinstance(teacher, TeacherVectors):
        raise ValueError("Embeddings are matched with score vectors, but the labels are explicit scores of lists.")
    texts = dataset.select_columns(columns).with_format(None)[rows]
    with undisturbed(model), untruncated(model):
        embeddings = [
            model.encode(
                check_texts(texts[name], f"texts of the column {name!r}"),
                # As in training: no prompt but those of the arguments, whatever the model puts before what it encodes.
                prompt=prompts if isinstance(prompts, str) else (prompts or {}).get(name, ""),
                batch_size=batch_size,
                convert_to_tensor=True,
                show_progress_bar=show_progress_bar,
                **({"task": routes[name]} if name in routes else {}),
            )
            for name in columns
        ]
    student = F.normalize(torch.stack(embeddings, dim=1).flatten(0, 1).double().cpu(), dim=1)
    if not student.isfinite().all():
        raise ValueError("The student's embeddings of the dataset's texts are not finite: it cannot be trained.")
    return _fit(teacher.values.flatten(0, 1).double(), student)


def _fit(vectors: Tensor, student: Tensor) -> Tensor | None:
    """The projection ``(D, d)`` of unit vectors ``(n, D)`` to unit embeddings ``(n, d)``, if one is needed."""
    if vectors.shape == student.shape and correlation(vectors, student) >= _ONE_SPACE:
        return None
    basis = main_dimensions(vectors, student.shape[1])
    left, _, right = torch.linalg.svd(basis.T @ vectors.T @ student, full_matrices=False)
    projection: Tensor = basis @ left @ right
    return projection.float()
