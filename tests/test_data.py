"""TeacherScoreDataset: labels that stay with their rows whatever is done to the dataset, and checked columns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SENTENCES
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    List,
    Value,
    concatenate_datasets,
    interleave_datasets,
    load_from_disk,
)
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from teacher_models import lookup, make_cross_encoder
from torch import Tensor
from torch.utils.data import DataLoader

from rankcse_st._st import LABEL_FORMAT, STACKS_LABEL_TENSORS
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.teachers import Teacher, TeacherEnsemble

MakeModel = Callable[..., SentenceTransformer]


@pytest.fixture(scope="module")
def ensemble(make_tiny_model: MakeModel) -> TeacherEnsemble:
    teachers = [Teacher(make_tiny_model(seed=1, dim=48, lowercase=False), 2.0), Teacher(make_tiny_model(seed=2), 1.0)]
    return TeacherEnsemble(teachers)


@pytest.fixture(scope="module")
def truth(ensemble: TeacherEnsemble) -> dict[str, Tensor]:
    """The score vector of every sentence."""
    return dict(zip(SENTENCES, ensemble.encode(SENTENCES), strict=True))


@pytest.fixture
def dataset(ensemble: TeacherEnsemble) -> Dataset:
    return TeacherScoreDataset.from_sentences(SENTENCES, ensemble, show_progress_bar=False)


def batches(dataset: Any, batch_size: int = 16, **options: Any) -> list[dict[str, Any]]:
    """What the trainer's own collator makes of a dataset's batches, with the texts instead of their tokens."""
    collator = SentenceTransformerDataCollator(preprocess_fn=lambda texts, **_: {"text": texts})
    return list(DataLoader(dataset, batch_size=batch_size, collate_fn=collator, **options))


def assert_right(dataset: Any, truth: dict[str, Tensor], rows: int, tolerance: float = 1e-6) -> None:
    """Every row's label is its sentence's score vector, as the trainer's collator delivers it."""
    seen = 0
    for batch in batches(dataset):
        expected = torch.stack([truth[text] for text in batch["sentence_text"]])
        torch.testing.assert_close(batch["label"], expected, atol=tolerance, rtol=0)
        assert batch["label"].dtype == torch.float32
        seen += len(expected)
    assert seen == rows


def saved_and_loaded(dataset: Dataset, folder: Path) -> Dataset:
    dataset.save_to_disk(folder / "saved", num_shards=3)
    return load_from_disk(folder / "saved")


def saved_in_a_dict(dataset: Dataset, folder: Path) -> Dataset:
    DatasetDict({"train": dataset}).save_to_disk(folder / "dict")
    return load_from_disk(folder / "dict")["train"]


OPERATIONS: dict[str, tuple[Callable[[Dataset, Path], Any], int]] = {
    "nothing": (lambda d, _: d, 64),
    "shuffle": (lambda d, _: d.shuffle(seed=1), 64),
    "shuffle twice": (lambda d, _: d.shuffle(seed=1).flatten_indices().shuffle(seed=2), 64),
    "select": (lambda d, _: d.select([5, 3, 60, 3]), 4),
    "filter": (lambda d, _: d.filter(lambda row: row["sentence"].startswith("Anna")), 8),
    "sort": (lambda d, _: d.sort("sentence"), 64),
    "shard": (lambda d, _: d.shard(4, 1), 16),
    "split": (lambda d, _: d.train_test_split(0.25, seed=1)["test"], 16),
    "concatenate": (lambda d, _: concatenate_datasets([d.select(range(9)), d.shuffle(seed=3)]), 73),
    "interleave": (lambda d, _: interleave_datasets([d.select(range(20)), d.select(range(40, 60))], seed=1), 40),
    "map": (lambda d, _: d.map(lambda row: {"length": len(row["sentence"])}).remove_columns("length"), 64),
    "save and load": (saved_and_loaded, 64),
    "save and load after shuffling": (lambda d, p: saved_and_loaded(d.shuffle(seed=1).select(range(40)), p), 40),
    "save and load in a dict": (saved_in_a_dict, 64),
    "parquet": (lambda d, p: d.to_parquet(p / "x.parquet") and Dataset.from_parquet(str(p / "x.parquet")), 64),
    "lose the format": (lambda d, _: d.with_format(None), 64),
    "numpy": (lambda d, _: d.with_format("numpy", columns=["label"], output_all_columns=True), 64),
    "stream": (lambda d, _: d.with_format(LABEL_FORMAT).to_iterable_dataset(num_shards=2).shuffle(seed=1), 64),
}
LOSE_THE_RECORD = ("parquet", "stream")
LOSE_THE_FORMAT = ("parquet", "lose the format", "numpy")


