"""Ranking consistency alone."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from rankcse_st.losses.base import RankingLoss
from rankcse_st.losses.parts import LossParts
from rankcse_st.losses.terms import Terms


class RankingConsistencyLoss(RankingLoss):
    """Makes the two views of each sentence rank the batch alike: Jensen-Shannon divergence of their top-1 probabilities.

    Meant to be added to another loss: by itself it is at its minimum where all embeddings are equal, and in the
    paper's ablation (knowl 7) it scores below SimCSE.

    Args:
        model: The student.
        temperature: τ1. The paper's default, 0.05.
        gather_across_devices: Rank against the batches of all processes, not only the own one. Needs
            ``dataloader_drop_last=True``.

    References:
        - RankCSE (knowl 2): https://aclanthology.org/2023.acl-long.771/

    Requirements:
        1. One text column, the same text in two columns, or (anchor, positive, negatives).
        2. Dropout in the student.

    Inputs:
        +-----------------------------------------------+--------+
        | Texts                                         | Labels |
        +===============================================+========+
        | sentence                                      | none   |
        +-----------------------------------------------+--------+
        | (sentence, same sentence), (anchor, positive) | none   |
        +-----------------------------------------------+--------+
        | (anchor, positive, negative_1, ..., n)        | none   |
        +-----------------------------------------------+--------+

    Relations:
        - One term of :class:`~rankcse_st.RankCSELoss`.

    Raises:
        ValueError: For a temperature that is not positive and finite, and in training for two equal views.

    Example:
        ::

            loss = RankingConsistencyLoss(model)
            trainer = SentenceTransformerTrainer(model=model, train_dataset=Dataset.from_dict({"sentence": sentences}), loss=loss)
            trainer.train()
    """  # noqa: E501

    def __init__(self, model: SentenceTransformer, temperature: float = 0.05, *, gather_across_devices: bool = False):
        super().__init__(
            model,
            Terms(consistency_weight=1.0, temperature=temperature),
            gather_across_devices=gather_across_devices,
        )

    def get_config_dict(self) -> dict[str, Any]:
        return {"temperature": self.terms.temperature, "gather_across_devices": self.gather_across_devices}

    def _result(self, parts: dict[str, Tensor]) -> Tensor | LossParts:
        return parts["consistency"]
