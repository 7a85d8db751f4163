"""The tables of the study, each a suite of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.study.runs import FITTED, METHODS, PROJECTION_RATE, SENTENCES, Rates, Run

SEEDS = (1, 2, 3)
# Of the headline rows, those that read every sentence twice; a step of the others costs half of theirs.
TWO_VIEWS = ("SimCSE", "RankCSE-ListNet", "RankCSE-ListMLE")
ONE_VIEW = ("EmbedDistill", "ListNet at 0.1", "ListNet at 0.1 + EmbedDistill")
HEADLINE = (*TWO_VIEWS, *ONE_VIEW)
_BOTH = "ListNet at 0.1 + EmbedDistill"
# What the bootstrap compares in each suite: the first with the second.
DIFFERENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "core": (
        (_BOTH, "EmbedDistill"),
        ("EmbedDistill", "ListNet at 0.1"),
        ("ListNet at 0.1", "SimCSE"),
        ("ListNet at 0.1", "SimCSE, half the steps"),
        ("ListNet at 0.1", "RankCSE-ListNet"),
        ("RankCSE-ListNet", "SimCSE"),
        ("RankCSE-ListNet", "RankCSE-ListMLE"),
    ),
    "teachers": tuple(
        (f"{first}, {teacher}", f"{second}, {teacher}")
        for teacher in ("mpnet", "MiniLM 0.50 + mpnet 0.50")
        for first, second in (
            (_BOTH, "EmbedDistill"),
            (_BOTH, "ListNet at 0.1"),
            ("EmbedDistill", "ListNet at 0.1"),
            (FITTED, "EmbedDistill"),
            (FITTED, _BOTH),
        )
    ),
    "static": (
        (f"model2vec, {_BOTH}", "model2vec, EmbedDistill"),
        (f"model2vec, {FITTED}", f"model2vec, {_BOTH}"),
        ("model2vec, EmbedDistill", "model2vec, ListNet at 0.1"),
        ("model2vec, ListNet at 0.1", "model2vec, untouched"),
    ),
}


def _run(suite: str, name: str, rates: Rates, *, student: str = "minilm-3", **settings: Any) -> Run:
    """A method with its own learning rate, as a row of a suite."""
    label = settings.pop("label", name)
    settings = {**METHODS[name], **settings}
    grid = student
    if "mpnet" in settings.get("teachers", ()):
        grid = f"{student} from mpnet"
        settings["projection_rate"] = PROJECTION_RATE if "EmbedDistill" in name else None
    return Run(suite, label, student=student, learning_rate=rates[grid][name], **settings)


def with_student(run: Run, student: str) -> Run:
    """The run with a student that is given, of whose width and space nothing is known."""
    run = replace(run, student=student, projection_rate=PROJECTION_RATE)
    if not run.matching:
        return run
    return replace(run, label=run.label.replace("EmbedDistill", "fitted matching"), fitted=True)


def explore(rates: Rates) -> Iterator[Run]:
    """What a ranking loss needs: temperatures, groups of neighbours, matching beside it. Development sets only."""
    common = {"sentences": 4096, "seed": 0, "dev_only": True}
    ranking = _run("explore", "ListNet", rates, **common)
    temperatures = ((0.025, 0.025), (0.05, 0.05), (0.1, 0.1), (0.2, 0.2), (0.1, 0.05), (0.05, 0.0125))
    for student, teacher in ((0.05, 0.025), *temperatures):
        for rate in (3e-4, 1e-3):
            warm = replace(ranking, student_temperature=student, teacher_temperature=teacher, learning_rate=rate)
            yield replace(warm, label=f"ListNet, τ2 = {student}, τ3 = {teacher}")
    for groups in (8, 32, 128):
        yield replace(ranking, label=f"ListNet, groups of {groups}", group_size=groups)
        even = replace(ranking, student_temperature=0.05, teacher_temperature=0.05, group_size=groups)
        yield replace(even, label=f"ListNet, τ2 = τ3 = 0.05, groups of {groups}")
    matching = _run("explore", "EmbedDistill", rates, **common)
    for groups in (1, 32):
        yield replace(matching, label=f"EmbedDistill, groups of {groups}", group_size=groups)
    for weight in (1.0, 5.0):
        for groups in (1, 32):
            both = replace(matching, method="ListNet", matching=weight, group_size=groups, teacher_temperature=0.05)
            yield replace(both, label=f"ListNet, τ2 = τ3 = 0.05, + {weight:g} matching, groups of {groups}")
    # The second round, about the best temperatures of the first.
    even = replace(ranking, student_temperature=0.1, teacher_temperature=0.1)
    yield replace(even, label="ListNet, τ2 = τ3 = 0.1, groups of 32", group_size=32)
    for weight, rate in ((5.0, 3e-4), (5.0, 1e-3), (20.0, 1e-3)):
        both = replace(even, matching=weight, learning_rate=rate)
        yield replace(both, label=f"ListNet, τ2 = τ3 = 0.1, + {weight:g} matching")
    yield replace(both, label="ListNet, τ2 = τ3 = 0.1, + 20 matching, groups of 32", group_size=32)


def core(rates: Rates) -> Iterator[Run]:
    """The headline: each method at its own learning rate, three seeds, at equal steps and at equal time."""
    yield Run("core", "untouched", "untouched")
    for seed in SEEDS:
        for name in HEADLINE:
            yield _run("core", name, rates, seed=seed)
        yield _run("core", "SimCSE", rates, seed=seed, sentences=4096, label="SimCSE, half the steps")


def ablation(rates: Rates) -> Iterator[Run]:
    """The eleven rows of the paper's ablation (knowl 7): terms left out, one seed."""
    for method in ("ListNet", "ListMLE"):
        whole = _run("ablation", f"RankCSE-{method}", rates)
        yield whole
        yield replace(whole, label=f"{whole.label} without consistency", consistency=0.0)
        yield replace(whole, label=f"{whole.label} without contrastive", contrastive=0.0)
        two_views = replace(whole, contrastive=0.0, consistency=0.0, views=2)
        yield replace(two_views, label=f"{whole.label} without both")
        yield _run("ablation", method, rates, label=f"{whole.label} without both, one view")
    yield _run("ablation", "SimCSE", rates)
    without = _run("ablation", "SimCSE", rates, method="ListNet", distillation=0.0, consistency=1.0)
    yield replace(without, label="without distillation", contrastive=1.0)
    yield replace(without, label="without distillation and contrastive")


