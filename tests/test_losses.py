"""The three losses on hand-made batches: what they compute, what they cost, and what they refuse."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys

import pytest
import references
import torch
from batches import columns, features, forwards_of, gradients, total, unit_vectors
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tiny_models import STATIC, build_student

from rankcse_st import ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss, TeacherEnsemble
from rankcse_st.losses.parts import LossParts

N = 6
PARTS = ["contrastive", "consistency", "distillation"]


def only(**weights: float) -> dict[str, float]:
    """Weights of the terms named; 0 for the others."""
    return {f"{part}_weight": weights.get(part, 0.0) for part in PARTS}


def two_views(seed: int = 0, rows: int = N, width: int = 32) -> list[torch.Tensor]:
    """Embeddings of two views, somewhat alike, as tensors that take a gradient."""
    u = unit_vectors(rows, width, seed=seed, dtype=torch.float64)
    v = u + 2 * unit_vectors(rows, width, seed=seed + 1, dtype=torch.float64)
    return [u.requires_grad_(), v.detach().requires_grad_()]


def masked_loops(*rows: list[int]) -> list[list[bool]]:
    """The mask of lists given as the positions that they keep."""
    width = 1 + max(max(row) for row in rows)
    return [[j in row for j in range(width)] for row in rows]


class TestAgainstLoops:
    """From embeddings and labels to the parts, as the paper's equations have it."""

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_sentences(self, tiny_model, method: str):
        """Prevents a wrong matrix, mask, temperature or default: two views of one column, score vectors (B, D)."""
        views, labels = two_views(), unit_vectors(N, 48, dtype=torch.float64)
        parts = RankCSELoss(tiny_model, method=method).compute_loss_from_embeddings(views, labels)
        expected = references.rankcse(views, references.cosines(labels, labels), method=method)
        assert set(parts) == set(expected)
        for name, value in expected.items():
            assert value > 1e-4
            assert parts[name].item() == pytest.approx(value, rel=1e-6, abs=1e-9)

    def test_temperatures_and_weights(self, tiny_model):
        """Prevents a temperature or weight from being unused, as β and τ3 are in the public implementation."""
        views, labels = two_views(), unit_vectors(N, 48, dtype=torch.float64)
        options = {"temperature": 0.1, "student_temperature": 0.2, "teacher_temperature": 0.3}
        weights = {"contrastive": 0.5, "consistency": 2.0, "distillation": 3.0}
        parts = RankCSELoss(tiny_model, **options, **only(**weights)).compute_loss_from_embeddings(views, labels)
        expected = references.rankcse(views, references.cosines(labels, labels), **options)
        for name, value in expected.items():
            assert parts[name].item() == pytest.approx(weights[name] * value, rel=1e-6)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    @pytest.mark.parametrize("include_positive", [None, False, True])
    def test_positive_in_the_list(self, tiny_model, method: str, include_positive: bool | None):
        """Prevents the positive's place from being another than the paper's, or the parameter from being unused."""
        views, labels = two_views(), unit_vectors(N, 48, dtype=torch.float64)
        loss = ListwiseDistillationLoss(tiny_model, method=method, include_positive=include_positive, views=2)
        kept = include_positive if include_positive is not None else method == "listmle"
        mask = [[kept or i != j for j in range(N)] for i in range(N)]
        teacher = references.cosines(labels, labels)
        value = references.value(getattr(references, method), references.cosines(*views), teacher, mask=mask)
        assert loss.compute_loss_from_embeddings(views, labels).item() == pytest.approx(value, rel=1e-6)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    @pytest.mark.parametrize("include_positive", [None, True])
    def test_one_view_leaves_the_diagonal_out(self, tiny_model, method: str, include_positive: bool | None):
        """Prevents a sentence's similarity with itself, always 1, from being ranked."""
        (u, _), labels = two_views(), unit_vectors(N, 48, dtype=torch.float64)
        loss = ListwiseDistillationLoss(tiny_model, method=method, include_positive=include_positive)
        mask = [[i != j for j in range(N)] for i in range(N)]
        teacher = references.cosines(labels, labels)
        value = references.value(getattr(references, method), references.cosines(u, u), teacher, mask=mask)
        assert loss.compute_loss_from_embeddings([u], labels).item() == pytest.approx(value, rel=1e-6)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_hard_negatives(self, tiny_model, method: str):
        """Prevents columns from being mixed up: first list cos(u, [v; n]), second cos(v, [u; n]), teachers alike."""
        u, v = two_views()
        n = unit_vectors(N, 32, seed=5, dtype=torch.float64)
        labels = unit_vectors(N, 3, 48, dtype=torch.float64)
        parts = RankCSELoss(tiny_model, method=method).compute_loss_from_embeddings([u, v, n], labels)
        first, second = references.cosines(u, torch.cat([v, n])), references.cosines(v, torch.cat([u, n]))
        teacher = references.cosines(labels[:, 0], torch.cat([labels[:, 1], labels[:, 2]]))
        kept = None if method == "listmle" else [[j != i for j in range(2 * N)] for i in range(N)]
        expected = {
            "contrastive": references.value(references.contrastive, first, positives=range(N)),
            "consistency": references.value(references.consistency, first, second),
            "distillation": references.value(getattr(references, method), first, teacher, mask=kept),
        }
        for name, value in expected.items():
            assert parts[name].item() == pytest.approx(value, rel=1e-6)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_explicit_lists(self, tiny_model, method: str):
        """Field report 24: graded candidates with entries missing, each anchor's own list and temperature 1."""
        anchors = unit_vectors(4, 32, dtype=torch.float64).requires_grad_()
        candidates = unit_vectors(3, 4, 32, seed=1, dtype=torch.float64)
        grades = torch.tensor([[3.0, 1, 0], [3, math.nan, 0], [2, math.nan, math.nan], [1, 1, 2]], dtype=torch.float64)
        loss = ListwiseDistillationLoss(tiny_model, method=method).compute_loss_from_embeddings(
            [anchors, *candidates], grades
        )
        scores = torch.tensor(
            [
                [torch.nn.functional.cosine_similarity(a.detach(), c, dim=0) for c in lists]
                for a, lists in zip(anchors, candidates.unbind(1), strict=True)
            ],
            dtype=torch.float64,
        )
        options = {"teacher_temperature": 1.0} if method == "listnet" else {}
        expected = references.value(
            getattr(references, method), scores, grades.nan_to_num(0), mask=(~grades.isnan()).tolist(), **options
        )
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        loss.backward()
        assert anchors.grad[[0, 1, 3]].abs().amax(1).min() > 0
        assert (anchors.grad[2] == 0).all()  # a list of one entry

    def test_padded_lists(self, tiny_model):
        """Prevents the padding of 3 candidates to 5 from changing anything."""
        anchors, candidates = unit_vectors(4, 32), list(unit_vectors(5, 4, 32, seed=1))
        grades = torch.tensor([[3.0, 1, 0]] * 4)
        padded = torch.cat([grades, torch.full((4, 2), math.nan)], dim=1)
        for method in ("listnet", "listmle"):
            loss = ListwiseDistillationLoss(tiny_model, method=method)
            short = loss.compute_loss_from_embeddings([anchors, *candidates[:3]], grades)
            long = loss.compute_loss_from_embeddings([anchors, *candidates], padded)
            assert short > 0
            torch.testing.assert_close(short, long)

    def test_temperature_of_grades(self, tiny_model):
        """Prevents grades 0 to 3 from being made one-hot by the temperature for cosines, and the reverse."""
        assert ListwiseDistillationLoss(tiny_model).teacher_temperature is None
        embeddings = list(unit_vectors(4, 5, 32))
        grades = torch.randint(0, 4, (5, 3), generator=torch.Generator().manual_seed(0)).float()
        by_default = ListwiseDistillationLoss(tiny_model).compute_loss_from_embeddings(embeddings, grades)
        at_one = ListwiseDistillationLoss(tiny_model, teacher_temperature=1.0)
        sharp = ListwiseDistillationLoss(tiny_model, teacher_temperature=0.025)
        assert by_default == at_one.compute_loss_from_embeddings(embeddings, grades)
        assert by_default != sharp.compute_loss_from_embeddings(embeddings, grades)
        vectors = unit_vectors(5, 48)
        by_default = ListwiseDistillationLoss(tiny_model).compute_loss_from_embeddings(embeddings[:1], vectors)
        assert by_default == sharp.compute_loss_from_embeddings(embeddings[:1], vectors)
        assert by_default != at_one.compute_loss_from_embeddings(embeddings[:1], vectors)

    def test_a_sharp_temperature_for_grades_is_said_once(self, tiny_model, caplog):
        """Prevents RankCSELoss's temperature for cosines from making grades one-hot without anyone being told."""
        embeddings, generator = list(unit_vectors(4, 5, 32)), torch.Generator().manual_seed(0)
        grades, cosines = (
            torch.randint(0, 4, (5, 3), generator=generator).float(),
            torch.rand(5, 3, generator=generator),
        )
        for loss, labels, count in (
            (RankCSELoss(tiny_model), grades, 1),
            (RankCSELoss(tiny_model), cosines, 0),
            (RankCSELoss(tiny_model, teacher_temperature=1.0), grades, 0),
            (RankCSELoss(tiny_model, method="listmle"), grades, 0),
            (ListwiseDistillationLoss(tiny_model), grades, 0),
        ):
            caplog.clear()
            for _ in range(2):
                loss.compute_loss_from_embeddings(embeddings, labels)
            assert sum("teacher_temperature=1.0" in record.getMessage() for record in caplog.records) == count

    def test_in_batch_terms_with_explicit_lists(self, tiny_model):
        """Prevents missing candidates, the text "", from being negatives, and anchors without one from counting."""
        anchors, *candidates = unit_vectors(4, 5, 32, dtype=torch.float64)
        grades = torch.rand(5, 3, dtype=torch.float64)
        grades[1, 0], grades[3, 1], grades[0, 2] = math.nan, math.nan, math.nan
        off = RankCSELoss(tiny_model).compute_loss_from_embeddings([anchors, *candidates], grades)
        assert list(off) == ["distillation"]
        parts = RankCSELoss(tiny_model, in_batch_terms=True).compute_loss_from_embeddings(
            [anchors, *candidates], grades
        )
        assert parts["distillation"] == off["distillation"]
        first, second = (
            references.cosines(x, torch.cat([y, *candidates[1:]]))
            for x, y in ((anchors, candidates[0]), (candidates[0], anchors))
        )
        present = (~grades.isnan()).T.flatten().tolist()
        mask = [[there and i != 1 for there in present] for i in range(5)]
        consistency = references.value(references.consistency, first, second, mask=mask)
        assert parts["consistency"].item() == pytest.approx(consistency, rel=1e-6)
        rows = [0, 2, 3, 4]
        contrastive = references.value(references.contrastive, first[rows], positives=rows, mask=[present] * 4)
        assert parts["contrastive"].item() == pytest.approx(contrastive, rel=1e-6)

    def test_embeddings_of_one_dimension(self, tiny_model):
        """Prevents the width of the embeddings, 1 inside MatryoshkaLoss, from being taken for the lists' length."""
        views = [unit_vectors(N, 2, seed=s, dtype=torch.float64)[:, :1] for s in range(2)]
        parts = RankCSELoss(tiny_model, distillation_weight=0.0).compute_loss_from_embeddings(views)
        for name, value in references.rankcse(views, None).items():
            assert parts[name].item() == pytest.approx(value, rel=1e-6)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_gradients_reach_every_column(self, tiny_model, method: str):
        """Prevents a view that is detached, or a gradient that is not that of the value (numerically checked)."""
        embeddings = [unit_vectors(3, 8, seed=s, dtype=torch.float64).requires_grad_() for s in range(3)]
        labels = unit_vectors(3, 3, 5, dtype=torch.float64)
        loss = RankCSELoss(tiny_model, method=method, temperature=0.5, student_temperature=0.5, teacher_temperature=0.5)
        assert torch.autograd.gradcheck(
            lambda *e: total(loss.compute_loss_from_embeddings(list(e), labels)), embeddings
        )
        total(loss.compute_loss_from_embeddings(embeddings, labels)).backward()
        assert all(e.grad.abs().amax(1).min() > 1e-6 for e in embeddings)

    def test_many_rows(self, tiny_model):
        """Prevents anything that is done a few rows at a time from losing rows, or a gradient."""
        u, v = two_views(rows=700, width=16)
        labels = unit_vectors(700, 24, dtype=torch.float64)
        parts = RankCSELoss(tiny_model).compute_loss_from_embeddings([u, v], labels)
        (2 * parts["contrastive"] + parts["consistency"] + 3 * parts["distillation"]).backward()
        found = u.grad.clone()
        u.grad = None
        s = u @ torch.nn.functional.normalize(v, dim=1).T
        p, q = (s / 0.05).softmax(1), (s.T / 0.05).softmax(1)
        m = (p + q) / 2
        off = torch.eye(700, dtype=torch.bool)
        t = (labels @ labels.T / 0.025).masked_fill(off, -math.inf).softmax(1)
        expected = {
            "contrastive": torch.nn.functional.cross_entropy(s / 0.05, torch.arange(700)),
            "consistency": 0.5 * (p * (p / m).log() + q * (q / m).log()).sum(1).mean(),
            "distillation": -(t * (s / 0.05).masked_fill(off, -1e30).log_softmax(1)).sum(1).mean(),
        }
        for name in PARTS:
            assert parts[name].item() == pytest.approx(expected[name].item(), rel=1e-6)
        # u has length 1 already, so that only the part of its gradient along the sphere is the loss's.
        (2 * expected["contrastive"] + expected["consistency"] + 3 * expected["distillation"]).backward()
        tangent = u.grad - (u.grad * u).sum(1, keepdim=True) * u.detach()
        torch.testing.assert_close(found, tangent, rtol=1e-6, atol=1e-9)


