"""Training options: what each loss trains with where nothing else is said, and what reaches the loss itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import unit_vectors
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks.demo.__main__ import RUNS
from rankcse_st.training import TrainingOptions, build_loss, build_trainer, with_learning_rate

N, WIDTH = 8, 32
PAPER = (0.05, 0.025, 0.0)


def resolved(**options: Any) -> tuple[Any, ...]:
    """Temperatures and matching weight."""
    full = TrainingOptions(student="x", **options).resolve()
    assert full == full.resolve()
    return full.student_temperature, full.teacher_temperature, full.matching_weight


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0.1, 0.1, 20.0)),
        ({"loss": "distillation"}, (0.1, 0.1, 20.0)),
        # Not the student's own embeddings would be matched.
        ({"projection_head": True}, (0.1, 0.1, 0.0)),
        ({"contrastive_weight": 1.0, "distillation_weight": 0.0}, (0.1, 0.1, 0.0)),
        # Not measured.
        ({"method": "listmle"}, PAPER),
        ({"method": "listmle", "matching_weight": 3.0}, (0.05, 0.025, 3.0)),
        ({"loss": "rankcse"}, PAPER),
        ({"loss": "rankcse", "contrastive_weight": 0.0, "consistency_weight": 0.0}, PAPER),
        ({"loss": "rankcse", "method": "listmle"}, PAPER),
        ({"loss": "rankcse", "matching_weight": 3.0}, (0.05, 0.025, 3.0)),
        ({"loss": "simcse"}, PAPER),
        ({"student_temperature": 0.07}, (0.07, 0.1, 20.0)),
        ({"teacher_temperature": 0.03, "matching_weight": 0.0}, (0.1, 0.03, 0.0)),
    ],
)
def test_presets(options: dict[str, Any], expected: tuple[float, float, float]) -> None:
    """A recommendation that is not applied, or applied where it was not measured; a value given but overridden."""
    assert resolved(**options) == expected


def scored(sentences: list[str], width: int = WIDTH) -> Dataset:
    return Dataset.from_dict({"sentence": sentences[:N], "label": unit_vectors(N, width).tolist()})


def test_matching_is_refused_where_nothing_could_act(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """The loss notices in its first step only, when models are loaded and sentences scored."""
    without = TrainingOptions(student="x", matching_weight=2.0, loss="simcse")
    with pytest.raises(ValueError, match="matching_weight goes with distillation"):
        build_loss(without, tiny_model, scored(sentences))
    with pytest.raises(ValueError, match="projection head hides"):
        TrainingOptions(student="x", matching_weight=2.0, projection_head=True)
    for weight in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="matching_weight must be finite and not negative"):
            TrainingOptions(student="x", matching_weight=weight)


def test_loss_gets_what_was_resolved(tiny_model: SentenceTransformer, sentences: list[str]) -> None:
    """Options that say one thing and a loss that does another."""

    def config(**options: Any) -> dict[str, Any]:
        loss = build_loss(TrainingOptions(student="x", **options), tiny_model, scored(sentences, 48))
        return loss.get_config_dict()

    recommended = {"student_temperature": 0.1, "teacher_temperature": 0.1, "matching_weight": 20.0}
    recommended |= {"contrastive_weight": 0.0, "consistency_weight": 0.0, "distillation_weight": 1.0}
    recommended |= {"teacher_projection": (48, WIDTH)}
    assert config().items() >= recommended.items()
    paper = {"student_temperature": 0.05, "teacher_temperature": 0.025, "matching_weight": 0.0}
    paper |= {"contrastive_weight": 1.0, "consistency_weight": 1.0, "distillation_weight": 1.0}
    paper |= {"teacher_projection": None}
    assert config(loss="rankcse").items() >= paper.items()


@pytest.mark.parametrize("name", RUNS)
def test_demo_trains_as_its_table_says(name: str) -> None:
    """A row of README.md that was trained with another loss than its name says."""
    given = RUNS[name][1]
    named = {key[2:].replace("-", "_"): value for key, value in zip(given[::2], given[1::2], strict=True)}
    loss = {} if "loss" not in named else {"loss": named["loss"]}
    assert resolved(**loss) == ((0.1, 0.1, 20.0) if name.endswith("-default") else PAPER)


@pytest.mark.parametrize("static", [False, True], ids=["transformer", "static"])
def test_trainer_matches_score_vectors_of_any_width(
    static: bool, make_tiny_model: Callable[..., SentenceTransformer], sentences: list[str], tmp_path: Path
) -> None:
    """A trainer that leaves matching out for a teacher of another width, or fails in its first step."""
    model = make_tiny_model()
    if static:
        embedding = StaticEmbedding(model.tokenizer.backend_tokenizer, embedding_dim=WIDTH)
        model = SentenceTransformer(modules=[embedding], device="cpu")

    def trainer(width: int, **options: Any) -> Any:
        full = TrainingOptions(student="x", cpu=True, batch_size=4, **options)
        return build_trainer(full, model, scored(sentences, width), tmp_path)

    for width in (WIDTH, 48, 20):
        matching = trainer(width)
        assert matching.loss.matching_weight == 20
        matching.train()
        assert any("matching" in entry for entry in matching.state.log_history)
    # Without distillation the labels play no part.
    assert trainer(48, loss="simcse").loss.matching_weight == 0


@pytest.mark.parametrize(
    ("options", "steps", "warmup"),
    [
        ({"batch_size": 8}, 1, 0),
        ({"batch_size": 3}, 3, 0),
        ({"batch_size": 3, "warmup": 0.4}, 3, 0.4),
        ({"batch_size": 3, "epochs": 6}, 18, 0),
        ({"batch_size": 3, "epochs": 7}, 21, 0.05),
        ({"batch_size": 3, "epochs": 0.5, "warmup": 0.4}, 2, 0),
    ],
)
def test_warmup_of_less_than_a_step_is_none(
    options: dict[str, Any], steps: int, warmup: float, tiny_model: SentenceTransformer, tmp_path: Path
) -> None:
    """Rounded up to a step of learning rate 0, it would leave a model of one step untrained, and nobody would know."""
    sentences = [f"The cat is number {i}." for i in range(N)]
    data = Dataset.from_dict({"sentence": sentences, "label": unit_vectors(N, WIDTH).tolist()})
    full = TrainingOptions(student="x", cpu=True, learning_rate=1e-3, **options)
    trainer = build_trainer(full, tiny_model, data, tmp_path)
    assert trainer.args.warmup_steps == warmup
    before = tiny_model[0].model.embeddings.word_embeddings.weight.clone()
    rates: list[float] = []
    create = trainer.create_scheduler

    def recording(num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = create(num_training_steps, optimizer)
        rates.append(scheduler.get_last_lr()[0])
        assert num_training_steps == steps
        return scheduler

    trainer.create_scheduler = recording
    if steps <= 3:
        trainer.train()
        assert rates == [1e-3 if warmup == 0 else 0]
        assert (tiny_model[0].model.embeddings.word_embeddings.weight - before).abs().max() > 1e-4


def test_learning_rate_by_the_kind_of_student(tiny_model: SentenceTransformer) -> None:
    """A record that says null would not tell what a run was trained with."""
    embedding = StaticEmbedding(tiny_model.tokenizer.backend_tokenizer, embedding_dim=WIDTH)
    static = SentenceTransformer(modules=[embedding], device="cpu")
    given, none = TrainingOptions(student="x", learning_rate=1e-4), TrainingOptions(student="x")
    assert [with_learning_rate(none, one).learning_rate for one in (tiny_model, static)] == [3e-5, 0.02]
    assert [with_learning_rate(given, one).learning_rate for one in (tiny_model, static)] == [1e-4, 1e-4]
