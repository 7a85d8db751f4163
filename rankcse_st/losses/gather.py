"""Gathering a batch across processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate.state import GradientState
from sentence_transformers.util import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor

__all__ = ["check_equal_batches", "gather", "get_rank", "get_world_size", "mean_over_processes"]


def gather(tensor: Tensor) -> Tensor:
    """The rows of every process, in rank order; gradients flow back to the process that a row came from."""
    if get_world_size() == 1:
        return tensor
    rows: Tensor = all_gather_with_grad(tensor) if tensor.requires_grad else all_gather(tensor.contiguous())
    return rows


def check_equal_batches(batch_size: int, device: torch.device, training: bool) -> None:
    """Gathering needs batches of one size on every process; say so where they are not, instead of hanging.

    Raises:
        ValueError: On every process alike.
    """
    if get_world_size() == 1:
        return
    remedy = "Set dataloader_drop_last=True in the training arguments, or gather_across_devices=False."
    # A process that runs out of batches before the others would leave them waiting for ever: the last, shorter
    # batches must be dropped. The dataloader in use is at hand through accelerate where it prepared one.
    sampler = getattr(GradientState().active_dataloader, "batch_sampler", None)
    if training and getattr(sampler, "drop_last", True) is False:
        raise ValueError(f"gather_across_devices=True needs the same number of rows on every process. {remedy}")
    sizes = all_gather(torch.tensor([batch_size], device=device)).tolist()
    if len(set(sizes)) > 1:
        raise ValueError(
            f"gather_across_devices=True needs the same number of rows on every process, got {sizes} rows. {remedy}"
        )


def mean_over_processes(count: Tensor) -> Tensor:
    """The mean of a count over the processes.

    Dividing each process's sum by it makes the average over the processes, which DistributedDataParallel takes of
    the gradients, the mean over all rows, also where some processes have more lists to rank than others.
    """
    if get_world_size() == 1:
        return count
    total = count.clone()
    dist.all_reduce(total)
    mean: Tensor = total / get_world_size()
    return mean
