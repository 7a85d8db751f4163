"""Options of ``train`` that the other options leave without effect: each would seem to act, so it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankcse_st.cli.job import TrainingJob
    from rankcse_st.training import TrainingOptions


def refuse_idle_options(job: TrainingJob) -> None:
    """Look for options without effect. A value that is the default anyway, as in a run's own train.yaml, is let pass.

    Raises:
        ValueError: If there are any; the message says why each has none.
    """
    found = list(_idle(job))
    if found:
        raise ValueError(f"{'; '.join(found)}. Leave out what cannot act.")


def _idle(job: TrainingJob) -> Iterator[str]:
    options = job.options
    contrastive, consistency, distillation = options.weights
    if not contrastive and not consistency:
        yield from _of_terms(options, ["temperature"], "the contrastive and the consistency term are off")
    if not distillation:
        names = ["method", "student_temperature", "teacher_temperature", "matching_weight"]
        yield from _of_terms(options, names, "the distillation term is off")
    elif options.method == "listmle":
        yield from _of_terms(options, ["teacher_temperature"], "ListMLE takes the teachers' order only")
    if job.teachers is None and job.scores is None:
        given = [name for name, value in job.scoring_options().items() if value]
        if given:
            yield f"{' and '.join(given)} {_act(given)} on scoring only, but no --teacher is given"
    if job.teachers is not None and not distillation and job.held_out == 0:
        yield (
            "--teacher only measures agreement on held-out sentences where the distillation term is off, but "
            "--held-out is 0"
        )
    has_agreement = (job.teachers is not None or job.scores is not None) and job.held_out != 0
    if options.eval_steps is not None and not has_agreement and not job.sts:
        yield "--eval-steps has nothing to measure: there are no --sts, and no held-out sentences with teachers' scores"
    if job.private and job.push_to_hub is None:
        yield "--private is for what --push-to-hub uploads, which is not given"


def _of_terms(options: TrainingOptions, names: list[str], why: str) -> Iterator[str]:
    # None is a default that the loss fills in; matching of weight 0 is none, whatever the loss would say.
    defaults = {one.name: one.default for one in fields(options)}
    defaults |= {**options.preset._asdict(), "matching_weight": 0.0}
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, defaults[name])]
    if given:
        yield f"{' and '.join(given)} {'has' if len(given) == 1 else 'have'} no effect: {why}"


def _act(names: list[str]) -> str:
    return "acts" if len(names) == 1 else "act"
