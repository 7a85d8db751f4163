"""The evaluators: their values against plain loops, their place in the trainer, and what they must not touch."""

from __future__ import annotations

import csv
import json
import logging
import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.stats import kendalltau, spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from rankcse_st.evaluation import (
    AlignmentUniformityEvaluator,
    GradedRankingEvaluator,
    TeacherAgreementEvaluator,
    ranking_groups,
)
from rankcse_st.evaluation import _base as base
from rankcse_st.evaluation.plots import pair_cosines

QUERY_GRADES = {
    "The cat sleeps on the sofa.": [
        ("A dog sleeps on the sofa.", 4.0),
        ("The cat likes warm bread.", 2.0),
        ("The river waits for the rain.", 0.0),
        ("Anna never sings at night.", 1.0),
    ],
    "A small boat crossed the narrow bridge.": [
        ("The old train crossed the narrow bridge.", 3.0),
        ("A small boat was painted green.", 3.0),
        ("A dog runs along the beach.", 1.0),
    ],
}


def unit_vectors(n, dim, seed=0):
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def graded(**kwargs):
    return GradedRankingEvaluator(
        list(QUERY_GRADES),
        [[t for t, _ in pairs] for pairs in QUERY_GRADES.values()],
        [[g for _, g in pairs] for pairs in QUERY_GRADES.values()],
        **kwargs,
    )


@pytest.fixture
def evaluators(sentences):
    """One evaluator of each kind, on sentences that the tiny models know."""
    first, second = sentences[:20], sentences[20:40]
    return [
        TeacherAgreementEvaluator(sentences[:24], unit_vectors(24, 16), name="held"),
        graded(name="graded"),
        AlignmentUniformityEvaluator(first, second, [i % 6 for i in range(20)], name="geometry"),
    ]


# Teacher agreement


def test_agreement_equals_loops(tiny_model, tiny_teacher, sentences):
    """Prevents: a wrong pairing of students' and teachers' rows, which any value near 0 would hide."""
    sentences = sentences[:30]
    ours, theirs = tiny_model.encode(sentences).astype(float), tiny_teacher.encode(sentences).astype(float)
    cosine = [[x @ y / np.linalg.norm(x) / np.linalg.norm(y) for y in e] for e in (ours, theirs) for x in e]
    student, teacher = np.reshape(cosine, (2, 30, 30))
    rows = [np.delete(np.arange(30), i) for i in range(30)]
    spearman = statistics.fmean(spearmanr(student[i, r], teacher[i, r]).statistic for i, r in enumerate(rows))
    best = [[set(r[np.argsort(-s[i, r])[:10]]) for i, r in enumerate(rows)] for s in (student, teacher)]
    overlap = statistics.fmean(len(a & b) / 10 for a, b in zip(*best, strict=True))

    result = TeacherAgreementEvaluator(sentences, tiny_teacher)(tiny_model)
    assert result == pytest.approx({"spearman": spearman, "top10_overlap": overlap}, abs=1e-4)
    assert abs(spearman) > 0.02
    assert result["spearman"] < 0.99


def test_agreement_with_itself_is_one_and_with_itself_reversed_is_less(tiny_model, sentences):
    """Prevents: an upside-down order, or a distance where a similarity is meant. Canary: other teachers give less."""
    assert TeacherAgreementEvaluator(sentences, tiny_model)(tiny_model) == pytest.approx(
        {"spearman": 1.0, "top10_overlap": 1.0}, abs=1e-3
    )
    other = TeacherAgreementEvaluator(sentences, unit_vectors(len(sentences), 8))(tiny_model)
    assert abs(other["spearman"]) < 0.3


