"""Compressed score vectors: what they cost is what the report says, and the loss can read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, load_from_disk
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from teacher_models import lookup

from rankcse_st.data import TeacherScoreDataset
from rankcse_st.losses import ListwiseDistillationLoss
from rankcse_st.scores.compression import Compressor, compress

DIMENSION = 24


@pytest.fixture(scope="module")
def scored() -> Dataset:
    """300 sentences whose vectors lie near a subspace of 6 dimensions, as real embeddings do."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((300, 6)) @ random.standard_normal((6, DIMENSION))
    rows += 0.05 * random.standard_normal(rows.shape)
    table = {f"sentence {i}": row.tolist() for i, row in enumerate(rows)}
    return TeacherScoreDataset.from_sentences(list(table), lookup(table)[0], show_progress_bar=False)


@pytest.mark.parametrize(("dtype", "size"), [("int8", 1), ("float16", 2)])
def test_the_report_is_what_a_reader_of_the_dataset_measures(scored: Dataset, dtype: str, size: int) -> None:
    """Bug: an error measured before rounding, on the fitted rows, or on other rows than those stored."""
    small, report = TeacherScoreDataset.compress(scored, 8, dtype=dtype, batch_size=50)  # type: ignore[arg-type]
    assert small.features["label"].length == 8
    assert small.features["label"].feature.dtype == dtype
    assert report.bytes_per_vector == 8 * size
    assert list(small["sentence"]) == list(scored["sentence"])
    rows = np.random.default_rng(0).permutation(300)[150:]
    old = torch.as_tensor(scored["label"][:])[rows]
    new = torch.nn.functional.normalize(torch.as_tensor(small["label"][:])[rows].float(), dim=1)
    errors, correlations = [], []
    for start in (0, 50, 100):
        a, b = (vectors[start : start + 50] @ vectors[start : start + 50].T for vectors in (old, new))
        for row in range(50):
            others = [column for column in range(50) if column != row]
            errors.append((a[row, others] - b[row, others]).abs())
            correlations.append(spearmanr(a[row, others], b[row, others])[0])
    assert report.rows == 150
    assert report.held_out
    assert report.mean_absolute_error == pytest.approx(float(torch.stack(errors).mean()), rel=1e-4)
    assert report.largest_absolute_error == pytest.approx(float(torch.stack(errors).max()), rel=1e-4)
    assert report.spearman == pytest.approx(np.mean(correlations), rel=1e-6)
    assert report.lowest_spearman == pytest.approx(np.min(correlations), rel=1e-6)
    assert report.spearman > 0.99
    assert 0.9 < report.kept < 1


def test_fewer_dimensions_than_there_is_to_keep_are_noticed(scored: Dataset) -> None:
    """Bug: a report that always looks good."""
    _, report = TeacherScoreDataset.compress(scored, 2, batch_size=50)
    assert report.spearman < 0.9
    assert report.kept < 0.7


def test_all_dimensions_change_nothing(scored: Dataset) -> None:
    """Bug: a centred or scaled basis, which does not keep products."""
    vectors = torch.as_tensor(scored["label"][:])
    compressor = Compressor.fit(vectors, DIMENSION, "float16")
    decoded = compressor.decode(compressor.encode(vectors))
    torch.testing.assert_close(decoded @ decoded.T, vectors @ vectors.T, atol=2e-3, rtol=0)
    torch.testing.assert_close(compressor.basis.T @ compressor.basis, torch.eye(DIMENSION), atol=1e-5, rtol=0)


def test_the_loss_reads_compressed_scores(scored: Dataset, tiny_model: SentenceTransformer, tmp_path: Path) -> None:
    """Bug: integers that reach the loss as they are, and scores of 16,000 instead of 1."""
    small, _ = TeacherScoreDataset.compress(scored, 8, batch_size=50)
    small.shuffle(seed=1).save_to_disk(tmp_path)
    small = load_from_disk(str(tmp_path))
    features = [tiny_model.preprocess(["The cat sleeps.", "A dog runs.", "Anna is late.", "The river likes bread."])]
    labels = torch.as_tensor(small[:4]["label"])
    assert not labels.is_floating_point()
    tiny_model.eval()
    loss = ListwiseDistillationLoss(tiny_model, normalize_labels=True)
    exact = ListwiseDistillationLoss(tiny_model)(
        features,
        torch.stack([torch.as_tensor(scored[int(text.split()[1])]["label"]) for text in small[:4]["sentence"]]),
    )
    assert loss(features, labels).item() == pytest.approx(exact.item(), rel=0.05)
    with pytest.raises(ValueError, match="normalize_labels=True"):
        ListwiseDistillationLoss(tiny_model)(features, labels)


def test_several_columns(scored: Dataset) -> None:
    """Bug: columns mixed by the projection."""
    texts = list(scored["sentence"])
    table = dict(zip(texts, scored["label"][:].tolist(), strict=True))
    pairs = Dataset.from_dict({"anchor": texts[:-1], "positive": texts[1:]})
    both = TeacherScoreDataset.from_dataset(pairs, lookup(table)[0], show_progress_bar=False)
    small, report = TeacherScoreDataset.compress(both, 8, batch_size=50)
    labels = Compressor.decode(np.asarray(small["label"][:]))
    assert labels.shape == (299, 2, 8)
    torch.testing.assert_close(labels[1:, 0], labels[:-1, 1], atol=1e-6, rtol=0)
    assert report.spearman > 0.99


def test_the_record_keeps_the_report(scored: Dataset) -> None:
    """Bug: nobody knows any more that the scores were rounded, or they are compressed twice."""
    small, report = TeacherScoreDataset.compress(scored, 8, batch_size=50)
    (record,), (before,) = TeacherScoreDataset.records(small), TeacherScoreDataset.records(scored)
    assert record["compression"] == report.to_dict()
    assert record["dtype"] == "int8"
    assert record["teachers"] == before["teachers"]
    assert "compression" not in before
    with pytest.raises(ValueError, match="only once"):
        TeacherScoreDataset.compress(small, 4, batch_size=50)


def test_bad_requests(scored: Dataset) -> None:
    """Bug: more dimensions than there are, a sample too small to fit them, or labels that are no vectors."""
    with pytest.raises(ValueError, match="between 1 and the 24"):
        TeacherScoreDataset.compress(scored, 25)
    with pytest.raises(ValueError, match='"int8" or "float16"'):
        TeacherScoreDataset.compress(scored, 8, dtype="int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has 20 rows"):
        TeacherScoreDataset.compress(scored.select(range(20)), 8)
    with pytest.raises(ValueError, match="no record"):
        TeacherScoreDataset.compress(Dataset.from_dict({"label": [[1.0, 0.0]]}), 1)
    with pytest.raises(ValueError, match="no label column"):
        compress(scored.remove_columns("label"), 8)
