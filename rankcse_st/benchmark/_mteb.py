"""The one door to ``mteb``: an optional, slow import that reseeds every random generator of the process."""

from __future__ import annotations

import contextlib
import logging
import random
import warnings
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import torch

INSTALL_LINE = 'pip install "rankcse-st[mteb]"'


def import_mteb() -> ModuleType:
    """Import ``mteb`` without touching the caller's random generators.

    Raises:
        ImportError: If it is not installed, with the line that installs it.
    """
    try:
        with preserved_random_state(), quiet_mteb():
            import mteb
    except ImportError as error:
        raise ImportError(
            f"Benchmarking needs mteb (Python 3.11 or newer), which could not be imported: {error}. "
            f"Install it with: {INSTALL_LINE}"
        ) from error
    return mteb  # type: ignore[no-any-return]


@contextlib.contextmanager
def preserved_random_state() -> Iterator[None]:
    """Give back the states of ``random``, numpy and torch (CPU and CUDA) as they were on entry, also after an error.

    ``import mteb``, ``mteb.get_task`` and ``mteb.evaluate`` all seed them with 42. A training script that evaluates
    now and then would draw the same dropout masks and batches after each evaluation.
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    torch_state = torch.get_rng_state()
    # Asking an unused GPU for its state would start it; it has no state to lose.
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda_states = torch.cuda.get_rng_state_all() if in_use else None
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)


@contextlib.contextmanager
def quiet_mteb() -> Iterator[None]:
    """Silence what mteb says about itself: deprecations in its own code and superseded versions of the STS tasks."""
    logger = logging.getLogger("mteb")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", message=".*is superseded by.*")
            warnings.filterwarnings("ignore", message="SentenceTransformers that use prompts most often need.*")
            warnings.filterwarnings("ignore", message="Some prompts are not in the expected format.*")
            yield
    finally:
        logger.setLevel(level)
