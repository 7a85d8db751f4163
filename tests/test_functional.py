"""The terms as pure functions, against references that have no code in common with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MultipleNegativesRankingLoss
from torch import Tensor

from rankcse_st.functional import (
    consistency,
    contrastive,
    jensen_shannon,
    list_lengths,
    listmle,
    listnet,
    mean_over_lists,
)

ANCHORS, CANDIDATES = 4, 6
TEMPERATURES = [0.001, 0.01, 0.05, 1.0, 10.0]
quick = settings(max_examples=40, deadline=None, derandomize=True)


def random_scores(seed: int, rows: int = ANCHORS, columns: int = CANDIDATES, dtype=torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1).to(dtype)


def random_mask(seed: int, rows: int = ANCHORS, columns: int = CANDIDATES) -> Tensor:
    """Lists of different lengths: the first of one entry, the second of none, the others of at least three."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=generator) < 0.7
    mask[:, 1:4] = True
    mask[0] = torch.arange(columns) == 2
    mask[1] = False
    return mask


# Each term as a function of the student's scores alone, with what it is compared with left to the seed.
def terms(seed: int, temperature: float = 0.05, mask: Tensor | None = None, dtype=torch.float64) -> dict[str, Callable]:
    other = random_scores(seed + 1000, dtype=dtype)
    return {
        "contrastive": lambda s: contrastive(s, temperature=temperature, mask=mask),
        "consistency": lambda s: consistency(s, other, temperature=temperature, mask=mask),
        "listnet": lambda s: listnet(
            s, other, student_temperature=temperature, teacher_temperature=temperature, mask=mask
        ),
        "listmle": lambda s: listmle(s, other, student_temperature=temperature, mask=mask),
    }


TERMS = list(terms(0))


