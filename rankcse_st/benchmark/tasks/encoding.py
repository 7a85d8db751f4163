"""Encode texts inside a task through the public protocol of MTEB's encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from mteb.abstasks.task_metadata import TaskMetadata
from torch.utils.data import DataLoader


def encode_texts(
    model: Any,
    texts: Sequence[str],
    *,
    metadata: TaskMetadata,
    split: str,
    subset: str,
    encode_kwargs: Mapping[str, Any],
) -> npt.NDArray[np.floating[Any]]:
    """Embeddings (n, d) of ``texts``, float32 at least, with the prompts that the model has for the task."""
    batches = DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=encode_kwargs.get("batch_size", 32))
    embeddings = np.asarray(
        model.encode(batches, task_metadata=metadata, hf_split=split, hf_subset=subset, **encode_kwargs)
    )
    return embeddings if embeddings.dtype in (np.float32, np.float64) else embeddings.astype(np.float32)
