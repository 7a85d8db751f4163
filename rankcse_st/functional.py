"""The mathematics of RankCSE (Liu et al., ACL 2023): pure functions of score matrices.

Notation, as in the paper. A row of a score matrix is one anchor's list of candidates: ``scores[i, j]`` is the
similarity of anchor ``i`` and candidate ``j``, for N anchors and M candidates (in a plain batch M = N and candidate
``i`` is the positive of anchor ``i``; with hard negatives or several devices M > N).

Every term takes ``mask``, a boolean (N, M) matrix that is True where an entry belongs to the list; None keeps all.
A list of fewer than two entries has nothing to rank: it contributes 0 and does not count in the mean.

All computation is in float32 at least (half precision is up-cast, float64 stays float64), in log space, and finite,
as are the gradients, for any finite scores. Teacher scores never receive a gradient.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["consistency", "contrastive", "jensen_shannon", "list_lengths", "listmle", "listnet", "mean_over_lists"]

Reduction = Literal["mean", "none"]


def contrastive(
    scores: Tensor,
    positives: Tensor | None = None,
    *,
    temperature: float = 0.05,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """InfoNCE, ``-log softmax_j(s_ij / τ1)`` at the positive (knowl 1; SimCSE eq. 1).

    Args:
        scores: (N, M) similarities of anchors and candidates.
        positives: (N,) indices of each anchor's positive among the candidates. Defaults to ``arange(N)``.
        temperature: τ1. Defaults to 0.05.
        mask: (N, M), True where a candidate belongs to the list. The positive always does.
        reduction: ``"mean"`` over the anchors' lists, or ``"none"`` for the (N,) values.

    Returns:
        The scalar loss, or (N,) values.
    """
    _check(scores, mask, temperature=temperature)
    if positives is None:
        positives = torch.arange(len(scores), device=scores.device)
    positives = positives.unsqueeze(1)
    if mask is not None:
        mask = mask.scatter(1, positives, True)
    log_p = _log_softmax(scores, temperature, mask)
    return _reduce(-log_p.gather(1, positives).squeeze(1), mask, scores, reduction)


def consistency(
    scores: Tensor,
    other_scores: Tensor,
    *,
    temperature: float = 0.05,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Ranking consistency, ``JS(softmax(S_i / τ1) ‖ softmax(S'_i / τ1))`` (knowl 2).

    Args:
        scores: (N, M) similarities S of the first views to the second.
        other_scores: (N, M) similarities S' of the second views to the first.
        temperature: τ1. Defaults to 0.05.
        mask: (N, M), True where an entry belongs to both lists.
        reduction: ``"mean"`` over the anchors' lists, or ``"none"`` for the (N,) values.

    Returns:
        The scalar loss, or (N,) values, in nats: 0 exactly for equal lists, never negative, never above ln 2.
    """
    _check(scores, mask, other_scores, temperature=temperature)
    log_p = _log_softmax(scores, temperature, mask)
    log_q = _log_softmax(other_scores, temperature, mask)
    if mask is not None:  # Equal there, so that what is left out is also left out of the gradient.
        log_q = torch.where(mask, log_q, log_p)
    return _reduce(jensen_shannon(log_p, log_q), mask, scores, reduction)


