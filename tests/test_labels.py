"""Which form a batch's labels have, by shape; every mismatch is an error that says what is expected."""

from __future__ import annotations

import math

import pytest
import torch
from batches import unit_vectors

from rankcse_st.losses.labels import TeacherScores, TeacherVectors, read_labels, undo_truncation

B = 5


class TestForms:
    """The input contract, row by row."""

    def test_one_column_vectors(self):
        """Prevents (B, D) vectors of a sentence column from being read as anything else."""
        labels = unit_vectors(B, 8)
        read = read_labels(labels, batch_size=B, columns=1)
        assert isinstance(read, TeacherVectors)
        torch.testing.assert_close(read.values, labels.unsqueeze(1))

    def test_one_column_of_several_vectors_of_one(self):
        """Prevents (B, 1, D), as a dataset of one column may store it, from being refused."""
        labels = unit_vectors(B, 1, 8)
        assert torch.equal(read_labels(labels, batch_size=B, columns=1).values, labels)

    def test_two_columns_share_vectors(self):
        """Prevents the vectors of a sentence that comes in two columns from being needed twice."""
        labels = unit_vectors(B, 8)
        read = read_labels(labels, batch_size=B, columns=2)
        assert isinstance(read, TeacherVectors)
        assert read.values.shape == (B, 2, 8)
        assert torch.equal(read.values[:, 0], labels)
        assert torch.equal(read.values[:, 1], labels)

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_vectors_per_column(self, count: int):
        """Prevents the columns' vectors from being mixed up."""
        labels = unit_vectors(B, count, 8)
        read = read_labels(labels, batch_size=B, columns=count)
        assert isinstance(read, TeacherVectors)
        assert torch.equal(read.values, labels)

    @pytest.mark.parametrize("candidates", [2, 3, 5])
    def test_explicit_scores(self, candidates: int):
        """Prevents graded lists, with entries missing, from being taken for vectors."""
        labels = torch.arange(B * candidates, dtype=torch.float32).reshape(B, candidates)
        labels[0, 0] = math.nan
        read = read_labels(labels, batch_size=B, columns=candidates + 1)
        assert isinstance(read, TeacherScores)
        assert torch.equal(read.values.isnan(), labels.isnan())

    def test_all_entries_missing(self):
        """Prevents a batch without any score from failing: it has nothing to rank."""
        read = read_labels(torch.full((B, 3), math.nan), batch_size=B, columns=4)
        assert isinstance(read, TeacherScores)

    def test_integer_grades(self):
        """Prevents grades stored as integers from failing."""
        read = read_labels(torch.randint(0, 4, (B, 3)), batch_size=B, columns=4)
        assert isinstance(read, TeacherScores)
        assert read.values.dtype == torch.float32

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_vectors(self, dtype):
        """Prevents score vectors stored at half the size from failing for the rounding of their lengths."""
        read = read_labels(unit_vectors(B, 768).to(dtype), batch_size=B, columns=1)
        assert read.values.dtype == torch.float32

    def test_float64_stays(self):
        """Prevents exact labels from losing digits."""
        assert (
            read_labels(unit_vectors(B, 8, dtype=torch.float64), batch_size=B, columns=1).values.dtype == torch.float64
        )

    def test_stated_form(self):
        """Prevents what the caller states from being overruled by a guess."""
        labels = torch.ones(B, 1)  # one candidate's score of 1, or vectors of one dimension
        assert isinstance(
            read_labels(labels, batch_size=B, columns=2, form="lists", in_batch_terms=True), TeacherScores
        )
        assert isinstance(read_labels(labels, batch_size=B, columns=2, form="vectors"), TeacherVectors)

    def test_normalize(self):
        """Prevents vectors of other lengths from being normalised silently, or not at all when asked for."""
        labels = 3 * unit_vectors(B, 8)
        read = read_labels(labels, batch_size=B, columns=1, normalize=True)
        torch.testing.assert_close(read.values[:, 0], unit_vectors(B, 8))