@pytest.mark.parametrize("name", OPERATIONS)
def test_labels_stay_with_their_rows(dataset: Dataset, truth: dict[str, Tensor], tmp_path: Path, name: str) -> None:
    """Bug: scores that belong to a position, or to a subclass or transform that an operation drops."""
    operation, rows = OPERATIONS[name]
    changed = operation(dataset, tmp_path)
    if name == "numpy":  # The collator would turn NumPy rows into a tensor, slowly and with a warning.
        assert np.allclose(changed[3]["label"], truth[changed[3]["sentence"]], atol=1e-6)
        return
    assert_right(changed, truth, rows)
    if name not in LOSE_THE_RECORD:
        assert TeacherScoreDataset.records(changed) == TeacherScoreDataset.records(dataset)
    if isinstance(changed, Dataset):
        assert isinstance(changed[0]["label"], (Tensor, np.ndarray)) is (name not in LOSE_THE_FORMAT)


def test_the_result_is_a_dataset(dataset: Dataset, ensemble: TeacherEnsemble) -> None:
    """Bug: something that the trainer, or whoever selects and maps, does not take for a dataset."""
    assert isinstance(dataset, Dataset)
    assert dataset.column_names == ["sentence", "label"]
    assert dataset.features == Features(
        {"sentence": Value("string"), "label": List(Value("float32"), length=ensemble.dimension)}
    )
    assert list(dataset.with_format(None)["sentence"]) == SENTENCES


def test_workers_deliver_the_same(dataset: Dataset, truth: dict[str, Tensor]) -> None:
    """Bug: something in the dataset that does not reach another process."""
    for batch in batches(dataset, num_workers=1):
        expected = torch.stack([truth[text] for text in batch["sentence_text"]])
        torch.testing.assert_close(batch["label"], expected, atol=1e-6, rtol=0)


class Recorder(torch.nn.Module):
    """A loss that keeps the sentences (as the student's tokens say) and labels that it was given."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.seen: list[tuple[str, Tensor]] = []

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        texts = self.model.tokenizer.batch_decode(features[0]["input_ids"], skip_special_tokens=True)
        self.seen += zip(texts, labels, strict=True)
        return sum(self.model(dict(column))["sentence_embedding"].sum() for column in features) * 0.0


def train(model: SentenceTransformer, dataset: Any, loss: Any, folder: Path) -> None:
    arguments = SentenceTransformerTrainingArguments(
        str(folder),
        per_device_train_batch_size=16,
        num_train_epochs=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=dataset, loss=loss).train()


def assert_seen(seen: list[tuple[str, Tensor]], truth: dict[str, Tensor]) -> None:
    by_tokens = {sentence.lower().replace(".", " ."): vector for sentence, vector in truth.items()}
    assert seen
    for text, label in seen:
        torch.testing.assert_close(label, by_tokens[text], atol=1e-6, rtol=0)


def test_the_trainer_brings_labels_to_the_loss(
    dataset: Dataset, truth: dict[str, Tensor], tiny_model: SentenceTransformer, tmp_path: Path
) -> None:
    """Bug: labels that lose their row, or their value, between the dataset and the loss."""
    loss = Recorder(tiny_model)
    train(tiny_model, dataset.shuffle(seed=1), loss, tmp_path)
    assert len(loss.seen) == 64
    assert_seen(loss.seen, truth)


def test_the_trainer_with_a_dictionary_of_datasets_and_losses(
    dataset: Dataset, truth: dict[str, Tensor], tiny_model: SentenceTransformer, tmp_path: Path
) -> None:
    """Bug: the trainer replaces the datasets' format by its own transform, and fast labels become wrong ones."""
    losses = {"a": Recorder(tiny_model), "b": Recorder(tiny_model)}
    train(tiny_model, DatasetDict(a=dataset.select(range(32)), b=dataset.select(range(32, 64))), losses, tmp_path)
    assert len(losses["a"].seen) == len(losses["b"].seen) == 32
    for loss in losses.values():
        assert_seen(loss.seen, truth)


