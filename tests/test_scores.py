"""Scores on disk: nothing scored twice, nothing stale found, whatever happens in between."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import SENTENCES
from datasets import Dataset, load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from teacher_models import lookup, make_cross_encoder

from rankcse_st.data import TeacherScoreDataset
from rankcse_st.scores.arrays import ArrowFolder, label_table, to_arrow, to_numpy
from rankcse_st.scores.layout import Layout
from rankcse_st.scores.processes import rank_and_world_size
from rankcse_st.scores.sources import Shard, hash_texts
from rankcse_st.teachers import Teacher, TeacherEnsemble

MakeModel = Callable[..., SentenceTransformer]

TEXTS = [f"sentence {i}" for i in range(50)]


def table(seed: int, width: int = 5) -> dict[str, list[float]]:
    rows = np.random.default_rng(seed).standard_normal((len(TEXTS), width))
    return {text: row.tolist() for text, row in zip(TEXTS, rows, strict=True)}


def score(teachers: Any, folder: Path | None, texts: Any = TEXTS, **options: Any) -> Dataset:
    options = {"shard_size": 16, "show_progress_bar": False, **options}
    return TeacherScoreDataset.from_sentences(texts, teachers, cache_dir=folder, **options)


def vectors(dataset: Dataset) -> np.ndarray:
    return np.asarray(dataset.with_format(None)["label"])


# Nothing is scored twice


def test_the_cache_changes_nothing_but_the_cost(tmp_path: Path) -> None:
    """Bug: stored scores that differ from fresh ones in a bit, a row or a column."""
    for options in ({}, {"dtype": "float16"}, {"calibrate": True}):
        teachers = [Teacher(lookup(table(1))[0], 2.0), Teacher(lookup(table(2, width=3))[0], 1.0)]
        fresh, stored, again = (score(teachers, folder, **options) for folder in (None, tmp_path, tmp_path))
        assert list(stored["sentence"]) == TEXTS
        assert np.array_equal(vectors(fresh), vectors(stored))
        assert np.array_equal(vectors(fresh), vectors(again))
        assert fresh.features == stored.features
        assert TeacherScoreDataset.records(fresh) == TeacherScoreDataset.records(stored)


def test_other_weights_subsets_and_calibrations_cost_no_encoding(tmp_path: Path) -> None:
    """Bug: a search over weights that pays for the teachers at every step."""
    (a, asked_a), (b, asked_b) = lookup(table(1)), lookup(table(2))
    score([a, b], tmp_path)
    assert len(asked_a) == len(asked_b) == len(TEXTS)
    for teachers in ([Teacher(a, 3.0), b], [b, a], a, [b], [Teacher(a, 0.0), b], [a, b, Teacher(b, 2.0)]):
        assert np.array_equal(vectors(score(teachers, tmp_path)), vectors(score(teachers, None)))
    asked_a.clear(), asked_b.clear()
    score([Teacher(a, 5.0), b], tmp_path)
    score([a, b], tmp_path, calibrate=True)  # Encodes the sample, once.
    assert len(asked_a) == len(TEXTS)
    score([a, Teacher(b, 3.0)], tmp_path, calibrate=True)
    assert len(asked_a) == len(TEXTS)


def test_more_sentences_cost_only_the_new_shards(tmp_path: Path) -> None:
    """Bug: a corpus that grew is scored from the start."""
    model, asked = lookup(table(1))
    score(model, tmp_path, TEXTS[:40])
    asked.clear()
    longer = score(model, tmp_path, TEXTS)
    assert sorted(asked) == sorted(TEXTS[32:])  # The third shard was not full.
    assert list(longer["sentence"]) == TEXTS


def test_duplicates_of_a_shard_are_encoded_once(tmp_path: Path) -> None:
    """Bug: one query with a hundred documents encoded a hundred times."""
    model, asked = lookup(table(1))
    rows = Dataset.from_dict({"query": ["sentence 0"] * 20, "document": TEXTS[:20]})
    TeacherScoreDataset.from_dataset(rows, model, cache_dir=tmp_path, show_progress_bar=False)
    assert sorted(asked) == sorted(TEXTS[:20])


def test_another_process_finds_everything(tmp_path: Path, tiny_teacher: SentenceTransformer) -> None:
    """Bug (field report 11): identity that depends on the process, and scores that are computed again."""
    tiny_teacher.save_pretrained(str(tmp_path / "teacher"))
    here = TeacherEnsemble([Teacher(tiny_teacher, 7.0, prompt="Anna ", max_seq_length=9)], batch_size=3)
    dataset = score(here, tmp_path / "scores", SENTENCES)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "scores").rglob("*.arrow")}
    code = """
