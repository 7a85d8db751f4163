"""RankCSE (Liu et al., ACL 2023) for sentence-transformers."""

from __future__ import annotations

from rankcse_st.collator import TextCollator
from rankcse_st.losses import CachedRankCSELoss, ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss
from rankcse_st.teachers import Teacher, TeacherEnsemble

__version__ = "0.1.0"

__all__ = [
    "CachedRankCSELoss",
    "ListwiseDistillationLoss",
    "RankCSELoss",
    "RankingConsistencyLoss",
    "Teacher",
    "TeacherEnsemble",
    "TextCollator",
]
