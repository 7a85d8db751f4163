"""RankCSE (Liu et al., ACL 2023) for sentence-transformers."""

from __future__ import annotations

from rankcse_st.checkpoints import load_cls_teacher
from rankcse_st.collator import TextCollator
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.dropout import get_dropout, has_active_dropout, set_dropout
from rankcse_st.losses import CachedRankCSELoss, ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss
from rankcse_st.projection_head import add_projection_head, remove_projection_head
from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch
from rankcse_st.selection import select_teachers
from rankcse_st.teachers import Teacher, TeacherEnsemble

__version__ = "0.1.0"

__all__ = [
    "CachedRankCSELoss",
    "ListwiseDistillationLoss",
    "NeighbourBatchSampler",
    "RankCSELoss",
    "RankingConsistencyLoss",
    "SetSamplerEpoch",
    "Teacher",
    "TeacherEnsemble",
    "TeacherScoreDataset",
    "TextCollator",
    "add_projection_head",
    "get_dropout",
    "has_active_dropout",
    "load_cls_teacher",
    "remove_projection_head",
    "select_teachers",
    "set_dropout",
]
