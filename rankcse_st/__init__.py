"""RankCSE (Liu et al., ACL 2023) for sentence-transformers."""

from __future__ import annotations

from rankcse_st.collator import TextCollator
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.dropout import get_dropout, set_dropout
from rankcse_st.losses import CachedRankCSELoss, ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss
from rankcse_st.projection_head import add_projection_head, remove_projection_head
from rankcse_st.teachers import Teacher, TeacherEnsemble

__version__ = "0.1.0"

__all__ = [
    "CachedRankCSELoss",
    "ListwiseDistillationLoss",
    "RankCSELoss",
    "RankingConsistencyLoss",
    "Teacher",
    "TeacherEnsemble",
    "TeacherScoreDataset",
    "TextCollator",
    "add_projection_head",
    "get_dropout",
    "remove_projection_head",
    "set_dropout",
]
