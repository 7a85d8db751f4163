"""Read one teacher: its embeddings of texts, or its scores of pairs, as its options say."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from rankcse_st.checkpoints import as_teacher, load_teacher_model
from rankcse_st.fingerprints import UnidentifiedModelError, fingerprint_model, hash_json


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
        prompts = self.prompt.values() if isinstance(self.prompt, Mapping) else [self.prompt or ""]
        if not all(isinstance(prompt, str) for prompt in prompts):
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
        """What to call it in messages and records: its name or path, or what its model was loaded from."""
        if isinstance(self.model, (str, os.PathLike)):
            return os.fspath(self.model)
        return getattr(self.model.config, "name_or_path", None) or type(self.model).__name__


TeacherLike: TypeAlias = str | os.PathLike[str] | SentenceTransformer | CrossEncoder | Teacher


class TeacherReader:
    """One teacher at work. See :class:`~rankcse_st.TeacherEnsemble` for what it may and may not change in a model.

    Args:
        teacher: The teacher.
        batch_size: How many texts are encoded at once.
        device: Where it runs.
        dtype: Dtype of the weights if the teacher is a name or path.
        loaded: Models already loaded, by name; what this one loads is added.
    """

    def __init__(
        self,
        teacher: Teacher,
        *,
        batch_size: int,
        device: str | torch.device | None,
        dtype: torch.dtype | None,
        loaded: MutableMapping[str, SentenceTransformer | CrossEncoder],
    ) -> None:
        self.teacher = teacher
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self._loaded = loaded
        self._model_fingerprint: str | None = None
        self._is_checked = False

    def load(self) -> SentenceTransformer | CrossEncoder:
        """The model, loaded and its options checked if that is not done yet."""
        given = self.teacher.model
        if isinstance(given, (str, os.PathLike)):
            name = os.fspath(given)
            if name not in self._loaded:
                self._loaded[name] = load_teacher_model(name, device=self.device, dtype=self.dtype or torch.float32)
            model = self._loaded[name]
        else:
            model = given
        if not self._is_checked:
            if self.device is not None and not isinstance(given, (str, os.PathLike)):
                model.to(torch.device(self.device))
            _check_options(self.teacher, model)
            self._is_checked = True
        return model

    def to(self, device: str | torch.device) -> None:
        """Move the model to ``device``, or load it there."""
        self.device = device
        given = self.teacher.model
        model = self._loaded.get(os.fspath(given)) if isinstance(given, (str, os.PathLike)) else given
        if model is not None:
            model.to(torch.device(device))

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs only."""
        return isinstance(self.load(), CrossEncoder)

    @property
    def dimension(self) -> int:
        """Width of the embeddings."""
        dimension: int | None = self._bi_encoder().get_embedding_dimension()
        return dimension if dimension is not None else self.embed(["text"], prompt="").shape[1]

    def prompt(self, column: str | None = None) -> str:
        """The text that is put before every text of ``column``, ``""`` for none."""
        prompt = self.teacher.prompt
        if isinstance(prompt, Mapping):
            if column is None:
                raise ValueError(
                    f"Teacher {self.teacher.name!r} has a prompt for each of the columns {sorted(prompt)}, but the "
                    "column that these texts come from is not known here: give it one prompt, or name the column. In "
                    "training with live teachers, trainer.data_collator = TextCollator(trainer.data_collator) does so."
                )
            prompt = prompt.get(column)
        if prompt is None:
            model = self.load()
            prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
        return prompt or ""

    def embed(self, texts: Sequence[str], *, prompt: str, show_progress_bar: bool = False) -> Tensor:
        """Unit embeddings of ``texts``, which are not checked, ``(n, dimension)`` float32 on the CPU.

        Raises:
            TypeError: If this is a cross-encoder.
            ValueError: If the teacher returns NaN, infinity or a zero vector.
        """
        model = self._bi_encoder()
        if texts and prompt.strip() and all(text.startswith(prompt.strip()) for text in texts):
            warnings.warn(
                f"Teacher {self.teacher.name!r} puts the prompt {prompt!r} before every text, but every text begins "
                'with it already: it is there twice. Remove it from the texts, or give the teacher prompt="".',
                UserWarning,
                stacklevel=2,
            )
        with as_teacher(model, self.teacher.max_seq_length):
            # NumPy out: what leaves encode otherwise are inference tensors, which autograd refuses to save.
            encoded = model.encode(
                list(texts), prompt=prompt, batch_size=self.batch_size, show_progress_bar=show_progress_bar
            )
        embeddings = torch.from_numpy(np.asarray(encoded)).float()
        lengths = embeddings.norm(dim=1)
        self._check_answers(torch.where(lengths == 0, torch.nan, lengths), texts, "NaN, infinity or a zero vector")
        return embeddings.div_(lengths[:, None])

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, prompt: str = "", show_progress_bar: bool = False
    ) -> Tensor:
        """A cross-encoder's scores of pairs, ``(n,)`` float32 on the CPU: what its ``predict`` returns."""
        model = self.load()
        assert isinstance(model, CrossEncoder)
        with as_teacher(model, self.teacher.max_seq_length):
            predicted = model.predict(
                list(pairs), prompt=prompt, batch_size=self.batch_size, show_progress_bar=show_progress_bar
            )
        scores = torch.from_numpy(np.asarray(predicted)).float()
        self._check_answers(scores, pairs, "NaN or infinity")
        return scores

    def fingerprint(self, column: str | None = None) -> str:
        """Identity of its answers on ``column`` (or with all its prompts), see :mod:`rankcse_st.fingerprints`.

        Computing it reads all the weights. For a model loaded here it is remembered; a model given as an object may be
        trained meanwhile, so it is computed anew.

        Raises:
            UnidentifiedModelError: If its weights cannot be read.
        """
        model = self.load()
        if not isinstance(self.teacher.model, (str, os.PathLike)):
            weights = fingerprint_model(model)
        else:
            self._model_fingerprint = self._model_fingerprint or fingerprint_model(model)
            weights = self._model_fingerprint
        return hash_json({"model": weights, "prompt": self._prompts(column), "max_seq_length": self._length()})

    def describe(self) -> dict[str, Any]:
        """What makes its answers, JSON-able; the model is loaded. A model that cannot be identified says so by None."""
        model = self.load()
        try:
            fingerprint: str | None = self.fingerprint()
        except UnidentifiedModelError:
            fingerprint = None
        return {
            "model": self.teacher.name,
            "kind": type(model).__name__,
            # The commit on the Hub, where transformers knows it.
            "revision": getattr(model.config, "_commit_hash", None),
            "dtype": str(model.dtype).removeprefix("torch."),
            "prompt": self._prompts(None),
            "max_seq_length": self._length(),
            "pooling": [module.pooling_mode for module in model if isinstance(module, Pooling)],
            "fingerprint": fingerprint,
        }

    def _prompts(self, column: str | None) -> str | dict[str, str]:
        if column is None and isinstance(self.teacher.prompt, Mapping):
            return dict(self.teacher.prompt)
        return self.prompt(column)

    def _length(self) -> int | None:
        length = self.teacher.max_seq_length or self.load().max_seq_length
        return None if length is None or math.isinf(length) else int(length)

    def _bi_encoder(self) -> SentenceTransformer:
        model = self.load()
        if not isinstance(model, SentenceTransformer):
            raise TypeError(
                f"Teacher {self.teacher.name!r} is a cross-encoder: it scores pairs and has no embeddings, so it can "
                "teach only an anchor and its candidates. Score those with "
                'TeacherScoreDataset.from_dataset(..., scores="lists").'
            )
        return model

    def _check_answers(self, values: Tensor, texts: Sequence[Any], what: str) -> None:
        bad = (~torch.isfinite(values)).nonzero().flatten()
        if len(bad):
            raise ValueError(
                f"Teacher {self.teacher.name!r} returned {what} for {len(bad)} of {len(texts)} texts, the first of "
                f"them {texts[int(bad[0])]!r}. If its weights are half precision, load them in float32."
            )


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
            f"prompt={teacher.prompt!r} is the name of a prompt of teacher {teacher.name!r}, but the text itself is "
            f"expected: prompt={named[teacher.prompt]!r}."
        )
    if teacher.prompt is None and named and not model.default_prompt_name:
        warnings.warn(
            f"Teacher {teacher.name!r} comes with the prompts {named}, none of which it applies by itself. Choose one "
            'with Teacher(..., prompt=...), or say that you want none with prompt="".',
            UserWarning,
            stacklevel=2,
        )
