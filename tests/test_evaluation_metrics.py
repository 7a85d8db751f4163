"""The metrics against plain loops and scikit-learn, and properties that hold for every input."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from rankcse_st.evaluation import ranking_agreement
from rankcse_st.evaluation.metrics import alignment, kendall_tau, ndcg, spearman, top_k_overlap, uniformity

# Few different values, so that ties are everywhere.
tied_scores = st.integers(-3, 3).map(lambda i: i / 4)
grades = st.integers(0, 5).map(float)


@st.composite
def two_lists(draw, first=tied_scores, second=tied_scores, min_size=2, max_size=8):
    size = draw(st.integers(min_size, max_size))
    return [draw(st.lists(values, min_size=size, max_size=size)) for values in (first, second)]


def loop_ranks(values):
    """Rank 1 for the smallest; tied values get the mean of the ranks they take up."""
    ranks = []
    for value in values:
        below = sum(other < value for other in values)
        equal = sum(other == value for other in values)
        ranks.append(below + (equal + 1) / 2)
    return ranks


def loop_spearman(predicted, reference):
    a, b = loop_ranks(predicted), loop_ranks(reference)
    mean_a, mean_b = statistics.fmean(a), statistics.fmean(b)
    covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    variances = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return covariance / math.sqrt(variances)


def loop_tau_b(predicted, reference):
    concordant = discordant = tied_predicted = tied_reference = 0
    for (p, r), (q, s) in itertools.combinations(zip(predicted, reference, strict=True), 2):
        concordant += (p - q) * (r - s) > 0
        discordant += (p - q) * (r - s) < 0
        tied_predicted += p == q and r != s
        tied_reference += r == s and p != q
    decided = concordant + discordant
    return (concordant - discordant) / math.sqrt((decided + tied_predicted) * (decided + tied_reference))


def loop_ndcg(predicted, gold):
    """Mean over every order that the prediction allows: what sharing the gains of tied items amounts to."""
    ideal = sum(g / math.log2(rank + 1) for rank, g in enumerate(sorted(gold, reverse=True), start=1))
    return statistics.fmean(
        sum(gold[i] / math.log2(rank + 1) for rank, i in enumerate(order, start=1)) / ideal
        for order in itertools.permutations(range(len(gold)))
        if all(predicted[i] >= predicted[j] for i, j in itertools.pairwise(order))
    )


def loop_uniformity(vectors, t):
    potentials = []
    for a, b in itertools.combinations(vectors, 2):
        a, b = ([x / math.hypot(*v) for x in v] for v in (a, b))
        potentials.append(math.exp(-t * sum((x - y) ** 2 for x, y in zip(a, b, strict=True))))
    return math.log(statistics.fmean(potentials))


@given(two_lists())
def test_spearman_equals_loops(lists):
    """Prevents: first-come ranks for ties (argsort twice), and a constant prediction that passes as NaN or as 1."""
    predicted, reference = lists
    value = spearman(predicted, reference)[0]
    if len(set(reference)) == 1:
        assert math.isnan(value)
    elif len(set(predicted)) == 1:
        assert value == 0
    else:
        assert value == pytest.approx(loop_spearman(predicted, reference), abs=1e-12)


def test_spearman_of_many_lists_is_scipys_of_each():
    """Prevents: rows that mix, and an axis the wrong way round. Canary: the rows differ."""
    rng = np.random.default_rng(0)
    predicted, reference = rng.normal(size=(2, 30, 41)).astype(np.float32)
    expected = [spearmanr(a, b).statistic for a, b in zip(predicted, reference, strict=True)]
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(spearman(predicted, reference), expected, rtol=1e-10)


@given(two_lists())
def test_kendall_equals_loops(lists):
    """Prevents: tau-a or tau-c in place of tau-b, which only ties tell apart."""
    predicted, reference = lists
    value = kendall_tau(predicted, reference)
    if len(set(reference)) == 1:
        assert math.isnan(value)
    elif len(set(predicted)) == 1:
        assert value == 0
    else:
        assert value == pytest.approx(loop_tau_b(predicted, reference), abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(two_lists(tied_scores, grades, max_size=6))
def test_ndcg_equals_loops_and_scikit_learn(lists):
    """Prevents: 2^grade - 1 as gain, a natural logarithm, an ideal of another order, ties decided by position."""
    predicted, gold = lists
    value = ndcg(predicted, gold)
    if not any(gold):
        assert math.isnan(value)
    else:
        assert value == pytest.approx(loop_ndcg(predicted, gold), abs=1e-12)
        assert value == pytest.approx(ndcg_score([gold], [predicted]), abs=1e-12)


def test_ndcg_by_hand():
    """Prevents: a reference above that shares the code's mistake; an exponential gain would give 0.71."""
    assert ndcg([0.1, 0.2, 0.3], [3, 2, 0]) == pytest.approx((2 / math.log2(3) + 3 / 2) / (3 + 2 / math.log2(3)))
    assert ndcg([0.3, 0.2, 0.1], [3, 2, 0]) == 1.0


