"""Evaluators for the trainer: agreement with teachers, graded ranking, alignment and uniformity.

Plots of what they measure are in :mod:`rankcse_st.evaluation.plots` (``pip install 'rankcse-st[plot]'``), the metrics
as plain functions in :mod:`rankcse_st.evaluation.metrics`.
"""

from __future__ import annotations

from rankcse_st.evaluation.alignment_uniformity import AlignmentUniformityEvaluator
from rankcse_st.evaluation.graded_ranking import GradedRankingEvaluator, RankingGroup, ranking_groups
from rankcse_st.evaluation.teacher_agreement import TeacherAgreementEvaluator, ranking_agreement

__all__ = [
    "AlignmentUniformityEvaluator",
    "GradedRankingEvaluator",
    "RankingGroup",
    "TeacherAgreementEvaluator",
    "ranking_agreement",
    "ranking_groups",
]