def test_agreement_takes_teachers_in_every_form(tiny_model, tiny_teacher, sentences, tmp_path):
    """Prevents: a form that is read as another, such as rows of numbers as a list of teachers."""
    from rankcse_st.teachers import Teacher, TeacherEnsemble

    tiny_teacher.save(str(tmp_path / "a teacher"))
    weighted = [Teacher(tiny_teacher, weight=2.0), Teacher(str(tmp_path / "a teacher"), weight=1.0)]
    vectors = TeacherEnsemble.of([tiny_teacher]).encode(sentences)
    forms = [
        tiny_teacher,
        [tiny_teacher],
        str(tmp_path / "a teacher"),
        weighted,
        TeacherEnsemble(weighted),
        vectors,
        vectors.numpy(),
        vectors.tolist(),
        list(vectors),
        Dataset.from_dict({"label": vectors.tolist()})["label"],
    ]
    results = [TeacherAgreementEvaluator(sentences, form)(tiny_model)["spearman"] for form in forms]
    assert results == pytest.approx([results[0]] * len(forms), abs=1e-5)
    # Half precision, as score files may hold it, moves the lengths a little and is no error.
    half = TeacherAgreementEvaluator(sentences, vectors.half())(tiny_model)["spearman"]
    assert half == pytest.approx(results[0], abs=1e-2)


def test_agreement_keeps_each_sentence_once(tiny_model, sentences, caplog):
    """Prevents: a trivial first place for repeated sentences, and score vectors that lose their sentence."""
    vectors = unit_vectors(12, 6)
    plain = TeacherAgreementEvaluator(sentences[:12], vectors)
    repeated = [2, 5, *range(12), 2]
    with caplog.at_level(logging.WARNING):
        again = TeacherAgreementEvaluator([sentences[i] for i in repeated], vectors[repeated])
    assert "Dropped 3 repeated sentences of 15" in caplog.text
    assert len(again.sentences) == 12
    assert again(tiny_model) == pytest.approx(plain(tiny_model), abs=1e-6)


def test_agreement_of_a_collapsed_student_is_no_better_than_chance(tiny_model, sentences):
    """Prevents: constant lists left out, NaN as the mean of none, and NaN kept forever as the best checkpoint."""
    evaluator = TeacherAgreementEvaluator(sentences[:21], unit_vectors(21, 6))
    evaluator.embed_inputs = lambda model, texts: np.ones((len(texts), 4), dtype=np.float32)
    assert evaluator(tiny_model) == pytest.approx({"spearman": 0.0, "top10_overlap": 0.5})


def test_agreement_leaves_out_lists_that_the_teacher_does_not_order(tiny_model, sentences, caplog):
    """Prevents: lists without an order counted as 0."""
    axis = torch.eye(4)
    # The first sentence is at a right angle to all others, which are on one circle.
    others = torch.nn.functional.normalize(torch.tensor([[math.cos(a), math.sin(a)] for a in range(9)]), dim=1)
    vectors = torch.cat([axis[:1], torch.cat([torch.zeros(9, 2), others], dim=1)])
    evaluator = TeacherAgreementEvaluator(sentences[:10], vectors)
    evaluator.embed_inputs = lambda model, texts: (vectors + torch.tensor([0, 0.1, 0, 0])).numpy()
    with caplog.at_level(logging.WARNING):
        result = evaluator(tiny_model)
    assert "Left out 1 of 10 lists" in caplog.text
    assert result["spearman"] > 0.8


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s, v: (s[:2], v[:2]), ValueError, "at least 3 different sentences"),
        (
            lambda s, v: ([s[0], s[1]] * 4, v),
            ValueError,
            r"at least 3 different sentences to rank, got 2 \(of 8 given\)",
        ),
        (lambda s, v: (s[0], v), TypeError, "list of strings"),
        (lambda s, v: ([*s[:6], " ", s[7]], v), ValueError, "1 empty .at 6"),
        (lambda s, v: ([*s[:6], None, 3], v), TypeError, "1 None"),
        (lambda s, v: (s, v[:5]), ValueError, r"expected score vectors of shape \(8, D\).*got \(5, 4\)"),
        (lambda s, v: (s, v[0]), ValueError, "expected score vectors of shape"),
        (lambda s, v: (s, v * 3), ValueError, "length 1, but 8 of 8.*normalize"),
        (lambda s, v: (s, torch.where(torch.arange(8)[:, None] == 3, torch.nan, v)), ValueError, "first: row 3"),
        (lambda s, v: (s, v[:1].repeat(8, 1)), ValueError, "all score vectors are equal"),
    ],
)
def test_agreement_refuses_bad_input_when_built(sentences, change, error, message):
    """Prevents: an error, or a wrong number, after hours of training."""
    given, vectors = change(sentences[:8], unit_vectors(8, 4))
    with pytest.raises(error, match=message):
        TeacherAgreementEvaluator(given, vectors)