def value_and_gradient(term: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[float, Tensor]:
    scores = scores.clone().requires_grad_()
    value = term(scores)
    value.backward()
    return value.item(), scores.grad


class TestAgainstLoops:
    """Values and float64 gradients equal those of plain loops over numbers of 60 digits."""

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("name", TERMS)
    def test_value_and_gradient(self, name: str, temperature: float, masked: bool):
        """Prevents any slip in a formula: a sign, a temperature not applied, a mean over entries instead of lists."""
        seed = 3
        scores, other = random_scores(seed), random_scores(seed + 1000)
        mask = random_mask(seed) if masked else None
        loops = None if mask is None else mask.tolist()
        if name == "contrastive":
            positives = list(range(ANCHORS))
            expected = references.value_and_gradient(
                references.contrastive, scores, positives=positives, temperature=temperature, mask=loops
            )
        elif name == "listnet":
            expected = references.value_and_gradient(
                references.listnet,
                scores,
                other,
                student_temperature=temperature,
                teacher_temperature=temperature,
                mask=loops,
            )
        else:
            key = "temperature" if name == "consistency" else "student_temperature"
            expected = references.value_and_gradient(
                getattr(references, name), scores, other, **{key: temperature, "mask": loops}
            )
        value, gradient = value_and_gradient(terms(seed, temperature, mask)[name], scores)
        absolute = 1e-9 if name == "consistency" else 1e-12
        assert expected[0] > 0
        assert temperature == 0.001 or expected[1].abs().max() > 0  # Where lists are one-hot, gradients vanish.
        assert value == pytest.approx(expected[0], rel=1e-6, abs=absolute)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=max(absolute, 1e-12 / temperature))

    @pytest.mark.parametrize("name", TERMS)
    def test_a_wrong_temperature_is_noticed(self, name: str):
        """The canary of the test above: a temperature off by a millionth of the term's size must not pass."""
        scores = random_scores(3)
        right, _ = value_and_gradient(terms(3, 0.05)[name], scores)
        wrong, _ = value_and_gradient(terms(3, 0.05001)[name], scores)
        assert wrong != pytest.approx(right, rel=1e-6, abs=1e-9)

    def test_positives_elsewhere(self):
        """Prevents positives being taken for the diagonal, as wrong on every process but the first."""
        scores, positives = random_scores(5), [2, 5, 3, 4]
        expected = references.value_and_gradient(references.contrastive, scores, positives=positives)
        value, gradient = value_and_gradient(lambda s: contrastive(s, torch.tensor(positives)), scores)
        assert value == pytest.approx(expected[0], rel=1e-9)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=1e-12)
        assert value != pytest.approx(contrastive(scores).item(), rel=1e-3)

    def test_a_masked_positive_stays(self):
        """Prevents a mask of duplicates from removing the positive itself: -log of a probability of 0."""
        scores = random_scores(5)
        mask = torch.ones_like(scores, dtype=torch.bool).fill_diagonal_(False)
        assert contrastive(scores, mask=mask).item() == pytest.approx(contrastive(scores).item(), rel=1e-12)

    @pytest.mark.parametrize("ties", [[3, 1, 1, 0, 3, 1], [2, 2, 2, 2, 2, 2], [0, 1, 0, 1, 0, 1]])
    def test_listmle_with_ties(self, ties: list[int]):
        """Prevents tied grades being ranked in whatever order the sort leaves them."""
        scores, grades = random_scores(7), torch.tensor([ties] * ANCHORS, dtype=torch.float64)
        expected = references.value_and_gradient(references.listmle, scores, grades)
        value, gradient = value_and_gradient(lambda s: listmle(s, grades), scores)
        assert value == pytest.approx(expected[0], rel=1e-9)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=1e-12)

    @pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.9, 1.1, 30.0, 1e4])
    def test_consistency_however_near_the_lists_are(self, distance: float):
        """Prevents cancellation near equal lists, where textbook JS gives -9e-8 in float32, and overflow far away."""
        scores = random_scores(11)
        other = scores + distance * 0.05 * random_scores(12)
        expected = references.value_and_gradient(references.consistency, scores, other)
        value, gradient = value_and_gradient(lambda s: consistency(s, other), scores)
        assert abs(value - expected[0]) <= 1e-9
        if distance:
            assert value == pytest.approx(expected[0], rel=1e-6)
            assert value > 0
        torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=1e-9)

    def test_consistency_near_equal_lists_in_float32(self):
        """Prevents the same loss of digits where training computes: relative accuracy, not 2000 times the value."""
        scores = random_scores(11, dtype=torch.float32)
        other = scores + torch.tensor(1e-3) * random_scores(12, dtype=torch.float32)
        expected, _ = references.value_and_gradient(references.consistency, scores, other)
        assert expected < 1e-3
        assert consistency(scores, other).item() == pytest.approx(expected, rel=1e-2)
        p, q = (scores / 0.05).softmax(1), (other / 0.05).softmax(1)
        close = scores + torch.tensor(1e-6)
        m = (p + q) / 2
        textbook = 0.5 * (p * (p / m).log() + q * (q / m).log()).sum(1).mean()
        assert textbook.item() != pytest.approx(expected, rel=1e-6)
        assert 0 <= consistency(scores, close).item() < 1e-9

    @pytest.mark.parametrize("name", TERMS)
    @pytest.mark.parametrize("masked", [False, True])
    def test_gradcheck(self, name: str, masked: bool):
        """Prevents a forward that is right with a backward that is not (clamps, masks, saved tensors)."""
        mask = random_mask(2) if masked else None
        scores = random_scores(2).requires_grad_()
        assert torch.autograd.gradcheck(terms(2, 0.5, mask)[name], (scores,))

    def test_the_second_list_gets_its_gradient_too(self):
        """Prevents a divergence that is differentiated by one of its two lists only."""
        scores, other = random_scores(1).requires_grad_(), random_scores(2).requires_grad_()
        consistency(scores, other).backward()
        _, expected = references.value_and_gradient(references.consistency, other.detach(), scores.detach())
        torch.testing.assert_close(other.grad, expected, rtol=1e-6, atol=1e-12)
        assert torch.autograd.gradcheck(lambda s, o: consistency(s, o, temperature=0.5), (scores, other))

    @pytest.mark.parametrize("term", [listnet, listmle])
    def test_teacher_scores_get_no_gradient(self, term: Callable):
        """Prevents teachers being trained to agree with the student."""
        scores, teacher = random_scores(1).requires_grad_(), random_scores(2).requires_grad_()
        term(scores, teacher).backward()
        assert scores.grad.abs().max() > 0
        assert teacher.grad is None