class TestRelations:
    def test_simcse_is_multiple_negatives_ranking(self, tiny_model, sentences):
        """Prevents SimCSE from being another loss than the one that people know; a weight of 0 needs no labels."""
        loss = RankCSELoss(tiny_model, **only(contrastive=1.0))
        views = two_views()
        expected = MultipleNegativesRankingLoss(tiny_model, scale=20).compute_loss_from_embeddings(views, None)
        assert total(loss.compute_loss_from_embeddings(views)).item() == pytest.approx(expected.item(), rel=1e-9)

    def test_hard_negatives_are_multiple_negatives_ranking(self, tiny_model):
        """Prevents hard negatives from being left out of the contrastive term."""
        embeddings = [*two_views(), unit_vectors(N, 32, seed=7, dtype=torch.float64)]
        expected = MultipleNegativesRankingLoss(tiny_model, scale=20).compute_loss_from_embeddings(embeddings, None)
        loss = RankCSELoss(tiny_model, **only(contrastive=1.0)).compute_loss_from_embeddings(embeddings)
        assert total(loss).item() == pytest.approx(expected.item(), rel=1e-9)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_single_terms(self, tiny_model, method: str):
        """Prevents the single-term losses from being other terms than those of RankCSELoss."""
        views, labels = two_views(), unit_vectors(N, 48, dtype=torch.float64)
        parts = RankCSELoss(tiny_model, method=method).compute_loss_from_embeddings(views, labels)
        assert RankingConsistencyLoss(tiny_model).compute_loss_from_embeddings(views) == parts["consistency"]
        distillation = ListwiseDistillationLoss(tiny_model, method=method, views=2)
        assert distillation.compute_loss_from_embeddings(views, labels) == parts["distillation"]

    def test_plain_embeddings_and_score_vectors(self, tiny_model, tiny_teacher, sentences):
        """Prevents one teacher's plain unit embeddings from being read as anything but its score vectors."""
        texts = sentences[:N]
        plain = tiny_teacher.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
        vectors = TeacherEnsemble(tiny_teacher).encode(texts)
        torch.manual_seed(0)
        batch = features(tiny_model, texts)
        tiny_model.eval()
        loss = ListwiseDistillationLoss(tiny_model)
        torch.testing.assert_close(loss([batch], plain), loss([features(tiny_model, texts)], vectors))

    def test_an_ensemble_is_the_mean_of_its_teachers(self, tiny_model, tiny_teacher, make_tiny_model, sentences):
        """Prevents concatenated vectors from being anything but Σ w_k cos_k."""
        other = make_tiny_model(seed=2)
        vectors = TeacherEnsemble([tiny_teacher, other]).encode(sentences[:N])
        mean = (
            sum(
                references.cosines(e, e)
                for e in (t.encode(sentences[:N], convert_to_tensor=True) for t in (tiny_teacher, other))
            )
            / 2
        )
        u, _ = two_views()
        loss = ListwiseDistillationLoss(tiny_model).compute_loss_from_embeddings([u], vectors)
        mask = [[i != j for j in range(N)] for i in range(N)]
        expected = references.value(references.listnet, references.cosines(u, u), mean, mask=mask)
        assert loss.item() == pytest.approx(expected, rel=1e-4)

    def test_two_columns_and_two_views(self, make_tiny_model, sentences):
        """Prevents the same text in two columns from being treated otherwise than one column with two views."""
        model = make_tiny_model(dropout=0.0).eval()
        labels = unit_vectors(N, 48)
        loss = RankCSELoss(model)
        one = loss(columns(model, sentences[:N]), labels)
        two = loss(columns(model, sentences[:N], sentences[:N]), labels)
        per_column = loss(columns(model, sentences[:N], sentences[:N]), torch.stack([labels, labels], dim=1))
        for name in PARTS:
            torch.testing.assert_close(one[name], two[name])
            torch.testing.assert_close(one[name], per_column[name])
        assert one["distillation"] > 0

    def test_forward_is_the_loss_of_its_embeddings(self, tiny_model, sentences):
        """Prevents the two ways into a loss from parting company."""
        tiny_model.eval()
        u, v = (tiny_model.encode(t, convert_to_tensor=True) for t in (sentences[:N], sentences[8 : 8 + N]))
        labels = unit_vectors(N, 2, 48)
        loss = RankCSELoss(tiny_model)
        expected = loss.compute_loss_from_embeddings([u, v], labels)
        found = loss(columns(tiny_model, sentences[:N], sentences[8 : 8 + N]), labels)
        for name in PARTS:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)