import sys
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.teachers import Teacher, TeacherEnsemble
teacher, folder, texts, saved = sys.argv[1:]
ensemble = TeacherEnsemble([Teacher(teacher, 2.0, prompt="Anna ", max_seq_length=9)], device="cpu")
dataset = TeacherScoreDataset.from_sentences(texts, ensemble, cache_dir=folder, shard_size=16)
dataset.save_to_disk(saved)
print(ensemble.fingerprint)
"""
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    arguments = [str(tmp_path / name) for name in ("teacher", "scores", "texts.txt", "saved")]
    printed = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert printed.stdout.split()[-1] == here.fingerprint
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "scores").rglob("*.arrow")} == files
    assert len(files) == 8
    assert np.array_equal(vectors(load_from_disk(str(tmp_path / "saved"))), vectors(dataset))


# Nothing stale is found


def test_whatever_changes_scores_is_scored_again(make_tiny_model: MakeModel, tmp_path: Path) -> None:
    """Bug: yesterday's scores for a teacher, prompt, length, pooling or text that changed since."""

    def nudged() -> SentenceTransformer:
        model = make_tiny_model(seed=1)
        with torch.no_grad():
            model[0].model.encoder.layer[0].output.dense.bias += 0.1
        return model

    base = make_tiny_model(seed=1)
    variants: list[tuple[Any, list[str]]] = [
        (base, SENTENCES),
        (nudged(), SENTENCES),
        (Teacher(base, prompt="A dog "), SENTENCES),
        (Teacher(base, max_seq_length=5), SENTENCES),
        (make_tiny_model(seed=1, pooling="cls"), SENTENCES),
        (make_tiny_model(seed=1, lowercase=False), SENTENCES),
        (base, [*SENTENCES[:-1], "Anna sleeps on the sofa"]),
    ]
    found = [vectors(score(teacher, tmp_path, texts)) for teacher, texts in variants]
    for (teacher, texts), scores in zip(variants, found, strict=True):
        assert np.array_equal(scores, vectors(score(teacher, None, texts)))
    different = {scores.tobytes() for scores in found}
    assert len(different) == len(variants)
    base.append(Normalize())  # Changes nothing, but who could know.
    np.testing.assert_allclose(vectors(score(base, tmp_path, SENTENCES)), found[0], atol=1e-6)


def test_a_teacher_that_was_trained_meanwhile_is_scored_again(tiny_model: SentenceTransformer, tmp_path: Path) -> None:
    """Bug: the student, its own teacher, found at its weights of an epoch ago."""
    before = vectors(score(tiny_model, tmp_path, SENTENCES))
    with torch.no_grad():
        tiny_model[0].model.embeddings.word_embeddings.weight += 0.5 * torch.randn_like(
            tiny_model[0].model.embeddings.word_embeddings.weight
        )
    after = vectors(score(tiny_model, tmp_path, SENTENCES))
    assert np.abs(after - before).max() > 1e-3
    assert np.array_equal(after, vectors(score(tiny_model, None, SENTENCES)))


