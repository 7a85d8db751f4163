"""What may be meant but seldom is: said in one line, not refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def is_own_teacher(student: SentenceTransformer, teachers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a student starts as its only teacher, so that it has nothing to learn from it.

    Args:
        student: As it is before training. That it cuts at another length does not make it another model here.
        teachers: As :meth:`~rankcse_st.TeacherEnsemble.describe` tells them.
    """
    from rankcse_st.fingerprints import UnidentifiedModelError, fingerprint_model, hash_json

    active = [teacher for teacher in teachers if teacher["weight"] > 0]
    if len(active) != 1 or active[0].get("fingerprint") is None:
        return False
    (teacher,) = active
    prompt = student.prompts.get(student.default_prompt_name or "") or ""
    if teacher["prompt"] != prompt:
        return False
    try:
        model = fingerprint_model(student)
    except UnidentifiedModelError:
        return False
    # As TeacherReader.fingerprint makes it.
    own = hash_json({"model": model, "prompt": prompt, "max_seq_length": teacher["max_seq_length"]})
    return bool(own == teacher["fingerprint"])


def own_teacher_remark(student: str) -> str:
    """For :func:`is_own_teacher`."""
    return (
        f"Warning: the student {student} is its own teacher (the same weights), so that training can only move it away "
        "from it: name another --student or --teacher."
    )


def short_batch_remark(sentences: int, batch_size: int) -> str | None:
    """None unless there are fewer sentences than one step takes (``batch_size``, of all devices together)."""
    if sentences >= batch_size:
        return None
    return (
        f"Note: all {sentences} training sentences fit in one batch (of {batch_size}): lists are only that long, and "
        "an epoch is one step. A smaller --batch-size, more text or more --epochs trains more."
    )
