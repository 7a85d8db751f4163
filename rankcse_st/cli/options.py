"""Options that several commands share, and the choices of their values."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from rankcse_st.cli.config import load_config

DATA, LOSS, TRAINING, EVALUATION, OUTPUT = "Models and data", "Loss", "Training", "Evaluation", "Output"


class LossName(str, Enum):
    """Which terms are on."""

    rankcse = "rankcse"
    distillation = "distillation"
    simcse = "simcse"


class Method(str, Enum):
    """How lists are distilled."""

    listnet = "listnet"
    listmle = "listmle"


class PoolingMode(str, Enum):
    """How a bare transformer checkpoint is read."""

    mean = "mean"
    cls = "cls"


class TeacherPooling(str, Enum):
    """How a teacher is read."""

    own = "own"
    cls = "cls"


class WeightsBy(str, Enum):
    """How the teachers' weights are found where they are not given."""

    auto = "auto"


class Dtype(str, Enum):
    """How scores are stored."""

    float32 = "float32"
    float16 = "float16"


# typer reads these at run time, where Python 3.10 must understand them too.
Config = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        callback=load_config,
        is_eager=True,
        metavar="FILE",
        help="A YAML file of option names and values, like 'batch-size: 64'. The command line wins.",
    ),
]
Teachers = Annotated[
    list[str],
    typer.Option(
        "--teacher",
        metavar="NAME",
        rich_help_panel=DATA,
        help="A sentence-transformers model that knows better: a folder or a name on the Hub. Repeat it for several.",
    ),
]
TeacherWeights = Annotated[
    list[float],
    typer.Option(
        "--teacher-weight",
        metavar="WEIGHT",
        rich_help_panel=DATA,
        help="How much a teacher counts, one for each in their order. Default: all the same.",
    ),
]
TeacherPoolings = Annotated[
    list[TeacherPooling],
    typer.Option(
        "--teacher-pooling",
        rich_help_panel=DATA,
        help="'cls' reads a SimCSE or DiffCSE checkpoint rightly; one for all teachers or one for each. Default: own.",
    ),
]
TeacherPrompts = Annotated[
    list[str],
    typer.Option(
        "--teacher-prompt",
        metavar="TEXT",
        rich_help_panel=DATA,
        help="Text put before each sentence for the teacher; one for all or one for each. Default: its own.",
    ),
]
TeacherLengths = Annotated[
    list[int],
    typer.Option(
        "--teacher-max-seq-length",
        metavar="TOKENS",
        rich_help_panel=DATA,
        help="Length at which the teacher cuts; one for all or one for each. Default: its own.",
    ),
]
Weights = Annotated[
    Optional[WeightsBy],  # noqa: UP045
    typer.Option(
        "--weights",
        rich_help_panel=DATA,
        help="'auto' measures how much each teacher should count, and drops those that do not help: by --pairs if "
        "given, else by how the teachers agree on the sentences. Default: as --teacher-weight says.",
    ),
]
WeightPairs = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--pairs",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Graded pairs that --weights auto goes by: .jsonl, .csv or .tsv with sentence1, sentence2, score. Others "
        "than those you report on.",
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        rich_help_panel=DATA,
        help="Divide each teacher's weight by the spread of its scores, so that none decides by its scale alone.",
    ),
]
TeacherBatchSize = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, rich_help_panel=DATA, help="How many sentences a teacher encodes at once. Default: 64."),
]
Sentences = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        metavar="FILE",
        rich_help_panel=DATA,
        help="UTF-8 text, one sentence on each line. Blank lines and duplicates are left out and counted.",
    ),
]
StsFiles = Annotated[
    list[Path],
    typer.Option(
        "--sts",
        metavar="FILE",
        rich_help_panel=EVALUATION,
        help="Graded pairs to report Spearman on: .jsonl, .csv or .tsv with sentence1, sentence2, score. Repeatable.",
    ),
]
Cpu = Annotated[bool, typer.Option("--cpu", help="Stay on the CPU even if there is a GPU.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show Python's traceback of an error.")]