def test_texts_are_told_apart_by_their_borders() -> None:
    """Bug: ["ab", "c"] found where ["a", "bc"] was stored, or columns swapped."""
    lists = [["ab", "c"], ["a", "bc"], ["abc"], ["c", "ab"], ["1:a", "b"], ["1:a1:b"], ["a", "", "bc"], []]
    assert len({hash_texts(texts) for texts in lists}) == len(lists)
    shard = Shard({"a": ["x", "y"], "b": ["y", "x"], "c": ["x", "y"]})
    keys = [shard.key(columns) for columns in (["a"], ["a", "b"], ["b", "a"], ["a", "b", "c"], ["c"])]
    assert len(set(keys)) == 4
    assert keys[0] == keys[4]  # The same texts, whatever their column is called.


def test_swapped_columns_are_other_scores(tmp_path: Path) -> None:
    """Bug: the columns' texts without their order, or columns with other prompts, as identity."""
    model, _ = lookup(table(1))
    rows = Dataset.from_dict({"query": TEXTS[:10], "document": TEXTS[10:20]})
    prompts = {"query": "q: ", "document": "d: "}
    for columns in (["query", "document"], ["document", "query"]):
        for teacher in (model, Teacher(model, prompt=prompts)):
            for form in ("vectors", "lists"):
                stored, fresh = (
                    TeacherScoreDataset.from_dataset(
                        rows, teacher, columns, scores=form, cache_dir=folder, show_progress_bar=False
                    )
                    for folder in (tmp_path, None)
                )
                assert stored.column_names == [*columns, "label"]
                assert np.array_equal(vectors(stored), vectors(fresh))


def test_lists_are_kept_for_each_teacher(tmp_path: Path) -> None:
    """Bug: cross-encoders, the dearest teachers, asked again at other weights."""
    pairs, (model, _) = make_cross_encoder(tmp_path / "cross-encoder"), lookup(table(1))
    rows = Dataset.from_dict({"query": TEXTS[:20], "a": TEXTS[10:30], "b": [*TEXTS[30:49], ""]})
    calls = []
    pairs.register_forward_hook(lambda *_: calls.append(1))
    for weight, expected_calls in ((1.0, 2), (3.0, 0), (0.0, 0)):
        teachers = TeacherEnsemble([Teacher(pairs, weight), model])
        scored = TeacherScoreDataset.from_dataset(
            rows, teachers, scores="lists", cache_dir=tmp_path / "scores", shard_size=30, show_progress_bar=False
        )
        assert len(calls) == expected_calls
        expected = teachers.score_lists(rows["query"][:], [*zip(rows["a"], rows["b"], strict=True)])
        torch.testing.assert_close(torch.as_tensor(scored["label"][:]), expected, equal_nan=True)
        calls.clear()


# Whatever happens in between


def _score_and_die(folder: Path, after: int) -> None:
    model, asked = lookup(table(1))
    encode = model.encode

    def dying(*arguments: Any, **options: Any) -> Any:
        if len(asked) >= after:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(*arguments, **options)

    model.encode = dying  # type: ignore[method-assign]
    score([model, lookup(table(2))[0]], folder)


@pytest.mark.parametrize("after", [0, 16, 32, 48])
def test_a_killed_process_resumes_where_it_was(tmp_path: Path, after: int) -> None:
    """Bug: finished shards encoded again, half a file taken for a whole one, or another result."""
    process = multiprocessing.get_context("fork").Process(target=_score_and_die, args=(tmp_path, after))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (a, asked_a), (b, asked_b) = lookup(table(1)), lookup(table(2))
    resumed = score([a, b], tmp_path)
    assert len(asked_a) == len(TEXTS) - after
    assert len(asked_b) == len(TEXTS) - after
    assert np.array_equal(vectors(resumed), vectors(score([a, b], None)))


