"""``rankcse-st score``: the teachers' scores of a file of sentences, computed once for many trainings."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from rankcse_st.cli import options as shared
from rankcse_st.cli.auto_weights import AutoWeights
from rankcse_st.cli.console import errors_as_messages, say
from rankcse_st.cli.files import read_sentences
from rankcse_st.cli.options import OUTPUT
from rankcse_st.cli.teachers import TeacherOptions

# Beside the dataset's own files, which load_from_disk tells by name.
TEACHERS_FILE = "teachers.json"


def score(
    output: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Where the scored dataset goes: a new folder.")
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
    dtype: Annotated[
        shared.Dtype,
        typer.Option(rich_help_panel=OUTPUT, help="float16 takes half the space and ties scores that are very close."),
    ] = shared.Dtype.float32,
    cpu: shared.Cpu = False,
    config: shared.Config = None,
    traceback: shared.Traceback = False,
) -> None:
    """Score sentences with the teachers once, for 'rankcse-st train --scores DIR' or load_from_disk(DIR).

    The folder is a 'datasets' dataset with the columns sentence and label (the score vectors). Scoring that was
    interrupted goes on where it stopped when the same command is given again. With --weights auto, teachers.json in
    the folder keeps the weights and what they rest on.
    """
    with errors_as_messages(traceback=traceback):
        teachers = TeacherOptions(
            teacher, teacher_weight, [mode.value for mode in teacher_pooling], teacher_prompt, teacher_max_seq_length
        )
        auto = AutoWeights.if_asked(weights is not None, teachers, calibrate=calibrate, pairs=pairs)
        if sentences is None:
            raise ValueError("No sentences are given: name a text file with --sentences.")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # Each process would write the same folder, and the first to end would remove what the others read.
            raise ValueError(
                f"'score' runs as one process, but a launcher started {os.environ['WORLD_SIZE']} (WORLD_SIZE): start "
                "it without one. To score on several devices, call TeacherScoreDataset.from_sentences(..., "
                "cache_dir=DIR) in a script that the launcher starts; its processes share the work."
            )
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ValueError(f"The output folder {output} is not empty: choose another one, or remove it.")
        corpus = read_sentences(sentences)
        say(f"{sentences}: {corpus.describe()}.")
        output.parent.mkdir(parents=True, exist_ok=True)

        from rankcse_st.cli.scoring import score_sentences

        # Beside the output, which must stay a plain dataset folder; a finished run removes it.
        cache = output.with_name(output.name + ".partial")
        ensemble, evidence = teachers.load(batch_size=teacher_batch_size, cpu=cpu), None
        if auto is not None:
            ensemble, evidence = auto.choose(ensemble, corpus.sentences)
        dataset = score_sentences(corpus.sentences, ensemble, cache, dtype=dtype.value, calibrate=calibrate)
        dataset.save_to_disk(str(output))
        if evidence is not None:
            text = json.dumps(evidence, indent=2, ensure_ascii=False)
            (output / TEACHERS_FILE).write_text(text + "\n", encoding="utf-8")
    _remove(cache)
    say(f"Scores of {len(dataset):,} sentences, {ensemble.dimension} numbers each, are in {output}.")
    say(f"Next: rankcse-st train --student NAME --scores {output} --output DIR")


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
