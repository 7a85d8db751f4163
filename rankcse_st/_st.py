"""What differs between the supported versions of sentence-transformers and is documented nowhere."""

from __future__ import annotations

from packaging.version import Version
from sentence_transformers import __version__

# Since 6.2 the trainer's collator stacks labels that are tensors. Before, it gives the list of them to torch.tensor,
# which takes arrays (slowly) and plain lists (more slowly), but no tensors of more than one element.
STACKS_LABEL_TENSORS = Version(__version__) >= Version("6.2")

# The ``datasets`` format in which labels reach the collator.
LABEL_FORMAT = "torch" if STACKS_LABEL_TENSORS else "numpy"

# Before 6.2 the trainer gives a batch sampler of one dataset its seed in the generator alone, and 0 for the seed.
SEEDS_BATCH_SAMPLERS = STACKS_LABEL_TENSORS