@pytest.mark.parametrize("moment", ["open", "write", "rename"])
def test_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Bug: a file that is there before it is complete."""

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        target, name = {"open": (pa, "OSFile"), "write": (pa.ipc, "new_stream"), "rename": (os, "replace")}[moment]
        patch.setattr(target, name, die)
        patch.setattr(os, "unlink", lambda *_: None)  # A killed process cleans nothing up.
        with pytest.raises(Killed):
            score(lookup(table(1))[0], tmp_path)
    left = list(tmp_path.rglob("*.part"))
    assert len(left) == 1
    assert not list(tmp_path.rglob("*.arrow"))
    model, _ = lookup(table(1))
    assert np.array_equal(vectors(score(model, tmp_path)), vectors(score(model, None)))
    assert left[0].exists()  # It may be another process's.
    os.utime(left[0], (0, 0))
    score(model, tmp_path)
    assert not left[0].exists()


def test_damaged_files_are_written_again(tmp_path: Path) -> None:
    """Bug: a file cut short by a power failure ends every later run."""
    model, asked = lookup(table(1))
    expected = vectors(score([model, Teacher(model, prompt="p: ")], tmp_path))
    files = sorted(tmp_path.rglob("*.arrow"))
    for number, file in enumerate(files):
        file.write_bytes(file.read_bytes()[: number % 7 * 40])
    asked.clear()
    assert np.array_equal(vectors(score([model, Teacher(model, prompt="p: ")], tmp_path)), expected)
    assert asked


def test_files_cut_off_after_their_schema_are_written_again(tmp_path: Path) -> None:
    """Bug: a file cut off between two messages of its stream taken for a complete one without rows."""
    model, asked = lookup(table(1))
    teachers = [model, Teacher(model, prompt="p: ")]
    expected = vectors(score(teachers, tmp_path))
    for file in tmp_path.rglob("*.arrow"):
        with pa.memory_map(str(file)) as source:
            schema = pa.ipc.open_stream(source).schema
        file.write_bytes(file.read_bytes()[: schema.serialize().size])
        with pa.memory_map(str(file)) as source:
            assert len(pa.ipc.open_stream(source).read_all()) == 0  # Canary: it can be read.
    asked.clear()
    again = score(teachers, tmp_path)
    assert np.array_equal(vectors(again), expected)
    assert list(again["sentence"]) == TEXTS
    assert len(asked) == 2 * len(TEXTS)


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a traceback from Arrow, and everything lost."""
    model, asked = lookup(table(1))
    real, calls = os.replace, []

    def full(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="What was finished is kept: free some space") as caught:
            score(model, tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.rglob("*.part"))
    asked.clear()
    assert np.array_equal(vectors(score(model, tmp_path)), vectors(score(model, None)))
    assert len(asked) == (50 - 32) + 50  # Two shards were finished; then everything for the comparison.


def _score_as(rank: int, world_size: int, folder: Path, queue: Any) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    (a, asked_a), (b, _) = lookup(table(1)), lookup(table(2))
    dataset = score([a, Teacher(b, 3.0)], folder)
    queue.put((rank, list(dataset["sentence"]), vectors(dataset), sorted(asked_a)))


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_processes_of_a_launcher_share_the_work(tmp_path: Path, world_size: int) -> None:
    """Bug: every process scores everything, or one of them gets a part of the dataset."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [
        context.Process(target=_score_as, args=(rank, world_size, tmp_path, queue)) for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    results = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    expected = vectors(score([lookup(table(1))[0], Teacher(lookup(table(2))[0], 3.0)], None))
    for _, sentences, scores, _ in results:
        assert sentences == TEXTS
        assert np.array_equal(scores, expected)
    assert sorted(text for *_, asked in results for text in asked) == sorted(TEXTS)
    assert all(asked for *_, asked in results)


def test_rank_comes_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: processes that do not know of each other before the trainer has set up torch.distributed."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert rank_and_world_size() == (3, 8)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert rank_and_world_size() == (0, 1)


# Where sentences come from


def _sources(folder: Path) -> Iterator[tuple[str, Any]]:
    (folder / "texts.txt").write_bytes("\r\n".join(TEXTS).encode())
    yield "path", folder / "texts.txt"
    yield "string", str(folder / "texts.txt")
    yield "tuple", tuple(TEXTS)
    yield "iterator", iter(TEXTS)
    yield "generator", (text for text in TEXTS)
    yield "column", Dataset.from_dict({"x": TEXTS})["x"]
    yield "numpy", np.array(TEXTS)
    yield "numpy objects", np.array(TEXTS, dtype=object)


def test_sentences_come_from_anywhere(tmp_path: Path) -> None:
    """Bug: a source that loses, repeats or reorders sentences, or keeps the ends of their lines."""
    model, asked = lookup(table(1))
    for name, source in _sources(tmp_path):
        dataset = score(model, tmp_path / "scores", source)
        assert list(dataset["sentence"]) == TEXTS, name
    assert len(asked) == len(TEXTS)  # The same texts, wherever they come from.


def test_lines_end_only_at_newlines(tmp_path: Path) -> None:
    """Bug: str.splitlines, which breaks a sentence at a form feed or a Unicode line separator."""
    texts = ["one\u2028two", "three\x0cfour", "fünf\x85sechs", "7\r8"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8", newline="\n")
    model, _ = lookup({text: [1.0, float(i)] for i, text in enumerate(texts)})
    assert list(score(model, None, tmp_path / "texts.txt")["sentence"]) == texts


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    """Bug: a file saved on Windows, whose first sentence begins with an invisible character that teachers read."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8-sig")
    assert (tmp_path / "texts.txt").read_bytes().startswith(b"\xef\xbb\xbf")  # Canary: there is one.
    assert list(score(lookup(table(1))[0], None, tmp_path / "texts.txt")["sentence"]) == TEXTS


