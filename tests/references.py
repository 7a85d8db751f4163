"""The paper's terms once more, as plain loops over numbers of 60 decimal digits, without a line of the package.

A value is computed by the textbook formula, whose cancellation 60 digits can bear, and a gradient by differences of
10⁻²⁰. Scores are lists of lists; a list of fewer than two entries is left out of the mean.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal

import torch

# Probabilities such as exp(-10⁶) are numbers here, not 0.
CONTEXT = decimal.Context(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
STEP = Decimal("1e-20")

Row = Sequence[Decimal]
Matrix = list[list[Decimal]]
Mask = Sequence[Sequence[bool]] | None


def matrix(tensor: torch.Tensor) -> Matrix:
    """The exact values of a tensor's entries."""
    return [[Decimal(value) for value in row] for row in tensor.double().tolist()]


def _number(value: float | Decimal) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _kept(mask: Mask, row: int, length: int) -> list[int]:
    return [j for j in range(length) if mask is None or mask[row][j]]


def _softmax(scores: Sequence[Decimal], temperature: Decimal) -> list[Decimal]:
    powers = [(score / temperature).exp() for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def _mean(values: list[Decimal]) -> Decimal:
    return sum(values, Decimal(0)) / len(values) if values else Decimal(0)


def contrastive(scores: Matrix, positives: Sequence[int], temperature: float = 0.05, mask: Mask = None) -> Decimal:
    values = []
    for i, row in enumerate(scores):
        kept = sorted({*_kept(mask, i, len(row)), positives[i]})
        if len(kept) < 2:
            continue
        p = _softmax([row[j] for j in kept], _number(temperature))
        values.append(-p[kept.index(positives[i])].ln())
    return _mean(values)


def jensen_shannon(p: Row, q: Row) -> Decimal:
    """½ KL(P ‖ M) + ½ KL(Q ‖ M) with M = (P + Q) / 2, in nats."""
    total = Decimal(0)
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += a * (a / middle).ln() / 2 + b * (b / middle).ln() / 2
    return total


def consistency(scores: Matrix, other: Matrix, temperature: float = 0.05, mask: Mask = None) -> Decimal:
    values = []
    for i, row in enumerate(scores):
        kept = _kept(mask, i, len(row))
        if len(kept) < 2:
            continue
        t = _number(temperature)
        values.append(jensen_shannon(_softmax([row[j] for j in kept], t), _softmax([other[i][j] for j in kept], t)))
    return _mean(values)


def listnet(
    scores: Matrix,
    teacher_scores: Matrix,
    student_temperature: float = 0.05,
    teacher_temperature: float = 0.025,
    mask: Mask = None,
) -> Decimal:
    values = []
    for i, row in enumerate(scores):
        kept = _kept(mask, i, len(row))
        if len(kept) < 2:
            continue
        student = _softmax([row[j] for j in kept], _number(student_temperature))
        teacher = _softmax([teacher_scores[i][j] for j in kept], _number(teacher_temperature))
        values.append(-sum(t * s.ln() for t, s in zip(teacher, student, strict=True)))
    return _mean(values)


def listmle(scores: Matrix, teacher_scores: Matrix, student_temperature: float = 0.05, mask: Mask = None) -> Decimal:
    """Each entry against all entries that the teachers do not score higher, itself and its ties included."""
    values = []
    for i, row in enumerate(scores):
        kept = _kept(mask, i, len(row))
        if len(kept) < 2:
            continue
        total = Decimal(0)
        for j in kept:
            rivals = [k for k in kept if teacher_scores[i][k] <= teacher_scores[i][j]]
            logits = [row[k] / _number(student_temperature) for k in rivals]
            total += sum(logit.exp() for logit in logits).ln() - row[j] / _number(student_temperature)
        values.append(total)
    return _mean(values)


def value(term: Callable[..., Decimal], *matrices: torch.Tensor, **options: object) -> float:
    """A term's value: ``term(*matrices, **options)`` of matrices of numbers."""
    with decimal.localcontext(CONTEXT):
        return float(term(*map(matrix, matrices), **options))


def value_and_gradient(
    term: Callable[..., Decimal], scores: torch.Tensor, *arguments: torch.Tensor, **options: object
) -> tuple[float, torch.Tensor]:
    """A term's value and its gradient by the scores: ``term(scores, *arguments, **options)`` of matrices of numbers."""
    with decimal.localcontext(CONTEXT):
        numbers = matrix(scores)
        others = [matrix(argument) for argument in arguments]
        value = term(numbers, *others, **options)
        gradient = torch.zeros(scores.shape, dtype=torch.float64)
        for i, row in enumerate(numbers):
            for j, number in enumerate(row):
                row[j] = number + STEP
                above = term(numbers, *others, **options)
                row[j] = number - STEP
                below = term(numbers, *others, **options)
                row[j] = number
                gradient[i, j] = float((above - below) / (2 * STEP))
        return float(value), gradient


def rankcse(
    views: Sequence[torch.Tensor],
    teacher: torch.Tensor | None,
    *,
    method: str = "listnet",
    temperature: float = 0.05,
    student_temperature: float = 0.05,
    teacher_temperature: float = 0.025,
) -> dict[str, float]:
    """The unweighted terms on two views (or columns) and the teachers' score matrix, from embeddings on."""
    with decimal.localcontext(CONTEXT):
        scores, swapped = _cosines(views[0], views[1]), _cosines(views[1], views[0])
        size = len(scores)
        terms = {
            "contrastive": contrastive(scores, range(size), temperature),
            "consistency": consistency(scores, swapped, temperature),
        }
        if teacher is not None and method == "listmle":
            terms["distillation"] = listmle(scores, matrix(teacher), student_temperature)
        elif teacher is not None:
            others = [[i != j for j in range(size)] for i in range(size)]
            terms["distillation"] = listnet(scores, matrix(teacher), student_temperature, teacher_temperature, others)
        return {name: float(value) for name, value in terms.items()}


def cosines(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """All cosines of the rows of two matrices, by loops."""
    with decimal.localcontext(CONTEXT):
        return torch.tensor([[float(x) for x in row] for row in _cosines(left, right)], dtype=torch.float64)


def _cosines(left: torch.Tensor, right: torch.Tensor) -> Matrix:
    def unit(row: Row) -> list[Decimal]:
        length = sum(x * x for x in row).sqrt()
        return [x / length for x in row]

    left_rows, right_rows = [unit(row) for row in matrix(left)], [unit(row) for row in matrix(right)]
    return [[sum(a * b for a, b in zip(row, other, strict=True)) for other in right_rows] for row in left_rows]
