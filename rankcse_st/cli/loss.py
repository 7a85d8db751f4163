"""The loss of a training in one line, with what the options left to it filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankcse_st.training import TrainingOptions

METHODS = {"listnet": "ListNet", "listmle": "ListMLE"}


def describe_loss(options: TrainingOptions) -> str:
    """Its terms and temperatures, and whether embeddings are matched.

    Args:
        options: As :meth:`~rankcse_st.training.TrainingOptions.resolve` returns them.
    """
    contrastive, consistency, distillation = options.weights
    terms = []
    if contrastive:
        terms.append(f"{_times(contrastive)}contrastive (temperature {options.temperature:g})")
    if consistency:
        terms.append(f"{_times(consistency)}consistency (temperature {options.temperature:g})")
    if not distillation:
        return f"Loss: {' + '.join(terms)}."
    temperatures = f"student temperature {options.student_temperature:g}"
    if options.method == "listnet":
        temperatures += f", teacher temperature {options.teacher_temperature:g}"
    terms.append(f"{_times(distillation)}distillation ({METHODS[options.method]}, {temperatures})")
    if options.matching_weight:
        return f"Loss: {' + '.join([*terms, f'{_times(options.matching_weight)}embedding matching'])}."
    return f"Loss: {' + '.join(terms)}; embeddings are not matched."


def _times(weight: float) -> str:
    return "" if weight == 1 else f"{weight:g} x "
