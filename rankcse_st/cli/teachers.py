"""Teachers as the options describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rankcse_st.cli.files import check_model_name

if TYPE_CHECKING:
    from rankcse_st.teachers import TeacherEnsemble

T = TypeVar("T")


@dataclass(frozen=True)
class TeacherOptions:
    """The values of ``--teacher`` and what goes with it, checked before anything is loaded.

    Raises:
        FileNotFoundError: If a teacher looks like a path and nothing is there.
        ValueError: If the number of values does not fit the teachers, or a value is out of range.
    """

    names: Sequence[str]
    weights: Sequence[float] = ()
    poolings: Sequence[str] = ()
    prompts: Sequence[str] = ()
    lengths: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("No teacher is given: name at least one with --teacher.")
        for name in self.names:
            check_model_name(name, "teacher")
        if self.weights and len(self.weights) != len(self.names):
            raise ValueError(
                f"There are {len(self.names)} teachers but {len(self.weights)} weights: give --teacher-weight once for "
                "each --teacher, in the same order, or not at all."
            )
        for weight in self.weights:
            if not 0 <= weight < float("inf"):
                raise ValueError(f"--teacher-weight must be finite and not negative, but got {weight}.")
        if self.weights and not any(self.weights):
            raise ValueError(f"All {len(self.weights)} values of --teacher-weight are 0: give one teacher a weight.")
        for length in self.lengths:
            if length < 1:
                raise ValueError(f"--teacher-max-seq-length must be at least 1, but got {length}.")
        for option, values in (
            ("--teacher-pooling", self.poolings),
            ("--teacher-prompt", self.prompts),
            ("--teacher-max-seq-length", self.lengths),
        ):
            if len(values) not in (0, 1, len(self.names)):
                raise ValueError(
                    f"There are {len(self.names)} teachers but {len(values)} values of {option}: give one for all, or "
                    "one for each."
                )

    @classmethod
    def if_given(
        cls,
        names: Sequence[str],
        weights: Sequence[float],
        poolings: Sequence[str],
        prompts: Sequence[str],
        lengths: Sequence[int],
    ) -> TeacherOptions | None:
        """None without ``--teacher``.

        Raises:
            ValueError: If there are options of teachers but no teachers, or as the class itself.
        """
        if names:
            return cls(names, weights, poolings, prompts, lengths)
        described = {"weight": weights, "pooling": poolings, "prompt": prompts, "max-seq-length": lengths}
        given = [f"--teacher-{name}" for name, values in described.items() if values]
        if given:
            raise ValueError(
                f"No --teacher is given that {' and '.join(given)} could describe: name the teachers, or leave it out."
            )
        return None

    def as_config(self) -> dict[str, list[str] | list[float] | list[int]]:
        """The options that make these teachers, by name."""
        return {
            "teacher": list(self.names),
            "teacher-weight": list(self.weights),
            "teacher-pooling": list(self.poolings),
            "teacher-prompt": list(self.prompts),
            "teacher-max-seq-length": list(self.lengths),
        }

    def as_arguments(self) -> list[str]:
        """The same for the command line."""
        config = self.as_config().items()
        return [argument for name, values in config for value in values for argument in (f"--{name}", str(value))]

    def load(self, *, batch_size: int | None = None, cpu: bool = False) -> TeacherEnsemble:
        """The ensemble; a teacher that is read with its own pooling is loaded only when it is needed.

        Args:
            batch_size: How many sentences a teacher encodes at once. Defaults to 64.
            cpu: Stay on the CPU even if there is a GPU.
        """
        from rankcse_st.teachers import Teacher, TeacherEnsemble, load_cls_teacher

        device = "cpu" if cpu else None
        teachers = []
        for k, name in enumerate(self.names):
            teachers.append(
                Teacher(
                    load_cls_teacher(name, device=device) if _of(self.poolings, k) == "cls" else name,
                    weight=self.weights[k] if self.weights else 1.0,
                    prompt=_of(self.prompts, k),
                    max_seq_length=_of(self.lengths, k),
                )
            )
        return TeacherEnsemble(teachers, batch_size=batch_size or 64, device=device)


def _of(values: Sequence[T], k: int) -> T | None:
    """The value for teacher ``k``, where one value counts for all and none for the default."""
    if not values:
        return None
    return values[0] if len(values) == 1 else values[k]
