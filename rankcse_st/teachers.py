"""Teachers: any number of models, each with its own tokenizer, length, prompt and weight, read as one set of scores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankcse_st.calibration import calibrated_weights, spread_of_similarities
from rankcse_st.checkpoints import FLOAT_DTYPES, load_cls_teacher
from rankcse_st.fingerprints import hash_json
from rankcse_st.lists import CandidateLists
from rankcse_st.reading import Teacher, TeacherLike, TeacherReader
from rankcse_st.texts import check_texts

__all__ = ["Teacher", "TeacherEnsemble", "TeacherLike", "load_cls_teacher"]


def as_teachers(teachers: TeacherLike | Sequence[TeacherLike]) -> list[Teacher]:
    """One or several teachers as a list, models and names among them with the defaults of :class:`Teacher`.

    Raises:
        ValueError: If there are none.
    """
    given = [teachers] if isinstance(teachers, (str, os.PathLike, Teacher, torch.nn.Module)) else list(teachers)
    if not given:
        raise ValueError("At least one teacher is needed, but the list of teachers is empty.")
    return [one if isinstance(one, Teacher) else Teacher(one) for one in given]


class TeacherEnsemble:
    r"""One to K teachers read as one: a **score vector** for each sentence, whose dot products are the scores.

    With the unit embedding :math:`e_k` of teacher k and weights that sum to 1, the score vector
    :math:`t = [\sqrt{w_1} e_1, \dots, \sqrt{w_K} e_K]` is a unit vector and
    :math:`t_i \cdot t_j = \sum_k w_k \cos_k(i, j)`, the ensemble's score of the two sentences.

    A teacher sees the raw text with its own tokenizer, prompt and length. Models given as objects are left as they
    were found (training mode, maximum length, dtype), so the student itself may be one of its teachers; only
    ``device`` and :meth:`to` move them.

    Args:
        teachers: One teacher or several: :class:`Teacher`, ``SentenceTransformer``, ``CrossEncoder``, names or paths.
        batch_size: How many sentences a teacher encodes at once.
        device: Where the teachers run. By default names load where sentence-transformers puts them (a GPU if there is
            one, its own one for each process of a launcher) and models given as objects stay where they are.
        dtype: Dtype of the weights of teachers that are loaded from a name or path; float32 by default whatever the
            checkpoint's. Models given as objects keep theirs. Scores are float32 in any case.

    Raises:
        ValueError: If there are no teachers, or if all weights are 0.
        TypeError: If a teacher is something else than named above.

    Example:
        ::

            from rankcse_st import Teacher, TeacherEnsemble

            teachers = TeacherEnsemble([
                Teacher("sentence-transformers/all-mpnet-base-v2", weight=2.0),
                Teacher("sentence-transformers/all-MiniLM-L6-v2", weight=1.0, max_seq_length=128),
            ])
            vectors = teachers.encode(["A cat sleeps.", "A dog runs.", "It rains."])  # (3, 768 + 384)
            scores = vectors @ vectors.T  # (3, 3)
    """

    # A plain class on purpose: inside a loss, an nn.Module would be trained, saved and moved with the student, and the
    # trainer replaces every child module called "model" by the student.

    def __init__(
        self,
        teachers: TeacherLike | Sequence[TeacherLike],
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.teachers = tuple(as_teachers(teachers))
        total = sum(float(teacher.weight) for teacher in self.teachers)
        if total == 0:
            raise ValueError(f"The weights of all {len(self.teachers)} teachers are 0: give one of them a weight.")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1, but got {batch_size!r}.")
        if dtype is not None and dtype not in FLOAT_DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, FLOAT_DTYPES))}, but got {dtype!r}.")
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        #: The weights of all teachers, summing to 1; ``weights`` is the same as a float32 tensor.
        self.relative_weights = [float(teacher.weight) / total for teacher in self.teachers]
        self.weights = torch.tensor(self.relative_weights, dtype=torch.float32)
        #: Standard deviation of the scores of each active teacher, where the weights were calibrated by it.
        self.spreads: dict[int, float] | None = None
        loaded: dict[str, Any] = {}  # Shared by teachers that differ in prompt or length only.
        self.readers = [
            TeacherReader(teacher, batch_size=batch_size, device=device, dtype=dtype, loaded=loaded)
            for teacher in self.teachers
        ]

    @classmethod
    def of(cls, teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike], **kwargs: Any) -> TeacherEnsemble:
        """Make an ensemble of ``teachers``; one that exists is returned as it is (``kwargs`` are for a new one)."""
        return teachers if isinstance(teachers, TeacherEnsemble) else cls(teachers, **kwargs)

    @property
    def active(self) -> list[int]:
        """Positions of the teachers whose weight is not 0: the others are never loaded nor run."""
        return [k for k, weight in enumerate(self.relative_weights) if weight > 0]

    @property
    def is_bi_encoder(self) -> bool:
        """Whether every active teacher gives embeddings; a cross-encoder only scores pairs."""
        return not any(self.readers[k].is_cross_encoder for k in self.active)

    @property
    def dimensions(self) -> list[int]:
        """Embedding dimension of each active teacher."""
        return [self.readers[k].dimension for k in self.active]

    @property
    def dimension(self) -> int:
        """Width of the score vectors: the sum of the active teachers' embedding dimensions."""
        return sum(self.dimensions)

    @property
    def fingerprint(self) -> str | None:
        """Identity of the scores: the same for the same teachers, options and weights in every process.

        None if an active teacher cannot be identified, because its weights are out of reach (ONNX, OpenVINO).
        """
        return self.fingerprint_of(self.describe())

    @staticmethod
    def fingerprint_of(described: Sequence[dict[str, Any]]) -> str | None:
        """:attr:`fingerprint` from what :meth:`describe` gave, without reading all the weights again."""
        parts = [[one["fingerprint"], one["weight"]] for one in described if one["weight"] > 0]
        return None if any(fingerprint is None for fingerprint, _ in parts) else hash_json(parts)

    def describe(self) -> list[dict[str, Any]]:
        """What makes the scores, one JSON-able dictionary for each teacher; loads the teachers of weight above 0."""
        described = []
        for k, teacher in enumerate(self.teachers):
            weight = self.relative_weights[k]
            record: dict[str, Any] = self.readers[k].describe() if weight > 0 else {"model": teacher.name}
            record["weight"] = weight
            if self.spreads is not None and k in self.spreads:
                record["calibrated_by_spread"] = self.spreads[k]
            described.append(record)
        return described

    def encode(self, sentences: Sequence[str], *, column: str | None = None, show_progress_bar: bool = False) -> Tensor:
        """Score vectors of ``sentences``.

        Args:
            sentences: n strings, none of them blank. A sentence that occurs several times is encoded once.
            column: Name of the column they come from, for teachers whose prompts differ by column.
            show_progress_bar: Whether to show one bar for each teacher.

        Returns:
            ``(n, dimension)`` float32 on the CPU, each row of length 1; row i times row j is their score.

        Raises:
            TypeError: If some sentences are not strings, or if an active teacher is a cross-encoder.
            ValueError: If some sentences are blank, or if a teacher returns NaN, infinity or a zero vector.
        """
        return self.combine(self.encode_each(sentences, column=column, show_progress_bar=show_progress_bar))

    def encode_each(
        self, sentences: Sequence[str], *, column: str | None = None, show_progress_bar: bool = False
    ) -> list[Tensor]:
        """Unit embeddings of ``sentences`` by each active teacher, ``(n, dimensions[k])`` float32 on the CPU."""
        texts = check_texts(sentences)
        position = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        readers = [self.readers[k] for k in self.active]
        each = [
            reader.embed(list(position), prompt=reader.prompt(column), show_progress_bar=show_progress_bar)
            for reader in readers
        ]
        if len(position) == len(texts):
            return each
        rows = torch.tensor([position[text] for text in texts])
        return [embeddings[rows] for embeddings in each]

    def combine(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Score vectors ``(n, dimension)`` from each active teacher's unit embeddings ``(n, dimensions[k])``."""
        scales = [math.sqrt(self.relative_weights[k]) for k in self.active]
        return torch.cat([scale * unit for scale, unit in zip(scales, embeddings, strict=True)], dim=1)

    def score_lists(
        self,
        anchors: Sequence[str],
        candidates: Sequence[Sequence[str | None]],
        *,
        anchor_column: str | None = None,
        candidate_columns: Sequence[str | None] | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """Scores of each anchor's own candidates; cross-encoders may take part.

        A cross-encoder's score is what its ``predict`` returns (with its own activation function), a bi-encoder's the
        cosine; the ensemble's is their weighted mean, so mind their scales (:meth:`with_spreads`).

        Args:
            anchors: n strings.
            candidates: For each anchor its K candidates; None and ``""`` are missing ones.
            anchor_column: Name of the anchors' column, for prompts by column.
            candidate_columns: Names of the candidates' K columns, for prompts by column.
            show_progress_bar: Whether to show one bar for each teacher.

        Returns:
            ``(n, K)`` float32 on the CPU, NaN where the candidate is missing.

        Raises:
            TypeError: If some texts are not strings.
            ValueError: If anchors or candidates are blank, if their numbers do not fit together, or if a teacher
                returns NaN or infinity.
        """
        lists = CandidateLists(anchors, candidates, anchor_column, candidate_columns)
        return self.combine_lists(
            [lists.score(self.readers[k], show_progress_bar=show_progress_bar) for k in self.active]
        )

    def combine_lists(self, scores: Sequence[Tensor]) -> Tensor:
        """The ensemble's ``(n, K)`` scores from each active teacher's."""
        weights = [self.relative_weights[k] for k in self.active]
        return torch.stack([weight * one.double() for weight, one in zip(weights, scores, strict=True)]).sum(0).float()

    def with_weights(self, weights: Sequence[float]) -> TeacherEnsemble:
        """The same teachers, with what is loaded of them, at other weights.

        Raises:
            ValueError: If there is not one weight for each teacher, or as for :class:`Teacher`.
        """
        if len(weights) != len(self.teachers):
            raise ValueError(f"There are {len(self.teachers)} teachers, but {len(weights)} weights.")
        other = type(self)(
            [replace(teacher, weight=float(weight)) for teacher, weight in zip(self.teachers, weights, strict=True)],
            batch_size=self.batch_size,
            device=self.device,
            dtype=self.dtype,
        )
        other.readers = self.readers
        return other

    def with_spreads(self, spreads: Sequence[float]) -> TeacherEnsemble:
        """The same teachers on one scale: the weight of each active one divided by the spread given for it."""
        if len(spreads) != len(self.active):
            raise ValueError(f"There are {len(self.active)} teachers of weight above 0, but {len(spreads)} spreads.")
        weights = calibrated_weights(
            [self.relative_weights[k] for k in self.active], spreads, [self.teachers[k].name for k in self.active]
        )
        everyone = [0.0] * len(self.teachers)
        for k, weight in zip(self.active, weights, strict=True):
            everyone[k] = weight
        calibrated = self.with_weights(everyone)
        calibrated.spreads = dict(zip(self.active, spreads, strict=True))
        return calibrated

    def calibrate(self, sentences: Sequence[str], *, sample_size: int = 1000, seed: int = 0) -> TeacherEnsemble:
        """The same teachers on one scale: each weight divided by the spread of its teacher's scores, summing to 1.

        The spread is the standard deviation of the scores of different sentences of a random sample. It is kept with
        the record (:meth:`describe`). Because the weights sum to 1 again, the spread of the ensemble's scores is
        another one afterwards, which acts like another teacher temperature.

        Args:
            sentences: Sentences like those to be ranked, at least 3 different ones.
            sample_size: How many of them are encoded.
            seed: Seed of the sample.

        Returns:
            A new ensemble, which shares the loaded models with this one.
        """
        texts = list(dict.fromkeys(check_texts(sentences)))
        if len(texts) < 3:
            raise ValueError(f"Calibration needs at least 3 different sentences, but got {len(texts)}.")
        chosen = np.random.default_rng(seed).permutation(len(texts))[:sample_size]
        each = self.encode_each([texts[row] for row in chosen])
        return self.with_spreads([spread_of_similarities(embeddings) for embeddings in each])

    def to(self, device: str | torch.device) -> TeacherEnsemble:
        """Move the teachers to ``device``, models given as objects too, and load the others there; returns itself."""
        self.device = device
        for k in self.active:
            self.readers[k].to(device)
        return self
