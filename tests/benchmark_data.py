"""A folder of tiny benchmark data in the layout of the full data, made of the sentences that tiny models know."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from conftest import SENTENCES

WITHOUT_MTEB = 'needs mteb: pip install "rankcse-st[mteb]" (Python 3.11 or newer)'


def write_jsonl(path: Path, rows: Iterable[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def pairs(seed: int, queries: int = 4, targets: int = 6) -> list[dict[str, object]]:
    """Pairs in which each of ``queries`` first sentences meets ``targets`` others, with a few grades for each."""
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    for query in rng.sample(SENTENCES, queries):
        others = rng.sample([sentence for sentence in SENTENCES if sentence != query], targets)
        rows += [{"sentence1": query, "sentence2": other, "score": float(rng.randint(0, 5))} for other in others]
    rows[0]["score"], rows[1]["score"] = 5.0, 0.0
    return rows


def labelled(seed: int, count: int, classes: int = 2) -> list[dict[str, object]]:
    """Different texts of one or two sentences, with noisy labels."""
    rng = random.Random(seed)
    texts = rng.sample([f"{a} {b}".strip() for a in SENTENCES for b in ("", *SENTENCES[:12]) if a != b], count)
    return [{"text": text, "label": (len(text) + rng.randint(0, 1)) % classes} for text in texts]


def write_benchmark_data(folder: Path) -> Path:
    """Write the files of all four groups; returns ``folder``."""
    for seed, name in enumerate(
        ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "STSBenchmark.dev", "SICK-R", "SICK-R.dev")
    ):
        write_jsonl(folder / "sts" / f"{name}.jsonl", pairs(seed))
    write_jsonl(folder / "sts" / "SICK-R.train.jsonl", pairs(50, queries=2))
    for seed, name in enumerate(("MR", "CR", "SUBJ", "MPQA"), start=100):
        write_jsonl(folder / "transfer" / f"{name}.jsonl", labelled(seed, 80))
    for seed, (name, count, classes) in enumerate((("SST2", 60, 2), ("TREC", 120, 3)), start=200):
        splits = ("train", "dev", "test") if name == "SST2" else ("train", "test")
        for offset, split in enumerate(splits):
            write_jsonl(folder / "transfer" / f"{name}.{split}.jsonl", labelled(seed + 10 * offset, count, classes))
    for offset, split in enumerate(("train", "test")):
        rows = labelled(300 + offset, 80)
        paired = [
            {"sentence1": row["text"], "sentence2": other["text"], "label": row["label"]}
            for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
        ]
        write_jsonl(folder / "transfer" / f"MRPC.{split}.jsonl", paired)
    return folder
