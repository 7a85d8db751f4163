"""The fitted projection: what it keeps, where it brings vectors, and what it leaves as it found it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from batches import features, unit_vectors
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from torch import Tensor

from rankcse_st import RankCSELoss, TeacherScoreDataset, fit_teacher_projection
from rankcse_st.losses.matching import correlation
from rankcse_st.teacher_projection import _fit

WIDTH = 32


def rotation(width: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)).double())[0]


def scored(sentences: list[str], vectors: Tensor) -> Dataset:
    return Dataset.from_dict({"sentence": sentences, "label": vectors.tolist()})


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 60), wide=st.integers(2, 24), own=st.integers(1, 12), seed=st.integers(0, 999))
def test_columns_or_rows_are_orthonormal(n: int, wide: int, own: int, seed: int) -> None:
    """Products of vectors that are not the teachers' scores any more, where no dimension had to be left out."""
    vectors, student = unit_vectors(n, wide, seed=seed).double(), unit_vectors(n, own, seed=seed + 1).double()
    projection = _fit(vectors, student)
    if projection is None:
        assert wide == own
        return
    projection = projection.double()
    assert projection.shape == (wide, own)
    gram = projection @ projection.T if wide <= own else projection.T @ projection
    torch.testing.assert_close(gram, torch.eye(min(wide, own), dtype=torch.float64), atol=1e-5, rtol=0)
    if wide <= own:
        brought = vectors @ projection
        torch.testing.assert_close(brought @ brought.T, vectors @ vectors.T, atol=1e-5, rtol=0)


@pytest.mark.parametrize("wider", [0, 16])
def test_finds_the_students_space_again(wider: int) -> None:
    """Any other rotation keeps the products as well: the one that is near the student is wanted."""
    student = unit_vectors(200, WIDTH).double()
    turned = torch.nn.functional.pad(student, (0, wider)) @ rotation(WIDTH + wider)
    assert (turned[:, :WIDTH] * student).sum(1).mean() < 0.3
    projection = _fit(turned, student)
    torch.testing.assert_close(turned @ projection.double(), student, atol=1e-5, rtol=0)


def test_dimensions_that_hold_most_are_kept() -> None:
    """Scores of the teachers lost to a basis that the student chose, or to the smallest dimensions."""
    scale = torch.cat([torch.ones(WIDTH), torch.full((WIDTH,), 0.1)]).double()
    vectors = torch.nn.functional.normalize(unit_vectors(500, 2 * WIDTH).double() * scale, dim=1)
    projection = _fit(vectors @ rotation(2 * WIDTH), unit_vectors(500, WIDTH, seed=1).double())
    kept = (vectors @ rotation(2 * WIDTH) @ projection.double()).square().sum(1).mean()
    expected = vectors[:, :WIDTH].square().sum(1).mean()
    assert kept.item() == pytest.approx(expected.item(), abs=1e-3)
    assert 0.98 < expected < 0.995


