"""The main job, from a student and its scores to a trainer that is ready to run.

Everything here is what a script would write by hand with sentence-transformers; ``rankcse-st train`` is built on it.
Nothing heavy is imported before it is needed: options are checked before models are loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.base.evaluation import BaseEvaluator

    from rankcse_st.losses import RankCSELoss

__all__ = ["TrainingOptions", "build_loss", "build_trainer", "last_checkpoint", "load_student", "with_learning_rate"]


class Preset(NamedTuple):
    """What a named loss trains with where the options do not say otherwise."""

    contrastive_weight: float
    consistency_weight: float
    distillation_weight: float
    student_temperature: float
    teacher_temperature: float
    matching_weight: float


# "rankcse" is the paper's, at the defaults of RankCSELoss; "distillation" is what the benchmarks' study recommends.
LOSSES = {
    "rankcse": Preset(1.0, 1.0, 1.0, student_temperature=0.05, teacher_temperature=0.025, matching_weight=0.0),
    "distillation": Preset(0.0, 0.0, 1.0, student_temperature=0.1, teacher_temperature=0.1, matching_weight=20.0),
    "simcse": Preset(1.0, 0.0, 0.0, student_temperature=0.05, teacher_temperature=0.025, matching_weight=0.0),
}
# The recommendation was measured with ListNet: ListMLE keeps the defaults of its loss.
LISTMLE_DISTILLATION = Preset(0.0, 0.0, 1.0, student_temperature=0.05, teacher_temperature=0.025, matching_weight=0.0)

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What ``rankcse-st train`` trains with; every default is that of its option.

    Args:
        student: The model to be trained: a name or a path.
        loss: Which terms are on: ``"distillation"`` (distillation alone: one view, half the cost, no dropout needed;
            what the benchmarks' study recommends), ``"rankcse"`` (the paper's: contrastive, consistency and
            distillation, each of weight 1) or ``"simcse"`` (contrastive alone, as a baseline: it needs no teachers).
        contrastive_weight, consistency_weight, distillation_weight: Weights instead of those that ``loss`` says.
        method: ``"listnet"`` or ``"listmle"``.
        temperature: As in :class:`~rankcse_st.RankCSELoss`.
        student_temperature, teacher_temperature: As there. None: 0.05 and 0.025, which are that loss's own defaults,
            but 0.1 and 0.1 for the loss ``"distillation"`` with ListNet.
        matching_weight: As there. None: 0, but 20 for the loss ``"distillation"`` with ListNet, unless a projection
            head lies between.
        pooling: For a student that is a bare transformer checkpoint: ``"mean"`` (default) or ``"cls"``.
        max_seq_length: Length in tokens at which the student cuts sentences; by default its own.
        dropout: Dropout to train with; by default the student's own.
        projection_head: Train with SimCSE's MLP on top, which is taken off at the end.
        epochs: Passes over the sentences.
        batch_size: Sentences in a batch, on each device.
        learning_rate: Peak learning rate; by default 3e-5, and 0.02 for a ``StaticEmbedding`` student.
        warmup: Share of the steps in which the learning rate rises; it falls linearly afterwards. A share of less than
            one step is none.
        bf16, fp16: Mixed precision.
        seed: Seed of the split, the order and the dropout.
        eval_steps: Evaluate, and keep the best checkpoint, every so many steps; by default only before and after.
        save_steps: Save a checkpoint every so many steps; by default ten times in all.
        cpu: Stay on the CPU even if there is a GPU.

    Raises:
        ValueError: If a value is out of its range, or if two contradict each other.
    """

    student: str
    loss: Literal["rankcse", "distillation", "simcse"] = "distillation"
    contrastive_weight: float | None = None
    consistency_weight: float | None = None
    distillation_weight: float | None = None
    method: Literal["listnet", "listmle"] = "listnet"
    temperature: float = 0.05
    student_temperature: float | None = None
    teacher_temperature: float | None = None
    matching_weight: float | None = None
    pooling: Literal["mean", "cls"] | None = None
    max_seq_length: int | None = None
    dropout: float | None = None
    projection_head: bool = False
    epochs: float = 1.0
    batch_size: int = 128
    learning_rate: float | None = None
    warmup: float = 0.05
    bf16: bool = False
    fp16: bool = False
    seed: int = 42
    eval_steps: int | None = None
    save_steps: int | None = None
    cpu: bool = False

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, but got {self.loss!r}.")
        for name in ("temperature", "student_temperature", "teacher_temperature", "epochs", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, but got {value}.")
        for name in ("contrastive_weight", "consistency_weight", "distillation_weight", "matching_weight"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative, but got {value}.")
        if not any(self.weights):
            raise ValueError("The weights of all three terms are 0: nothing would be trained.")
        for name, least in (("batch_size", 2), ("max_seq_length", 3), ("eval_steps", 1), ("save_steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, but got {value}.")
        for name in ("warmup", "dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but got {value}.")
        if self.matching_weight and self.projection_head:
            raise ValueError(
                "Embeddings are matched with the teachers', but a projection head hides the student's own while it "
                "trains: leave projection_head or matching_weight out."
            )
        if self.bf16 and self.fp16:
            raise ValueError("bf16 and fp16 exclude each other: choose one.")
        if self.eval_steps is not None and self.save_steps not in (None, self.eval_steps):
            raise ValueError(
                "With eval_steps the best checkpoint is kept, so that one is saved at every evaluation: leave "
                f"save_steps out or make it {self.eval_steps}, but got {self.save_steps}."
            )

    @property
    def weights(self) -> tuple[float, float, float]:
        """Weights of the contrastive, consistency and distillation terms."""
        given = (self.contrastive_weight, self.consistency_weight, self.distillation_weight)
        contrastive, consistency, distillation = (
            preset if weight is None else weight for weight, preset in zip(given, LOSSES[self.loss][:3], strict=True)
        )
        return contrastive, consistency, distillation

    @property
    def preset(self) -> Preset:
        """What ``loss`` and ``method`` say where nothing else is said."""
        if (self.loss, self.method) == ("distillation", "listmle"):
            return LISTMLE_DISTILLATION
        return LOSSES[self.loss]

    @property
    def needs_dropout(self) -> bool:
        """Whether a term compares two views of a sentence, which only dropout makes different."""
        return self.weights[0] > 0 or self.weights[1] > 0

    def resolve(self) -> TrainingOptions:
        """The same options with temperatures and the matching weight in numbers."""
        preset, weight = self.preset, self.matching_weight
        if weight is None:
            # Behind a head it would not be the student's own embeddings that are matched.
            matched = self.weights[2] > 0 and not self.projection_head
            weight = preset.matching_weight if matched else 0.0
        student, teacher = self.student_temperature, self.teacher_temperature
        return replace(
            self,
            student_temperature=preset.student_temperature if student is None else student,
            teacher_temperature=preset.teacher_temperature if teacher is None else teacher,
            matching_weight=weight,
        )


def load_student(options: TrainingOptions) -> SentenceTransformer:
    """Load the student, give it its length and dropout, and check that it can be trained with the chosen terms.

    Raises:
        ValueError: If pooling is given for a student that has its own, if the length is beyond the student's
            positions, or if two views of a sentence are needed but no dropout acts.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from sentence_transformers.util import is_sentence_transformer_model

    from rankcse_st.dropout import has_active_dropout, set_dropout

    if options.fp16 and (options.cpu or not torch.cuda.is_available()):
        raise ValueError("fp16 needs a CUDA GPU: use bf16, or full precision on a CPU.")
    device = "cpu" if options.cpu else None
    if is_sentence_transformer_model(options.student):
        if options.pooling is not None:
            raise ValueError(
                f"pooling={options.pooling!r} is for bare transformer checkpoints, but the student {options.student!r} "
                "has a pooling of its own: leave it out."
            )
        model = SentenceTransformer(options.student, device=device)
    else:
        transformer = Transformer(options.student)
        pooling = Pooling(transformer.get_embedding_dimension(), options.pooling or "mean")
        model = SentenceTransformer(modules=[transformer, pooling], device=device)
    # Weights in half precision do not train well; mixed precision is bf16 or fp16.
    model.float()
    if options.max_seq_length is not None:
        _set_length(model, options.max_seq_length)
    if options.dropout is not None:
        set_dropout(model, options.dropout)
    if options.needs_dropout and not has_active_dropout(model):
        raise ValueError(
            f"No dropout acts in the student {options.student!r}, so that two views of a sentence are equal and the "
            "contrastive and consistency terms mean nothing. Set the dropout (0.1 is usual; a StaticEmbedding has "
            "none), or train with the loss 'distillation', which needs one view only."
        )
    return model


def with_learning_rate(options: TrainingOptions, model: SentenceTransformer) -> TrainingOptions:
    """The same options with the learning rate in numbers, now that the student's kind is known."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    default = 0.02 if isinstance(model[0], StaticEmbedding) else 3e-5
    return replace(options, learning_rate=options.learning_rate or default)


def build_loss(
    options: TrainingOptions, model: SentenceTransformer, train_dataset: Dataset, *, processes: int = 1
) -> RankCSELoss:
    """The loss that ``options`` describe.

    Args:
        options: What to train with.
        model: The student, before training.
        train_dataset: As for :func:`build_trainer`. A sample of it fits the projection by which embeddings are matched.
        processes: With several, each ranks against the batches of all.

    Raises:
        ValueError: If embeddings are to be matched without distillation or score vectors.
    """
    from rankcse_st.losses import RankCSELoss
    from rankcse_st.teacher_projection import fit_teacher_projection

    options = options.resolve()
    contrastive, consistency, distillation = options.weights
    matched = options.matching_weight and distillation
    return RankCSELoss(
        model,
        method=options.method,
        temperature=options.temperature,
        student_temperature=cast("float", options.student_temperature),
        teacher_temperature=cast("float", options.teacher_temperature),
        contrastive_weight=contrastive,
        consistency_weight=consistency,
        distillation_weight=distillation,
        gather_across_devices=processes > 1,
        matching_weight=cast("float", options.matching_weight),
        teacher_projection=fit_teacher_projection(model, train_dataset) if matched else None,
    )


def training_arguments(options: TrainingOptions, output: Path, *, best_metric: str | None = None) -> Any:
    """``SentenceTransformerTrainingArguments``; checkpoints go to ``output/checkpoints``.

    Args:
        options: What to train with.
        output: Folder of the run.
        best_metric: Name of the metric by which the best checkpoint is chosen, where ``eval_steps`` is given.
    """
    from sentence_transformers import SentenceTransformerTrainingArguments

    best = options.eval_steps is not None and best_metric is not None
    return SentenceTransformerTrainingArguments(
        output_dir=str(output / CHECKPOINTS),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate or 3e-5,
        warmup_steps=options.warmup,
        bf16=options.bf16,
        fp16=options.fp16,
        use_cpu=options.cpu,
        seed=options.seed,
        eval_strategy="steps" if best else "no",
        eval_steps=options.eval_steps,
        save_strategy="steps",
        # A number below 1 is a share of all steps.
        save_steps=options.eval_steps or options.save_steps or 0.1,
        save_total_limit=2,
        load_best_model_at_end=best,
        metric_for_best_model=f"eval_{best_metric}" if best else None,
        greater_is_better=True if best else None,
        logging_strategy="steps",
        logging_steps=0.05,
        report_to="none",
    )


def build_trainer(
    options: TrainingOptions,
    model: SentenceTransformer,
    train_dataset: Dataset,
    output: Path,
    *,
    evaluators: Sequence[BaseEvaluator] = (),
) -> SentenceTransformerTrainer:
    """Put student, data, loss and arguments together.

    Args:
        options: What to train with.
        model: The student, from :func:`load_student`.
        train_dataset: Column ``sentence``, and ``label`` with the teachers' score vectors where distillation is on.
        output: Folder of the run.
        evaluators: Run every ``eval_steps``; the best checkpoint is chosen by the first one's primary metric.

    Raises:
        ValueError: As :func:`build_loss`, by the labels' width.
    """
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.base.evaluation import SequentialEvaluator

    options = with_learning_rate(options, model)
    callbacks = []
    if options.projection_head:
        from rankcse_st.projection_head import add_projection_head

        callbacks.append(add_projection_head(model, seed=options.seed))
    during = list(evaluators) if options.eval_steps is not None else []
    arguments = training_arguments(options, output, best_metric=during[0].primary_metric if during else None)
    steps_per_epoch = math.ceil(len(train_dataset) / (arguments.train_batch_size * arguments.world_size))
    if options.warmup * math.ceil(options.epochs * steps_per_epoch) < 1:
        # It would be rounded up to one step, whose learning rate is 0: a third of a training of three steps.
        arguments.warmup_steps = 0
    if not options.weights[2] and "label" in train_dataset.column_names:
        train_dataset = train_dataset.remove_columns("label")
    return SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=train_dataset,
        loss=build_loss(options, model, train_dataset, processes=arguments.world_size),
        evaluator=SequentialEvaluator(during, main_score_function=lambda scores: scores[0]) if during else None,
        callbacks=callbacks,
    )


def last_checkpoint(output: Path, *, projection_head: bool = False) -> Path | None:
    """The newest checkpoint of a run that is complete, or None; one that a crash cut short is passed over.

    Args:
        output: Folder of the run.
        projection_head: Whether the run trains with one, whose weights a complete checkpoint then holds.
    """
    # trainer_state.json is the last file that the trainer writes, before the callbacks write theirs.
    needed = ["trainer_state.json"]
    if projection_head:
        from rankcse_st.projection_head import WEIGHTS_NAME

        needed.append(WEIGHTS_NAME)
    complete = {}
    for folder in (output / CHECKPOINTS).glob("checkpoint-*"):
        step = re.fullmatch(r"checkpoint-(\d+)", folder.name)
        if step and all((folder / name).is_file() for name in needed):
            complete[int(step[1])] = folder
    return complete[max(complete)] if complete else None


def _set_length(model: SentenceTransformer, length: int) -> None:
    own = model.max_seq_length
    if own is None or math.isinf(own):
        raise ValueError("The student reads sentences of any length: it takes no max_seq_length.")
    positions = getattr(getattr(model[0], "model", None), "config", None)
    longest = getattr(positions, "max_position_embeddings", None)
    if isinstance(longest, int) and longest < length:
        raise ValueError(f"max_seq_length={length} is longer than the {longest} positions that the student has.")
    model.max_seq_length = length
