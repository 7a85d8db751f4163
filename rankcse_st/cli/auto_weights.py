"""``--weights auto``: how much each teacher counts, by measurement, for ``score`` and ``train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankcse_st.cli.console import console, say
from rankcse_st.cli.files import Pairs, read_pairs
from rankcse_st.cli.record import SELECTION, read_record
from rankcse_st.cli.teachers import TeacherOptions

if TYPE_CHECKING:
    from rankcse_st.teachers import TeacherEnsemble

# Four in each of the five folds of select_teachers.
FEWEST_PAIRS = 20


@dataclass(frozen=True)
class AutoWeights:
    """What the weights are chosen by: graded pairs, or without them the teachers' agreement."""

    pairs: Pairs | None = None

    @classmethod
    def if_asked(
        cls, asked: bool, teachers: TeacherOptions | None, *, calibrate: bool, pairs: Path | None
    ) -> AutoWeights | None:
        """None without ``--weights auto``.

        Raises:
            ValueError: If another option contradicts it or needs it, or if there is nothing to choose among or by.
            FileNotFoundError: If there is no file of pairs.
        """
        if not asked:
            if pairs is not None:
                raise ValueError("--pairs is what weights are chosen by: add --weights auto, or leave it out.")
            return None
        count = 0 if teachers is None else len(teachers.names)
        if count < 2:
            raise ValueError(
                f"--weights auto chooses among teachers, but there are {count}: give --teacher twice or more, or leave "
                "it out."
            )
        if teachers is not None and teachers.weights:
            raise ValueError("--weights auto and --teacher-weight exclude each other: leave one of them out.")
        if calibrate:
            raise ValueError("--weights auto puts the teachers on one scale by itself: leave --calibrate out.")
        graded = None if pairs is None else read_pairs(pairs)
        if graded is not None and len(graded.scores) < FEWEST_PAIRS:
            raise ValueError(
                f"{pairs} holds {len(graded.scores)} pairs, but --weights auto needs at least {FEWEST_PAIRS}, and "
                "hundreds to tell good teachers apart. Without --pairs, it goes by the teachers' agreement."
            )
        return cls(graded)

    def choose(self, ensemble: TeacherEnsemble, sentences: list[str]) -> tuple[TeacherEnsemble, dict[str, Any]]:
        """Measure, print what was found, and return the teachers at their weights, with the evidence for a JSON file.

        Raises:
            ValueError: If a teacher is a cross-encoder, or as :func:`~rankcse_st.selection.select_teachers` says.
        """
        from rankcse_st.selection import select_teachers

        _check_embeddings(ensemble)
        if self.pairs is None:
            chosen = select_teachers(ensemble, sentences)
        else:
            pairs = list(zip(self.pairs.sentences1, self.pairs.sentences2, strict=True))
            chosen = select_teachers(ensemble, sentences, pairs=pairs, scores=self.pairs.scores)
        evidence = chosen.to_dict()
        console().print(chosen)
        told = zip(evidence["teachers"], chosen.weights, strict=True)
        say(
            f"Weights by {evidence['chosen_by']}: "
            + ", ".join(f"{name} {weight:.3f}" if weight else f"{name} 0 (dropped)" for name, weight in told)
            + "."
        )
        # Not divided by their sum once more, so that giving them as --teacher-weight gives the same to the last digit.
        evidence["weights"] = [float(teacher.weight) for teacher in chosen.ensemble.teachers]
        return chosen.ensemble, {**evidence, **self._pairs_record()}

    def begun(self, output: Path, teachers: TeacherOptions) -> dict[str, Any] | None:
        """What the run in ``output`` chose, to go on with; None if none was begun there.

        Raises:
            ValueError: If it did not choose, or by other pairs, or among another number of teachers.
        """
        record = read_record(output)
        if not record:
            return None
        selection: dict[str, Any] | None = record.get(SELECTION)
        if selection is None:
            differing = "it was begun without --weights auto"
        elif selection["pairs_sha256"] != self._pairs_record()["pairs_sha256"]:
            differing = "its weights were chosen by other pairs (--pairs)"
        elif len(selection["weights"]) != len(teachers.names):
            differing = f"there were {len(selection['weights'])} teachers, now {len(teachers.names)}"
        else:
            return selection
        raise ValueError(
            f"--resume goes on with the weights of the run in {output}, but {differing}: give the same options again, "
            "or choose another --output."
        )

    def _pairs_record(self) -> dict[str, Any]:
        if self.pairs is None:
            return {"pairs": None, "pairs_sha256": None}
        return {"pairs": self.pairs.name, "pairs_sha256": self.pairs.sha256()}


def _check_embeddings(ensemble: TeacherEnsemble) -> None:
    """Refuse cross-encoders before any teacher has encoded."""
    names = [
        teacher.name
        for teacher, reader in zip(ensemble.teachers, ensemble.readers, strict=True)
        if reader.is_cross_encoder
    ]
    if names:
        raise ValueError(
            f"--weights auto compares embeddings, but {', '.join(names)} is a cross-encoder, which scores pairs only: "
            "leave it out."
        )