class TestCost:
    @pytest.mark.parametrize("parts", [PARTS, PARTS[:1], PARTS[1:2], PARTS[2:]])
    def test_one_forward_per_step(self, tiny_model, sentences, parts: list[str]):
        """Prevents each term from running the student by itself; distillation alone takes one view."""
        loss = RankCSELoss(tiny_model, **only(**dict.fromkeys(parts, 1.0)))
        labels = unit_vectors(N, 48) if "distillation" in parts else None
        tiny_model.train()
        with forwards_of(tiny_model) as rows:
            found = loss([features(tiny_model, sentences[:N])], labels)
        assert rows == [N if parts == ["distillation"] else 2 * N]
        assert sorted(found) == sorted(parts)

    @pytest.mark.parametrize(
        ("part", "functions"),
        [("contrastive", ["contrastive"]), ("consistency", ["consistency"]), ("distillation", ["listnet", "listmle"])],
    )
    def test_a_term_of_weight_0_is_not_computed(self, tiny_model, monkeypatch, part: str, functions: list[str]):
        """Prevents a term of weight 0 from costing time, or from making the loss NaN."""

        def fail(*args, **kwargs):
            raise AssertionError("computed")

        modules = [module for name, module in sys.modules.items() if name.startswith("rankcse_st.losses")]
        for module, name in itertools.product(modules, functions):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fail)
        labels = unit_vectors(N, 48)
        with pytest.raises(AssertionError, match="computed"):  # the canary
            RankCSELoss(tiny_model).compute_loss_from_embeddings(two_views(), labels)
        weights = dict.fromkeys(PARTS, 1.0) | {part: 0.0}
        parts = RankCSELoss(tiny_model, **only(**weights)).compute_loss_from_embeddings(two_views(), labels)
        assert sorted(parts) == sorted(set(PARTS) - {part})

    def test_without_distillation_labels_are_not_read(self, tiny_model):
        """Prevents a dataset with some label column from failing where no label is needed."""
        loss = RankCSELoss(tiny_model, distillation_weight=0.0)
        parts = loss.compute_loss_from_embeddings(two_views(), torch.full((N, 7), math.nan))
        assert list(parts) == PARTS[:2]
        assert RankingConsistencyLoss(tiny_model).compute_loss_from_embeddings(two_views(), torch.ones(N)) > 0