class TestErrors:
    """Each message says what is expected, what came, and what to do."""

    @pytest.mark.parametrize(
        ("shape", "count", "expected"),
        [
            ((B,), 1, r"must be score vectors \(5, D\), got shape \(5,\)"),
            ((B - 1, 8), 1, r"must be score vectors \(5, D\), got shape \(4, 8\)"),
            ((B, 2, 8), 1, r"must be score vectors \(5, D\), got shape \(5, 2, 8\)"),
            ((B, 3, 8), 2, r"score vectors \(5, 2, D\), or score vectors \(5, D\) shared by both columns"),
            ((B, 2, 8), 3, r"score vectors \(5, 3, D\), or explicit scores \(5, 2\)"),
            ((B, 1, 1, 8), 1, r"got shape \(5, 1, 1, 8\)"),
        ],
    )
    def test_shapes(self, shape: tuple[int, ...], count: int, expected: str):
        """Prevents a wrong width or column count from surfacing as a matrix product's error, or not at all."""
        with pytest.raises(ValueError, match=expected) as error:
            read_labels(torch.ones(shape), batch_size=B, columns=count)
        assert "TeacherScoreDataset" in str(error.value)

    def test_one_vector_for_three_columns(self):
        """Prevents a sentence's vector from being used for its hard negatives."""
        with pytest.raises(ValueError, match=r"\(5, 3, D\).*got shape \(5, 8\).*anchor from its negatives"):
            read_labels(unit_vectors(B, 8), batch_size=B, columns=3)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    @pytest.mark.parametrize("shape", [(B, 8), (B, 2, 8)])
    def test_vectors_not_finite(self, bad: float, shape: tuple[int, ...]):
        """Prevents NaN, which is for explicit lists only, from making the loss NaN."""
        labels = unit_vectors(*shape)
        labels[1, ..., 0] = bad
        with pytest.raises(ValueError, match=r"1 of 5 rows.*explicit scores of anchor and candidates only"):
            read_labels(labels, batch_size=B, columns=len(shape) - 1)

    def test_infinite_scores(self):
        """Prevents an infinite grade from making the loss NaN."""
        with pytest.raises(ValueError, match="NaN where a candidate is missing; got an infinite"):
            read_labels(torch.tensor([[1.0, math.inf]] * B), batch_size=B, columns=3)

    def test_lengths(self):
        """Prevents raw teacher embeddings, whose dot products are no cosines, from being used as they are."""
        with pytest.raises(ValueError, match=r"between 2 and 2\..*normalize_labels=True"):
            read_labels(2 * unit_vectors(B, 8), batch_size=B, columns=1)

    def test_a_zero_vector(self):
        """Prevents a text without an embedding from being scored 0 with everything, silently."""
        labels = 2 * unit_vectors(B, 8)
        labels[3] = 0
        with pytest.raises(ValueError, match=r"zero|length 0"):
            read_labels(labels, batch_size=B, columns=1, normalize=True)

    def test_lists_of_one_candidate(self):
        """Prevents a loss that is 0 for ever: one candidate has nothing to be ranked against."""
        with pytest.raises(ValueError, match="candidate"):
            read_labels(torch.rand(B, 1), batch_size=B, columns=2)

    def test_ambiguous(self):
        """Prevents two possible readings from being settled by a guess."""
        with pytest.raises(ValueError, match='label_form="lists" or label_form="vectors"'):
            read_labels(torch.ones(B, 1), batch_size=B, columns=2)

    def test_stated_form_that_does_not_fit(self):
        """Prevents a stated form from being forced onto labels that cannot have it."""
        with pytest.raises(ValueError, match=r"3 candidate column\(s\) must have shape \(5, 3\), got \(5, 4\)"):
            read_labels(torch.ones(B, 4), batch_size=B, columns=4, form="lists")
        with pytest.raises(ValueError, match="length 1"):
            read_labels(torch.full((B, 3), 2.0), batch_size=B, columns=2, form="vectors")


class TestUndoTruncation:
    """What MatryoshkaLoss cuts off labels as wide as the model's embeddings is put back."""

    @pytest.mark.parametrize("shape", [(B, 32), (B, 3, 32), (32, 32), (1, 32)])
    @pytest.mark.parametrize("dim", [31, 16, 1])
    def test_cut_labels(self, shape: tuple[int, ...], dim: int):
        """Prevents the teachers' scores from being computed of cut vectors."""
        labels = unit_vectors(*shape)
        assert torch.equal(undo_truncation(labels[..., :dim], dim, 32), labels)

    def test_cut_rows_of_a_larger_tensor(self):
        """Prevents the rows of another part of a tensor from being taken for these."""
        labels = unit_vectors(10, 32)[4:9]
        assert torch.equal(undo_truncation(labels[..., :16], 16, 32), labels)

    @pytest.mark.parametrize("shape", [(B, 16), (B, 3, 16), (32, 16), (B, 33), (B, 48), (1, 16)])
    def test_whole_labels(self, shape: tuple[int, ...]):
        """Prevents labels that were not cut from being stretched into memory that is not theirs."""
        labels = unit_vectors(*shape)
        assert undo_truncation(labels, 16, 32) is labels
        assert undo_truncation(labels, 32, 32) is labels
        assert undo_truncation(labels, 16, None) is labels