@pytest.mark.skipif(not STACKS_LABEL_TENSORS, reason="the collator of this sentence-transformers takes no tensors")
def test_labels_read_fast() -> None:
    """Bug: labels as Python lists, which cost more than a training step on a GPU (51 ms against 2 for this batch)."""
    rows = {str(i): np.random.default_rng(i).standard_normal(1152).tolist() for i in range(256)}
    fast = TeacherScoreDataset.from_sentences(list(rows), lookup(rows)[0], show_progress_bar=False)
    seconds = []
    for dataset in (fast, fast.with_format(None)):
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            batches(dataset, batch_size=128, shuffle=True)
            taken.append(time.perf_counter() - start)
        seconds.append(min(taken))
    assert seconds[0] < seconds[1] / 4


def test_half_precision_labels_take_half_the_space(ensemble: TeacherEnsemble, truth: dict[str, Tensor]) -> None:
    """Bug: float16 that reaches the loss unconverted, or rounds more than it should."""
    half = TeacherScoreDataset.from_sentences(SENTENCES, ensemble, dtype="float16", show_progress_bar=False)
    assert half.features["label"].feature == Value("float16")
    assert_right(half, truth, 64, tolerance=5e-4)
    assert_right(half.with_format(None), truth, 64, tolerance=5e-4)
    assert half.data.nbytes < 64 * (80 * 2 + 60)


def test_merged_datasets_keep_each_others_record(dataset: Dataset, tiny_teacher: SentenceTransformer) -> None:
    """Bug: scores of two ensembles mixed, and no trace of it."""
    other = TeacherScoreDataset.from_sentences(
        SENTENCES, [Teacher(tiny_teacher, 1.0), Teacher(tiny_teacher, 1.0, max_seq_length=8)], show_progress_bar=False
    )
    first, second = dataset.select(range(9)), other.select(range(9))
    merged = concatenate_datasets([first, first.shuffle(seed=1)])
    assert len(TeacherScoreDataset.records(merged)) == 1
    pairs = Dataset.from_dict({"sentence": SENTENCES[:9]})
    with pytest.raises(ValueError, match="no record of teachers"):
        TeacherScoreDataset.records(pairs)
    second = second.cast_column("label", List(Value("float32"), length=96))
    longer = first.map(lambda row: {"label": torch.nn.functional.pad(torch.as_tensor(row["label"]), (0, 16))})
    longer = longer.cast_column("label", List(Value("float32"), length=96))
    assert len(TeacherScoreDataset.records(concatenate_datasets([longer, second]))) == 2


def test_the_record_says_what_made_the_scores(dataset: Dataset, ensemble: TeacherEnsemble) -> None:
    """Bug: nobody knows any more which teachers, prompts or lengths a stored file of scores came from."""
    (record,) = TeacherScoreDataset.records(dataset)
    assert json.loads(json.dumps(record)) == record
    assert record["teachers"] == ensemble.describe()
    assert record["fingerprint"] == ensemble.fingerprint
    assert (record["form"], record["columns"], record["dtype"]) == ("vectors", ["sentence"], "float32")


def test_calibration_is_recorded_and_equals_the_ensembles_own(ensemble: TeacherEnsemble) -> None:
    """Bug: calibrate=True that does something else than TeacherEnsemble.calibrate, or nothing."""
    calibrated = TeacherScoreDataset.from_sentences(SENTENCES, ensemble, calibrate=True, show_progress_bar=False)
    expected = ensemble.calibrate(SENTENCES)
    vectors = torch.as_tensor(calibrated["label"][:])
    torch.testing.assert_close(vectors, expected.encode(SENTENCES), atol=1e-5, rtol=0)
    assert (vectors - ensemble.encode(SENTENCES)).abs().max() > 1e-3
    weights = [teacher["weight"] for teacher in TeacherScoreDataset.records(calibrated)[0]["teachers"]]
    assert weights == pytest.approx(expected.relative_weights)


