"""RankCSE (Liu et al., ACL 2023) for sentence-transformers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankcse_st.checkpoints import load_cls_teacher
    from rankcse_st.collator import TextCollator
    from rankcse_st.data import TeacherScoreDataset
    from rankcse_st.dropout import get_dropout, has_active_dropout, set_dropout
    from rankcse_st.losses import CachedRankCSELoss, ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss
    from rankcse_st.projection_head import add_projection_head, remove_projection_head
    from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch
    from rankcse_st.selection import select_teachers
    from rankcse_st.teacher_projection import fit_teacher_projection
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
    "fit_teacher_projection",
    "get_dropout",
    "has_active_dropout",
    "load_cls_teacher",
    "remove_projection_head",
    "select_teachers",
    "set_dropout",
]

# Where each public name lives. They are imported at first use: torch takes seconds, which `rankcse-st --help` would
# take with it.
_MODULES = {
    "CachedRankCSELoss": "losses",
    "ListwiseDistillationLoss": "losses",
    "NeighbourBatchSampler": "sampler",
    "RankCSELoss": "losses",
    "RankingConsistencyLoss": "losses",
    "SetSamplerEpoch": "sampler",
    "Teacher": "teachers",
    "TeacherEnsemble": "teachers",
    "TeacherScoreDataset": "data",
    "TextCollator": "collator",
    "add_projection_head": "projection_head",
    "fit_teacher_projection": "teacher_projection",
    "get_dropout": "dropout",
    "has_active_dropout": "dropout",
    "load_cls_teacher": "checkpoints",
    "remove_projection_head": "projection_head",
    "select_teachers": "selection",
    "set_dropout": "dropout",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
