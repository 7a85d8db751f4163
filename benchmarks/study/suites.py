"""The tables of the study, each a suite of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from benchmarks.study.runs import METHODS, Run

SEEDS = (1, 2, 3)
UNTOUCHED = Run("core", "untouched", "untouched")

Rates = Mapping[str, float]


def explore(rates: Rates) -> Iterator[Run]:
    """What a ranking loss needs: temperatures, groups of neighbours, matching beside it. Development sets only."""
    common = {"sentences": 4096, "seed": 0, "dev_only": True}
    ranking = Run("explore", "", "ListNet", learning_rate=rates["ListNet"], **common)
    temperatures = ((0.025, 0.025), (0.05, 0.05), (0.1, 0.1), (0.2, 0.2), (0.1, 0.05), (0.05, 0.0125))
    for student, teacher in ((0.05, 0.025), *temperatures):
        for rate in (3e-4, 1e-3):
            warm = replace(ranking, student_temperature=student, teacher_temperature=teacher, learning_rate=rate)
            yield replace(warm, label=f"ListNet, τ2 = {student}, τ3 = {teacher}")
    for groups in (8, 32, 128):
        yield replace(ranking, label=f"ListNet, groups of {groups}", group_size=groups)
        even = replace(ranking, student_temperature=0.05, teacher_temperature=0.05, group_size=groups)
        yield replace(even, label=f"ListNet, τ2 = τ3 = 0.05, groups of {groups}")
    matching = Run("explore", "EmbedDistill", "EmbedDistill", learning_rate=rates["EmbedDistill"], **common)
    for groups in (1, 32):
        yield replace(matching, label=f"EmbedDistill, groups of {groups}", group_size=groups)
    for weight in (1.0, 5.0):
        for groups in (1, 32):
            both = replace(matching, method="ListNet", matching=weight, group_size=groups, teacher_temperature=0.05)
            yield replace(both, label=f"ListNet, τ2 = τ3 = 0.05, + {weight:g} matching, groups of {groups}")


def core(rates: Rates) -> Iterator[Run]:
    """The alternatives at equal steps, each at its own learning rate, three seeds."""
    yield UNTOUCHED
    for seed in SEEDS:
        for method in METHODS:
            yield Run("core", method, method, learning_rate=rates[method], seed=seed)


def ablation(rates: Rates) -> Iterator[Run]:
    """The eleven rows of the paper's ablation (knowl 7): terms left out, one seed."""
    for method in ("ListNet", "ListMLE"):
        whole = Run("ablation", f"RankCSE-{method}", method, learning_rate=rates[method], contrastive=1, consistency=1)
        yield whole
        yield replace(whole, label=f"{whole.label} without consistency", consistency=0)
        yield replace(whole, label=f"{whole.label} without contrastive", contrastive=0)
        yield replace(whole, label=f"{whole.label} without both", contrastive=0, consistency=0)
        yield replace(whole, label=f"{whole.label} without both, two views", contrastive=0, consistency=0, views=2)
    simcse = Run("ablation", "SimCSE", "SimCSE", learning_rate=rates["SimCSE"])
    yield simcse
    without = Run("ablation", "", "ListNet", learning_rate=rates["SimCSE"], distillation=0, consistency=1)
    yield replace(without, label="without distillation", contrastive=1)
    yield replace(without, label="without distillation and contrastive")


def batches(rates: Rates) -> Iterator[Run]:
    """Batches of 32 to 512, and groups of near neighbours in them."""
    for method in ("ListNet", "ListMLE"):
        base = Run("batches", method, method, learning_rate=rates[method])
        for size in (32, 128, 512):
            yield replace(base, batch_size=size, label=f"{method}, batches of {size}")
        for groups in (8, 32):
            yield replace(base, group_size=groups, label=f"{method}, groups of {groups}")


def teachers(rates: Rates) -> Iterator[Run]:
    """One teacher, the other, and both at three weights (knowl 8)."""
    base = Run("teachers", "", "ListNet", learning_rate=rates["ListNet"])
    yield replace(base, label="MiniLM")
    yield replace(base, label="mpnet", teachers=("mpnet",))
    for weight in (1 / 3, 1 / 2, 2 / 3):
        label = f"MiniLM {weight:.2f} + mpnet {1 - weight:.2f}"
        yield replace(base, label=label, teachers=("minilm", "mpnet"), weights=(weight, 1 - weight))


SUITES: dict[str, Callable[[Rates], Iterator[Run]]] = {
    "explore": explore,
    "core": core,
    "ablation": ablation,
    "batches": batches,
    "teachers": teachers,
}