# Columns


def test_several_columns_have_a_vector_each(ensemble: TeacherEnsemble, truth: dict[str, Tensor]) -> None:
    """Bug: columns out of order, or one column's vectors for all."""
    pairs = Dataset.from_dict({"positive": SENTENCES[1:], "anchor": SENTENCES[:-1], "row_id": range(63)})
    scored = TeacherScoreDataset.from_dataset(pairs, ensemble, ["anchor", "positive"], show_progress_bar=False)
    assert scored.column_names == ["anchor", "positive", "label"]
    assert list(scored[0]) == ["anchor", "positive", "label"]  # Else the collator warns about the order.
    for batch in batches(scored.shuffle(seed=1)):
        for column, name in enumerate(("anchor", "positive")):
            expected = torch.stack([truth[text] for text in batch[f"{name}_text"]])
            torch.testing.assert_close(batch["label"][:, column], expected, atol=1e-6, rtol=0)
    plain = batches(scored.with_format(None))[0]["label"]
    torch.testing.assert_close(plain, batches(scored)[0]["label"])


def test_the_same_text_twice_has_one_vector(ensemble: TeacherEnsemble, truth: dict[str, Tensor]) -> None:
    """Bug: twice the space for the recipe that gives each sentence twice."""
    twice = Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES})
    scored = TeacherScoreDataset.from_dataset(twice, ensemble, show_progress_bar=False)
    torch.testing.assert_close(
        torch.as_tensor(scored["label"][:]), torch.stack(list(truth.values())), atol=1e-6, rtol=0
    )


def test_prompts_by_column(make_tiny_model: MakeModel) -> None:
    """Bug: queries and documents read with one prompt, or equal texts taken for equal readings."""
    model = make_tiny_model(seed=1)
    teacher = Teacher(model, prompt={"query": "My neighbour ", "document": "A dog "})
    same = Dataset.from_dict({"query": SENTENCES[:5], "document": SENTENCES[:5]})
    label = torch.as_tensor(TeacherScoreDataset.from_dataset(same, teacher, show_progress_bar=False)["label"][:])
    for column, prompt in enumerate(("My neighbour ", "A dog ")):
        expected = model.encode([prompt + text for text in SENTENCES[:5]], normalize_embeddings=True)
        torch.testing.assert_close(label[:, column], torch.from_numpy(expected), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"prompts for the columns \['document'\], but the columns are \['query'\]"):
        TeacherScoreDataset.from_dataset(same, teacher, ["query"])


def test_other_prompts_give_other_scores(make_tiny_model: MakeModel) -> None:
    """Bug (field report 9): a prompt that is taken and not used."""
    model = make_tiny_model(seed=1)
    plain, prompted = (
        TeacherScoreDataset.from_sentences(SENTENCES[:5], Teacher(model, prompt=prompt), show_progress_bar=False)
        for prompt in (None, {"sentence": "A dog "})
    )
    assert (torch.as_tensor(plain["label"][:] - prompted["label"][:])).abs().max() > 1e-2


def test_a_prompt_of_another_column_than_the_sentences_is_an_error() -> None:
    """Bug: a misspelt column in a prompt, and every sentence read without it."""
    model, asked = lookup({text: [1.0, 2.0] for text in SENTENCES})
    with pytest.raises(
        ValueError, match=r"columns \['query'\], but .*\['sentence'\]: name those, .*'sentence': \.\.\."
    ):
        TeacherScoreDataset.from_sentences(SENTENCES, Teacher(model, prompt={"query": "q: "}))
    assert not asked