# Graded ranking


def test_graded_ranking_equals_loops(tiny_model):
    """Prevents: cosines of the wrong pairs, and a mean over targets in place of groups."""
    taus, gains = [], []
    for query, pairs in QUERY_GRADES.items():
        grades = [g for _, g in pairs]
        cosines = [float(tiny_model.similarity(*tiny_model.encode([query, target])[:, None])) for target, _ in pairs]
        taus.append(kendalltau(cosines, grades).statistic)
        order = np.argsort(-np.array(cosines))
        dcg, ideal = (
            sum(g / math.log2(i + 2) for i, g in enumerate(ranked))
            for ranked in ([grades[i] for i in order], sorted(grades, reverse=True))
        )
        gains.append(dcg / ideal)
    result = graded()(tiny_model)
    assert result == pytest.approx(
        {"kendall": statistics.fmean(taus), "ndcg": statistics.fmean(gains), "num_groups": 2, "num_skipped": 0}
    )
    assert taus[0] != taus[1]


def test_graded_ranking_finds_the_perfect_and_the_worst_order(tiny_model):
    """Prevents: an upside-down order. NDCG of the worst order stays well above 0, tau does not."""
    evaluator = graded()
    grade = {t: g for pairs in QUERY_GRADES.values() for t, g in pairs}
    for sign, kendall, ndcg in ((1, (0.9, 1.0), 1.0), (-1, (-1.0, -0.9), None)):
        angles = [0.0 if s in QUERY_GRADES else 1.5 - sign * 0.2 * grade[s] for s in evaluator.sentences]
        evaluator.embed_inputs = lambda model, texts, a=angles: np.stack([np.cos(a), np.sin(a)], axis=1)
        result = evaluator(tiny_model)
        assert kendall[0] <= result["kendall"] <= kendall[1]
        assert ndcg is None or result["ndcg"] == pytest.approx(ndcg)
    assert 0.3 < result["ndcg"] < 0.95


def test_graded_ranking_counts_what_it_skips(tiny_model):
    """Prevents: NaN means from constant groups, and groups that vanish without a word."""
    with_constant = GradedRankingEvaluator(
        [*QUERY_GRADES, "Anna likes warm bread.", "The city is late again."],
        [
            *[[t for t, _ in pairs] for pairs in QUERY_GRADES.values()],
            ["The city sleeps.", "A dog runs."],
            ["A dog runs."],
        ],
        [*[[g for _, g in pairs] for pairs in QUERY_GRADES.values()], [2, 2], [3]],
    )
    result = with_constant(tiny_model)
    assert result.pop("num_skipped") == 2
    plain = graded()(tiny_model)
    assert plain.pop("num_skipped") == 0
    assert result == pytest.approx(plain)
    assert "Anna likes warm bread." not in with_constant.sentences


def test_repeated_targets_count_once_with_their_mean_grade():
    """Prevents: a group that is longer than its targets, and a grade that depends on the order of the rows."""
    pairs = [("q", "a", 1.0), ("q", "b", 3.0), ("q", "a", 2.0), ("c", "q", 0.0), ("q", "a", 4.0), ("d", "q", 5.0)]
    for rows in (pairs, pairs[::-1]):
        columns = [list(column) for column in zip(*rows, strict=True)]
        groups = {g.query: dict(zip(g.targets, g.grades, strict=True)) for g in ranking_groups(*columns)}
        assert groups == {"q": {"a": pytest.approx(7 / 3), "b": 3.0, "c": 0.0, "d": 5.0}}
        assert ranking_groups(*columns, symmetric=False) == []
        assert len(ranking_groups(*columns, min_targets=2, symmetric=False)) == 1


