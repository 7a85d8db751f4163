"""Carrying the raw text of a batch to the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["COLUMN_KEY", "TEXT_KEY", "TextCollator"]

# Keys of a column's features: its raw text, and its name, by which teachers choose their prompts.
TEXT_KEY = "text"
COLUMN_KEY = "text_column"


class TextCollator:
    """Wraps the trainer's collator, adding each column's raw text to its features.

    Live teachers then read the sentences themselves, with their own tokenizers, lengths and prompts; without it they
    are left with what the student's token ids decode to. Everything else, prompts included, is as the wrapped
    collator makes it.

    Args:
        collator: The collator to wrap, usually ``trainer.data_collator``.

    Example:
        ::

            loss = RankCSELoss(model, teachers=[...])
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=loss)
            trainer.data_collator = TextCollator(trainer.data_collator)
            trainer.train()
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        self.collator = collator

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        batch = self.collator(features)
        for column, value in (features[0] if features else {}).items():
            # The name of the dataset is a string as well, but nothing that the wrapped collator has tokenised.
            if isinstance(value, str) and any(key.startswith(f"{column}_") for key in batch):
                batch[f"{column}_{TEXT_KEY}"] = [row[column] for row in features]
                batch[f"{column}_{COLUMN_KEY}"] = column
        return batch

    def __getattr__(self, name: str) -> Any:
        # The trainer reads and sets attributes of its collator, such as valid_label_columns.
        if name == "collator":  # Not there yet while being unpickled by a dataloader's worker.
            raise AttributeError(name)
        return getattr(self.collator, name)
