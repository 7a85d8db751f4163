"""What the evaluators share: embeddings, with the training left undisturbed; the log line, the CSV, the model card."""

from __future__ import annotations

import csv
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor

from rankcse_st.evaluation.metrics import unit

logger = logging.getLogger(__name__)


class EmbeddingEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Base of the evaluators of this package: sentences in, metrics of their embeddings out.

    A subclass sets ``sentences`` (each once), ``metric_names``, ``csv_stem`` and :meth:`compute_metrics`. Similarity is
    always the cosine, whatever ``similarity_fn_name`` the model carries.
    """

    metric_names: ClassVar[tuple[str, ...]]
    csv_stem: ClassVar[str]

    def __init__(
        self,
        sentences: Sequence[str],
        *,
        primary_metric: str,
        name: str,
        batch_size: int,
        show_progress_bar: bool,
        write_csv: bool,
        truncate_dim: int | None,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"truncate_dim must be None or at least 1, got {truncate_dim}.")
        self.sentences = list(sentences)
        self.name = name
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.truncate_dim = truncate_dim
        # With its prefix from the start, so that it can be put into `metric_for_best_model` before the first call.
        self.primary_metric = f"{name}_{primary_metric}" if name else primary_metric
        # A name such as "org/data" must not become a folder.
        self.csv_file = f"{self.csv_stem}_evaluation" + (f"_{name.replace('/', '_')}" if name else "") + "_results.csv"
        self.csv_headers = ["epoch", "steps", *self.metric_names]

    def compute_metrics(self, embeddings: Tensor) -> dict[str, float]:
        """The metrics, in the order of ``metric_names``, of the unit embeddings (n, dimension) of ``sentences``."""
        raise NotImplementedError

    def __call__(
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        with undisturbed(model):
            embeddings = torch.as_tensor(self.embed_inputs(model, self.sentences))
        if not (finite := embeddings.isfinite().all(dim=1)).all():
            bad = (~finite).nonzero().flatten().tolist()
            raise ValueError(
                f"{type(self).__name__}: the model returned NaN or infinity for {len(bad)} of {len(self.sentences)} "
                f"sentences (first: {self.sentences[bad[0]][:60]!r}). The training has diverged: lower the learning "
                "rate, or train in float32 or bfloat16."
            )
        metrics = self.compute_metrics(unit(embeddings))
        self._log(metrics, epoch, steps)
        if output_path is not None and self.write_csv:
            self._append_csv(Path(output_path), [epoch, steps, *metrics.values()])
        prefixed: dict[str, float] = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, prefixed, epoch, steps)
        return prefixed

    def embed_inputs(self, model: SentenceTransformer, sentences: Sequence[str], **kwargs: Any) -> np.ndarray:
        """Embed sentences with the model; override it to pass a prompt or a task."""
        embeddings: np.ndarray = model.encode(
            sentences,
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
            convert_to_numpy=True,
            truncate_dim=self.truncate_dim,
            **kwargs,
        )
        return embeddings

    def get_config_dict(self) -> dict[str, Any]:
        return {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}

    def _log(self, metrics: Mapping[str, float], epoch: float, steps: int) -> None:
        when = (
            "" if epoch == -1 else f" after epoch {epoch}" if steps == -1 else f" in epoch {epoch} after {steps} steps"
        )
        truncated = "" if self.truncate_dim is None else f" (truncated to {self.truncate_dim})"
        values = ", ".join(f"{key} {value:.4f}" for key, value in metrics.items())
        logger.info("%s on the %s dataset%s%s: %s", self.description, self.name or "given", when, truncated, values)

    def _append_csv(self, folder: Path, row: Sequence[float]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.csv_file
        new = not path.is_file()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(self.csv_headers)
            writer.writerow(row)


@contextmanager
def undisturbed(model: SentenceTransformer) -> Iterator[None]:
    """Leave the train or eval mode of every module, and the global random states, as they were found.

    ``encode`` switches the whole model to eval mode, and a module of the model may draw random numbers: training with
    an evaluator must be the same training as without it.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        with kept_random_states():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Put the global random states of Python, NumPy and torch (CPU, and the current CUDA device) back at the end."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    # Only where CUDA is in use already: asking for the state would start it, on devices that are not ours.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