class TestAgainstSentenceTransformers:
    def test_contrastive_is_multiple_negatives_ranking(self, tiny_model):
        """Prevents a SimCSE that is not the one of Sentence Transformers."""
        u, v = random_scores(1, 8, 16), random_scores(2, 8, 16)
        u.requires_grad_()
        expected = MultipleNegativesRankingLoss(tiny_model, scale=20).compute_loss_from_embeddings([u, v], None)
        (gradient,) = torch.autograd.grad(expected, u)
        scores = torch.nn.functional.normalize(u, dim=1) @ torch.nn.functional.normalize(v, dim=1).T
        loss = contrastive(scores, temperature=0.05)
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=0)
        torch.testing.assert_close(torch.autograd.grad(loss, u)[0], gradient, rtol=1e-6, atol=1e-12)

    def test_listnet_has_the_gradient_of_distill_kl_div(self, tiny_model):
        """Prevents explicit lists that are distilled differently than by the loss that people know."""
        student, teacher_t = 0.5, 2.0
        anchors, candidates = random_scores(1, 5, 8).requires_grad_(), [random_scores(k, 5, 8) for k in (2, 3, 4)]
        grades = random_scores(9, 5, 3) * 3
        kl = DistillKLDivLoss(
            tiny_model,
            similarity_fct=torch.nn.functional.cosine_similarity,
            student_temperature=student,
            teacher_temperature=teacher_t,
        )
        (expected,) = torch.autograd.grad(kl.compute_loss_from_embeddings([anchors, *candidates], grades), anchors)
        scores = torch.stack([torch.nn.functional.cosine_similarity(anchors, c) for c in candidates], dim=1)
        loss = listnet(scores, grades, student_temperature=student, teacher_temperature=teacher_t)
        (gradient,) = torch.autograd.grad(loss, anchors)
        assert expected.abs().max() > 1e-4
        torch.testing.assert_close(gradient * student**2, expected, rtol=1e-6, atol=1e-12)


class TestExtremes:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("scale", [1.0, 100.0, 1e6, 1e30])
    @pytest.mark.parametrize("temperature", [0.001, 0.05, 10.0])
    @pytest.mark.parametrize("name", TERMS)
    def test_finite_value_and_gradient(self, name: str, temperature: float, scale: float, dtype):
        """Prevents overflow and NaN (field report 16): τ = 0.001 with wide scores, ties and masks."""
        scores = random_scores(21, dtype=dtype) * scale
        scores[2] = scores[2, 0]
        for mask in (None, random_mask(21)):
            value, gradient = value_and_gradient(terms(21, temperature, mask, dtype)[name], scores)
            assert math.isfinite(value)
            assert gradient.isfinite().all()
            assert value >= 0

    def test_divergence_at_low_temperature(self):
        """Field report 16: a divergence of probabilities underflows to NaN; in log space it is ln 2."""
        scores = torch.tensor([[20.0, 10.0, 0.0, -5.0]])
        other = scores.flip(1)
        value, gradient = value_and_gradient(lambda s: consistency(s, other, temperature=0.001), scores)
        assert value == pytest.approx(math.log(2), rel=1e-6)
        assert gradient.isfinite().all()
        p, q = (scores / 0.001).softmax(1), (other / 0.001).softmax(1)
        assert (p * (p / ((p + q) / 2)).log()).sum().isnan()

    def test_listmle_of_the_field_report(self):
        """Field report 15: ``log(cumsum(exp) + eps)`` gives 12.79 where 0.0068 is right."""
        scores = torch.tensor([[20.0, 10.0, 0.0, -5.0]])
        expected = sum(math.log1p(sum(math.exp(b - a) for b in rest)) for a, *rest in self.suffixes([20, 10, 0, -5]))
        assert expected == pytest.approx(0.0068, abs=5e-5)
        assert listmle(scores, scores, student_temperature=1.0).item() == pytest.approx(expected, abs=2e-6)
        exact = scores.double()
        assert listmle(exact, exact, student_temperature=1.0).item() == pytest.approx(expected, rel=1e-9)

    @staticmethod
    def suffixes(values: list[float]) -> list[list[float]]:
        return [values[k:] for k in range(len(values))]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("name", TERMS)
    def test_half_precision_in_float32_inside(self, name: str, dtype):
        """Prevents similarities that tie, and losses that overflow, in half precision; float64 stays float64."""
        scores, mask = random_scores(4, dtype=dtype), random_mask(4)
        inside = torch.float64 if dtype == torch.float64 else torch.float32
        other = random_scores(1004, dtype=dtype)
        call = {
            "contrastive": lambda s, o: contrastive(s, mask=mask),
            "consistency": lambda s, o: consistency(s, o, mask=mask),
            "listnet": lambda s, o: listnet(s, o, mask=mask),
            "listmle": lambda s, o: listmle(s, o, mask=mask),
        }[name]
        value = call(scores.requires_grad_(), other)
        assert value.dtype == inside
        torch.testing.assert_close(value, call(scores.to(inside), other.to(inside)), rtol=1e-6, atol=0)
        value.backward()
        assert scores.grad.dtype == dtype
        assert scores.grad.isfinite().all()

    @pytest.mark.parametrize("term", [listnet, listmle])
    def test_whole_number_grades(self, term: Callable):
        """Prevents grades as integers, which a dataset may well hold, from failing or being rounded."""
        scores, grades = random_scores(4, dtype=torch.float32), torch.randint(0, 4, (ANCHORS, CANDIDATES))
        torch.testing.assert_close(term(scores, grades), term(scores, grades.float()))

    def test_teacher_and_student_in_different_dtypes(self):
        """Prevents float64 attached scores from failing with a float32 student."""
        scores, teacher = random_scores(4, dtype=torch.float32), random_scores(5)
        for term in (listnet, listmle):
            assert term(scores, teacher).item() == pytest.approx(term(scores.double(), teacher).item(), rel=1e-4)


