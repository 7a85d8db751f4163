"""Datasets that carry the teachers' scores: scored once, trained on as often as one likes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset

from rankcse_st._st import LABEL_FORMAT
from rankcse_st.scores.arrays import ArrowFolder
from rankcse_st.scores.columns import check_columns, check_dataset, check_prompts, have_one_prompt, spread_lists
from rankcse_st.scores.compression import CompressedDtype, CompressionReport, compress
from rankcse_st.scores.dataset import ScoredDataset
from rankcse_st.scores.layout import Form, LabelDtype, Layout
from rankcse_st.scores.scoring import Scorer
from rankcse_st.scores.sources import DatasetSource, SentenceSource, TextSource, sample
from rankcse_st.teachers import TeacherEnsemble, TeacherLike

__all__ = ["TeacherScoreDataset"]

_RECORD_PREFIX = "Teacher scores by rankcse-st: "
_CALIBRATION_ROWS = 1000


class TeacherScoreDataset:
    """Makes a ``datasets.Dataset`` whose ``label`` column holds the teachers' scores.

    The result is an ordinary dataset for the ``SentenceTransformerTrainer``: its rows can be shuffled, selected,
    filtered, split, concatenated, interleaved, saved and loaded, because each row carries its own score vector and the
    scores of a batch are the products of the vectors that are in it. What made the scores is kept with the dataset and
    read by :meth:`records`.

    Requirements:
        1. :class:`~rankcse_st.RankCSELoss` or :class:`~rankcse_st.ListwiseDistillationLoss`, given no teachers.

    Inputs:
        +------------------------------------------------+--------------------------------------+
        | Text columns                                   | ``label``                            |
        +================================================+======================================+
        | ``sentence``                                   | score vector ``(D,)``                |
        +------------------------------------------------+--------------------------------------+
        | C columns                                      | score vectors ``(C, D)``             |
        +------------------------------------------------+--------------------------------------+
        | 2 columns with the same text in every row      | one score vector ``(D,)`` for both   |
        +------------------------------------------------+--------------------------------------+
        | anchor and K candidates (``scores="lists"``)   | scores ``(K,)``, NaN where missing   |
        +------------------------------------------------+--------------------------------------+

        D is the sum of the teachers' dimensions (:class:`~rankcse_st.TeacherEnsemble`).

    Relations:
        - Score vectors can be multiplied only with those of the same record. Datasets that were scored by other
          teachers, at other weights or in another order concatenate and interleave without an error if their vectors
          happen to be as wide, and scores between their rows mean nothing: ``len(records(dataset))`` must be 1. Train
          on them as a dictionary of datasets, whose batches come from one of them each.
        - Labels read fast because the dataset has the ``torch`` format (the slower ``numpy`` before
          sentence-transformers 6.2, whose collator takes no tensors). Where that is lost (``with_format(None)``, or by
          the trainer itself for a dictionary of losses) the data stay right and are read more slowly.
        - To stream, ``dataset.with_format("torch").to_iterable_dataset()``.
        - With teachers given to the loss instead, they score each batch as it comes.

    Example:
        ::

            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from rankcse_st import RankCSELoss, TeacherScoreDataset

            train_dataset = TeacherScoreDataset.from_sentences(
                "sentences.txt",
                ["sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-mpnet-base-v2"],
                cache_dir="scores",
            )
            model = SentenceTransformer("bert-base-uncased")
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=RankCSELoss(model))
            trainer.train()
    """

    @classmethod
    def from_sentences(
        cls,
        sentences: str | os.PathLike[str] | Iterable[str],
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        dtype: LabelDtype = "float32",
        calibrate: bool = False,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        shard_size: int = 8192,
        show_progress_bar: bool = True,
    ) -> Dataset:
        """Score sentences, each to be ranked against the others of its batch.

        Args:
            sentences: At least two sentences in a list, a dataset's column or any iterable, or the path of a UTF-8 text
                file with one sentence on each line. None may be blank.
            teachers: One teacher or several (:class:`~rankcse_st.Teacher`, models, names, paths), or an ensemble.
            cache_dir: Folder that keeps what is scored, one file for each teacher and shard of sentences. The same
                teacher never reads the same shard again: after an interruption, at other weights, among other teachers,
                in another process. The dataset is memory-mapped from there instead of held in memory, and the processes
                of a launcher (accelerate, torchrun) share the work. It takes D numbers a sentence for each set of
                weights, and as much again for several teachers' own answers; delete it to free them. Teachers that run
                outside torch (ONNX, OpenVINO) cannot be identified by their weights, and take none.
            dtype: What scores are stored in: ``"float32"``, or ``"float16"`` for half the space. They are multiplied in
                float32 in any case; rounding vectors to half precision moves a score by about 1e-4.
            calibrate: Whether to divide each teacher's weight by the spread of its scores on a sample of the
                sentences (:meth:`~rankcse_st.TeacherEnsemble.calibrate`), so that no teacher decides the ensemble only
                because its scores are spread wider.
            batch_size: How many sentences a teacher encodes at once, unless ``teachers`` is an ensemble.
            device: Where the teachers run, unless ``teachers`` is an ensemble.
            shard_size: How many sentences are scored, kept and, after an interruption, scored again together. Other
                shards than before are other texts: keep it as it is to find earlier scores.
            show_progress_bar: Whether to show one.

        Returns:
            A dataset with the columns ``sentence`` (string) and ``label`` (D numbers).

        Raises:
            FileNotFoundError: If the text file does not exist.
            TypeError: If some sentences are not strings, or a teacher is a cross-encoder.
            ValueError: If there are fewer than two sentences, or some are blank; if a prompt names another column than
                ``sentence``; if teachers or their answers are invalid.
        """
        ensemble = TeacherEnsemble.of(teachers, batch_size=batch_size, device=device)
        source = SentenceSource(sentences, "sentence")
        check_prompts(ensemble, source.columns)
        layout = Layout("vectors", source.columns, dtype=dtype)
        return cls._score(source, ensemble, layout, cache_dir, calibrate, shard_size, show_progress_bar)

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset,
        teachers: TeacherEnsemble | TeacherLike | Sequence[TeacherLike],
        columns: Sequence[str] | None = None,
        *,
        scores: Form | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        dtype: LabelDtype = "float32",
        calibrate: bool = False,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        shard_size: int = 8192,
        show_progress_bar: bool = True,
    ) -> Dataset:
        """Score the text columns of a dataset.

        Args:
            dataset: A dataset without a label or score column.
            teachers: One teacher or several (:class:`~rankcse_st.Teacher`, models, names, paths), or an ensemble.
                Prompts may differ by column (``Teacher(..., prompt={"query": ..., "document": ...})``).
            columns: The text columns in the order that the loss expects: anchor first. Other columns are left out of
                the result, as the trainer would tokenise them as text. By default all columns, which then must all be
                text and none of them look like an id.
            scores: ``"vectors"`` to rank each batch, or ``"lists"`` to score the first column (anchor) with the others
                of its row (candidates): a missing candidate is None or ``""`` and gets the score NaN. One column of
                lists of candidates is spread over as many columns as the longest list has. By default ``"lists"`` if
                one of the teachers is a cross-encoder, else ``"vectors"``. Scores of lists are float32.
            cache_dir: See :meth:`from_sentences`, as for the arguments that follow it.
            dtype: What score vectors are stored in.
            calibrate: Whether to divide each teacher's weight by the spread of its scores.
            batch_size: How many texts a teacher encodes at once, unless ``teachers`` is an ensemble.
            device: Where the teachers run, unless ``teachers`` is an ensemble.
            shard_size: How many texts are scored together.
            show_progress_bar: Whether to show one.

        Returns:
            A dataset with the text columns and ``label``.

        Raises:
            TypeError: If ``dataset`` is no ``datasets.Dataset``, or if some texts are not strings.
            ValueError: If columns are missing, are no text or are labels; if some texts are blank; if a prompt names a
                column that is not there; if teachers or their answers are invalid.
        """
        ensemble = TeacherEnsemble.of(teachers, batch_size=batch_size, device=device)
        check_dataset(dataset)
        form: Form = scores if scores is not None else "vectors" if ensemble.is_bi_encoder else "lists"
        if form not in ("vectors", "lists"):
            raise ValueError(f'scores must be "vectors" or "lists", but got {scores!r}.')
        chosen = check_columns(dataset, columns, form)
        if form == "lists":
            dataset, chosen = spread_lists(dataset, chosen)
        source = DatasetSource(dataset, chosen, missing=chosen[1:] if form == "lists" else ())
        check_prompts(ensemble, chosen)
        source.check()
        shared = form == "vectors" and len(chosen) == 2 and have_one_prompt(ensemble, chosen) and source.same_texts()
        layout = Layout(form, tuple(chosen), shared, "float32" if form == "lists" else dtype)
        # A shard is as large in memory with many columns as with one.
        rows = max(1, shard_size // len(layout.read_columns))
        return cls._score(source, ensemble, layout, cache_dir, calibrate, rows, show_progress_bar)

    @classmethod
    def _score(
        cls,
        source: TextSource,
        ensemble: TeacherEnsemble,
        layout: Layout,
        cache_dir: str | os.PathLike[str] | None,
        calibrate: bool,
        shard_size: int,
        show_progress_bar: bool,
    ) -> Dataset:
        if layout.dtype not in ("float32", "float16"):
            raise ValueError(f'dtype must be "float32" or "float16", but got {layout.dtype!r}.')
        if shard_size < 1:
            raise ValueError(f"shard_size must be at least 1, but got {shard_size}.")
        source.check()
        if layout.form == "vectors" and not ensemble.is_bi_encoder:
            names = [ensemble.teachers[k].name for k in ensemble.active if ensemble.readers[k].is_cross_encoder]
            raise TypeError(
                f"Cross-encoders ({', '.join(names)}) score pairs and give no vectors: they can teach only an anchor "
                'and its candidates, TeacherScoreDataset.from_dataset(..., columns=[anchor, ...], scores="lists").'
            )
        folder = None if cache_dir is None else ArrowFolder(cache_dir)
        if calibrate:
            spreads = Scorer(ensemble, layout, folder).spreads(sample(source, _CALIBRATION_ROWS))
            ensemble = ensemble.with_spreads(spreads)
        dataset = Scorer(ensemble, layout, folder, show_progress_bar).dataset(source, shard_size)
        return with_record(dataset, make_record(ensemble, layout))

    @classmethod
    def compress(
        cls,
        dataset: Dataset,
        dimension: int = 256,
        *,
        dtype: CompressedDtype = "int8",
        sample_size: int = 8192,
        batch_size: int = 128,
        seed: int = 0,
    ) -> tuple[Dataset, CompressionReport]:
        """Make score vectors smaller: fewer dimensions, fitted on a sample, and smaller numbers.

        The default is 256 bytes a sentence. Vectors are brought back to length 1 after the reduction; integers have no
        scale, so a loss that reads ``"int8"`` must do that again: ``RankCSELoss(model, normalize_labels=True)``.
        Datasets compressed one by one have other dimensions each and cannot be merged any more.

        Args:
            dataset: A dataset of score vectors.
            dimension: Numbers in a vector.
            dtype: What they are stored in, ``"int8"`` or ``"float16"``.
            sample_size: How many rows the dimensions are fitted on.
            batch_size: Size of the batches whose scores are compared.
            seed: Seed of the samples.

        Returns:
            The compressed dataset, in memory (``save_to_disk`` keeps it), and the report of what it cost: error and
            rank correlation of in-batch scores, on rows that were not fitted. The record keeps the report.

        Raises:
            ValueError: If the dataset has no score vectors, fewer rows than ``dimension`` or ``batch_size``, or fewer
                numbers in a vector than ``dimension``.
        """
        (record, *others) = cls.records(dataset)
        if others or record["form"] != "vectors" or "compression" in record:
            raise ValueError(
                "Only score vectors of one ensemble can be compressed, and only once, but this dataset has the records "
                f"{[record, *others]}."
            )
        compressed, report = compress(
            dataset, dimension, dtype=dtype, sample_size=sample_size, batch_size=batch_size, seed=seed
        )
        record |= {"dtype": dtype, "compression": report.to_dict()}
        return with_record(compressed, record), report

    @staticmethod
    def records(dataset: Dataset) -> list[dict[str, Any]]:
        """What made the scores of ``dataset``: one record, or several if datasets with other scores were merged.

        A record names the ``teachers`` (model, revision, dtype, prompt, length, pooling, weight, fingerprint), the
        ``form`` of the labels, the ``columns`` that were scored and the ``dtype`` that they are stored in. Several
        records of score vectors with different ``fingerprint`` cannot be trained on as one dataset: the products of
        vectors of different ensembles are no scores.

        Raises:
            ValueError: If the dataset has none: its scores were not made here.
        """
        lines = (dataset.info.description or "").splitlines()
        found = [line.removeprefix(_RECORD_PREFIX) for line in lines if line.startswith(_RECORD_PREFIX)]
        if not found:
            raise ValueError("This dataset has no record of teachers: it was not made by TeacherScoreDataset.")
        return [json.loads(text) for text in found]


def make_record(ensemble: TeacherEnsemble, layout: Layout) -> dict[str, Any]:
    """What is written down with the labels."""
    teachers = ensemble.describe()
    return {
        "form": layout.form,
        "columns": list(layout.columns),
        "dtype": layout.dtype,
        "fingerprint": ensemble.fingerprint_of(teachers),
        "teachers": teachers,
    }


def with_record(dataset: Dataset, record: Mapping[str, Any]) -> Dataset:
    """The dataset with its record, and with labels that are read as tensors."""
    # Of all that a Dataset carries, the description survives every operation, saving and merging included.
    dataset.info.description = _RECORD_PREFIX + json.dumps(record)
    dataset = ScoredDataset.of(dataset)
    if dataset.column_names == ["sentence", "label"]:
        # Formatting the text as well would cost another 0.4 ms a batch.
        return dataset.with_format(LABEL_FORMAT, columns=["label"], output_all_columns=True)
    # A formatted column comes first in a row, and the collator warns if "anchor", "query", ... do not: format them all.
    return dataset.with_format(LABEL_FORMAT)
