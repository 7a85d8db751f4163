"""What a label is: its form, its type in the dataset, and how the teachers' answers become it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from datasets import Features, List, Value

from rankcse_st.teachers import TeacherEnsemble

Form = Literal["vectors", "lists"]
LabelDtype = Literal["float32", "float16"]


@dataclass(frozen=True)
class Layout:
    """What a label is.

    Args:
        form: ``"vectors"`` for score vectors, ``"lists"`` for each row's own scores of its candidates.
        columns: The text columns; of lists, the anchor's and its candidates'.
        shared: Whether one vector stands for all columns, because they hold the same text in every row.
        dtype: What the teachers' answers and the labels made of them are stored in.
    """

    form: Form
    columns: tuple[str, ...]
    shared: bool = False
    dtype: LabelDtype = "float32"

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that teachers read."""
        return self.columns[:1] if self.shared else self.columns

    @property
    def text_features(self) -> Features:
        """The text columns' types."""
        return Features({column: Value("string") for column in self.columns})

    def label_features(self, shape: Sequence[int]) -> Features:
        """The label column's type."""
        return label_features(self.dtype, shape)

    def combine(self, ensemble: TeacherEnsemble, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Labels from the active teachers' answers: ``(n, C, d_k)`` unit embeddings, or ``(n, K)`` scores of lists.

        Returns:
            ``(n, D)`` for one column (or shared ones), ``(n, C, D)`` for several; ``(n, K)`` for lists.
        """
        tensors = [to_tensor(answer) for answer in answers]
        if self.form == "lists":
            return ensemble.combine_lists(tensors).numpy()
        vectors = ensemble.combine([tensor.flatten(0, 1) for tensor in tensors]).numpy().astype(self.dtype)
        columns = len(self.read_columns)
        return vectors if columns == 1 else vectors.reshape(-1, columns, vectors.shape[-1])


def label_features(dtype: str, shape: Sequence[int]) -> Features:
    """The type of a column of labels of ``shape``: lists of fixed size, the type that datasets reads fastest."""
    feature: Any = Value(dtype)
    for size in reversed(shape):
        feature = List(feature, length=size)
    return Features({"label": feature})


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A float32 tensor of an array, copied if it is a view of a file: torch wants to be able to write."""
    return torch.from_numpy(array if array.flags.writeable else array.copy()).float()