@given(two_lists(), st.integers(1, 9))
def test_top_k_overlap_equals_sets_without_ties_and_never_leaves_its_bounds(lists, k):
    """Prevents: the k worst in place of the k best, and a divisor of k where fewer items exist."""
    predicted, reference = lists
    value = top_k_overlap(predicted, reference, k)[0]
    if len(set(reference)) == 1:
        assert math.isnan(value)
        return
    assert -1e-12 <= value <= 1 + 1e-12
    k = min(k, len(predicted))
    if len(set(predicted)) == len(predicted) and len(set(reference)) == len(reference):
        best = [set(sorted(range(len(x)), key=lambda i: -x[i])[:k]) for x in (predicted, reference)]
        assert value == pytest.approx(len(best[0] & best[1]) / k)


def test_top_k_overlap_of_ties():
    """Prevents: a collapsed model whose arbitrary order happens to hit, and equal lists with ties below 1."""
    reference = np.arange(20.0)
    assert top_k_overlap(np.zeros(20), reference, 10)[0] == pytest.approx(0.5)
    assert top_k_overlap(reference // 4, reference // 4, 10)[0] == pytest.approx(1.0)
    assert top_k_overlap(-reference, reference, 10)[0] == 0.0


@given(two_lists(tied_scores, grades, min_size=3), st.randoms(use_true_random=False))
def test_metrics_do_not_depend_on_the_order_of_items(lists, rng: random.Random):
    """Prevents: ties decided by position anywhere, which rewards data that comes sorted by grade."""
    order = list(range(len(lists[0])))
    rng.shuffle(order)
    shuffled = [[values[i] for i in order] for values in lists]
    for metric in (spearman, kendall_tau, ndcg, lambda p, r: top_k_overlap(p, r, 2)):
        np.testing.assert_allclose(metric(*shuffled), metric(*lists), atol=1e-12)


@given(two_lists(st.integers(-50, 50), grades, min_size=3))
def test_metrics_see_order_only(lists):
    """Prevents: a metric that looks at the size of the scores; reversing the prediction turns the correlations."""
    predicted, gold = lists
    stretched = [float(p) ** 3 + 7 for p in predicted]
    for metric in (spearman, kendall_tau, ndcg, top_k_overlap):
        np.testing.assert_allclose(metric(stretched, gold), metric(predicted, gold), atol=1e-12)
    for correlation in (spearman, kendall_tau):
        value = float(np.squeeze(correlation(predicted, gold)))
        reverse = float(np.squeeze(correlation([-p for p in predicted], gold)))
        assert (math.isnan(value) and math.isnan(reverse)) or value == pytest.approx(-reverse, abs=1e-12)
        assert math.isnan(value) or -1 - 1e-12 <= value <= 1 + 1e-12


@pytest.mark.parametrize("metric", [spearman, top_k_overlap, kendall_tau, ndcg])
def test_rank_metrics_refuse_what_cannot_be_ranked(metric):
    """Prevents: NaN that sorts to one end and gives a number, and broadcasting of unequal shapes."""
    with pytest.raises(ValueError, match="finite"):
        metric([0.1, math.nan], [1, 2])
    with pytest.raises(ValueError, match="shape"):
        metric([0.1, 0.2, 0.3], [1, 2])


def test_ndcg_refuses_negative_grades():
    """Prevents: a normalised gain outside 0 to 1."""
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        ndcg([0.1, 0.2], [-1, 2])


def test_ranking_agreement_equals_loops():
    """Prevents: the sentence itself in its own list, and chunks that drop or repeat rows. Canary: it is not trivial."""
    generator = torch.Generator().manual_seed(0)
    student = torch.nn.functional.normalize(torch.randn(17, 5, generator=generator), dim=1)
    teacher = torch.nn.functional.normalize(torch.randn(17, 8, generator=generator), dim=1)
    expected = []
    for i in range(17):
        others = [j for j in range(17) if j != i]
        ours, theirs = ([float(x[i] @ x[j]) for j in others] for x in (student, teacher))
        best = [set(sorted(range(16), key=lambda j: -x[j])[:3]) for x in (ours, theirs)]
        expected.append((loop_spearman(ours, theirs), len(best[0] & best[1]) / 3))
    for chunk_elements in (1, 17 * 4, 10**6):
        values = np.stack(ranking_agreement(student, teacher, k=3, chunk_elements=chunk_elements), axis=1)
        np.testing.assert_allclose(values, expected, atol=1e-12)
    assert np.ptp(np.array(expected), axis=0).min() > 0.1
    with pytest.raises(ValueError, match="at least 3"):
        ranking_agreement(student[:2], teacher[:2])


@pytest.mark.parametrize("t", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("chunk_size", [1, 4, 512])
def test_uniformity_equals_loops(t, chunk_size):
    """Prevents: pairs counted with themselves or twice, missing normalisation, and a chunk border that loses pairs."""
    x = torch.randn(13, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 1
    expected = loop_uniformity(x.tolist(), t)
    assert expected < -0.1
    assert uniformity(x, t, chunk_size=chunk_size) == pytest.approx(expected, rel=1e-9)
    assert uniformity(x.float(), t, chunk_size=chunk_size) == pytest.approx(expected, rel=1e-5)


def test_alignment_equals_loops():
    """Prevents: the distance in place of its square, and missing normalisation."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 7, 4, generator=generator, dtype=torch.float64)
    expected = statistics.fmean(
        sum((a / math.hypot(*u) - b / math.hypot(*v)) ** 2 for a, b in zip(u, v, strict=True))
        for u, v in zip(x.tolist(), y.tolist(), strict=True)
    )
    assert expected > 0.1
    assert alignment(x, y) == pytest.approx(expected, rel=1e-12)
    assert alignment(x, x) == 0.0
    assert alignment(x, -x) == pytest.approx(4.0)


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**31), st.floats(0.01, 100))
def test_geometry_stays_in_its_bounds(n, dim, seed, scale):
    """Prevents: a positive uniformity from rounding, and a value that depends on the length of the vectors."""
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
    value = uniformity(x)
    assert -8 - 1e-5 <= value <= 0
    assert uniformity(x * scale) == pytest.approx(value, abs=1e-5)
    assert uniformity(x[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]) == pytest.approx(
        value, abs=1e-5
    )
    assert 0 <= alignment(x, x.roll(1, dims=0)) <= 4 + 1e-5
    assert uniformity(x[:1].repeat(n, 1)) == pytest.approx(0.0, abs=1e-6)


def test_sampled_uniformity_is_near_the_exact_one_and_repeats():
    """Prevents: a sample that is biased, or that moves the global random state, or that changes from call to call."""
    x = torch.randn(3000, 8, generator=torch.Generator().manual_seed(0)) + 0.3
    exact = uniformity(x)
    state = torch.get_rng_state()
    sampled = [uniformity(x, max_pairs=150_000, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    assert sampled[0] == sampled[1] != exact
    assert sampled[2] != sampled[0]
    assert sampled == pytest.approx([exact] * 3, abs=0.02)
    # The smallest sample pairs each row with one other.
    assert uniformity(x, max_pairs=1500) == pytest.approx(exact, abs=0.2)
    assert uniformity(x, max_pairs=1) < 0


def test_geometry_refuses_what_has_no_pair():
    """Prevents: the mean over nothing."""
    with pytest.raises(ValueError, match="two rows or more"):
        uniformity(torch.ones(1, 3))
    with pytest.raises(ValueError, match="at least one pair"):
        alignment(torch.ones(0, 3), torch.ones(0, 3))
    with pytest.raises(ValueError, match="one shape"):
        alignment(torch.ones(2, 3), torch.ones(3, 3))
