"""One run of ``rankcse-st train``: checks first, then models and scores, then training and its report."""

from __future__ import annotations

import os
import random
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankcse_st.cli.auto_weights import AutoWeights
from rankcse_st.cli.console import INTERRUPTED, MAIN_PROCESS, fail, print_metrics, say
from rankcse_st.cli.files import Pairs, check_model_name, corpus_sha256, read_all_pairs, read_sentences
from rankcse_st.cli.hub import check_hub, push
from rankcse_st.cli.idle import refuse_idle_options
from rankcse_st.cli.loss import describe_loss
from rankcse_st.cli.record import (
    CONFIG_FILE,
    HELD_OUT_FILE,
    SELECTION,
    check_epochs_left,
    check_output,
    check_same_run,
    read_results,
    versions,
    write_config,
    write_record,
)
from rankcse_st.cli.remarks import is_own_teacher, own_teacher_remark, short_batch_remark
from rankcse_st.cli.teachers import TeacherOptions
from rankcse_st.training import (
    CHECKPOINTS,
    TrainingOptions,
    build_trainer,
    last_checkpoint,
    load_student,
    with_learning_rate,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

    from rankcse_st.teachers import TeacherEnsemble

CARD = "README.md"

# Ranks of fewer sentences say nothing.
FEWEST_HELD_OUT = 3


@dataclass
class TrainingJob:
    """What the command was asked to do; :meth:`check`, :meth:`prepare` and :meth:`run` do it, in this order."""

    options: TrainingOptions
    output: Path
    teachers: TeacherOptions | None = None
    teacher_batch_size: int | None = None
    sentences: Path | None = None
    scores: Path | None = None
    cache_dir: Path | None = None
    calibrate: bool = False
    auto_weights: bool = False
    weight_pairs: Path | None = None
    held_out: int | None = None
    sts: Sequence[Path] = ()
    resume: bool = False
    push_to_hub: str | None = None
    private: bool = False

    corpus: list[str] = field(default_factory=list, init=False)
    pairs: list[Pairs] = field(default_factory=list, init=False)
    auto: AutoWeights | None = field(default=None, init=False)
    selection: dict[str, Any] | None = field(default=None, init=False)
    record: dict[str, Any] = field(default_factory=dict, init=False)
    evaluators: list[BaseEvaluator] = field(default_factory=list, init=False)
    student: SentenceTransformer = field(init=False)
    train_dataset: Dataset = field(init=False)

    def check(self) -> None:
        """Find whatever is wrong with files, folders and combinations of options before anything is loaded.

        Raises:
            ValueError: If options contradict each other, or a file holds something else than expected.
            FileNotFoundError: If a file or a model is missing.
        """
        check_model_name(self.options.student, "student")
        self._check_sources()
        self._check_weights()
        refuse_idle_options(self)
        check_output(self.output, resume=self.resume, projection_head=self.options.projection_head)
        if self.resume:
            check_epochs_left(self._checkpoint(), self.options.epochs)
        if self.push_to_hub is not None:
            check_hub()
        self.pairs = read_all_pairs(self.sts)
        if self.sentences is not None:
            found = read_sentences(self.sentences)
            say(f"{self.sentences}: {found.describe()}.")
            self.corpus = found.sentences
            self._number_held_out()

    def prepare(self) -> None:
        """Load the student, score the sentences (or read their scores) and hold some out.

        Raises:
            ValueError: As :func:`~rankcse_st.training.load_student` and the teachers.
        """
        self.student = load_student(self.options)
        self.options = with_learning_rate(self.options, self.student)

        from rankcse_st.cli.scoring import load_scores, sts_evaluators

        scored = None
        if self.scores is not None:
            scored = load_scores(self.scores)
            self.corpus = list(scored["sentence"])
            say(f"{self.scores}: {len(self.corpus):,} scored sentences.")
        held, rest = self._split()
        ensemble = None
        if self.teachers is not None:
            ensemble = self.teachers.load(batch_size=self.teacher_batch_size, cpu=self.options.cpu)
            ensemble = self._choose_weights(self.teachers, ensemble)
        # With what the options leave to the loss filled in, so that the record and train.yaml say it.
        self.options = self.options.resolve()
        say(describe_loss(self.options))
        self._begin_record(len(held), ensemble, scored)
        self._remark_own_teacher(scored)
        if ensemble is not None:
            scored = self._score(ensemble)
        if scored is not None and held:
            self.evaluators.append(self._agreement(scored, held))
        self.evaluators += sts_evaluators(self.pairs)
        if scored is not None and self.options.weights[2]:
            from rankcse_st.scores.dataset import ScoredDataset

            self.train_dataset = ScoredDataset.of(scored.select(rest))
        else:
            from datasets import Dataset

            self.train_dataset = Dataset.from_dict({"sentence": [self.corpus[i] for i in rest]})
        if MAIN_PROCESS:
            lines = "".join(f"{self.corpus[i]}\n" for i in held)
            (self.output / HELD_OUT_FILE).write_text(lines, encoding="utf-8")

    def run(self) -> None:
        """Measure, train, measure again, save and report."""
        checkpoint = self._checkpoint() if self.resume else None
        if self.resume:
            say(
                f"Resuming from {checkpoint}."
                if checkpoint
                else "There is no checkpoint to resume from: starting anew."
            )
        before = self._measure()
        self._forget_measured()
        trainer = build_trainer(self.options, self.student, self.train_dataset, self.output, evaluators=self.evaluators)
        remark = short_batch_remark(len(self.train_dataset), trainer.args.train_batch_size * trainer.args.world_size)
        if remark is not None:
            say(remark)
        projection = trainer.loss.teacher_projection
        if projection is not None:
            given, own = projection.shape
            say(f"Matching: score vectors of {given} dimensions, brought into the student's space of {own}.")
        start = time.perf_counter()
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except KeyboardInterrupt:
            raise fail(f"Interrupted. Go on with: {self._again('--resume')}", INTERRUPTED) from None
        if not trainer.is_world_process_zero():
            return
        seconds = round(time.perf_counter() - start, 2)
        # Saved before it is measured: an evaluation that fails must not cost the training. What was measured during
        # training need not be this model's.
        self._forget_measured()
        self.student.save_pretrained(str(self.output))
        self.record.pop("after", None)
        self.record |= {"before": before, "train_seconds": seconds}
        write_record(self.output, self.record)
        after = self._measure()
        self.record["after"] = after
        write_record(self.output, self.record)
        if after:
            # Written into the trainer's folder: saving the model for its card would write all the weights again.
            trainer.create_model_card()
            (self.output / CHECKPOINTS / CARD).replace(self.output / CARD)
            print_metrics(f"{self.options.student}, before and after", {"before": before, "after": after})
        self._say_next()
        if self.push_to_hub is not None:
            push(self.student, self.push_to_hub, private=self.private, saved=self.output)

    def scoring_options(self) -> dict[str, Any]:
        """Options that say how sentences are scored, by name, with what was given."""
        return {
            "--calibrate": self.calibrate,
            "--cache-dir": self.cache_dir,
            "--teacher-batch-size": self.teacher_batch_size,
            "--weights": self.auto_weights,
            "--pairs": self.weight_pairs,
        }

    # --- checks --------------------------------------------------------------------------------------------------

    def _check_sources(self) -> None:
        if self.scores is not None:
            computed = {"--teacher": self.teachers, "--sentences": self.sentences, **self.scoring_options()}
            given = [name for name, value in computed.items() if value]
            if given:
                raise ValueError(f"--scores holds sentences and scores already: leave out {' and '.join(given)}.")
            if not (self.scores / "dataset_info.json").is_file():
                raise FileNotFoundError(
                    f"There is no scored dataset at {self.scores}: give a folder that 'rankcse-st score' wrote."
                )
            return
        if self.sentences is None:
            raise ValueError("No sentences are given: name a text file with --sentences, or a folder with --scores.")
        if self.teachers is None and self.options.weights[2]:
            raise ValueError(
                "Distillation needs a teacher: name at least one with --teacher, or a folder with --scores."
            )

    def _check_weights(self) -> None:
        if self.teachers is None:
            return
        self.auto = AutoWeights.if_asked(
            self.auto_weights, self.teachers, calibrate=self.calibrate, pairs=self.weight_pairs
        )
        if self.auto is None:
            return
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # Each process would choose for itself, and weights that differ in the last digit are other scores.
            raise ValueError(
                "--weights auto chooses in one process, but a launcher started several: choose and score first with "
                "'rankcse-st score --weights auto', then train with --scores."
            )
        if self.resume:
            self.selection = self.auto.begun(self.output, self.teachers)

    def _checkpoint(self) -> Path | None:
        return last_checkpoint(self.output, projection_head=self.options.projection_head)

    # --- data ----------------------------------------------------------------------------------------------------

    def _number_held_out(self) -> int:
        total = len(self.corpus)
        number = self.held_out
        if number is None:
            number = max(FEWEST_HELD_OUT, min(1000, total // 10))
        if 0 < number < FEWEST_HELD_OUT:
            raise ValueError(f"--held-out must be 0 or at least {FEWEST_HELD_OUT}, to rank them, but got {number}.")
        if total - number < 2 and self.held_out is None:
            raise ValueError(
                f"There are {total} sentences, too few to hold out {number}, as is done by default, and to train on at "
                "least 2: give more text, or hold none out with --held-out 0."
            )
        if total - number < 2:
            raise ValueError(
                f"There are {total} sentences, of which {number} are held out (--held-out): at least 2 must be left to "
                "train on."
            )
        return number

    def _split(self) -> tuple[list[int], list[int]]:
        """Positions held out and positions trained on; the same for the same sentences and seed."""
        everything = range(len(self.corpus))
        held = set(random.Random(self.options.seed).sample(everything, self._number_held_out()))
        return sorted(held), [i for i in everything if i not in held]

    def _choose_weights(self, teachers: TeacherOptions, ensemble: TeacherEnsemble) -> TeacherEnsemble:
        """The teachers at measured weights, where that was asked for; a resumed run keeps those it was begun with."""
        if self.auto is None:
            return ensemble
        if self.selection is None:
            ensemble, self.selection = self.auto.choose(ensemble, self.corpus)
        else:
            ensemble = ensemble.with_weights(self.selection["weights"])
        # From here on they are as if given, in train.yaml too.
        self.teachers = replace(teachers, weights=self.selection["weights"])
        return ensemble

    def _remark_own_teacher(self, scored: Dataset | None) -> None:
        if not self.options.weights[2] or not MAIN_PROCESS:
            return
        from rankcse_st.cli.scoring import teachers_of

        teachers = self.record["teachers"] if scored is None else teachers_of(scored)
        if is_own_teacher(self.student, teachers):
            say(own_teacher_remark(self.options.student))

    def _score(self, ensemble: TeacherEnsemble) -> Dataset:
        from rankcse_st.cli.scoring import score_sentences

        cache_dir = self.cache_dir or self.output / "scores"
        return score_sentences(self.corpus, ensemble, cache_dir, calibrate=self.calibrate)

    def _agreement(self, scored: Dataset, held: Sequence[int]) -> BaseEvaluator:
        from rankcse_st.cli.scoring import score_vectors
        from rankcse_st.evaluation import TeacherAgreementEvaluator

        sentences = [self.corpus[i] for i in held]
        return TeacherAgreementEvaluator(sentences, score_vectors(scored, held), name="held_out", batch_size=64)

    # --- report --------------------------------------------------------------------------------------------------

    def _begin_record(self, held_out: int, ensemble: TeacherEnsemble | None, scored: Dataset | None) -> None:
        from rankcse_st.cli.scoring import scores_sha256

        self.record = {
            "options": asdict(self.options),
            "sentences": len(self.corpus),
            "corpus_sha256": corpus_sha256(self.corpus),
            "held_out": held_out,
            "calibrate": self.calibrate,
            "teachers": [] if ensemble is None else ensemble.describe(),
            "scores_sha256": None if scored is None else scores_sha256(scored),
            "sts_sha256": {one.name: one.sha256() for one in self.pairs},
            "versions": versions(),
        }
        if self.resume:
            check_same_run(self.output, self.record)
            # Those of the model in the folder, until there is another one.
            self.record |= read_results(self.output)
        if self.selection is not None:
            self.record[SELECTION] = self.selection
        if MAIN_PROCESS:
            self.output.mkdir(parents=True, exist_ok=True)
            write_record(self.output, self.record)
            write_config(self.output, self._as_config())

    def _as_config(self) -> dict[str, Any]:
        teachers = {} if self.teachers is None else self.teachers.as_config()
        return {
            **{name: str(value) if value else None for name, value in self._paths().items()},
            **teachers,
            "teacher-batch-size": self.teacher_batch_size,
            "calibrate": self.calibrate or None,
            **asdict(self.options),
            "held-out": self.held_out,
            "sts": [str(path) for path in self.sts],
        }

    def _paths(self) -> dict[str, Path | None]:
        return {"output": self.output, "sentences": self.sentences, "scores": self.scores, "cache-dir": self.cache_dir}

    def _measure(self) -> dict[str, float]:
        from rankcse_st.cli.scoring import measure

        return measure(self.student, self.evaluators) if MAIN_PROCESS else {}

    def _forget_measured(self) -> None:
        """Leave what was measured so far out of the model's card, which is to say how good the saved model is."""
        if self.student.model_card_data.eval_results_dict:
            self.student.model_card_data.eval_results_dict.clear()

    def _again(self, *more: str) -> str:
        return shlex.join(["rankcse-st", "train", "--config", str(self.output / CONFIG_FILE), *more])

    def _say_next(self) -> None:
        compare = ["rankcse-st", "evaluate", str(self.output), self.options.student]
        if self.teachers is not None:
            compare += [*self.teachers.as_arguments(), "--sentences", str(self.output / HELD_OUT_FILE)]
        for path in self.sts:
            compare += ["--sts", str(path)]
        say(f"\nThe model is in {self.output}. Next:")
        say(f"  use it:      SentenceTransformer({str(self.output)!r}).encode(sentences)")
        if len(compare) > 4:
            say(f"  compare it:  {shlex.join(compare)}")
        say(f"  train on:    {self._again('--resume', '--epochs', f'{2 * self.options.epochs:g}')}")