class TestGradients:
    @pytest.mark.parametrize(
        "make",
        [
            RankCSELoss,
            lambda m: RankCSELoss(m, method="listmle"),
            RankingConsistencyLoss,
            ListwiseDistillationLoss,
            lambda m: ListwiseDistillationLoss(m, method="listmle", views=2),
        ],
    )
    def test_parameters_move(self, tiny_model, sentences, make):
        """Prevents gradients that never arrive at the student's parameters."""
        tiny_model.train()
        loss = make(tiny_model)
        total(loss([features(tiny_model, sentences[:N])], unit_vectors(N, 48))).backward()
        found = gradients(tiny_model)
        expected = {n for n, p in tiny_model.named_parameters() if p.requires_grad and "pooler" not in n}
        assert set(found) == expected
        assert all(g.isfinite().all() for g in found.values())
        assert sum(bool(g.abs().max() > 0) for g in found.values()) > 0.9 * len(found)

    def test_both_views(self, tiny_model):
        """Prevents one of the views from being a target only."""
        views = two_views()
        for part in PARTS:
            loss = RankCSELoss(tiny_model, views=2, **only(**{part: 1.0}))
            found = torch.autograd.grad(total(loss.compute_loss_from_embeddings(views, unit_vectors(N, 48))), views)
            assert all(g.abs().amax(1).min() > 0 for g in found)

    def test_one_row(self, tiny_model, sentences):
        """Prevents a last batch of one row from being NaN or without a gradient: its lists are empty."""
        tiny_model.train()
        for method in ("listnet", "listmle"):
            parts = RankCSELoss(tiny_model, method=method)([features(tiny_model, sentences[:1])], unit_vectors(1, 48))
            assert total(parts) == 0
            total(parts).backward()
            assert all((g == 0).all() for g in gradients(tiny_model).values())

    @pytest.mark.parametrize(("first", "times"), [(1, 1), (4, 0)])
    def test_batches_of_one_row_are_remarked(self, first, times, tiny_model, sentences, caplog):
        """Prevents a training in batches of one, in which nothing is learned, from passing for one."""
        loss = RankCSELoss(tiny_model.train())
        for rows in (first, 1):
            loss([features(tiny_model, sentences[:rows])], unit_vectors(rows, 48))
        assert caplog.text.count("Raise per_device_train_batch_size") == times

    def test_backward_twice(self, tiny_model):
        """Prevents what is kept for the backward pass from being used up by the first one."""
        views = two_views()
        value = total(RankCSELoss(tiny_model).compute_loss_from_embeddings(views, unit_vectors(N, 48)))
        (first,) = torch.autograd.grad(value, views[0], retain_graph=True)
        (second,) = torch.autograd.grad(3 * value, views[0])
        torch.testing.assert_close(second, 3 * first)

    def test_no_grad(self, tiny_model):
        """Prevents evaluation on a loss, which runs without gradients, from failing or building a graph."""
        views, labels = two_views(), unit_vectors(N, 48)
        with torch.no_grad():
            parts = RankCSELoss(tiny_model).compute_loss_from_embeddings(views, labels)
        assert not any(value.requires_grad for value in parts.values())
        with torch.inference_mode():
            again = RankCSELoss(tiny_model).compute_loss_from_embeddings(views, labels)
        assert {k: v.item() for k, v in again.items()} == {k: v.item() for k, v in parts.items()}


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_embeddings(self, tiny_model, dtype):
        """Prevents similarities in half precision, which tie what differs: float32 from the embeddings on."""
        views = [view.detach().to(dtype).requires_grad_() for view in two_views()]
        labels = unit_vectors(N, 48)
        for method in ("listnet", "listmle"):
            parts = RankCSELoss(tiny_model, method=method).compute_loss_from_embeddings(views, labels)
            exact = RankCSELoss(tiny_model, method=method).compute_loss_from_embeddings(
                [v.float() for v in views], labels
            )
            for name in PARTS:
                assert parts[name].dtype == torch.float32
                assert parts[name] == exact[name]
            total(parts).backward()
            assert all(v.grad.dtype == dtype and v.grad.isfinite().all() for v in views)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_autocast(self, tiny_model, sentences, dtype):
        """Prevents autocast from taking the similarities, or the teachers' scores, in half precision."""
        u, v = (view.detach().float() for view in two_views())
        labels = unit_vectors(N, 48)
        exact = RankCSELoss(tiny_model).compute_loss_from_embeddings([u, v], labels)
        with torch.autocast("cpu", dtype=dtype):
            assert (u @ v.T).dtype == dtype  # the canary: autocast is on
            parts = RankCSELoss(tiny_model).compute_loss_from_embeddings([u, v], labels)
            for name in PARTS:
                assert parts[name] == exact[name]
            tiny_model.train()
            whole = RankCSELoss(tiny_model)([features(tiny_model, sentences[:N])], labels)
        total(whole).backward()
        assert all(g.isfinite().all() for g in gradients(tiny_model).values())

    def test_float64(self, tiny_model):
        """Prevents float64, for checks of gradients, from being rounded on the way."""
        parts = RankCSELoss(tiny_model).compute_loss_from_embeddings(two_views(), unit_vectors(N, 48))
        assert all(value.dtype == torch.float64 for value in parts.values())