def test_lists_with_missing_candidates(make_tiny_model: MakeModel, tmp_path: Path) -> None:
    """Bug (field report 24): lists of different lengths, padded with a score that is one (-1 is a cosine)."""
    rows = {
        "query": SENTENCES[:3],
        "first": SENTENCES[3:6],
        "second": [SENTENCES[6], None, ""],
        "third": [None, "", SENTENCES[7]],
    }
    teachers = TeacherEnsemble([make_cross_encoder(tmp_path), make_tiny_model(seed=1)])
    scored = TeacherScoreDataset.from_dataset(Dataset.from_dict(rows), teachers, show_progress_bar=False)
    assert scored.column_names == ["query", "first", "second", "third", "label"]
    assert list(scored.with_format(None)["second"]) == [SENTENCES[6], "", ""]
    candidates = list(zip(rows["first"], rows["second"], rows["third"], strict=True))
    expected = teachers.score_lists(SENTENCES[:3], candidates)
    for dataset in (scored, scored.with_format(None), saved_and_loaded(scored, tmp_path)):
        (batch,) = batches(dataset)
        torch.testing.assert_close(batch["label"], expected, equal_nan=True)
    assert expected.isnan().sum() == 4
    assert TeacherScoreDataset.records(scored)[0]["form"] == "lists"


def test_one_column_of_lists_becomes_a_column_for_each_candidate(tiny_teacher: SentenceTransformer) -> None:
    """Bug: a column of lists handed to the trainer's tokenizer."""
    lists = Dataset.from_dict({"query": SENTENCES[:2], "docs": [SENTENCES[2:5], SENTENCES[5:6]]})
    scored = TeacherScoreDataset.from_dataset(lists, tiny_teacher, scores="lists", show_progress_bar=False)
    assert scored.column_names == ["query", "docs_1", "docs_2", "docs_3", "label"]
    assert scored[1]["docs_3"] == ""
    assert torch.as_tensor(scored["label"][:]).isnan().tolist() == [[False] * 3, [False, True, True]]


def test_a_list_that_would_replace_its_anchor_is_an_error(tiny_teacher: SentenceTransformer) -> None:
    """Bug: the first candidates, spread over columns, written over an anchor column that has their name."""
    lists = Dataset.from_dict({"c_1": SENTENCES[:2], "c": [SENTENCES[2:5], SENTENCES[5:6]]})
    with pytest.raises(ValueError, match=r"'c_1' is the anchor's column already: rename .*rename_column\('c_1'"):
        TeacherScoreDataset.from_dataset(lists, tiny_teacher, scores="lists", show_progress_bar=False)


@pytest.mark.parametrize(
    ("columns", "chosen", "message"),
    [
        ({"text": "x", "row_id": "a7"}, None, r"\['row_id'\] look like ids.*columns=\[\.\.\.\]"),
        ({"id": 3, "text": "x"}, None, r"\['id'\] look like ids"),
        ({"text": "x", "n": 3}, None, r"'n' .*are no text: name the text columns"),
        ({"text": "x", "n": 3}, ["text", "n"], r"'n' .*are no text: leave them out"),
        ({"text": "x", "label": 1.0}, None, r"\['label'\] already.*remove_columns"),
        ({"text": "x", "scores": 1.0}, ["text"], r"\['scores'\] already"),
        ({"text": "x"}, ["sentence"], r"no columns \['sentence'\]: the dataset has \['text'\]"),
        ({"text": "x"}, ["text", "text"], "named once"),
        ({"text": "x"}, [], "At least one text column"),
        ({"text": ["x"]}, None, "are no text"),
    ],
)
def test_columns_are_checked_before_teachers_run(
    columns: dict[str, Any], chosen: list[str] | None, message: str
) -> None:
    """Bug (field report 13): an id column tokenised as text, or two labels."""
    dataset = Dataset.from_dict({name: [value] * 3 for name, value in columns.items()})
    model, asked = lookup({"x": [1.0, 0.0]})
    with pytest.raises(ValueError, match=message):
        TeacherScoreDataset.from_dataset(dataset, model, chosen, show_progress_bar=False)
    assert not asked


