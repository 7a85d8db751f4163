"""A loss as its named parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# What a wrapper loss adds of its own, such as the KL term of AdaptiveLayerLoss.
ADDED = "added_by_wrapper"


class LossParts(dict[str, Tensor]):
    """Named scalar tensors whose sum is the loss.

    The trainer takes a dict for a loss, logs each part under its name and sums them. Wrappers such as
    ``MatryoshkaLoss`` and ``AdaptiveLayerLoss`` do arithmetic with what the inner loss returns: a plain dict would
    raise TypeError there. This one scales every part, adds part by part, and keeps what else is added as a part of
    its own.
    """

    @property
    def total(self) -> Tensor:
        """The loss: the sum of the parts."""
        return torch.stack(list(self.values())).sum()

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Back-propagate the sum, for training loops written by hand."""
        torch.autograd.backward(self.total, *args, **kwargs)

    def detach(self) -> Tensor:
        """The loss as a tensor that leads nowhere, with its parts (see :meth:`of`).

        Losses that cache gradients make their own backward pass, and return such a tensor with a hook.
        """
        total = self.total.detach()
        total.parts = {name: value.detach() for name, value in self.items()}  # type: ignore[attr-defined]
        return total

    @classmethod
    def of(cls, total: Tensor) -> LossParts:
        """The parts of a tensor made by :meth:`detach`: their sum has the tensor's gradient, each of them a share."""
        parts: dict[str, Tensor] = total.parts  # type: ignore[attr-defined]
        share = (total - total.detach()) / len(parts)
        return cls({name: value + share for name, value in parts.items()})

    def _each(self, operation: Callable[[Tensor], Tensor]) -> LossParts:
        return LossParts({name: operation(value) for name, value in self.items()})

    def __mul__(self, factor: float | Tensor) -> LossParts:
        return self._each(lambda value: value * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Tensor) -> LossParts:
        return self._each(lambda value: value / divisor)

    def __add__(self, other: LossParts | float | Tensor) -> LossParts:
        if not isinstance(other, LossParts):
            if not isinstance(other, Tensor) and other == 0:  # The start value of a sum.
                return LossParts(self)
            reference = next(iter(self.values()))
            other = LossParts({ADDED: torch.as_tensor(other, dtype=reference.dtype, device=reference.device)})
        return LossParts(
            {
                name: self[name] + other[name]
                if name in self and name in other
                else (self if name in self else other)[name]
                for name in (*self, *(name for name in other if name not in self))
            }
        )

    __radd__ = __add__