def batches(rates: Rates) -> Iterator[Run]:
    """Batches of 32 to 512, and groups of near neighbours in them."""
    for size in (32, 128, 512):
        yield _run("batches", "ListNet", rates, batch_size=size, label=f"ListNet, batches of {size}")
    for groups in (8, 32):
        for name in ("ListNet", "ListMLE"):
            yield _run("batches", name, rates, group_size=groups, label=f"{name}, groups of {groups}")


def balance(rates: Rates) -> Iterator[Run]:
    """How much the distillation term may weigh beside the two others: ListMLE is a sum over the list."""
    common = {"sentences": 4096, "seed": 0, "dev_only": True}  # The grid's, whose runs are the rows of weight 1.
    for method, weights in (("ListNet", (0.1, 1.0, 10.0)), ("ListMLE", (0.001, 0.01, 0.1, 1.0))):
        for weight in weights:
            label = f"RankCSE-{method}, distillation x {weight:g}"
            yield _run("balance", f"RankCSE-{method}", rates, distillation=weight, label=label, **common)


def projection(rates: Rates) -> Iterator[Run]:
    """Matching a teacher of another width or space: a projection to be learned, at what rate, or a fitted one.

    Development sets only.
    """
    common = {"teachers": ("mpnet",), "sentences": 4096, "seed": 0, "dev_only": True}
    for rate in (1e-5, 3e-5, 1e-4, 3e-4):
        label = f"EmbedDistill, {rate:g}, projection at the same rate"
        yield Run("projection", label, "EmbedDistill", learning_rate=rate, **common)
    for rate in (1e-2, 1e-1, 1.0):
        label = f"EmbedDistill, 0.0003, projection at {rate:g}"
        yield Run("projection", label, "EmbedDistill", learning_rate=3e-4, projection_rate=rate, **common)
    for name in ("ListNet at 0.1", FITTED):
        yield _run("projection", name, rates, **common)
    yield _run("projection", FITTED, rates, label="ListNet at 0.1 + 5 x fitted matching", matching=5.0, **common)
    # A teacher of the student's width, whose space is not the student's.
    turned = {"turned": True, "sentences": 4096, "seed": 0, "dev_only": True}
    both = _run("projection", _BOTH, rates, **turned)
    yield replace(both, label=f"{_BOTH}, turned at random")
    yield replace(both, label=f"{FITTED}, turned at random", fitted=True)


