"""From texts to labels, a shard at a time: each teacher's answers are looked up or computed, then combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetInfo, Features
from datasets.table import ConcatenationTable, InMemoryTable, MemoryMappedTable
from tqdm.auto import tqdm

from rankcse_st.calibration import spread_of_lists, spread_of_similarities
from rankcse_st.fingerprints import hash_json
from rankcse_st.lists import CandidateLists
from rankcse_st.scores.arrays import ArrowFolder, label_table, text_table, to_numpy
from rankcse_st.scores.layout import Layout, to_tensor
from rankcse_st.scores.processes import rank_and_world_size, wait_for_files
from rankcse_st.scores.sources import Shard, TextSource
from rankcse_st.teachers import TeacherEnsemble

# Batches between two steps of the progress bar: so many that a teacher's encode costs little beside its batches.
_BATCHES_AT_ONCE = 32

# Folders of what is kept.
_TEXTS, _TEACHERS, _ENSEMBLES = "texts", "teachers", "ensembles"


class Scorer:
    """Scores shards of texts with an ensemble.

    Args:
        ensemble: The teachers.
        layout: What to make of their answers.
        folder: Where to keep each teacher's answers and the labels; without one, nothing is kept.
        show_progress_bar: Whether to show one.
    """

    def __init__(
        self,
        ensemble: TeacherEnsemble,
        layout: Layout,
        folder: ArrowFolder | None = None,
        show_progress_bar: bool = False,
    ) -> None:
        self.ensemble = ensemble
        self.layout = layout
        self.folder = folder
        self.show_progress_bar = show_progress_bar
        # What each teacher reads, by the name that its answers are kept under: columns with one prompt are one reading.
        self._readings = {k: self._readings_of(k) for k in ensemble.active}
        self._bar: Any = None

    def dataset(self, source: TextSource, shard_size: int) -> Dataset:
        """All rows of ``source`` with their labels, on disk and memory-mapped if there is a folder."""
        bar = self._progress(source)
        with bar if bar is not None else nullcontext():
            self._bar = bar
            table = self._in_memory(source, shard_size) if self.folder is None else self._on_disk(source, shard_size)
        # Without the metadata of its blocks, which describe some of the columns only.
        features = Features.from_arrow_schema(table.schema.remove_metadata())
        return Dataset(table, info=DatasetInfo(features=features))

    def spreads(self, shard: Shard) -> list[float]:
        """Standard deviation of each active teacher's scores on ``shard``, whose answers are kept too."""
        measured = []
        for k in self.ensemble.active:
            answers = to_tensor(self._answers(k, shard))
            lists = self.layout.form == "lists"
            measured.append(spread_of_lists(answers) if lists else spread_of_similarities(answers.flatten(0, 1)))
        return measured

    def _in_memory(self, source: TextSource, shard_size: int) -> pa.Table:
        blocks = []
        for shard in source.shards(shard_size):
            labels = self.layout.combine(self.ensemble, [self._answers(k, shard) for k in self.ensemble.active])
            texts = text_table(shard.columns, self.layout.text_features)
            labelled = label_table(labels, self.layout.label_features(labels.shape[1:]))
            blocks.append([InMemoryTable(texts), InMemoryTable(labelled)])
        return ConcatenationTable.from_blocks(blocks)

    def _on_disk(self, source: TextSource, shard_size: int) -> pa.Table:
        assert self.folder is not None
        self.folder.clean()
        rank, world_size = rank_and_world_size()
        files: list[tuple[Path, Path]] = []
        for number, shard in enumerate(source.shards(shard_size)):
            texts_key, labels_key = self._keys(shard)
            files.append((self.folder.file(*texts_key), self.folder.file(*labels_key)))
            if number % world_size != rank:
                continue
            if self.folder.read(*texts_key, rows=len(shard)) is None:
                self.folder.write(text_table(shard.columns, self.layout.text_features), *texts_key)
            if self.folder.read(*labels_key, rows=len(shard)) is None:
                # One teacher's answers to one column are the labels themselves, and are kept under its own name.
                answers = [self._answers(k, shard) for k in self.ensemble.active]
                if labels_key[0] != _TEACHERS:
                    labels = self.layout.combine(self.ensemble, answers)
                    table = label_table(labels, self.layout.label_features(labels.shape[1:]))
                    self.folder.write(table, *labels_key)
            else:
                self._advance(len(shard) * len(self.layout.read_columns) * len(self._readings))
        wait_for_files([file for pair in files for file in pair])
        return ConcatenationTable.from_blocks(
            [[MemoryMappedTable.from_file(str(file)) for file in pair] for pair in files]
        )

    def _answers(self, index: int, shard: Shard) -> np.ndarray:
        """One teacher's ``(n, C, d)`` unit embeddings of a shard, or its ``(n, K)`` scores of lists."""
        if self.layout.form == "lists":
            (name,) = self._readings[index]
            return self._kept(name, shard, self.layout.columns, partial(self._score_lists, index, shard))
        parts: dict[str, np.ndarray] = {}  # Of one column each, (n, d).
        for name, columns in self._readings[index].items():
            embeddings = self._kept(name, shard, columns, partial(self._encode, index, shard, columns))
            parts |= dict(zip(columns, np.split(embeddings, len(columns)), strict=True))
        if len(parts) == 1:
            return next(iter(parts.values()))[:, None]
        return np.stack([parts[column] for column in self.layout.read_columns], axis=1)

    def _kept(self, name: str, shard: Shard, columns: Sequence[str], compute: Callable[[], np.ndarray]) -> np.ndarray:
        if self.folder is None:
            return compute()
        key = (_TEACHERS, name, shard.key(columns))
        # Lists have one row of scores; embeddings of several columns follow each other.
        rows = len(shard) * (1 if self.layout.form == "lists" else len(columns))
        table = self.folder.read(*key, rows=rows)
        if table is not None:
            self._advance(len(shard) * len(columns))
            return to_numpy(table["label"])
        answers = compute()
        self.folder.write(label_table(answers, self.layout.label_features(answers.shape[1:])), *key)
        return answers

    def _encode(self, index: int, shard: Shard, columns: Sequence[str]) -> np.ndarray:
        texts = [text for column in columns for text in shard[column]]
        reader = self.ensemble.readers[index]
        prompt = reader.prompt(columns[0])
        unique = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        # Longest first over the whole shard, so that a batch holds texts of one length although it comes in pieces.
        order = sorted(unique, key=len, reverse=True)
        step = _BATCHES_AT_ONCE * self.ensemble.batch_size
        embeddings: np.ndarray | None = None
        for start in range(0, len(order), step):
            piece = order[start : start + step]
            encoded = reader.embed(piece, prompt=prompt).numpy()
            if embeddings is None:
                embeddings = np.empty((len(unique), encoded.shape[1]), dtype=self.layout.dtype)
            embeddings[[unique[text] for text in piece]] = encoded
            self._advance(len(piece))
        assert embeddings is not None
        self._advance(len(texts) - len(unique))
        return embeddings if len(unique) == len(texts) else embeddings[[unique[text] for text in texts]]

    def _score_lists(self, index: int, shard: Shard) -> np.ndarray:
        anchor, *candidates = self.layout.columns
        rows = list(zip(*(shard[column] for column in candidates), strict=True))
        lists = CandidateLists(shard[anchor], rows, anchor, candidates)
        scores = lists.score(self.ensemble.readers[index], show_progress_bar=self.show_progress_bar)
        return scores.numpy()

    def _readings_of(self, index: int) -> dict[str, list[str]]:
        reader = self.ensemble.readers[index]
        if self.layout.form == "lists":
            if self.folder is None:
                return {"": list(self.layout.columns)}
            # With prompts by column, the names of the columns are part of what is read.
            reading = [reader.fingerprint(), len(self.layout.columns)]
            if not isinstance(reader.teacher.prompt, (str, type(None))):
                reading.append(self.layout.columns)
            return {f"lists-{hash_json(reading)}": list(self.layout.columns)}
        readings: dict[str, list[str]] = {}
        for column in self.layout.read_columns:
            readings.setdefault(reader.prompt(column), []).append(column)
        if self.folder is None:
            return readings
        return {f"{reader.fingerprint(columns[0])}-{self.layout.dtype}": columns for columns in readings.values()}

    def _keys(self, shard: Shard) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Where the texts of a shard and their labels are kept."""
        everything = hash_json([self.layout.columns, shard.key(self.layout.columns)])
        lists, active = self.layout.form == "lists", self.ensemble.active
        if len(active) == 1 and (lists or len(self.layout.read_columns) == 1):
            (name,) = self._readings[active[0]]
            read = self.layout.columns if lists else self.layout.read_columns
            return (_TEXTS, everything), (_TEACHERS, name, shard.key(read))
        parts = [[self._readings[k], self.ensemble.relative_weights[k]] for k in active]
        return (_TEXTS, everything), (_ENSEMBLES, hash_json([parts, self.layout.shared]), everything)

    def _progress(self, source: TextSource) -> Any:
        if not self.show_progress_bar or self.layout.form == "lists":
            return None
        passes = len(self.layout.read_columns) * len(self._readings)
        total = None if source.length is None else source.length * passes
        return tqdm(desc="Scoring", unit=" texts", total=total)

    def _advance(self, texts: int) -> None:
        if self._bar is not None:
            self._bar.update(texts)
