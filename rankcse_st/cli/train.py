"""``rankcse-st train``: options to a job; :mod:`rankcse_st.cli.job` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from rankcse_st.cli import options as shared
from rankcse_st.cli.console import errors_as_messages
from rankcse_st.cli.job import TrainingJob
from rankcse_st.cli.options import DATA, EVALUATION, LOSS, OUTPUT, TRAINING
from rankcse_st.cli.teachers import TeacherOptions
from rankcse_st.training import TrainingOptions

# typer reads annotations at run time, where Python 3.10 has no name for "float | None" inside Annotated strings.
OptionalFloat = Optional[float]  # noqa: UP045
OptionalInt = Optional[int]  # noqa: UP045
OptionalPath = Optional[Path]  # noqa: UP045


def train(
    student: Annotated[
        str,
        typer.Option(metavar="NAME", rich_help_panel=DATA, help="The model to train: a folder or a name on the Hub."),
    ],
    output: Annotated[
        Path,
        typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Where the model, checkpoints and numbers go."),
    ],
    teacher: shared.Teachers = [],  # noqa: B006
    teacher_weight: shared.TeacherWeights = [],  # noqa: B006
    teacher_pooling: shared.TeacherPoolings = [],  # noqa: B006
    teacher_prompt: shared.TeacherPrompts = [],  # noqa: B006
    teacher_max_seq_length: shared.TeacherLengths = [],  # noqa: B006
    teacher_batch_size: shared.TeacherBatchSize = None,
    calibrate: shared.Calibrate = False,
    weights: shared.Weights = None,
    pairs: shared.WeightPairs = None,
    sentences: shared.Sentences = None,
    scores: Annotated[
        OptionalPath,
        typer.Option(
            metavar="DIR",
            rich_help_panel=DATA,
            help="What 'rankcse-st score' wrote, instead of --teacher and --sentences.",
        ),
    ] = None,
    cache_dir: Annotated[
        OptionalPath,
        typer.Option(
            metavar="DIR",
            rich_help_panel=DATA,
            help="Where scores are kept, so that other runs need not compute them again. Default: OUTPUT/scores.",
        ),
    ] = None,
    pooling: Annotated[
        Optional[shared.PoolingMode],  # noqa: UP045
        typer.Option(rich_help_panel=DATA, help="For a student that is a bare transformer checkpoint. Default: mean."),
    ] = None,
    max_seq_length: Annotated[
        OptionalInt,
        typer.Option(
            min=3, metavar="TOKENS", rich_help_panel=DATA, help="Length at which the student cuts. Default: its own."
        ),
    ] = None,
    loss: Annotated[
        shared.LossName,
        typer.Option(
            rich_help_panel=LOSS,
            help="'distillation' alone: half the cost, needs no dropout, recommended by the benchmarks' study; "
            "'rankcse': contrastive, consistency and distillation, as in the paper; 'simcse': contrastive alone, a "
            "baseline.",
        ),
    ] = shared.LossName.distillation,
    method: Annotated[
        shared.Method,
        typer.Option(rich_help_panel=LOSS, help="Distil the teachers' probabilities (ListNet) or order (ListMLE)."),
    ] = shared.Method.listnet,
    temperature: Annotated[
        float, typer.Option(rich_help_panel=LOSS, help="Of the contrastive and the consistency term.")
    ] = 0.05,
    student_temperature: Annotated[
        OptionalFloat,
        typer.Option(
            rich_help_panel=LOSS,
            help="Of the student's lists in distillation. Default: 0.1 for the loss 'distillation' with ListNet, else "
            "0.05.",
        ),
    ] = None,
    teacher_temperature: Annotated[
        OptionalFloat,
        typer.Option(
            rich_help_panel=LOSS,
            help="Of the teachers' lists in distillation (ListNet). Default: 0.1 for the loss 'distillation', 0.025 "
            "for 'rankcse'.",
        ),
    ] = None,
    matching_weight: Annotated[
        OptionalFloat,
        typer.Option(
            rich_help_panel=LOSS,
            help="Of matching the student's embeddings with the teachers', brought into its space, beside "
            "distillation. Default: 20 for the loss 'distillation' with ListNet (and no projection head), else 0.",
        ),
    ] = None,
    contrastive_weight: Annotated[
        OptionalFloat, typer.Option(rich_help_panel=LOSS, help="Default: as --loss says, 1 or 0.")
    ] = None,
    consistency_weight: Annotated[
        OptionalFloat, typer.Option(rich_help_panel=LOSS, help="Default: as --loss says, 1 or 0.")
    ] = None,
    distillation_weight: Annotated[
        OptionalFloat, typer.Option(rich_help_panel=LOSS, help="Default: as --loss says, 1 or 0.")
    ] = None,
    dropout: Annotated[
        OptionalFloat,
        typer.Option(rich_help_panel=TRAINING, help="Dropout of the student in training. Default: its own."),
    ] = None,
    projection_head: Annotated[
        bool,
        typer.Option(
            "--projection-head",
            rich_help_panel=TRAINING,
            help="Train with SimCSE's MLP on top of the student; it is taken off at the end.",
        ),
    ] = False,
    epochs: Annotated[float, typer.Option(rich_help_panel=TRAINING, help="Passes over the sentences.")] = 1.0,
    batch_size: Annotated[
        int, typer.Option(rich_help_panel=TRAINING, help="Sentences ranked against each other, on each device.")
    ] = 128,
    learning_rate: Annotated[
        OptionalFloat,
        typer.Option(
            rich_help_panel=TRAINING,
            help="Peak learning rate; small and cut models take ten times more. Default: 3e-5; StaticEmbedding: 0.02.",
        ),
    ] = None,
    warmup: Annotated[
        float, typer.Option(rich_help_panel=TRAINING, help="Share of the steps in which the learning rate rises.")
    ] = 0.05,
    bf16: Annotated[bool, typer.Option("--bf16", rich_help_panel=TRAINING, help="Mixed precision, bfloat16.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", rich_help_panel=TRAINING, help="Mixed precision, float16.")] = False,
    cpu: shared.Cpu = False,
    seed: Annotated[
        int, typer.Option(rich_help_panel=TRAINING, help="Of the split, the order of sentences and the dropout.")
    ] = 42,
    held_out: Annotated[
        OptionalInt,
        typer.Option(
            min=0,
            metavar="N",
            rich_help_panel=EVALUATION,
            help="Sentences not trained on, to measure agreement with the teachers. Default: a tenth, at most 1000.",
        ),
    ] = None,
    sts: shared.StsFiles = [],  # noqa: B006
    eval_steps: Annotated[
        OptionalInt,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=EVALUATION,
            help="Measure every N steps and keep the best checkpoint. Default: only before and after.",
        ),
    ] = None,
    save_steps: Annotated[
        OptionalInt,
        typer.Option(
            min=1, metavar="N", rich_help_panel=OUTPUT, help="Save a checkpoint every N steps. Default: ten in all."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", rich_help_panel=OUTPUT, help="Go on from the last checkpoint in the output folder."),
    ] = False,
    push_to_hub: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="REPO", rich_help_panel=OUTPUT, help="Upload the model at the end, to this repository."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", rich_help_panel=OUTPUT, help="Make the uploaded repository private.")
    ] = False,
    config: shared.Config = None,
    traceback: shared.Traceback = False,
) -> None:
    """Train a student so that it ranks sentences as its teachers do.

    Scores the sentences with the teachers once, holds some out, trains, and reports how well the student agrees with
    its teachers on those before and after. The output folder is an ordinary sentence-transformers model.
    """
    with errors_as_messages(traceback=traceback):
        job = TrainingJob(
            options=TrainingOptions(
                student=student,
                loss=loss.value,
                contrastive_weight=contrastive_weight,
                consistency_weight=consistency_weight,
                distillation_weight=distillation_weight,
                method=method.value,
                temperature=temperature,
                student_temperature=student_temperature,
                teacher_temperature=teacher_temperature,
                matching_weight=matching_weight,
                pooling=None if pooling is None else pooling.value,
                max_seq_length=max_seq_length,
                dropout=dropout,
                projection_head=projection_head,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                warmup=warmup,
                bf16=bf16,
                fp16=fp16,
                seed=seed,
                eval_steps=eval_steps,
                save_steps=save_steps,
                cpu=cpu,
            ),
            output=output,
            teachers=TeacherOptions.if_given(
                teacher,
                teacher_weight,
                [mode.value for mode in teacher_pooling],
                teacher_prompt,
                teacher_max_seq_length,
            ),
            teacher_batch_size=teacher_batch_size,
            sentences=sentences,
            scores=scores,
            cache_dir=cache_dir,
            calibrate=calibrate,
            auto_weights=weights is not None,
            weight_pairs=pairs,
            held_out=held_out,
            sts=sts,
            resume=resume,
            push_to_hub=push_to_hub,
            private=private,
        )
        job.check()
        job.prepare()
    job.run()