def test_none_where_it_is_one_space(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """A student cut from its teacher turned away from it; one of the same width but another space left as it is."""
    own = tiny_model.encode(sentences, normalize_embeddings=True, convert_to_tensor=True)
    centred = own - own.mean(0)
    noise = centred.norm(dim=1, keepdim=True) * unit_vectors(*own.shape)
    near = torch.nn.functional.normalize(own + noise, dim=1)
    assert 0.5 < correlation(near, own) < 0.8
    assert fit_teacher_projection(tiny_model, scored(sentences, near)) is None
    turned = scored(sentences, near.double() @ rotation(WIDTH))
    projection = fit_teacher_projection(tiny_model, turned)
    assert projection.shape == (WIDTH, WIDTH)
    assert projection.dtype == torch.float32
    batch = features(tiny_model.eval(), sentences)
    alone = {"contrastive_weight": 0, "consistency_weight": 0, "matching_weight": 1.0}
    labels = torch.tensor(turned["label"])
    before, after = (
        RankCSELoss(tiny_model, **alone, teacher_projection=one)([dict(batch)], labels)["matching"].item()
        for one in (None, projection)
    )
    assert after < 0.5 * before


def test_one_direction_in_common_is_no_common_space() -> None:
    """Anisotropic embeddings of another model, which all point one way as the student's do, taken for the student's."""
    common = 2 * unit_vectors(1, WIDTH, seed=9)
    student, other = (
        torch.nn.functional.normalize(unit_vectors(300, WIDTH, seed=seed) + common, dim=1).double() for seed in (1, 2)
    )
    assert (student * other).sum(1).mean() > 0.7
    assert _fit(other, student) is not None
    assert _fit(student + 0.1 * other, student) is None


def test_sample_of_every_column_and_none_of_the_model_is_changed(
    make_tiny_model: Callable[..., SentenceTransformer], sentences: list[str]
) -> None:
    """Another training with matching than without, or anchors alone brought into the space."""
    model, teacher = make_tiny_model(), make_tiny_model(seed=5)
    pairs = Dataset.from_dict({"anchor": sentences[:20], "positive": sentences[20:40]})
    pairs = TeacherScoreDataset.from_dataset(pairs, teacher, show_progress_bar=False)
    model.train()
    model.truncate_dim = 8
    model.prompts, model.default_prompt_name = {"query": "Anna: "}, "query"
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = fit_teacher_projection(model, pairs)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert model.truncate_dim == 8
    student, vectors = (
        one.encode(sentences[:40], prompt="", truncate_dim=WIDTH, convert_to_tensor=True, normalize_embeddings=True)
        for one in (model, teacher)
    )

    def nearness(projection: Tensor | None) -> float:
        assert projection is not None
        return (vectors @ projection * student).sum().item()

    best = nearness(_fit(vectors.double(), student.double()))
    assert nearness(found) == pytest.approx(best, rel=1e-4)
    anchors = nearness(_fit(vectors[:20].double(), student[:20].double()))
    assert anchors < 0.999 * best


def test_columns_are_read_as_in_training(
    make_tiny_model: Callable[..., SentenceTransformer], sentences: list[str]
) -> None:
    """A projection fitted on one route of the student, or without the prompts, and used on others."""
    query, document = make_tiny_model(seed=1), make_tiny_model(seed=2)
    routed = SentenceTransformer(
        modules=[Router.for_query_document(query_modules=[*query], document_modules=[*document])], device="cpu"
    )
    vectors = unit_vectors(40, 2, 48)
    pairs = Dataset.from_dict({"anchor": sentences[:40], "positive": sentences[5:45], "label": vectors.tolist()})
    with pytest.raises(ValueError, match=r"has a Router: give router_mapping for the columns \['anchor', 'positive'\]"):
        fit_teacher_projection(routed, pairs, router_mapping={"anchor": "query"})
    found = fit_teacher_projection(routed, pairs, router_mapping={"anchor": "query", "positive": "document"})
    student = torch.stack(
        [torch.tensor(query.encode(sentences[:40])), torch.tensor(document.encode(sentences[5:45]))], dim=1
    ).flatten(0, 1)
    student = torch.nn.functional.normalize(student.double(), dim=1)
    torch.testing.assert_close(found, _fit(vectors.flatten(0, 1).double(), student), atol=1e-3, rtol=0)
    plain = pairs.remove_columns(["positive", "label"]).add_column("label", vectors[:, 0].tolist())
    prompted = [fit_teacher_projection(query, plain, prompts=prompt) for prompt in ("", "Anna: ", {"anchor": "Anna: "})]
    assert torch.equal(prompted[1], prompted[2])
    assert not torch.allclose(prompted[0], prompted[1], atol=1e-2)


def test_sample(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """A corpus of millions encoded for a projection, or its first lines taken for the whole of it."""
    data = scored(sentences, unit_vectors(len(sentences), 40))
    asked: list[int] = []
    encode = tiny_model.encode
    tiny_model.encode = lambda texts, **kwargs: asked.append(len(texts)) or encode(texts, **kwargs)  # type: ignore[method-assign]
    first = fit_teacher_projection(tiny_model, data, sample_size=WIDTH)
    assert asked == [WIDTH]
    assert torch.equal(first, fit_teacher_projection(tiny_model, data, sample_size=WIDTH))
    assert not torch.equal(first, fit_teacher_projection(tiny_model, data, sample_size=WIDTH, seed=1))
    head = fit_teacher_projection(tiny_model, data.select(range(WIDTH)))
    assert not torch.allclose(first, head, atol=1e-3)


def test_compressed_and_integer_labels_are_read(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """Labels of any length give the projection of their directions."""
    vectors = unit_vectors(len(sentences), 40)
    plain = fit_teacher_projection(tiny_model, scored(sentences, vectors))
    scaled = fit_teacher_projection(tiny_model, scored(sentences, 7 * vectors))
    torch.testing.assert_close(plain, scaled, atol=1e-4, rtol=0)
    integers = (1000 * vectors).round().int()
    data = scored(sentences, integers)
    assert all(isinstance(number, int) for number in data[0]["label"])
    directions = torch.nn.functional.normalize(integers.float(), dim=1)
    expected = fit_teacher_projection(tiny_model, scored(sentences, directions))
    torch.testing.assert_close(fit_teacher_projection(tiny_model, data), expected, atol=1e-4, rtol=0)


def test_errors(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """Whatever is wrong must be said before a training begins, not by torch."""
    data = scored(sentences, unit_vectors(len(sentences), 40))
    with pytest.raises(TypeError, match="a SentenceTransformer, but got str"):
        fit_teacher_projection("my-model", data)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got IterableDataset: of a stream take a sample"):
        fit_teacher_projection(tiny_model, data.to_iterable_dataset())
    with pytest.raises(ValueError, match=r"0 rows"):
        fit_teacher_projection(tiny_model, data.select([]))
    with pytest.raises(ValueError, match="label column of score vectors"):
        fit_teacher_projection(tiny_model, data.remove_columns("label"))
    with pytest.raises(
        ValueError, match="sample_size must be an integer of at least the student's 32 dimensions, but got 5"
    ):
        fit_teacher_projection(tiny_model, data, sample_size=5)
    ragged = Dataset.from_dict({"sentence": ["a", "b"], "label": [[1.0], [0.5, 0.5]]})
    with pytest.raises(ValueError, match="numbers, as many in each row"):
        fit_teacher_projection(tiny_model, ragged)
    ids = {"sentence": sentences[:40], "id": list(range(40)), "label": unit_vectors(40, 2, 40).tolist()}
    with pytest.raises(TypeError, match="texts of the column 'id' must be a string"):
        fit_teacher_projection(tiny_model, Dataset.from_dict(ids))
    lists = Dataset.from_dict(dict.fromkeys("abcd", sentences) | {"label": np.ones((len(sentences), 3)).tolist()})
    with pytest.raises(ValueError, match="explicit scores of lists"):
        fit_teacher_projection(tiny_model, lists)
    with torch.no_grad():
        tiny_model[0].model.embeddings.word_embeddings.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        fit_teacher_projection(tiny_model, data)
