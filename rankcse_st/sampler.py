"""Batches worth ranking: a batch sampler that puts near neighbours, by the teachers' scores, into the same batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rankcse_st._st import SEEDS_BATCH_SAMPLERS
from rankcse_st.label_vectors import LabelVectors, text_ids
from rankcse_st.neighbours import MAX_DIMENSION, Reducer, Rows, group_neighbours, true_neighbours

__all__ = ["NeighbourBatchSampler", "SetSamplerEpoch"]

_LABEL_COLUMNS = ["label", "labels", "score", "scores"]
_SAMPLE = 8192  # rows that the reduction is fitted on
_LOOK_AHEAD = 64  # groups put off in one batch because the batch has one of their texts already


class NeighbourBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    r"""Batches made of groups of near neighbours by the score vectors in the dataset's label column.

    Among sentences drawn at random nearly all scores are alike, and a list of them teaches little about order. Here
    a batch holds ``batch_size / group_size`` groups, the groups are drawn at random, and the ``group_size`` sentences
    of a group are near neighbours of one another for the teachers. Each epoch forms other groups and another order
    from ``seed`` and the epoch. Every row comes exactly once an epoch; with ``drop_last`` the rows of the last,
    incomplete batch are left out, others in each epoch.

    Give it to the training arguments by :meth:`with_options`; the trainer makes it, for the evaluation dataset too.
    With several datasets each has its own groups.

    Args:
        dataset: Dataset whose label column holds score vectors, ``(D,)`` for each row, or ``(C, D)``: then the first
            text column's are used. Neighbours are those of largest cosine, so the vectors need not be unit vectors.
        batch_size: Rows in a batch.
        drop_last: Whether to leave out the last batch if it is incomplete.
        valid_label_columns: Names that the label column may have; by default those of sentence-transformers.
        generator: Not drawn from: the order depends on the seed and the epoch only, so that it is the same on every
            process and after resuming. Before sentence-transformers 6.2, whose trainer leaves ``seed`` at 0, its seed
            is taken.
        seed: Seed of the order; the trainer gives its own ``seed``.
        group_size: Members of a group, at most ``batch_size``, best a divisor of it: where it is not, the group
            at the border of two batches is shared between them. 1 is plain shuffling and needs no score vectors.
        dimension: Numbers, of one byte each, that a score vector is reduced to for finding neighbours; at most 1024.
        cell_size: The dataset is first cut into cells of about this many rows, other ones in each epoch, and groups are
            formed inside a cell. Time and recall grow with it.
        spread_duplicates: Whether to keep rows with the same text (in the first text column) out of the same batch,
            as far as possible. As negatives they would be wrong, and in a list the same entry twice.

    Raises:
        TypeError: If ``dataset`` is not a ``datasets.Dataset``; one that can only be iterated has no neighbours.
        ValueError: If the label column is missing or does not hold score vectors, at construction or, for NaN and
            infinite values, when they are first read; or if an option is out of its range.

    References:
        - Clusters of equal size: Bradley, Bennett and Demiriz, Constrained K-Means Clustering, 2000
        - Batches of neighbours: Hofstätter et al., Efficiently Teaching an Effective Dense Retriever with Balanced
          Topic Aware Sampling, SIGIR 2021: https://huggingface.co/papers/2104.06967

    Requirements:
        1. A dataset with score vectors, such as :class:`~rankcse_st.TeacherScoreDataset` makes.
        2. Memory of ``dimension + 24`` bytes a row, and about 100 MB.
        3. On several processes, and to resume inside an epoch: :class:`SetSamplerEpoch` among the trainer's callbacks.

    Example:
        ::

            from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
            from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch

            args = SentenceTransformerTrainingArguments(
                output_dir="out",
                per_device_train_batch_size=128,
                batch_sampler=NeighbourBatchSampler.with_options(group_size=32),
            )
            trainer = SentenceTransformerTrainer(model, args, train, loss=loss, callbacks=[SetSamplerEpoch()])
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        group_size: int = 8,
        dimension: int = 128,
        cell_size: int = 16384,
        spread_duplicates: bool = True,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"{type(self).__name__} needs a datasets.Dataset, whose rows it can take in any order, but got "
                f"{type(dataset).__name__}. Write a dataset that can only be iterated to disk and load it again "
                "(Dataset.from_generator), or train without this batch sampler."
            )
        _check_options(batch_size, group_size, dimension, cell_size)
        if not SEEDS_BATCH_SAMPLERS and seed == 0 and generator is not None:
            seed = generator.initial_seed()
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed)
        # Inside its wrappers accelerate looks for set_epoch on the batch sampler's sampler, not on the batch sampler.
        self.sampler = self
        self.dataset = dataset
        self.group_size = group_size
        self.dimension = dimension
        self.cell_size = cell_size
        self.spread_duplicates = spread_duplicates
        columns = list(dataset.column_names)
        label_column = next((name for name in valid_label_columns or _LABEL_COLUMNS if name in columns), None)
        self._text_columns = [name for name in columns if name not in (label_column, "dataset_name")]
        needed = group_size > 1 and len(dataset) > 0
        self._vectors = LabelVectors(dataset, label_column, self._text_columns) if needed else None
        self._ordered: tuple[int, Rows] | None = None

    @classmethod
    def with_options(
        cls, *, group_size: int = 8, dimension: int = 128, cell_size: int = 16384, spread_duplicates: bool = True
    ) -> Callable[..., NeighbourBatchSampler]:
        """What to give as ``batch_sampler`` to the training arguments; see the class for the options."""
        _check_options(None, group_size, dimension, cell_size)
        return partial(
            cls,
            group_size=group_size,
            dimension=dimension,
            cell_size=cell_size,
            spread_duplicates=spread_duplicates,
        )

    def __len__(self) -> int:
        rows, size = len(self.dataset), int(self.batch_size)
        return rows // size if self.drop_last else -(-rows // size)

    def __iter__(self) -> Iterator[list[int]]:
        if self._ordered is None or self._ordered[0] != self.epoch:
            self._ordered = self.epoch, self._order()
        order = self._ordered[1]
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield order[start : start + self.batch_size].tolist()

    def groups(self) -> Rows:
        """The groups of this epoch, ``(m, group_size)`` rows; fewer than ``group_size`` rows are in none."""
        return self._groups(self._generator())[0]

    def recall(self, k: int | None = None, *, sample_size: int = 1000) -> float:
        """How good the groups of this epoch are: the share of a row's group that is among its ``k`` true neighbours.

        The true neighbours are those of largest cosine of the whole score vectors, by comparing with every row. It
        cannot reach 1: being among the nearest is not mutual, and a row is in one group only. Random groups have
        ``k / (n - 1)``.

        Args:
            k: Number of nearest neighbours; ``group_size - 1`` by default.
            sample_size: Number of rows to look at, drawn by ``seed``.

        Raises:
            ValueError: If there are no groups of two or more, or no ``k`` other rows.
        """
        k = self.group_size - 1 if k is None else k
        if self._vectors is None or not 1 <= k < len(self.dataset):
            raise ValueError(
                f"Recall needs a group size above 1 and k from 1 to the number of rows less one, but got group_size="
                f"{self.group_size}, k={k} and {len(self.dataset)} rows."
            )
        groups = self.groups()
        anchors = np.random.default_rng(self._seed).permutation(groups.size)[:sample_size]
        mates, rows = groups[anchors // self.group_size], groups.ravel()[anchors]
        neighbours = true_neighbours(rows, self._vectors[rows], self._vectors.chunks(), k)
        found = (mates[:, :, None] == neighbours[:, None, :]).any(axis=2).sum(axis=1)
        return float(found.mean() / (self.group_size - 1))

    @property
    def _seed(self) -> int:
        return 0 if self.seed is None else int(self.seed) % 2**63

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng([self._seed, self.epoch])

    def _order(self) -> Rows:
        """All rows of the epoch in the order that batches are cut from; rows in no group are the last."""
        rng = self._generator()
        groups, rest = self._groups(rng)
        groups = groups[rng.permutation(len(groups))]
        if self._copies.any():
            groups = groups[_spread(groups, self._text_ids, self.batch_size)]
        return np.concatenate([groups.ravel(), rest])

    def _groups(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Groups ``(m, group_size)``, and the rows that are left over, fewer than that."""
        if self._vectors is None:
            complete = len(self.dataset) // self.group_size * self.group_size
            rows = rng.permutation(len(self.dataset))
            return rows[:complete].reshape(-1, self.group_size), rows[complete:]
        groups: list[Rows] = []
        over: list[Rows] = []
        # First copies of every text among themselves, then second copies, and so on: no group has a text twice.
        layers = np.count_nonzero(np.bincount(self._copies) >= self.group_size)
        for copy in range(layers):
            rows = np.flatnonzero(self._copies == copy)
            some, rest = group_neighbours(self._reduced[rows], self.group_size, self.cell_size, rng)
            groups.append(rows[some])
            over.append(rows[rest])
        # What is left over makes groups at random.
        left = rng.permutation(np.concatenate([*over, np.flatnonzero(self._copies >= layers)]))
        complete = len(left) // self.group_size * self.group_size
        groups.append(left[:complete].reshape(-1, self.group_size))
        return np.concatenate(groups), left[complete:]

    @cached_property
    def _reduced(self) -> NDArray[np.int8]:
        """Score vectors reduced for finding neighbours, ``(n, dimension)``; the dataset is read once, bit by bit."""
        assert self._vectors is not None
        sample = np.random.default_rng(self._seed).permutation(len(self._vectors))[:_SAMPLE]
        reduce = Reducer(self._vectors[np.sort(sample)], self.dimension, self._seed % 2**32)
        return np.concatenate([reduce(chunk) for chunk in self._vectors.chunks()])

    @cached_property
    def _text_ids(self) -> Rows:
        """The same number for rows that have the same text, ``(n,)``."""
        if not self.spread_duplicates or not self._text_columns:
            return np.arange(len(self.dataset))
        return text_ids(self.dataset, self._text_columns[0])

    @cached_property
    def _copies(self) -> Rows:
        """How many earlier rows have the same text, ``(n,)``: all 0 where there are no duplicates."""
        by_text = np.argsort(self._text_ids, kind="stable")
        ids = self._text_ids[by_text]
        first = np.searchsorted(ids, ids)
        copies = np.empty(len(ids), dtype=np.int64)
        copies[by_text] = np.arange(len(ids)) - first
        return copies


class SetSamplerEpoch(TrainerCallback):  # type: ignore[misc]
    """Tell the batch sampler the epoch where the trainer does not.

    On several processes the batch sampler is wrapped, and after resuming inside an epoch once more. Through both
    wrappers, and with older versions of transformers and accelerate through one, the epoch does not reach it (nor any
    batch sampler of sentence-transformers). The order would be that of the first epoch again: the rest of a resumed
    epoch would have some rows twice and others never. Harmless where it is not needed.

    Example:
        ::

            trainer = SentenceTransformerTrainer(..., callbacks=[SetSamplerEpoch()])
    """

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look for the sampler inside the training dataloader and tell it the epoch."""
        sampler = getattr(kwargs.get("train_dataloader"), "batch_sampler", None)
        while sampler is not None and not hasattr(sampler, "set_epoch"):
            sampler = getattr(sampler, "batch_sampler", None)
        if sampler is not None:
            sampler.set_epoch(int((state.epoch or 0.0) + 1e-6))


def _check_options(batch_size: int | None, group_size: int, dimension: int, cell_size: int) -> None:
    if group_size < 1 or (batch_size is not None and group_size > batch_size):
        raise ValueError(
            f"group_size must lie between 1 (plain shuffling) and the batch size, but got {group_size}"
            + ("." if batch_size is None else f" with a batch size of {batch_size}.")
        )
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ValueError(f"dimension must lie between 1 and {MAX_DIMENSION}, but got {dimension}.")
    if cell_size < group_size:
        raise ValueError(f"cell_size must be at least group_size ({group_size}), but got {cell_size}.")


def _spread(groups: Rows, text_ids: Rows, batch_size: int) -> list[int]:
    """An order of ``groups`` in which no batch holds a text twice, as far as that can be had by putting groups off."""
    repeated = np.bincount(text_ids) > 1
    texts = [{int(text) for text in ids[repeated[ids]]} for ids in text_ids[groups]]
    waiting = deque(range(len(groups)))
    put_off: list[int] = []
    order: list[int] = []
    filled, seen = 0, set[int]()
    while waiting or put_off:
        if waiting and len(put_off) < _LOOK_AHEAD:
            group = waiting.popleft()
            if not seen.isdisjoint(texts[group]):
                put_off.append(group)
                continue
        else:
            group = put_off.pop(0)  # Nothing else fits: rather a text twice in a batch than a row left out.
        order.append(group)
        filled += groups.shape[1]
        seen |= texts[group]
        if filled >= batch_size:
            # What reaches over the border belongs to the next batch; so do the groups that were put off.
            filled -= batch_size
            seen = set(texts[group]) if filled else set()
            waiting.extendleft(reversed(put_off))
            put_off.clear()
    return order