def listnet(
    scores: Tensor,
    teacher_scores: Tensor,
    *,
    student_temperature: float = 0.05,
    teacher_temperature: float = 0.025,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """ListNet, cross-entropy of top-1 probabilities, ``-Σ_j softmax(T_i / τ3)_j log softmax(S_i / τ2)_j`` (knowl 3).

    Args:
        scores: (N, M) the student's similarities S.
        teacher_scores: (N, M) the teachers' scores T. Entries left out by ``mask`` may hold anything, NaN included.
        student_temperature: τ2. Defaults to 0.05.
        teacher_temperature: τ3. Defaults to 0.025.
        mask: (N, M), True where an entry belongs to the list.
        reduction: ``"mean"`` over the anchors' lists, or ``"none"`` for the (N,) values.

    Returns:
        The scalar loss, or (N,) values. Its minimum is the entropy of the teachers' distribution, not 0.
    """
    _check(
        scores, mask, teacher_scores, student_temperature=student_temperature, teacher_temperature=teacher_temperature
    )
    teacher_p = _log_softmax(teacher_scores.detach(), teacher_temperature, mask).exp()
    log_p = _log_softmax(scores, student_temperature, mask)
    return _reduce(-(teacher_p.to(log_p.dtype) * log_p).sum(1), mask, scores, reduction)


def listmle(
    scores: Tensor,
    teacher_scores: Tensor,
    *,
    student_temperature: float = 0.05,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """ListMLE, the negative log-likelihood of the teachers' order under the Plackett-Luce model (knowl 3).

    ``Σ_j [logsumexp_{k≥j}(s_π(k) / τ2) − s_π(j) / τ2]`` with π the descending order of the teachers' scores. Entries
    that the teachers score equally share one denominator, that of the whole tied group and all below it, so that the
    arbitrary order among them cannot matter.

    Args:
        scores: (N, M) the student's similarities S.
        teacher_scores: (N, M) the teachers' scores T; only their order matters. Entries left out by ``mask`` may hold
            anything, NaN included.
        student_temperature: τ2. Defaults to 0.05.
        mask: (N, M), True where an entry belongs to the list.
        reduction: ``"mean"`` over the anchors' lists, or ``"none"`` for the (N,) values.

    Returns:
        The scalar loss, or (N,) values. A list's own sum stays a sum: it grows with the length of the list.
    """
    _check(scores, mask, teacher_scores, student_temperature=student_temperature)
    teacher_scores = teacher_scores.detach()
    if mask is not None:
        teacher_scores = teacher_scores.masked_fill(~mask, -torch.inf)
    teacher_sorted, order = teacher_scores.sort(dim=1, descending=True)
    logits = _logits(scores, student_temperature, mask).gather(1, order)
    # log Σ_{k≥j} exp(s_π(k)): a cumulative sum from the right.
    log_remaining = logits.flip(1).logcumsumexp(1).flip(1)
    # The denominator of a tied entry is the one at the first position of its group.
    position = torch.arange(scores.shape[1], device=scores.device)
    opens_group = torch.ones_like(order, dtype=torch.bool)
    opens_group[:, 1:] = teacher_sorted[:, 1:] != teacher_sorted[:, :-1]
    first = (position * opens_group).cummax(1).values
    values = log_remaining.gather(1, first) - logits
    if mask is not None:
        values = values.masked_fill(~mask.gather(1, order), 0.0)
    return _reduce(values.sum(1), mask, scores, reduction)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of the rows of two matrices of log-probabilities, exact however close the two are.

    With M = (P + Q) / 2 and h = (log Q − log P) / 2, ``log P/M = −h − log cosh h`` and ``log Q/M = h − log cosh h``, so
    that the divergence is ``½ Σ [(Q − P) h − (P + Q) log cosh h]``. Near h = 0, Q − P is taken as ``P · expm1(2h)``:
    every summand is then non-negative and loses no digit, where the textbook form cancels to noise. Far from 0 the
    same summand is ``½ (P + Q) (ln 2 − log(1 + e^(−2|h|))) − min(P, Q) |h|``, which cannot overflow.

    Args:
        log_p: (N, M) log-probabilities.
        log_q: (N, M) log-probabilities.

    Returns:
        (N,) divergences in nats, between 0 and ln 2. Differentiable once.
    """
    divergence: Tensor = _JensenShannon.apply(log_p, log_q)  # type: ignore[no-untyped-call]
    return divergence


class _JensenShannon(torch.autograd.Function):
    """The gradients, ``½ P log P/M`` in log P and ``½ Q log Q/M`` in log Q, are at hand once the value is computed."""

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, log_q: Tensor) -> Tensor:
        half = (log_q - log_p).div_(2)
        p, q, distance = log_p.exp(), log_q.exp(), half.abs()
        is_near = distance < 1
        h = half.clamp(-1, 1)
        grown = (2 * h).expm1_()  # e^2h − 1, of which sinh² h is a quarter of x² / (1 + x)
        log_cosh_near = (grown.square() / (4 * (1 + grown))).log1p_().div_(2)
        near = p * grown * h - (p + q) * log_cosh_near
        log_cosh_far = (-2 * distance).exp_().log1p_().sub_(math.log(2))  # less |h|
        far = (p + q) * -log_cosh_far - 2 * torch.minimum(p, q) * distance
        values = torch.where(is_near, near, far).div_(2)
        log_cosh = torch.where(is_near, log_cosh_near, log_cosh_far + distance)
        ctx.save_for_backward((-half - log_cosh).mul_(p).div_(2), (half - log_cosh).mul_(q).div_(2))
        # Probabilities that sum to 1 + ε must not lift the divergence over its bound.
        return values.sum(1).clamp_(max=math.log(2) * (1 - torch.finfo(values.dtype).eps))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        grad_p, grad_q = ctx.saved_tensors
        return grad_output.unsqueeze(1) * grad_p, grad_output.unsqueeze(1) * grad_q


def list_lengths(mask: Tensor | None, scores: Tensor) -> Tensor:
    """The number of entries of each list: (N,) integers."""
    if mask is None:
        return torch.full((len(scores),), scores.shape[1], device=scores.device)
    return mask.sum(1)


def mean_over_lists(values: Tensor, lengths: Tensor) -> Tensor:
    """The mean of (N,) values over the lists of at least two entries; 0, still differentiable, where there is none."""
    ranked = lengths > 1
    return torch.where(ranked, values, 0.0).sum() / ranked.sum().clamp(min=1)


def _reduce(values: Tensor, mask: Tensor | None, scores: Tensor, reduction: Reduction) -> Tensor:
    lengths = list_lengths(mask, scores)
    if reduction == "mean":
        return mean_over_lists(values, lengths)
    if reduction == "none":
        return torch.where(lengths > 1, values, 0.0)
    raise ValueError(f'reduction must be "mean" or "none", got {reduction!r}.')


def _logits(scores: Tensor, temperature: float, mask: Tensor | None) -> Tensor:
    """Scores over temperature, finite in every entry; what the mask leaves out has no weight in a softmax."""
    if scores.dtype not in (torch.float32, torch.float64):  # Half precision, or whole-number grades.
        scores = scores.float()
    largest = torch.finfo(scores.dtype).max
    # Scores beyond the square root of the largest number (1.8e19 in float32) would overflow when divided.
    logits = scores.clamp(-math.sqrt(largest), math.sqrt(largest)) / temperature
    # A finite fill, unlike -inf, leaves no NaN behind in a list that is masked altogether.
    return logits if mask is None else logits.masked_fill(~mask, -largest / 4)


def _log_softmax(scores: Tensor, temperature: float, mask: Tensor | None) -> Tensor:
    return _logits(scores, temperature, mask).log_softmax(1)


def _check(scores: Tensor, mask: Tensor | None, other: Tensor | None = None, **temperatures: float) -> None:
    if scores.ndim != 2:
        raise ValueError(f"Expected a score matrix (anchors, candidates), got shape {tuple(scores.shape)}.")
    if other is not None and other.shape != scores.shape:
        raise ValueError(
            f"Two score matrices of one shape are needed, got {tuple(scores.shape)} and {tuple(other.shape)}."
        )
    if mask is not None and (mask.shape != scores.shape or mask.dtype != torch.bool):
        raise ValueError(
            f"mask must be a boolean matrix of the scores' shape {tuple(scores.shape)}, "
            f"got {tuple(mask.shape)} of {mask.dtype}."
        )
    for name, value in temperatures.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive finite number, got {value}.")