class TestDuplicates:
    def test_equal_texts_are_no_negatives(self, tiny_model, sentences):
        """Prevents a sentence from being pushed away from its own copy in the batch."""
        tiny_model.eval()
        texts = [sentences[0], sentences[1], sentences[0], sentences[2]]
        options = only(contrastive=1.0)
        masked = total(RankCSELoss(tiny_model, **options)(columns(tiny_model, texts, sentences[4:8])))
        plain = total(
            RankCSELoss(tiny_model, mask_duplicates=False, **options)(columns(tiny_model, texts, sentences[4:8]))
        )
        torch.testing.assert_close(masked, plain)  # Different positives: nothing here is a duplicate of a candidate.
        masked = total(RankCSELoss(tiny_model, **options)([features(tiny_model, texts)]))
        plain = total(RankCSELoss(tiny_model, mask_duplicates=False, **options)([features(tiny_model, texts)]))
        u = tiny_model.encode(texts, convert_to_tensor=True)
        keep = masked_loops([0, 1, 3], [0, 1, 2, 3], [1, 2, 3], [0, 1, 2, 3])
        scores = references.cosines(u, u)
        expected = references.value(references.contrastive, scores, positives=range(4), mask=keep)
        without = references.value(references.contrastive, scores, positives=range(4))
        assert masked.item() == pytest.approx(expected, rel=1e-4)
        assert plain.item() == pytest.approx(without, rel=1e-4)
        assert plain > masked

    def test_a_positive_that_is_another_rows_positive(self, tiny_model, sentences):
        """Prevents two anchors with one positive from pushing it away for each other."""
        tiny_model.eval()
        positives = [sentences[8], sentences[8], sentences[9]]
        u, v = (tiny_model.encode(t, convert_to_tensor=True) for t in (sentences[:3], positives))
        found = total(RankCSELoss(tiny_model, **only(contrastive=1.0))(columns(tiny_model, sentences[:3], positives)))
        expected = references.value(
            references.contrastive,
            references.cosines(u, v),
            positives=range(3),
            mask=masked_loops([0, 2], [1, 2], [0, 1, 2]),
        )
        assert found.item() == pytest.approx(expected, rel=1e-4)

    def test_a_negative_that_is_the_anchor(self, tiny_model, sentences):
        """Prevents an anchor's own text among the hard negatives from being its negative."""
        tiny_model.eval()
        texts = sentences[:3], sentences[3:6], [sentences[0], sentences[3], sentences[7]]
        u, v, n = (tiny_model.encode(t, convert_to_tensor=True) for t in texts)
        found = total(RankCSELoss(tiny_model, **only(contrastive=1.0))(columns(tiny_model, *texts)))
        expected = references.value(
            references.contrastive,
            references.cosines(u, torch.cat([v, n])),
            positives=range(3),
            mask=masked_loops([0, 1, 2, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        )
        assert found.item() == pytest.approx(expected, rel=1e-4)

    def test_duplicates_of_a_flat_token_stream(self, sentences):
        """Prevents StaticEmbedding's duplicates from being missed."""
        model = build_student(STATIC)
        texts = [sentences[0], sentences[1], sentences[0]]
        options = only(contrastive=1.0) | {"views": 2}
        model.eval()
        masked = total(RankCSELoss(model, **options)([features(model, texts)]))
        plain = total(RankCSELoss(model, mask_duplicates=False, **options)([features(model, texts)]))
        assert plain > masked


class TestEqualViews:
    """Field report 1: a model without dropout gives two equal views and a contrastive loss that falls to nothing."""

    @pytest.mark.parametrize(
        "make", [RankCSELoss, RankingConsistencyLoss, lambda m: RankCSELoss(m, **only(contrastive=1.0))]
    )
    @pytest.mark.parametrize("count", [1, 2])
    def test_an_error_in_training(self, make_tiny_model, sentences, make, count: int):
        """Prevents training on two equal views without anyone being told what to do."""
        model = make_tiny_model(dropout=0.0).train()
        with pytest.raises(ValueError, match=r"views of a training batch are equal.*set_dropout\(model, 0\.1\)"):
            make(model)(columns(model, *[sentences[:N]] * count), unit_vectors(N, 48))

    def test_modern_encoders(self, sentences):
        """Prevents ModernBERT, which ships with dropout 0.0 under other names, from slipping through."""
        model = build_student("modernbert").train()
        with pytest.raises(ValueError, match="no dropout acts"):
            RankCSELoss(model)([features(model, sentences[:N])], unit_vectors(N, 48))

    def test_static_embedding(self, sentences):
        """Prevents a model that has no dropout at all from being told only to turn it on."""
        model = build_student(STATIC).train()
        with pytest.raises(ValueError, match=r"StaticEmbedding, train by distillation alone: contrastive_weight=0"):
            RankCSELoss(model)([features(model, sentences[:N])], unit_vectors(N, 48))

    def test_distillation_alone_needs_no_dropout(self, make_tiny_model, sentences):
        """Prevents the check from refusing what works."""
        model = make_tiny_model(dropout=0.0).train()
        assert ListwiseDistillationLoss(model)([features(model, sentences[:N])], unit_vectors(N, 48)) > 0
        assert ListwiseDistillationLoss(model, views=2)([features(model, sentences[:N])], unit_vectors(N, 48)) > 0

    def test_no_error_in_eval(self, tiny_model, sentences):
        """Prevents a loss on an evaluation set, where dropout is off, from failing: consistency is 0 there."""
        tiny_model.eval()
        parts = RankCSELoss(tiny_model)([features(tiny_model, sentences[:N])], unit_vectors(N, 48))
        assert parts["consistency"].item() == pytest.approx(0, abs=1e-9)
        assert parts["distillation"] > 0

    def test_two_different_columns_need_no_dropout(self, make_tiny_model, sentences):
        """Prevents (anchor, positive) pairs, which differ by themselves, from needing dropout."""
        model = make_tiny_model(dropout=0.0).train()
        batch = columns(model, sentences[:N], sentences[N : 2 * N])
        assert total(RankCSELoss(model)(batch, unit_vectors(N, 2, 48))) > 0

    def test_every_batch_is_looked_at_once(self, make_tiny_model, sentences):
        """Prevents a first call that passed from switching the check off for good, or wrappers from tripping it."""
        model = make_tiny_model(dropout=0.0).eval()
        loss, labels = RankCSELoss(model), unit_vectors(N, 48)
        loss([features(model, sentences[:N])], labels)  # in eval mode: not compared
        loss.train()
        for _ in range(2):
            batch = [features(model, sentences[:N])]
            with pytest.raises(ValueError, match="no dropout acts"):
                loss(batch, labels)
            assert total(loss(batch, labels)) > 0  # as an earlier layer of the same batch


class TestErrors:
    @pytest.mark.parametrize("name", ["contrastive_weight", "consistency_weight", "distillation_weight"])
    @pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
    def test_weights(self, tiny_model, name: str, weight: float):
        """Prevents a negative weight from maximising a term."""
        with pytest.raises(ValueError, match=f"{name} must be a finite number of at least 0"):
            RankCSELoss(tiny_model, **{name: weight})

    def test_all_weights_0(self, tiny_model):
        """Prevents a loss of nothing."""
        with pytest.raises(ValueError, match="at least one of them a positive weight"):
            RankCSELoss(tiny_model, **only())

    @pytest.mark.parametrize("temperature", [0.0, -0.05, math.nan, math.inf])
    def test_temperatures(self, tiny_model, temperature: float):
        """Prevents temperatures that make the loss NaN or turn it round."""
        for name in ("temperature", "student_temperature", "teacher_temperature"):
            with pytest.raises(ValueError, match=f"{name} must be a positive finite number"):
                RankCSELoss(tiny_model, **{name: temperature})
        with pytest.raises(ValueError, match="temperature must be a positive finite number"):
            RankingConsistencyLoss(tiny_model, temperature=temperature)
        with pytest.raises(ValueError, match="teacher_temperature must be a positive finite number"):
            ListwiseDistillationLoss(tiny_model, teacher_temperature=temperature)

    def test_options(self, tiny_model, tiny_teacher):
        """Prevents options that contradict each other, or that do not exist, from being accepted."""
        with pytest.raises(ValueError, match='"listnet" or "listmle", got \'listwise\''):
            RankCSELoss(tiny_model, method="listwise")
        with pytest.raises(ValueError, match="views must be None, 1 or 2"):
            RankCSELoss(tiny_model, views=3)
        with pytest.raises(ValueError, match="Pass views=2 or None, or set contrastive_weight=0"):
            RankCSELoss(tiny_model, views=1)
        with pytest.raises(ValueError, match='"vectors" or "lists"'):
            RankCSELoss(tiny_model, label_form="grades")
        with pytest.raises(ValueError, match="give it a weight, or leave teachers out"):
            RankCSELoss(tiny_model, teachers=tiny_teacher, distillation_weight=0.0)
        with pytest.raises(ValueError, match="teacher_cache_size"):
            RankCSELoss(tiny_model, teachers=tiny_teacher, teacher_cache_size=-1)

    def test_no_teachers_and_no_labels(self, tiny_model, sentences):
        """Prevents distillation from nothing; the message names all three ways out."""
        for loss in (RankCSELoss(tiny_model), ListwiseDistillationLoss(tiny_model)):
            with pytest.raises(ValueError, match=r"TeacherScoreDataset.*teachers=\[\.\.\.\].*distillation_weight=0"):
                loss([features(tiny_model, sentences[:N])])

    def test_teachers_and_labels(self, tiny_model, tiny_teacher, sentences):
        """Prevents one of two sources of scores from being ignored silently."""
        loss = RankCSELoss(tiny_model, teachers=tiny_teacher)
        with pytest.raises(ValueError, match="Remove the label column, or construct the loss without teachers"):
            loss([features(tiny_model, sentences[:N])], unit_vectors(N, 48))

    def test_one_view_of_two_columns(self, tiny_model, sentences):
        """Prevents views=1 from being ignored where there are two columns."""
        loss = ListwiseDistillationLoss(tiny_model, views=1)
        with pytest.raises(ValueError, match="views=1 is for a single text column, but the dataset has 2"):
            loss(columns(tiny_model, sentences[:N], sentences[:N]), unit_vectors(N, 48))

    @pytest.mark.parametrize("parts", [["contrastive"], ["consistency"], PARTS])
    def test_one_embedding_where_two_are_compared(self, tiny_model, parts: list[str]):
        """Prevents a view from being compared with itself: a contrastive term of about 0, a consistency of 0."""
        loss = RankCSELoss(tiny_model, **only(**dict.fromkeys(parts, 1.0)))
        with pytest.raises(ValueError, match="two views"):
            loss.compute_loss_from_embeddings(two_views()[:1], unit_vectors(N, 48))

    def test_errors_of_labels_come_through(self, tiny_model, sentences):
        """Prevents a loss from reading labels by another way than the one that checks them."""
        loss = RankCSELoss(tiny_model)
        with pytest.raises(ValueError, match="normalize_labels=True"):
            loss([features(tiny_model, sentences[:N])], 3 * unit_vectors(N, 48))
        with pytest.raises(ValueError, match="anchor from its negatives"):
            loss(columns(tiny_model, *[sentences[:N]] * 3), unit_vectors(N, 48))
        normalised = RankCSELoss(tiny_model, normalize_labels=True)
        tiny_model.eval()
        one = normalised([features(tiny_model, sentences[:N])], 3 * unit_vectors(N, 48))
        two = loss([features(tiny_model, sentences[:N])], unit_vectors(N, 48))
        torch.testing.assert_close(one["distillation"], two["distillation"])


class TestFirstClass:
    """What sentence-transformers asks of a loss."""

    @pytest.fixture(params=["rankcse", "consistency", "distillation"])
    def loss(self, request, tiny_model, tiny_teacher):
        return {
            "rankcse": lambda: RankCSELoss(tiny_model, teachers=[tiny_teacher]),
            "consistency": lambda: RankingConsistencyLoss(tiny_model),
            "distillation": lambda: ListwiseDistillationLoss(tiny_model, teachers=[tiny_teacher]),
        }[request.param]()

    def test_config(self, loss):
        """Prevents a card that cannot be written, or does not say what the loss was."""
        config = json.loads(json.dumps(loss.get_config_dict()))
        assert config["gather_across_devices"] is False
        if not isinstance(loss, ListwiseDistillationLoss):
            assert config["temperature"] == 0.05
        if not isinstance(loss, RankingConsistencyLoss):
            assert config["method"] == "listnet"
            assert config["student_temperature"] == 0.05
            assert len(config["teachers"]) == 1
        if isinstance(loss, RankCSELoss):
            assert [config[f"{part}_weight"] for part in PARTS] == [1.0, 1.0, 1.0]
            assert config["teacher_temperature"] == 0.025

    def test_citation(self, loss):
        """Prevents the paper from going uncited on the cards of models trained with it."""
        assert "@inproceedings{liu-etal-2023-rankcse" in loss.citation
        assert "https://aclanthology.org/2023.acl-long.771/" in loss.citation

    def test_teachers_are_no_part_of_the_module(self, loss, tiny_model, tiny_teacher):
        """Prevents teachers from being trained, saved, moved, or replaced by the student (field report 19)."""
        student = {id(p) for p in tiny_model.parameters()}
        assert {id(p) for p in loss.parameters()} == student
        assert set(loss.state_dict()) == {f"model.{name}" for name in tiny_model.state_dict()}
        assert tiny_teacher not in set(loss.modules())
        assert [name for name, _ in loss.named_children()] == ["model"]

    def test_deepcopy(self, loss, sentences):
        """Prevents a loss from failing where it is copied, and the copy from sharing its student."""
        twin = copy.deepcopy(loss)
        assert twin.model is not loss.model
        loss.eval()
        twin.eval()
        one = total(loss([features(loss.model, sentences[:N])]))
        two = total(twin([features(twin.model, sentences[:N])]))
        torch.testing.assert_close(one, two)

    def test_single_terms_are_plain_tensors(self, loss, sentences):
        """Prevents a loss of one term from being logged twice, and one of three from not being logged by part."""
        value = loss.train()([features(loss.model, sentences[:N])])
        assert isinstance(value, LossParts if isinstance(loss, RankCSELoss) else torch.Tensor)


class TestParts:
    """The dict that is the loss, with the arithmetic of wrapper losses."""

    def test_arithmetic(self):
        """Prevents MatryoshkaLoss and AdaptiveLayerLoss from raising TypeError, or mixing up the parts."""
        a = LossParts({"x": torch.tensor(1.0), "y": torch.tensor(2.0)})
        b = LossParts({"y": torch.tensor(3.0), "z": torch.tensor(4.0)})
        assert {k: v.item() for k, v in (0.0 + 2 * a / 4).items()} == {"x": 0.5, "y": 1.0}
        assert {k: v.item() for k, v in (a * torch.tensor(2.0) + b).items()} == {"x": 2.0, "y": 7.0, "z": 4.0}
        assert {k: v.item() for k, v in (torch.tensor(2.0) * a).items()} == {"x": 2.0, "y": 4.0}
        added = a + torch.tensor(5.0)
        assert sum(v.item() for v in added.values()) == pytest.approx(8.0)
        assert sum(v.item() for v in (torch.tensor(5.0) + a + torch.tensor(1.0)).values()) == pytest.approx(9.0)
        total_in_place = 0.0
        total_in_place += 0.5 * a
        total_in_place += 0.5 * a
        assert {k: v.item() for k, v in total_in_place.items()} == {"x": 1.0, "y": 2.0}
        assert sum([a, b]).total.item() == 10.0

    def test_backward(self):
        """Prevents a training loop written by hand from failing on a dict."""
        x = torch.tensor(3.0, requires_grad=True)
        LossParts({"a": x * 2, "b": x * x}).backward()
        assert x.grad.item() == 8.0
