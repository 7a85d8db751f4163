"""Teachers: any number of models, each with its own tokenizer, length, prompt and weight, read as one set of scores."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from rankcse_st.calibration import calibrated_weights, spread_of_similarities
from rankcse_st.checkpoints import FLOAT_DTYPES, as_teacher, load_cls_teacher, load_teacher_model
from rankcse_st.fingerprints import fingerprint_model, hash_json
from rankcse_st.lists import score_lists_each
from rankcse_st.texts import check_texts

__all__ = ["Teacher", "TeacherEnsemble", "TeacherLike", "load_cls_teacher"]


@dataclass(frozen=True)
class Teacher:
    """One teacher and how it is read.

    Args:
        model: A ``SentenceTransformer``, a path or a name to load one from, or, for lists of candidates only, a
            ``CrossEncoder``. A name or path is loaded when first needed, in float32.
        weight: How much its scores count, relative to the other teachers' weights. A teacher of weight 0 is never run.
        prompt: Text put before every sentence: one for all columns, or one for each column by its name, for example
            ``{"query": "query: ", "document": "passage: "}``. By default, and for a column that is not named, the
            prompt that the model applies by itself (its ``default_prompt_name``), as ``model.encode`` does; ``""``
            is no prompt at all. It replaces the model's own prompt, it is never added to it.
        max_seq_length: Length in this teacher's tokens after which a sentence is cut; by default the model's own.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``weight`` is negative or not finite, or ``max_seq_length`` is smaller than 1.
    """

    model: str | os.PathLike[str] | SentenceTransformer | CrossEncoder
    weight: float = 1.0
    prompt: str | Mapping[str, str] | None = None
    max_seq_length: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, (str, os.PathLike, SentenceTransformer, CrossEncoder)):
            raise TypeError(
                "A teacher is a SentenceTransformer, a CrossEncoder, a path or a name, but got "
                f"{type(self.model).__name__}."
            )
        if isinstance(self.weight, bool) or not isinstance(self.weight, (int, float, np.number)):
            raise TypeError(f"A teacher's weight must be a number, but got {self.weight!r}.")
        if not math.isfinite(self.weight) or self.weight < 0:
            raise ValueError(f"A teacher's weight must be finite and not negative, but got {self.weight!r}.")
        prompts = self.prompt.values() if isinstance(self.prompt, Mapping) else [self.prompt]
        if not all(prompt is None or isinstance(prompt, str) for prompt in prompts):
            raise TypeError(
                f"A teacher's prompt must be a string, or map column names to strings, but got {self.prompt!r}."
            )
        if self.max_seq_length is not None:
            if isinstance(self.max_seq_length, bool) or not isinstance(self.max_seq_length, int):
                raise TypeError(f"max_seq_length must be an integer, but got {self.max_seq_length!r}.")
            if self.max_seq_length < 1:
                raise ValueError(f"max_seq_length must be at least 1, but got {self.max_seq_length}.")

    @property
    def name(self) -> str:
        """What to call it in messages and records: its name or path, or that of the model it was made from."""
        if isinstance(self.model, (str, os.PathLike)):
            return os.fspath(self.model)
        loaded_from = getattr(self.model.config, "name_or_path", None) or getattr(self.model[0], "base_model", None)
        return str(loaded_from) if loaded_from else type(self.model).__name__


TeacherLike: TypeAlias = str | os.PathLike[str] | SentenceTransformer | CrossEncoder | Teacher


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
            one) and models given as objects stay where they are.
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
        given = [teachers] if isinstance(teachers, (str, os.PathLike, Teacher, torch.nn.Module)) else list(teachers)
        if not given:
            raise ValueError("At least one teacher is needed, but the list of teachers is empty.")
        self.teachers = tuple(one if isinstance(one, Teacher) else Teacher(one) for one in given)
        total = sum(teacher.weight for teacher in self.teachers)
        if total == 0:
            raise ValueError(f"The weights of all {len(self.teachers)} teachers are 0: give one of them a weight.")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1, but got {batch_size!r}.")
        if dtype is not None and dtype not in FLOAT_DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, FLOAT_DTYPES))}, but got {dtype!r}.")
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        #: The weights of all teachers, summing to 1, exactly; ``weights`` holds them in float32.
        self.relative_weights = [float(teacher.weight) / total for teacher in self.teachers]
        self.weights = torch.tensor(self.relative_weights, dtype=torch.float32)
        # Standard deviation of the scores of each active teacher, where the weights were calibrated.
        self.spreads: dict[int, float] | None = None
        # Names and paths that are loaded, shared by teachers that differ in prompt or length only.
        self._loaded: dict[str, SentenceTransformer | CrossEncoder] = {}
        self._fingerprints: dict[str, str] = {}
        self._checked: set[int] = set()

    @classmethod
    def of(cls, teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike], **kwargs: Any) -> TeacherEnsemble:
        """Make an ensemble of ``teachers``; one that exists is returned as it is (``kwargs`` are for a new one)."""
        return teachers if isinstance(teachers, TeacherEnsemble) else cls(teachers, **kwargs)

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
        other._loaded, other._fingerprints, other._checked = self._loaded, self._fingerprints, self._checked
        return other

    @property
    def active(self) -> list[int]:
        """Positions of the teachers whose weight is not 0: the others are never loaded nor run."""
        return [k for k, teacher in enumerate(self.teachers) if teacher.weight > 0]

    @property
    def is_bi_encoder(self) -> bool:
        """Whether every active teacher gives embeddings; a cross-encoder only scores pairs."""
        return all(isinstance(self.load(k), SentenceTransformer) for k in self.active)

    @property
    def dimension(self) -> int:
        """Width of the score vectors: the sum of the active teachers' embedding dimensions."""
        return sum(self.dimensions)

    @property
    def dimensions(self) -> list[int]:
        """Embedding dimension of each active teacher."""
        dimensions = []
        for k in self.active:
            dimension = self._bi_encoder(k).get_embedding_dimension()
            dimensions.append(dimension if dimension is not None else self._embed(k, ["text"], None, False).shape[1])
        return dimensions

    @property
    def fingerprint(self) -> str:
        """Identity of the scores: the same for the same teachers, options and weights in every process."""
        return hash_json([[self.teacher_fingerprint(k), self.relative_weights[k]] for k in self.active])

    def teacher_fingerprint(self, index: int, column: str | None = None) -> str:
        """Identity of one teacher's embeddings of one column, whatever its weight (see :mod:`rankcse_st.fingerprints`).

        Computing it reads all the weights. For a model that this ensemble loaded it is remembered; for a model given
        as an object, which may be trained meanwhile, it is computed anew.
        """
        teacher, model = self.teachers[index], self.load(index)
        if isinstance(teacher.model, (str, os.PathLike)):
            key = os.fspath(teacher.model)
            if key not in self._fingerprints:
                self._fingerprints[key] = fingerprint_model(model)
            weights = self._fingerprints[key]
        else:
            weights = fingerprint_model(model)
        length = teacher.max_seq_length or model.max_seq_length
        length = None if length is None or math.isinf(length) else length
        per_column = isinstance(teacher.prompt, Mapping) and column is None
        prompt = dict(teacher.prompt) if per_column else self.prompt(index, column)  # type: ignore[arg-type]
        return hash_json({"model": weights, "prompt": prompt or None, "max_seq_length": length})

    def describe(self) -> list[dict[str, Any]]:
        """What makes the scores, one JSON-able dictionary for each teacher; loads the teachers of weight above 0."""
        described = []
        for k, teacher in enumerate(self.teachers):
            record: dict[str, Any] = {"model": teacher.name, "weight": self.relative_weights[k]}
            if teacher.weight > 0:
                model = self.load(k)
                length = teacher.max_seq_length or model.max_seq_length
                per_column = isinstance(teacher.prompt, Mapping)
                record |= {
                    "kind": type(model).__name__,
                    "revision": getattr(model.config, "_commit_hash", None),
                    "dtype": str(model.dtype).removeprefix("torch."),
                    "prompt": dict(teacher.prompt) if per_column else self.prompt(k, None),  # type: ignore[arg-type]
                    "max_seq_length": None if length is None or math.isinf(length) else length,
                    "pooling": [module.pooling_mode for module in model if isinstance(module, Pooling)],
                    "fingerprint": self.teacher_fingerprint(k),
                }
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
        unique = list(dict.fromkeys(texts))
        each = [self.encode_one(k, unique, column=column, show_progress_bar=show_progress_bar) for k in self.active]
        if len(unique) == len(texts):
            return each
        position = {text: row for row, text in enumerate(unique)}
        rows = torch.tensor([position[text] for text in texts])
        return [embeddings[rows] for embeddings in each]

    def encode_one(
        self, index: int, sentences: Sequence[str], *, column: str | None = None, show_progress_bar: bool = False
    ) -> Tensor:
        """Unit embeddings of ``sentences``, taken as they are, by teacher ``index``: float32 on the CPU."""
        raw = self._embed(index, list(sentences), column, show_progress_bar)
        lengths = raw.norm(dim=1)
        bad = (~torch.isfinite(lengths) | (lengths == 0)).nonzero().flatten()
        if len(bad):
            row = int(bad[0])
            kind = "a zero vector" if lengths[row] == 0 else "NaN or infinite values"
            raise ValueError(
                f"Teacher {self.teachers[index].name!r} returned {kind} for {len(bad)} of {len(sentences)} sentences, "
                f"the first of them {sentences[row]!r}. If its weights are half precision, load them in float32."
            )
        return raw.div_(lengths[:, None])

    def combine(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Score vectors ``(n, dimension)`` from each active teacher's unit embeddings ``(n, dimensions[k])``."""
        return torch.cat(
            [math.sqrt(self.relative_weights[k]) * unit for k, unit in zip(self.active, embeddings, strict=True)], dim=1
        )

    def score_lists(
        self,
        anchors: Sequence[str],
        candidates: Sequence[Sequence[str | None]],
        *,
        anchor_column: str | None = None,
        candidate_columns: Sequence[str] | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """Scores of each anchor's own candidates; cross-encoders may take part.

        A cross-encoder's score is what its ``predict`` returns (with its own activation function), a bi-encoder's the
        cosine; the ensemble's is their weighted mean, so mind their scales (:meth:`calibrate`).

        Args:
            anchors: n strings.
            candidates: For each anchor its K candidates; None and ``""`` are missing ones.
            anchor_column: Name of the anchors' column, for prompts by column.
            candidate_columns: Names of the candidates' K columns, for prompts by column.
            show_progress_bar: Whether to show one bar for each teacher.

        Returns:
            ``(n, K)`` float32 on the CPU, NaN where the candidate is missing.
        """
        each = score_lists_each(self, anchors, candidates, anchor_column, candidate_columns, show_progress_bar)
        return self.combine_lists(each)

    def combine_lists(self, scores: Sequence[Tensor]) -> Tensor:
        """The ensemble's ``(n, K)`` scores from each active teacher's."""
        weighted = [self.relative_weights[k] * one.double() for k, one in zip(self.active, scores, strict=True)]
        return torch.stack(weighted).sum(dim=0).float()

    def calibrate(self, sentences: Sequence[str], *, sample_size: int = 1000, seed: int = 0) -> TeacherEnsemble:
        """The same teachers on one scale: each weight divided by the spread of its teacher's scores, then summing to 1.

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

    def with_spreads(self, spreads: Sequence[float]) -> TeacherEnsemble:
        """The same teachers, the weight of each active one divided by the spread given for it."""
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

    def to(self, device: str | torch.device) -> TeacherEnsemble:
        """Move the teachers to ``device``, models given as objects too, and load the others there; returns itself."""
        self.device = device
        for teacher in self.teachers:
            if teacher.weight > 0 and not isinstance(teacher.model, (str, os.PathLike)):
                teacher.model.to(torch.device(device))
        for model in self._loaded.values():
            model.to(torch.device(device))
        return self

    def load(self, index: int) -> SentenceTransformer | CrossEncoder:
        """The model of teacher ``index``, loaded if it was not."""
        teacher = self.teachers[index]
        if isinstance(teacher.model, (str, os.PathLike)):
            name = os.fspath(teacher.model)
            if name not in self._loaded:
                self._loaded[name] = load_teacher_model(name, device=self.device, dtype=self.dtype or torch.float32)
            model = self._loaded[name]
        else:
            model = teacher.model
            if self.device is not None and index not in self._checked:
                model.to(torch.device(self.device))
        if index not in self._checked:
            self._check_options(teacher, model)
            self._checked.add(index)
        return model

    def prompt(self, index: int, column: str | None) -> str:
        """The text that teacher ``index`` puts before every sentence of ``column``, ``""`` for none."""
        teacher = self.teachers[index]
        prompt = teacher.prompt
        if isinstance(prompt, Mapping):
            if column is None:
                raise ValueError(
                    f"Teacher {teacher.name!r} has a prompt for each of the columns {sorted(prompt)}, but the column "
                    "that these sentences come from is not known here: give it one prompt, or name the column."
                )
            prompt = prompt.get(column)
        if prompt is None:
            model = self.load(index)
            prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
        return prompt or ""

    def _bi_encoder(self, index: int) -> SentenceTransformer:
        model = self.load(index)
        if not isinstance(model, SentenceTransformer):
            raise TypeError(
                f"Teacher {self.teachers[index].name!r} is a cross-encoder: it scores pairs and has no embeddings, so "
                "it can teach only lists of an anchor and its candidates. Score those with "
                'TeacherScoreDataset.from_dataset(..., scores="lists").'
            )
        return model

    def _embed(self, index: int, texts: list[str], column: str | None, show_progress_bar: bool) -> Tensor:
        model, prompt = self._bi_encoder(index), self.prompt(index, column)
        if texts and prompt.strip() and all(text.startswith(prompt.strip()) for text in texts):
            warnings.warn(
                f"Teacher {self.teachers[index].name!r} puts the prompt {prompt!r} before every sentence, but every "
                'sentence begins with it already: it is there twice. Remove it from the texts or give prompt="".',
                UserWarning,
                stacklevel=2,
            )
        with as_teacher(model, self.teachers[index].max_seq_length):
            # NumPy out: what leaves encode otherwise are inference tensors, which autograd refuses to save.
            embeddings = model.encode(
                texts, prompt=prompt, batch_size=self.batch_size, show_progress_bar=show_progress_bar
            )
        return torch.from_numpy(np.asarray(embeddings)).float()

    @staticmethod
    def _check_options(teacher: Teacher, model: SentenceTransformer | CrossEncoder) -> None:
        """What can be said about a teacher's options only when its model is at hand."""
        if isinstance(model, CrossEncoder) and model.num_labels != 1:
            raise ValueError(
                f"Teacher {teacher.name!r} gives {model.num_labels} numbers for a pair: a cross-encoder must give one."
            )
        if teacher.max_seq_length is not None:
            longest = getattr(model.config, "max_position_embeddings", None)
            if model.max_seq_length is None or math.isinf(model.max_seq_length):
                raise ValueError(f"Teacher {teacher.name!r} reads any length: it takes no max_seq_length.")
            if isinstance(longest, int) and 0 < longest < teacher.max_seq_length:
                raise ValueError(
                    f"max_seq_length={teacher.max_seq_length} is longer than the {longest} positions that teacher "
                    f"{teacher.name!r} has."
                )
        named = {name: text for name, text in (model.prompts or {}).items() if text}
        if isinstance(teacher.prompt, str) and named.get(teacher.prompt, teacher.prompt) != teacher.prompt:
            raise ValueError(
                f"prompt={teacher.prompt!r} is the name of a prompt of teacher {teacher.name!r}, but the text itself "
                f"is expected: prompt={named[teacher.prompt]!r}."
            )
        if teacher.prompt is None and named and not model.default_prompt_name:
            warnings.warn(
                f"Teacher {teacher.name!r} comes with the prompts {named}, none of which it applies by itself. Choose "
                'one with Teacher(..., prompt=...), or say that you want none with prompt="".',
                UserWarning,
                stacklevel=3,
            )