def test_other_columns_are_left_out(dataset: Dataset, ensemble: TeacherEnsemble, truth: dict[str, Tensor]) -> None:
    """Bug (field report 13): the trainer tokenises an id column that nobody named."""
    rows = Dataset.from_dict({"row_id": range(64), "sentence": SENTENCES}).shuffle(seed=1)
    scored = TeacherScoreDataset.from_dataset(rows, ensemble, ["sentence"], show_progress_bar=False)
    assert scored.column_names == ["sentence", "label"]
    assert_right(scored, truth, 64)


@pytest.mark.parametrize("column", ["query", "doc"])
def test_missing_texts_are_for_candidates_only(column: str) -> None:
    """Bug: None or "" scored as if it were a text."""
    model, asked = lookup({"x": [1.0, 0.0]})
    rows = Dataset.from_dict({"query": ["x", "x", "x"], "doc": ["x", "x", "x"]} | {column: ["x", "", None]})
    with pytest.raises(TypeError, match=rf"texts of column '{column}'.* 1 empty \(at 1\); 1 None \(at 2\)"):
        TeacherScoreDataset.from_dataset(rows, model, show_progress_bar=False)
    if column == "query":
        with pytest.raises(TypeError, match="column 'query'"):
            TeacherScoreDataset.from_dataset(rows, model, scores="lists", show_progress_bar=False)
    assert not asked


def test_what_is_no_dataset(tiny_teacher: SentenceTransformer, tmp_path: Path) -> None:
    """Bug: an obscure error for a dictionary of splits, a stream or a list."""
    rows = Dataset.from_dict({"a": ["x", "y"]})
    with pytest.raises(TypeError, match=r"DatasetDict with \['train'\].*from_dataset\(dataset\[\"train\"\]"):
        TeacherScoreDataset.from_dataset(DatasetDict(train=rows), tiny_teacher)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="IterableDataset"):
        TeacherScoreDataset.from_dataset(rows.to_iterable_dataset(), tiny_teacher)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="but got list"):
        TeacherScoreDataset.from_dataset(["x"], tiny_teacher)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no rows"):
        TeacherScoreDataset.from_dataset(rows.select([]), tiny_teacher)
    with pytest.raises(ValueError, match='"vectors" or "lists", but got'):
        TeacherScoreDataset.from_dataset(rows, tiny_teacher, scores="pairs")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an anchor column and at least one"):
        TeacherScoreDataset.from_dataset(rows, tiny_teacher, scores="lists")
    with pytest.raises(TypeError, match=r"Cross-encoders .* give no vectors"):
        TeacherScoreDataset.from_sentences(SENTENCES, make_cross_encoder(tmp_path), show_progress_bar=False)


@pytest.mark.parametrize(
    ("sentences", "error", "message"),
    [
        ([], ValueError, "there are no sentences"),
        (["one"], ValueError, "there are one sentence"),
        (iter([]), ValueError, "there are no sentences"),
        (iter(["x"]), ValueError, "there are one sentence"),
        (["x", "", "x"], ValueError, r"of 3 there are 1 empty \(at 1\)"),
        (["x", None], TypeError, r"1 None \(at 1\)"),
        (iter(["x", "x", 7]), TypeError, r"1 of type int \(at 2\)"),
        ("no/such/file.txt", FileNotFoundError, "put sentences themselves in a list"),
    ],
)
def test_bad_corpora(sentences: Any, error: type[Exception], message: str) -> None:
    """Bug: hours of scoring before an error that could have been said at once."""
    model, asked = lookup({"x": [1.0, 0.0], "one": [0.0, 1.0]})
    with pytest.raises(error, match=message):
        TeacherScoreDataset.from_sentences(sentences, model, show_progress_bar=False)
    assert not asked or message == "there are one sentence"


def test_bad_options() -> None:
    """Bug: an option that is silently something else."""
    model, _ = lookup({"x": [1.0, 0.0]})
    with pytest.raises(ValueError, match='"float32" or "float16", but got'):
        TeacherScoreDataset.from_sentences(["x", "x"], model, dtype="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shard_size must be at least 1"):
        TeacherScoreDataset.from_sentences(["x", "x"], model, shard_size=0)
    with pytest.raises(ValueError, match="cannot be sampled"):
        TeacherScoreDataset.from_sentences(iter(["x", "x"]), model, calibrate=True)
