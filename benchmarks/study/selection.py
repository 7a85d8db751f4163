"""Good teachers among bad ones: ``python -m benchmarks.study.selection --data DIR --mpnet DIR``.

The candidates are all-MiniLM-L6-v2 and all-mpnet-base-v2, and three that nobody should learn from: random vectors, the
second one read at [CLS] although it was trained with mean pooling, and the first one shifted so far that all its scores
are near 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer

SENTENCES = 500
PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "torch", "numpy", "scipy")


def candidates(minilm: Path, mpnet: Path) -> dict[str, Any]:
    """The models by name."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    class RandomVectors(SentenceTransformer):  # type: ignore[misc]
        """A vector for each sentence that says nothing about it."""

        def encode(self, sentences: list[str], **_: Any) -> Any:
            seeds = [hashlib.sha256(sentence.encode()).digest()[:8] for sentence in sentences]
            vectors = [np.random.default_rng(int.from_bytes(seed, "little")).normal(size=64) for seed in seeds]
            return torch.tensor(np.array(vectors), dtype=torch.float32)

    at_cls = [Transformer(str(mpnet)), Pooling(768, "cls")]
    shifted = SentenceTransformer(str(minilm), device="cpu")
    shift = Dense(384, 384, activation_function=torch.nn.Identity())
    with torch.no_grad():
        shift.linear.weight.copy_(torch.eye(384))
        shift.linear.bias.fill_(0.5)
    shifted.append(shift)
    return {
        "MiniLM": SentenceTransformer(str(minilm), device="cpu"),
        "mpnet": SentenceTransformer(str(mpnet), device="cpu"),
        "random vectors": RandomVectors(modules=list(SentenceTransformer(str(minilm), device="cpu")), device="cpu"),
        "mpnet at [CLS]": SentenceTransformer(modules=at_cls, device="cpu"),
        "MiniLM, scores near 1": shifted,
    }


def main(
    data: Annotated[Path, typer.Option(help="Folder with sts/*.jsonl and wiki/wiki-55k.txt.", exists=True)],
    mpnet: Annotated[Path, typer.Option(help="Folder of all-mpnet-base-v2.", exists=True)],
    output: Annotated[Path, typer.Option(help="Where the result goes.")] = Path(__file__).parent / "results",
) -> None:
    """Choose with graded pairs (STSBenchmark dev without the pairs of test sets), and without any."""
    from benchmarks.demo.weights import minilm_folder
    from benchmarks.study.scores import DEV_SETS, read_pairs
    from rankcse_st import Teacher
    from rankcse_st.selection import select_teachers

    models = candidates(minilm_folder(), mpnet)
    teachers = [Teacher(model) for model in models.values()]
    lines = (data / "wiki" / "wiki-55k.txt").read_text(encoding="utf-8").splitlines()[-SENTENCES:]
    rows = read_pairs(data, DEV_SETS[0])
    pairs = list(zip(rows["sentence1"], rows["sentence2"], strict=True))
    result: dict[str, Any] = {
        "command": "python -m benchmarks.study.selection --data data --mpnet all-mpnet-base-v2",
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "teachers": list(models),
    }
    for name, options in {
        "with graded pairs": {"pairs": pairs, "scores": rows["score"]},
        "without": {},
    }.items():
        chosen = select_teachers(teachers, lines, **options)
        print(name, dict(zip(models, chosen.weights, strict=True)), chosen, sep="\n")
        result[name] = named(chosen.to_dict(), list(models))
    (output / "selection.json").write_text(json.dumps(result, indent=1) + "\n")


def named(record: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The record with names that say what the candidates are, in place of the folders that they were loaded from."""
    text = json.dumps(record)
    for one, name in zip(record["agreement"]["teachers"], names, strict=True):
        text = text.replace(json.dumps(one["name"]), json.dumps(name))
    found: dict[str, Any] = json.loads(text) | {"teachers": names}
    return found


if __name__ == "__main__":
    typer.run(main)