def test_blank_lines_are_named(tmp_path: Path) -> None:
    """Bug: blank lines scored, or skipped so that line numbers no longer fit."""
    (tmp_path / "texts.txt").write_text("a\n\nb\n \n")
    with pytest.raises(ValueError, match=r"of 4 there are 2 empty \(at 1, 3\)"):
        score(lookup({"a": [1.0], "b": [1.0]})[0], None, tmp_path / "texts.txt")


# Arrays


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    dtype=st.sampled_from(["float32", "float16"]),
    seed=st.integers(0, 9),
)
def test_arrays_come_back_bit_for_bit(
    shape: list[int], dtype: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bug: an axis lost or swapped, a NaN turned into null, a number rounded."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    array.flat[0] = np.nan
    folder = ArrowFolder(tmp_path_factory.mktemp("arrays"))
    layout = Layout("vectors", ("a",), dtype=dtype)  # type: ignore[arg-type]
    folder.write(label_table(array, layout.label_features(shape[1:])), "some", "key")
    read = folder.read("some", "key", rows=len(array))
    assert read is not None
    assert read["label"].null_count == 0
    back = to_numpy(read["label"])
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert to_numpy(pa.chunked_array([to_arrow(array), to_arrow(array)])).shape == (2 * shape[0], *shape[1:])
    assert folder.read("other", "key", rows=len(array)) is None


@settings(max_examples=20, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=3),
    order=st.permutations(range(12)),
    shard_size=st.integers(1, 20),
)
def test_stored_scores_keep_the_identity(
    weights: list[float], order: list[int], shard_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bug: scores that depend on the order of sentences, the size of shards or the number of teachers."""
    tables = [table(seed, width=3 + seed) for seed in range(len(weights))]
    teachers = [Teacher(lookup(rows)[0], weight) for rows, weight in zip(tables, weights, strict=True)]
    texts = [TEXTS[i] for i in order]
    dataset = score(teachers, tmp_path_factory.mktemp("scores"), texts, shard_size=shard_size)
    expected = np.zeros((12, 12))
    for rows, weight in zip(tables, weights, strict=True):
        unit = np.array([rows[text] for text in texts])
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        expected += weight / sum(weights) * unit @ unit.T
    shuffled = dataset.shuffle(seed=order[0])
    places = [texts.index(text) for text in shuffled["sentence"]]
    label = np.asarray(shuffled["label"][:], dtype=np.float64)
    np.testing.assert_allclose(label @ label.T, expected[places][:, places], atol=1e-5)