def test_symmetric_pairs_make_queries_of_both_sides(tiny_model, sentences):
    """Prevents: STS15, whose first sentences have few targets each, left without a group."""
    hub = sentences[0]
    columns = sentences[1:6], [hub] * 5, [0, 1, 2, 3, 4]
    (group,) = ranking_groups(*columns)
    assert group == (hub, sentences[1:6], [0, 1, 2, 3, 4])
    evaluator = GradedRankingEvaluator.from_pairs(*columns, name="hub", batch_size=3)
    assert evaluator(tiny_model)["hub_num_groups"] == 1
    with pytest.raises(ValueError, match="symmetric=True"):
        GradedRankingEvaluator.from_pairs(*columns, symmetric=False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["q"], [["a", "b"]], [[1, 2], [3]]), ValueError, "scores has 2"),
        ((["q"], [["a", "b"]], [[1, 2, 3]]), ValueError, "targets.0. has 2, scores.0. has 3"),
        ((["q"], [["a", "b"]], [[1, -2]]), ValueError, "must not be negative"),
        ((["q"], [["a", "b"]], [[1, math.nan]]), ValueError, "NaN or infinite"),
        ((["q"], [["a", "b"]], [[1, None]]), ValueError, "NaN or infinite|list of numbers"),
        ((["q"], [["a", "b"]], [["high", "low"]]), ValueError, "list of numbers"),
        ((["q"], [["a", ""]], [[1, 2]]), ValueError, r"targets\[0\].*1 empty"),
        ((["q"], ["ab"], [[1, 2]]), TypeError, r"targets\[0\] must be a list"),
        ((["q"], [["a", "b"]], [[2, 2]]), ValueError, "none of the 1 groups"),
        (([], [], []), ValueError, "none of the 0 groups"),
    ],
)
def test_graded_ranking_refuses_bad_input_when_built(arguments, error, message):
    """Prevents: an error, or a wrong number, after hours of training."""
    with pytest.raises(error, match=message):
        GradedRankingEvaluator(*arguments)


def test_from_pairs_refuses_bad_input():
    """Prevents: groups of one, and an empty result that fails later."""
    with pytest.raises(ValueError, match="min_targets must be at least 2"):
        GradedRankingEvaluator.from_pairs(["a"], ["b"], [1], min_targets=1)
    with pytest.raises(ValueError, match="No sentence of these 2 pairs has 4 different targets"):
        GradedRankingEvaluator.from_pairs(["a", "a"], ["b", "c"], [1, 2])
    with pytest.raises(ValueError, match="sentences1 has 2, sentences2 has 1"):
        GradedRankingEvaluator.from_pairs(["a", "a"], ["b"], [1, 2])


# Alignment and uniformity


def test_alignment_and_uniformity_equal_loops(tiny_model, sentences):
    """Prevents: pairs below the threshold among the positives, and repeated sentences that count twice."""
    first, second = [*sentences[:6], sentences[0]], [*sentences[6:12], sentences[6]]
    scores = [5, 4.5, 4, 3.9, 0, 2, 1]
    unit = tiny_model.encode(sentences[:12], normalize_embeddings=True).astype(float)
    align = statistics.fmean(float(((unit[i] - unit[i + 6]) ** 2).sum()) for i in range(3))
    potentials = [math.exp(-2 * ((unit[i] - unit[j]) ** 2).sum()) for i in range(12) for j in range(i)]
    uniform = math.log(statistics.fmean(potentials))
    result = AlignmentUniformityEvaluator(first, second, scores)(tiny_model)
    assert result == pytest.approx(
        {"alignment": align, "uniformity": uniform, "negative_alignment_plus_uniformity": -(align + uniform)}, rel=1e-4
    )
    assert align > 0.01
    assert uniform < -0.01
    higher = AlignmentUniformityEvaluator(first, second, scores, positive_threshold=4.6)(tiny_model)
    assert higher["alignment"] == pytest.approx(float(((unit[0] - unit[6]) ** 2).sum()), rel=1e-4)
    assert higher["uniformity"] == result["uniformity"]


