"""Rows read a batch at a time are those of the format."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets

from rankcse_st import TeacherScoreDataset
from rankcse_st._st import LABEL_FORMAT
from rankcse_st.scores import dataset as module
from rankcse_st.scores.dataset import ScoredDataset
from tests.conftest import SENTENCES

KEYS = [5, 0, 31, 5, 7]


def plain(dataset: Dataset) -> Dataset:
    """The same rows in the same format, read by datasets alone."""
    found = Dataset(dataset.data, info=dataset.info)
    given = dataset.format
    return found.with_format(given["type"], columns=given["columns"], output_all_columns=given["output_all_columns"])


def assert_same(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(rows) == len(expected) > 0
    for row, other in zip(rows, expected, strict=True):
        assert list(row) == list(other)  # The collator takes the columns in this order.
        for name, value in other.items():
            if isinstance(value, str):  # np.str_ in the numpy format.
                assert row[name] == value
            else:
                assert type(row[name]) is type(value)
                assert row[name].dtype == value.dtype
                np.testing.assert_array_equal(np.asarray(row[name]), np.asarray(value))


@pytest.fixture(params=["vectors", "float16", "columns", "lists"])
def scored(request: pytest.FixtureRequest, tiny_teacher: Any) -> Dataset:
    """Labels of every shape."""
    if request.param in ("vectors", "float16"):
        dtype = "float16" if request.param == "float16" else "float32"
        return TeacherScoreDataset.from_sentences(SENTENCES[:40], tiny_teacher, dtype=dtype, show_progress_bar=False)
    texts = {"anchor": SENTENCES[:40], "positive": SENTENCES[10:50], "negative": SENTENCES[20:60]}
    scores = {"columns": "vectors", "lists": "lists"}[request.param]
    return TeacherScoreDataset.from_dataset(
        Dataset.from_dict(texts), tiny_teacher, scores=scores, show_progress_bar=False
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the batches that were read the quick way."""
    calls: list[int] = []
    gather = module._gather
    monkeypatch.setattr(module, "_gather", lambda arrays, keys: calls.append(len(keys)) or gather(arrays, keys))
    return calls


def test_rows_are_those_of_the_format(scored: Dataset, quick: list[int]) -> None:
    """Labels of another row, dtype or shape than those that the format would give, without anything being said."""
    assert isinstance(scored, ScoredDataset)
    assert_same(scored.__getitems__(KEYS), plain(scored).__getitems__(KEYS))
    assert quick == [len(KEYS)]
    assert {np.asarray(row["label"]).std() > 0 for row in scored.__getitems__(KEYS)} == {True}


def test_rows_of_a_selection(scored: Dataset, quick: list[int]) -> None:
    """Labels of the rows before they were shuffled or held out, as in the training of the command line."""
    for made in (scored.shuffle(seed=0), scored.select([*range(30, 8, -1), *range(32, 40)])):
        again = ScoredDataset.of(made)
        assert again.format == made.format
        assert_same(again.__getitems__([0, 29, 3]), made.__getitems__([0, 29, 3]))
    assert quick == [3, 3]


def test_labels_can_be_written_to(scored: Dataset) -> None:
    """Torch's warning about memory that cannot be written to, or a file changed by a loss."""
    label = scored.__getitems__(KEYS)[0]["label"]
    before = scored.__getitems__(KEYS)[0]["label"]
    label += 1
    assert_same(scored.__getitems__(KEYS)[:1], [{**scored.__getitems__(KEYS)[0], "label": before}])


def test_what_is_made_of_it(scored: Dataset, quick: list[int], tmp_path: Path) -> None:
    """Columns, rows or formats from before an operation."""
    scored.__getitems__(KEYS)
    for made in (
        scored.select(range(35, 3, -1)),
        scored.shuffle(seed=0),
        scored.remove_columns(scored.column_names[0]),
        scored.with_format(LABEL_FORMAT, columns=["label"]),
        scored.with_format(None),
        scored.with_format("numpy"),
        copy.deepcopy(scored),
        pickle.loads(pickle.dumps(scored)),
        scored.rename_column(scored.column_names[0], "query"),
        scored.map(lambda row: {"length": len(row[scored.column_names[0]])}),
        scored.add_column("number", [1] * len(scored)),
    ):
        rows = made.__getitems__(KEYS)
        expected = [made[key] for key in KEYS]
        assert [set(row) for row in rows] == [set(row) for row in expected]
        for row, other in zip(rows, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(row["label"]), np.asarray(other["label"]))
            assert {name: row[name] for name in row if name != "label"} == {
                name: other[name] for name in other if name != "label"
            }
    scored.save_to_disk(str(tmp_path / "saved"))
    assert_same(
        Dataset.load_from_disk(str(tmp_path / "saved")).__getitems__(KEYS),
        plain(scored).__getitems__(KEYS),
    )


def test_rows_of_many_chunks(scored: Dataset) -> None:
    """The row of one shard taken for that of another."""
    many = ScoredDataset.of(concatenate_datasets([scored.select(range(i, i + 8)) for i in range(0, 40, 8)]))
    many = many.with_format(LABEL_FORMAT)
    assert len(many.data.table["label"].chunks) == 5
    keys = [39, 0, 8, 7, 16, 15, 8]
    assert_same(many.__getitems__(keys), plain(many).__getitems__(keys))


def test_keys_and_formats_that_are_not_the_usual(scored: Dataset, quick: list[int]) -> None:
    """A dtype that was asked for and ignored; an array of keys, which datasets takes, refused."""
    double = scored.with_format("torch", dtype=torch.float64)
    assert double.__getitems__(KEYS)[0]["label"].dtype == torch.float64
    assert quick == []
    assert_same(scored.__getitems__(np.array(KEYS)), plain(scored).__getitems__(KEYS))


def test_keys_out_of_range(scored: Dataset) -> None:
    """A negative key that reads another row, or one behind the end that reads none."""
    with pytest.raises(IndexError):
        scored.__getitems__([0, 40])
    assert_same(scored.__getitems__([-1, 3]), plain(scored).__getitems__([-1, 3]))


def test_through_workers(scored: Dataset, quick: list[int]) -> None:
    """A dataset that a dataloader's worker process cannot read."""
    loader = torch.utils.data.DataLoader(scored, batch_size=8, num_workers=1, collate_fn=list)
    rows = [row for batch in loader for row in batch]
    assert_same(rows, plain(scored).__getitems__(list(range(40))))
    assert quick == []  # It was read elsewhere.
