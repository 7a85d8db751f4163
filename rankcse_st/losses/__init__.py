"""The losses, for ``SentenceTransformerTrainer``."""

from __future__ import annotations

from rankcse_st.losses.cached_rankcse import CachedRankCSELoss
from rankcse_st.losses.listwise_distillation import ListwiseDistillationLoss
from rankcse_st.losses.rankcse import RankCSELoss
from rankcse_st.losses.ranking_consistency import RankingConsistencyLoss

__all__ = ["CachedRankCSELoss", "ListwiseDistillationLoss", "RankCSELoss", "RankingConsistencyLoss"]