def test_the_geometry_of_many_sentences_is_sampled(tiny_model, sentences):
    """Prevents: all pairs of 100,000 sentences, and a sample that differs from call to call."""
    arguments = sentences[:32], sentences[32:], [5] * 32
    exact = AlignmentUniformityEvaluator(*arguments)(tiny_model)["uniformity"]
    sampled = AlignmentUniformityEvaluator(*arguments, max_pairs=500)
    values = [sampled(tiny_model)["uniformity"] for _ in range(2)]
    assert values[0] == values[1] != exact
    assert values[0] == pytest.approx(exact, abs=0.3)


def test_geometry_refuses_bad_input_when_built(sentences):
    """Prevents: the mean over no positive pair."""
    with pytest.raises(ValueError, match=r"no pair has a score of positive_threshold=4 or more \(scores: 0 to 0.9"):
        AlignmentUniformityEvaluator(sentences[:2], sentences[2:4], [0, 0.9])
    with pytest.raises(ValueError, match="none at all"):
        AlignmentUniformityEvaluator([], [], [])
    with pytest.raises(ValueError, match="scores has 1"):
        AlignmentUniformityEvaluator(sentences[:2], sentences[2:4], [5])
    with pytest.raises(ValueError, match="two different sentences"):
        AlignmentUniformityEvaluator(["one"], ["one"], [5])


# What they share