class TestShortLists:
    @pytest.mark.parametrize("name", TERMS)
    def test_all_masked(self, name: str):
        """Prevents NaN from a batch in which no list has anything to rank: value 0 and gradient 0."""
        mask = torch.zeros(ANCHORS, CANDIDATES, dtype=torch.bool)
        value, gradient = value_and_gradient(terms(1, mask=mask)[name], random_scores(1))
        assert value == 0
        assert (gradient == 0).all()

    @pytest.mark.parametrize("name", TERMS)
    def test_all_but_one_masked(self, name: str):
        """Prevents lists of one entry from counting: value 0 and gradient 0."""
        mask = torch.eye(ANCHORS, CANDIDATES, dtype=torch.bool)
        value, gradient = value_and_gradient(terms(1, mask=mask)[name], random_scores(1))
        assert value == 0
        assert (gradient == 0).all()

    @pytest.mark.parametrize("name", TERMS)
    def test_short_lists_do_not_count_in_the_mean(self, name: str):
        """Prevents a mean over all rows, which would halve the loss of a batch half of whose lists are empty."""
        scores, other, mask = random_scores(6), random_scores(1006), random_mask(6)
        full = terms(6, mask=mask)[name](scores)
        rest = {
            "contrastive": lambda: contrastive(scores[2:], torch.tensor([2, 3]), mask=mask[2:]),
            "consistency": lambda: consistency(scores[2:], other[2:], mask=mask[2:]),
            "listnet": lambda: listnet(scores[2:], other[2:], teacher_temperature=0.05, mask=mask[2:]),
            "listmle": lambda: listmle(scores[2:], other[2:], mask=mask[2:]),
        }[name]()
        if name == "contrastive":  # The first anchor has its positive and candidate 2: a list of two.
            one = contrastive(scores[:1], mask=mask[:1])
            rest = (2 * rest + one) / 3
        assert full > 0
        torch.testing.assert_close(full, rest, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("name", TERMS)
    def test_one_row_one_column(self, name: str):
        """Prevents a last batch of one row from being NaN or an error."""
        scores = torch.tensor([[0.3]], requires_grad=True)
        call = {
            "contrastive": lambda: contrastive(scores),
            "consistency": lambda: consistency(scores, scores),
            "listnet": lambda: listnet(scores, scores.detach()),
            "listmle": lambda: listmle(scores, scores.detach()),
        }[name]
        value = call()
        value.backward()
        assert value.item() == 0
        assert scores.grad.item() == 0

    @pytest.mark.parametrize("name", TERMS)
    def test_one_row_of_many_candidates(self, name: str):
        """Prevents the mean over anchors from being taken for one over something else."""
        scores = random_scores(3)
        each = torch.stack([self.one_row(name, scores, row) for row in range(ANCHORS)])
        torch.testing.assert_close(each.mean(), terms(3)[name](scores), rtol=1e-12, atol=0)

    @staticmethod
    def one_row(name: str, scores: Tensor, row: int) -> Tensor:
        s, o = scores[row : row + 1], random_scores(1003)[row : row + 1]
        return {
            "contrastive": lambda: contrastive(s, torch.tensor([row])),
            "consistency": lambda: consistency(s, o),
            "listnet": lambda: listnet(s, o, teacher_temperature=0.05),
            "listmle": lambda: listmle(s, o),
        }[name]()

    def test_reduction_none(self):
        """Prevents values and lengths from parting company: the mean is that of the values of lists that count."""
        scores, other, mask = random_scores(8), random_scores(1008), random_mask(8)
        for call in (
            lambda **k: consistency(scores, other, mask=mask, **k),
            lambda **k: listnet(scores, other, mask=mask, **k),
            lambda **k: listmle(scores, other, mask=mask, **k),
        ):
            values = call(reduction="none")
            assert values.shape == (ANCHORS,)
            assert (values[:2] == 0).all()
            assert (values[2:] > 0).all()
            torch.testing.assert_close(mean_over_lists(values, list_lengths(mask, scores)), call())


class TestBounds:
    def test_consistency_of_equal_lists_is_exactly_zero(self):
        """Prevents noise (-9e-8 in float32) from being minimised once the views agree."""
        for dtype, scale in itertools.product((torch.float32, torch.float64), (1e-3, 1.0, 1e3, 1e30)):
            scores = random_scores(9, 32, 64, dtype=dtype) * scale
            value, gradient = value_and_gradient(lambda s: consistency(s, s.detach().clone()), scores)
            assert value == 0
            assert (gradient == 0).all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_consistency_never_above_ln_2(self, dtype):
        """Prevents rounding from lifting the divergence of disjoint lists over its bound."""
        scores, other = random_scores(9, 200, 64, dtype=dtype) * 50, random_scores(10, 200, 64, dtype=dtype) * 50
        values = consistency(scores, other, temperature=0.01, reduction="none")
        assert values.max() > 0.69
        assert (values.double() <= math.log(2)).all()
        assert (values >= 0).all()


class TestErrors:
    def test_messages(self):
        """Prevents broadcasting from hiding matrices that do not belong together."""
        scores = random_scores(1)
        with pytest.raises(ValueError, match=r"score matrix \(anchors, candidates\), got shape \(6,\)"):
            contrastive(scores[0])
        with pytest.raises(ValueError, match="one shape"):
            consistency(scores, scores[:, :1])
        with pytest.raises(ValueError, match="one shape"):
            listnet(scores, scores[:1])
        with pytest.raises(ValueError, match="boolean matrix"):
            listmle(scores, scores, mask=torch.ones_like(scores))
        with pytest.raises(ValueError, match="boolean matrix"):
            listmle(scores, scores, mask=torch.ones(ANCHORS, dtype=torch.bool))
        with pytest.raises(ValueError, match='"mean" or "none"'):
            contrastive(scores, reduction="sum")

    @pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
    def test_temperatures(self, temperature: float):
        """Prevents a temperature that gives NaN, or turns the order round, from being accepted."""
        scores = random_scores(1)
        for call in (
            lambda: contrastive(scores, temperature=temperature),
            lambda: consistency(scores, scores, temperature=temperature),
            lambda: listnet(scores, scores, teacher_temperature=temperature),
            lambda: listnet(scores, scores, student_temperature=temperature),
            lambda: listmle(scores, scores, student_temperature=temperature),
        ):
            with pytest.raises(ValueError, match="temperature must be a positive finite number"):
                call()


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Student scores, other scores (often tied) and a mask, of any small shape."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    cosine = st.floats(-1, 1, width=32)
    grade = st.one_of(cosine, st.integers(0, 3).map(float))
    shape = {"min_size": rows * columns, "max_size": rows * columns}

    def reshaped(values: list, dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).reshape(rows, columns)

    return (
        reshaped(draw(st.lists(cosine, **shape)), torch.float64),
        reshaped(draw(st.lists(grade, **shape)), torch.float64),
        reshaped(draw(st.lists(st.booleans(), **shape)), torch.bool),
    )


def all_values(scores: Tensor, other: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {
        "consistency": consistency(scores, other, mask=mask, reduction="none"),
        "listnet": listnet(scores, other, mask=mask, reduction="none"),
        "listmle": listmle(scores, other, mask=mask, reduction="none"),
    }


class TestProperties:
    @quick
    @given(problems(), st.randoms(use_true_random=False))
    def test_order_of_candidates_does_not_matter(self, problem, random):
        """Prevents the position of a candidate, or of a tie, from mattering."""
        scores, other, mask = problem
        order = list(range(scores.shape[1]))
        random.shuffle(order)
        expected = all_values(scores, other, mask)
        for name, values in all_values(scores[:, order], other[:, order], mask[:, order]).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-9, atol=1e-12)

    @quick
    @given(problems(), st.floats(-3, 3))
    def test_a_constant_added_to_a_list_does_not_matter(self, problem, constant):
        """Prevents scores from being read on an absolute scale: a teacher of high cosines is no other teacher."""
        scores, other, mask = problem
        expected = all_values(scores, other, mask)
        # Adding a constant rounds, which can part scores that are nearly tied: only the student's for ListMLE.
        shifted = all_values(scores + constant, other, mask) | {
            "listnet": listnet(scores, other + constant, mask=mask, reduction="none")
        }
        for name, values in shifted.items():
            torch.testing.assert_close(values, expected[name], rtol=1e-6, atol=1e-9)

    @quick
    @given(problems(), st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -7.0]))
    def test_what_is_masked_does_not_matter(self, problem, filler):
        """Prevents missing entries (NaN) from reaching a value or a gradient."""
        scores, other, mask = problem
        filled = scores.masked_fill(~mask, filler).requires_grad_()
        expected = all_values(scores, other, mask)
        for name, values in all_values(filled, other.masked_fill(~mask, filler), mask).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-12, atol=0)
            (gradient,) = torch.autograd.grad(values.sum(), filled)
            assert gradient.isfinite().all()
            assert (gradient[~mask] == 0).all()

    @quick
    @given(problems())
    def test_jensen_shannon_is_symmetric_and_bounded(self, problem):
        """Prevents a divergence that is none: the only public implementation gives -0.83 for identical lists."""
        scores, other, mask = problem
        forth = consistency(scores, other, mask=mask, reduction="none")
        back = consistency(other, scores, mask=mask, reduction="none")
        torch.testing.assert_close(forth, back, rtol=1e-9, atol=1e-15)
        assert ((forth >= 0) & (forth <= math.log(2))).all()
        assert (consistency(scores, scores, mask=mask, reduction="none") == 0).all()

    @quick
    @given(problems())
    def test_listnet_is_at_least_the_entropy_of_the_teachers(self, problem):
        """Prevents a cross-entropy with its arguments swapped; the minimum is reached by a student like the teacher."""
        scores, other, mask = problem
        values = listnet(scores, other, mask=mask, reduction="none")
        # A student of twice the scores, at twice the temperature, is the teacher.
        entropy = listnet(2 * other, other, mask=mask, reduction="none")
        assert (values >= entropy - 1e-9).all()
        log_p = (other / 0.025).masked_fill(~mask, -1e30).log_softmax(1)
        by_hand = -(log_p.exp() * log_p).masked_fill(~mask, 0).sum(1) * (mask.sum(1) > 1)
        torch.testing.assert_close(entropy, by_hand, rtol=1e-9, atol=1e-12)

    @quick
    @given(st.permutations(range(5)), st.lists(st.floats(-1, 1), min_size=5, max_size=5))
    def test_listmle_is_plackett_luce(self, order, scores):
        """Prevents a likelihood whose orders do not sum to one: exp(-ListMLE) is a probability of permutations."""
        logits = [Decimal(score) / Decimal("0.5") for score in scores]
        probability, remaining = Decimal(1), list(order)
        while remaining:
            total = sum(logits[k].exp() for k in remaining)
            probability *= logits[remaining.pop(0)].exp() / total
        grades = torch.zeros(1, 5, dtype=torch.float64)
        for rank, candidate in enumerate(order):
            grades[0, candidate] = 5 - rank
        student = torch.tensor([scores], dtype=torch.float64)
        value = listmle(student, grades, student_temperature=0.5)
        assert value.item() == pytest.approx(-float(probability.ln()), rel=1e-9)

    def test_plackett_luce_probabilities_sum_to_one(self):
        """The canary of the test above."""
        student = random_scores(1, 1, 4)
        grades = torch.tensor(list(itertools.permutations(range(4))), dtype=torch.float64)
        values = listmle(student.expand(24, 4), grades, student_temperature=0.5, reduction="none")
        assert (-values).exp().sum().item() == pytest.approx(1, rel=1e-9)

    @quick
    @given(problems())
    def test_jensen_shannon_of_loops(self, problem):
        """Prevents the two branches of the stable form from disagreeing with the definition anywhere."""
        scores, other, _ = problem
        log_p, log_q = (scores / 0.05).log_softmax(1), (other / 0.05).log_softmax(1)
        with references.decimal.localcontext(references.CONTEXT):
            expected = [
                float(references.jensen_shannon([x.exp() for x in p], [x.exp() for x in q]))
                for p, q in zip(references.matrix(log_p), references.matrix(log_q), strict=True)
            ]
        values = jensen_shannon(log_p, log_q)
        torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-9)