def teachers(rates: Rates) -> Iterator[Run]:
    """One teacher, the other, and both (knowl 8); matching embeddings by a projection where the widths differ."""
    both = ("minilm", "mpnet")
    for name in ONE_VIEW:
        yield _run("teachers", name, rates, label=f"{name}, MiniLM")
        yield _run("teachers", name, rates, teachers=("mpnet",), label=f"{name}, mpnet")
        for weight in (1 / 3, 1 / 2, 2 / 3) if name == "ListNet at 0.1" else (1 / 2,):
            label = f"{name}, MiniLM {weight:.2f} + mpnet {1 - weight:.2f}"
            yield _run("teachers", name, rates, teachers=both, weights=(weight, 1 - weight), label=label)
    yield _run("teachers", FITTED, rates, teachers=("mpnet",), label=f"{FITTED}, mpnet")
    label = f"{FITTED}, MiniLM 0.50 + mpnet 0.50"
    yield _run("teachers", FITTED, rates, teachers=both, weights=(0.5, 0.5), label=label)


def longer(rates: Rates) -> Iterator[Run]:
    """Four times the text, or four epochs of a student without layers: who goes on learning?"""
    for name in ONE_VIEW:
        yield _run("longer", name, rates, sentences=4 * SENTENCES["minilm-3"])
    for name in ONE_VIEW:
        settings = {"student": "model2vec", "sentences": SENTENCES["model2vec"], "epochs": 4.0}
        yield _run("longer", name, rates, label=f"model2vec, {name}", **settings)


def domain(rates: Rates) -> Iterator[Run]:
    """Sentences of film reviews for Wikipedia's, and agreement with the teacher on others of them."""
    yield Run("domain", "untouched", "untouched", text="reviews")
    for name in HEADLINE:
        if name != "RankCSE-ListMLE":
            yield _run("domain", name, rates, text="reviews")


def static(rates: Rates) -> Iterator[Run]:
    """Students without layers: a table made of the teacher, and the one that model2vec makes of it, as they are and
    trained on. The second has another width than its teacher.
    """
    yield Run("static", "static, untouched", "untouched", student="static")
    yield Run("static", "model2vec, untouched", "untouched", student="model2vec")
    for seed in SEEDS:
        for student in ("static", "model2vec"):
            for name in rates[student]:
                label, settings = f"{student}, {name}", {"sentences": SENTENCES[student], "seed": seed}
                yield _run("static", name, rates, student=student, label=label, **settings)


SUITES: dict[str, Callable[[Rates], Iterator[Run]]] = {
    "explore": explore,
    "core": core,
    "ablation": ablation,
    "batches": batches,
    "balance": balance,
    "projection": projection,
    "teachers": teachers,
    "longer": longer,
    "domain": domain,
    "static": static,
}
