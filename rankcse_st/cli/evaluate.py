"""``rankcse-st evaluate``: models side by side, on agreement with teachers and on graded pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from rankcse_st.cli import options as shared
from rankcse_st.cli.console import errors_as_messages, percent, print_table, say
from rankcse_st.cli.files import check_model_name, read_all_pairs, read_sentences
from rankcse_st.cli.options import DATA, OUTPUT
from rankcse_st.cli.teachers import TeacherOptions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    # A group of results: takes a model, gives metrics by name (correlations and overlaps, printed times 100).
    # What else is to be measured, such as MTEB's tasks, is one more of these.
    Group = Callable[[SentenceTransformer], dict[str, float]]


def evaluate(
    model: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Models to compare: folders or names on the Hub.")
    ],
    teacher: shared.Teachers = [],  # noqa: B006
    teacher_weight: shared.TeacherWeights = [],  # noqa: B006
    teacher_pooling: shared.TeacherPoolings = [],  # noqa: B006
    teacher_prompt: shared.TeacherPrompts = [],  # noqa: B006
    teacher_max_seq_length: shared.TeacherLengths = [],  # noqa: B006
    sentences: shared.Sentences = None,
    sts: shared.StsFiles = [],  # noqa: B006
    batch_size: Annotated[int, typer.Option(min=1, rich_help_panel=DATA, help="Sentences encoded at once.")] = 64,
    json_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", metavar="FILE", rich_help_panel=OUTPUT, help="Write the results to this file as well."),
    ] = None,
    cpu: shared.Cpu = False,
    config: shared.Config = None,
    traceback: shared.Traceback = False,
) -> None:
    """Compare models: agreement with teachers on sentences, and Spearman on graded pairs.

    Agreement needs --teacher and --sentences (such as held_out.txt, which 'train' writes), pairs need --sts; give one
    of the two or both.
    """
    with errors_as_messages(traceback=traceback):
        for name in model:
            check_model_name(name, "model")
        modes = [mode.value for mode in teacher_pooling]
        teachers = TeacherOptions.if_given(teacher, teacher_weight, modes, teacher_prompt, teacher_max_seq_length)
        if bool(teacher) != (sentences is not None):
            raise ValueError("Agreement with teachers needs both --teacher and --sentences.")
        if not teacher and not sts:
            raise ValueError("Nothing to measure: give --teacher and --sentences, or --sts, or all of them.")
        corpus = None if sentences is None else read_sentences(sentences, minimum=3)
        pairs = read_all_pairs(sts)

        from rankcse_st.cli.scoring import measure, sts_evaluators

        evaluators = sts_evaluators(pairs, batch_size=batch_size)
        if teachers is not None and corpus is not None:
            from rankcse_st.evaluation import TeacherAgreementEvaluator

            ensemble = teachers.load(batch_size=batch_size, cpu=cpu)
            evaluators.insert(
                0, TeacherAgreementEvaluator(corpus.sentences, ensemble, batch_size=batch_size, name="agreement")
            )
        results = compare(model, [lambda one: measure(one, evaluators)], cpu=cpu)
    names = list(dict.fromkeys(name for metrics in results.values() for name in metrics))
    rows = [[one, *(percent(metrics.get(name)) for name in names)] for one, metrics in results.items()]
    print_table("x 100", ["model", *names], rows)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        say(f"Written to {json_file}.")


def compare(models: Sequence[str], groups: Sequence[Group], *, cpu: bool = False) -> dict[str, dict[str, float]]:
    """Results of each model, loaded one after the other, in every group."""
    from sentence_transformers import SentenceTransformer

    results: dict[str, dict[str, float]] = {}
    for name in models:
        model = SentenceTransformer(name, device="cpu" if cpu else None)
        results[name] = {}
        for group in groups:
            results[name] |= group(model)
    return results
