"""Live teachers: scoring each batch as it comes, from its raw text, each sentence once."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from rankcse_st.collator import COLUMN_KEY, TEXT_KEY
from rankcse_st.student import unwrap
from rankcse_st.teachers import TeacherEnsemble, TeacherLike
from rankcse_st.views import Features

logger = logging.getLogger(__name__)


class LiveTeachers:
    """Score vectors of the sentences of a batch, kept for the batches and epochs to come.

    A plain class, and the teachers in it are in plain attributes: nothing that walks a loss's modules can meet them.

    Args:
        teachers: As :class:`~rankcse_st.teachers.TeacherEnsemble` takes them, or one.
        cache_size: How many sentences' vectors are kept, the least recently used leaving first; 0 keeps none.
    """

    def __init__(self, teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike], *, cache_size: int) -> None:
        if cache_size < 0:
            raise ValueError(f"teacher_cache_size must be at least 0, got {cache_size}.")
        self.ensemble = TeacherEnsemble.of(teachers)
        self.cache_size = cache_size
        self._cache: OrderedDict[tuple[str | None, str], Tensor] = OrderedDict()
        self._prompts_differ = any(isinstance(teacher.prompt, Mapping) for teacher in self.ensemble.teachers)
        self._said_what_is_lost = False

    def __call__(self, model: nn.Module, columns: list[Features], *, explicit: bool = False) -> Tensor:
        """The labels of a batch.

        Args:
            model: The student, for the device, and for the tokenizer where the text has to be decoded.
            columns: The feature dicts of the text columns.
            explicit: The candidates' scores instead of score vectors.

        Returns:
            (B, D) score vectors of one column, (B, C, D) of several, or (B, C − 1) explicit scores; float32.
        """
        student = unwrap(model)
        # A student that is its own teacher changes with every step: what it said before is not remembered.
        cache_size = 0 if any(teacher.model is student for teacher in self.ensemble.teachers) else self.cache_size
        if self.ensemble.device is None:
            self.ensemble.to(student.device)
        texts = [self._texts(student, features) for features in columns]
        names: list[str] = [features.get(COLUMN_KEY) for features in columns]  # type: ignore[misc]
        if explicit:
            rows = list(zip(*texts[1:], strict=True))
            return self.ensemble.score_lists(texts[0], rows, anchor_column=names[0], candidate_columns=names[1:])
        # Columns differ to a teacher only in their prompts: the same text in two columns is usually one text.
        keys = [
            (name if self._prompts_differ else None, text)
            for name, column in zip(names, texts, strict=True)
            for text in column
        ]
        vectors = self._vectors(keys, cache_size)
        if vectors.shape[1] != self.ensemble.dimension:
            raise ValueError(
                f"The teachers' score vectors are {vectors.shape[1]} wide instead of {self.ensemble.dimension}: inside "
                "MatryoshkaLoss the student cannot be its own live teacher. Attach its scores by TeacherScoreDataset."
            )
        return vectors if len(columns) == 1 else torch.stack(vectors.chunk(len(columns)), dim=1)

    @property
    def names(self) -> list[str]:
        """What the teachers are called."""
        return [teacher.name for teacher in self.ensemble.teachers]

    def _vectors(self, keys: list[tuple[str | None, str]], cache_size: int) -> Tensor:
        """Score vectors of texts, each with the column that it is read as, encoding those that are not remembered."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._cache]
        for column in dict.fromkeys(column for column, _ in missing):
            texts = [text for of, text in missing if of == column]
            for text, vector in zip(texts, self.ensemble.encode(texts, column=column), strict=True):
                self._cache[column, text] = vector
        for key in keys:
            self._cache.move_to_end(key)
        vectors = torch.stack([self._cache[key] for key in keys])
        while len(self._cache) > cache_size:
            self._cache.popitem(last=False)
        return vectors

    def _texts(self, student: SentenceTransformer, features: Features) -> list[str]:
        texts = features.get(TEXT_KEY)
        if texts is not None:
            return list(texts)
        ids = features.get("input_ids")
        if not isinstance(ids, Tensor):
            raise ValueError(
                f"Live teachers need the text of the batch, and of the features {sorted(features)} there is no text to "
                "be had. Let the trainer carry it along: trainer.data_collator = TextCollator(trainer.data_collator)."
            )
        if not self._said_what_is_lost:
            self._said_what_is_lost = True
            logger.warning(
                "Live teachers read sentences decoded from the student's token ids: they lose the case and whatever "
                "else the student's tokenizer drops, and all text beyond its max_seq_length of %s; a prompt of the "
                "student's is given to them as a part of the sentence. They see the raw text with "
                "trainer.data_collator = TextCollator(trainer.data_collator), or with scores attached by "
                "TeacherScoreDataset.",
                student.max_seq_length,
            )
        return _decode(student.tokenizer, features)


def _decode(tokenizer: Any, features: Features) -> list[str]:
    """The text of token ids, without special tokens and padding."""
    ids = features["input_ids"]
    if ids.ndim == 2:
        kept = features.get("attention_mask", torch.ones_like(ids)).bool()
        rows = [row[mask].tolist() for row, mask in zip(ids, kept, strict=True)]
    elif "offsets" in features:  # StaticEmbedding: rows laid end to end.
        rows = [row.tolist() for row in ids.tensor_split(features["offsets"].cpu()[1:])]
    else:  # Unpadded flash-attention batches.
        rows = [row.tolist() for row in ids.flatten().tensor_split(features["cu_seq_lens_q"].cpu()[1:-1])]
    if not hasattr(tokenizer, "batch_decode"):  # StaticEmbedding: a tokenizer of the tokenizers library.
        return list(tokenizer.decode_batch(rows, skip_special_tokens=True))
    # The unknown token is special as well, but a sentence of unknown words is not an empty one.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return list(tokenizer.batch_decode([[token for token in row if token not in special] for row in rows]))