@pytest.mark.parametrize("kind", range(3))
def test_csv_prefix_and_model_card(evaluators, kind, tiny_model, tmp_path, caplog):
    """Prevents: columns that do not match their values, a prefix that the primary metric lacks, an empty card."""
    evaluator = evaluators[kind]
    primary = evaluator.primary_metric
    with caplog.at_level(logging.INFO, logger=base.__name__):
        first = evaluator(tiny_model, output_path=str(tmp_path / "out"), epoch=0.5, steps=7)
        second = evaluator(tiny_model, output_path=str(tmp_path / "out"))
    assert evaluator.description in caplog.text
    assert "in epoch 0.5 after 7 steps" in caplog.text
    assert evaluator.primary_metric == primary
    assert primary in first
    assert all(key.startswith(f"{evaluator.name}_") and type(value) is float for key, value in first.items())
    assert first == second
    with (tmp_path / "out" / evaluator.csv_file).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["steps"]) for row in rows] == [("0.5", "7"), ("-1", "-1")]
    for name in evaluator.metric_names:
        assert float(rows[0][name]) == first[f"{evaluator.name}_{name}"]
    json.dumps(evaluator.get_config_dict())
    tiny_model.save(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert evaluator.description in card
    assert f"**{primary.removeprefix(evaluator.name + '_')}**" in card


def test_no_csv_unless_asked(tiny_model, tmp_path):
    """Prevents: files in a read-only place."""
    graded(write_csv=False)(tiny_model, output_path=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_names_that_look_like_paths_or_like_the_metric(tiny_model, tmp_path):
    """Prevents: a folder in the CSV's name, and a primary metric that the base class leaves without its prefix."""
    evaluator = graded(name="org/data")
    evaluator(tiny_model, output_path=str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["graded_ranking_evaluation_org_data_results.csv"]
    awkward = AlignmentUniformityEvaluator(["A dog."], ["The cat."], [5], name="negative")
    assert awkward.primary_metric in awkward(tiny_model)


def test_truncate_dim(tiny_model, sentences):
    """Prevents: an option that is taken and not used."""
    teachers = unit_vectors(len(sentences), 8)
    full, cut = (TeacherAgreementEvaluator(sentences, teachers, truncate_dim=d) for d in (None, 8))
    tiny_model.truncate_dim = 8
    own = full(tiny_model)
    tiny_model.truncate_dim = None
    assert cut(tiny_model) == own != full(tiny_model)
    assert cut.get_config_dict()["truncate_dim"] == 8
    with pytest.raises(ValueError, match="truncate_dim"):
        graded(truncate_dim=0)
    with pytest.raises(ValueError, match="batch_size"):
        graded(batch_size=0)


def test_similarity_is_the_cosine_whatever_the_model_says(tiny_model, evaluators):
    """Prevents: values that change with an attribute of the model that they do not name."""
    before = [evaluator(tiny_model) for evaluator in evaluators]
    tiny_model.similarity_fn_name = "euclidean"
    assert [evaluator(tiny_model) for evaluator in evaluators] == before


def test_a_diverged_student_is_an_error(tiny_model, evaluators):
    """Prevents: NaN as the best metric, which no later value beats."""
    with torch.no_grad():
        next(tiny_model.parameters()).fill_(math.nan)
    for evaluator in evaluators:
        with pytest.raises(ValueError, match="diverged"):
            evaluator(tiny_model)


class Dice(torch.nn.Module):
    """A module that draws from every global generator, even in eval mode."""

    def forward(self, features):
        torch.rand(1), np.random.rand(), random.random()
        return features


def test_modes_and_random_states_are_left_as_found(tiny_model, tiny_teacher, sentences, tmp_path):
    """Prevents: dropout that stays off after the first evaluation, and a training that depends on its evaluator."""
    model = SentenceTransformer(modules=[tiny_model[0], tiny_model[1], Dice()], device="cpu")
    tiny_teacher.save(str(tmp_path))
    model.train()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    assert len(set(modes)) == 2
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected = float(torch.rand(1)), np.random.rand(), random.random()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    evaluators = [
        TeacherAgreementEvaluator(sentences[:16], str(tmp_path)),
        graded(),
        AlignmentUniformityEvaluator(sentences[:9], sentences[9:18], [5] * 9, max_pairs=20),
    ]
    for evaluator in evaluators:
        evaluator(model)
        assert [module.training for module in model.modules()] == modes
    pair_cosines(model, sentences[:3], sentences[3:6])
    assert [module.training for module in model.modules()] == modes
    assert (float(torch.rand(1)), np.random.rand(), random.random()) == expected
    # Also when the model fails.
    evaluator.embed_inputs = lambda model, texts: model.eval() and 1 / 0
    with pytest.raises(ZeroDivisionError):
        evaluator(model)
    assert [module.training for module in model.modules()] == modes


# In the trainer


class Nothing(BaseEvaluator):
    """The evaluator that certainly touches nothing: the trainer's own evaluation loop draws random numbers."""

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        return {"nothing": 0.0}


def trainer_of(model, sentences, evaluator, folder, **arguments):
    pairs = Dataset.from_dict({"anchor": sentences, "positive": sentences[1:] + sentences[:1]})
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=5e-3,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **arguments,
    )
    loss = MultipleNegativesRankingLoss(model)
    return SentenceTransformerTrainer(model=model, args=args, train_dataset=pairs, loss=loss, evaluator=evaluator)


@pytest.mark.parametrize("kind", range(3))
def test_the_best_checkpoint_is_found(evaluators, kind, tiny_model, sentences, tmp_path):
    """Prevents: a primary metric that the trainer does not find, or of which less is better."""
    evaluator = evaluators[kind]
    trainer = trainer_of(
        tiny_model,
        sentences,
        evaluator,
        tmp_path,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model=evaluator.primary_metric,
    )
    trainer.train()
    key = f"eval_{evaluator.primary_metric}"
    values = {log["step"]: log[key] for log in trainer.state.log_history if key in log}
    assert sorted(values) == [2, 4, 6]
    assert len(set(values.values())) > 1
    best = max(values, key=values.get)
    assert trainer.state.best_metric == values[best]
    assert Path(trainer.state.best_model_checkpoint).name == f"checkpoint-{best}"
    assert evaluator(trainer.model)[evaluator.primary_metric] == pytest.approx(values[best], abs=1e-6)
    with (tmp_path / "eval" / evaluator.csv_file).open(newline="", encoding="utf-8") as file:
        assert [int(row["steps"]) for row in csv.DictReader(file)] == [2, 4, 6]


def test_training_is_the_same_with_and_without_the_evaluators(evaluators, make_tiny_model, sentences, tmp_path):
    """Prevents: evaluators that move the dropout masks or the order of the batches. Canary: another seed differs."""
    weights = []
    for i, (evaluator, seed) in enumerate([(Nothing(), 1), (SequentialEvaluator(evaluators), 1), (Nothing(), 2)]):
        trainer = trainer_of(make_tiny_model(), sentences, evaluator, tmp_path / str(i), seed=seed, save_strategy="no")
        trainer.train()
        weights.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
