"""Share the scoring among the processes of a launcher (accelerate, torchrun), through the files that they all see."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from sentence_transformers.util import get_rank, get_world_size, is_dist_initialized

logger = logging.getLogger(__name__)


def rank_and_world_size() -> tuple[int, int]:
    """Which process this is, of how many; the launcher's word for it where torch.distributed is not running yet."""
    if is_dist_initialized():
        return get_rank(), get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def wait_for_files(paths: Sequence[Path], *, poll_seconds: float = 0.2, report_seconds: float = 60.0) -> None:
    """Wait until other processes have written ``paths``.

    Collectives would need a process group, which the trainer sets up only later, and would time out after minutes of
    scoring. A process that fails is noticed by the launcher, which then ends the others.
    """
    missing, since = [path for path in paths if not path.exists()], time.monotonic()
    while missing:
        time.sleep(poll_seconds)
        missing = [path for path in missing if not path.exists()]
        if missing and time.monotonic() - since > report_seconds:
            logger.warning("Waiting for other processes to score %d shards, the next is %s", len(missing), missing[0])
            since = time.monotonic()
