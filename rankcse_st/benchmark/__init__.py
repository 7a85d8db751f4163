"""Benchmarks through MTEB: STS, SentEval transfer, graded ranking, geometry, and any other of MTEB's tasks.

Needs ``pip install "rankcse-st[mteb]"`` (Python 3.11); importing this package does not import ``mteb``.
"""

from __future__ import annotations

from rankcse_st.benchmark.groups import TASK_GROUPS
from rankcse_st.benchmark.results import BenchmarkReport, ModelScores, TaskScore, read_results
from rankcse_st.benchmark.runner import evaluate_models

__all__ = ["TASK_GROUPS", "BenchmarkReport", "ModelScores", "TaskScore", "evaluate_models", "read_results"]
