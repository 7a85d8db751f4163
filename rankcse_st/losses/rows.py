"""Sums over the rows of score matrices, taken a few rows at a time, gradients included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Elements of a matrix worked on at once: on a CPU what stays in its cache, on a GPU what keeps it busy.
CPU_ELEMENTS, GPU_ELEMENTS = 2**18, 2**24
Compute = Callable[..., tuple[Tensor, ...]]


def row_ranges(rows: Tensor, width: int, times: int = 1) -> Iterator[slice]:
    """Ranges of ``rows``, as many as a matrix of ``width`` columns is worked on at once, or ``times`` as many."""
    size = len(rows)
    elements = times * (CPU_ELEMENTS if rows.device.type == "cpu" else GPU_ELEMENTS)
    step = max(1, elements // max(1, width))
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def sum_over_rows(compute: Compute, *matrices: Tensor) -> tuple[Tensor, ...]:
    """Sum ``compute(rows, *(matrix[rows] for matrix in matrices))`` over ranges of rows.

    Between them, the terms of the loss make some thirty matrices of a batch's N × M scores. Here each exists for a few
    rows at a time, and what is kept for the backward pass is one gradient per matrix: a fraction of the memory, and
    several times faster where the matrices do not fit into the cache.

    Args:
        compute: Returns scalars, each a sum over the rows that it is given, differentiable in the matrices.
        matrices: (N, M) tensors.

    Returns:
        The scalars' sums, differentiable (once) in the matrices, each with its own gradient.
    """
    needed = [torch.is_grad_enabled() and matrix.requires_grad for matrix in matrices]
    result: tuple[Tensor, ...] = _SumOverRows.apply(compute, needed, *matrices)  # type: ignore[no-untyped-call]
    return result


class _SumOverRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Compute, needed: list[bool], *matrices: Tensor) -> tuple[Tensor, ...]:
        ctx.compute, ctx.needed, ctx.matrices = compute, needed, matrices
        ctx.gradients, sums = _run(compute, needed, matrices, None)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        first, *others = grad_outputs
        if all(torch.equal(first, other) for other in others):
            gradients = [None if gradient is None else first * gradient for gradient in ctx.gradients]
        else:  # The gradients taken in advance are those of the plain sum: take them again, weighted.
            gradients, _ = _run(ctx.compute, ctx.needed, ctx.matrices, grad_outputs)
        return None, None, *gradients


def _run(
    compute: Compute, needed: list[bool], matrices: tuple[Tensor, ...], grad_outputs: tuple[Tensor, ...] | None
) -> tuple[list[Tensor | None], tuple[Tensor, ...]]:
    gradients = [
        torch.empty_like(m, memory_format=torch.contiguous_format) if n else None
        for m, n in zip(matrices, needed, strict=True)
    ]
    total: tuple[Tensor, ...] | None = None
    for rows in row_ranges(matrices[0], matrices[0].shape[1]):
        with torch.enable_grad():
            parts = [m[rows].detach().requires_grad_(n) for m, n in zip(matrices, needed, strict=True)]
            sums = compute(rows, *parts)
        if any(needed):
            leaves = [part for part in parts if part.requires_grad]
            found = iter(torch.autograd.grad(sums, leaves, grad_outputs, allow_unused=True))
            for gradient in gradients:
                if gradient is not None:
                    part = next(found)
                    gradient[rows] = 0 if part is None else part
        sums = tuple(value.detach() for value in sums)
        total = sums if total is None else tuple(a + b for a, b in zip(total, sums, strict=True))
    assert total is not None
    return gradients, total


def detach_inputs(lists: object, *names: str) -> list[tuple[Tensor, Tensor]]:
    """Replace attributes of ``lists`` by leaves that collect gradients; the tensors replaced, each with its leaf.

    One tensor under several names has one leaf.
    """
    leaves: dict[int, tuple[Tensor, Tensor]] = {}
    for name in names:
        source = getattr(lists, name)
        if source is not None:
            _, leaf = leaves.setdefault(id(source), (source, source.detach().requires_grad_()))
            setattr(lists, name, leaf)
    return list(leaves.values())
