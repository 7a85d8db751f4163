"""What smaller score vectors cost, on real teachers and text: rank correlation and error of in-batch scores.

Every setting is fitted on some sentences and measured on others, in batches of 128, by the package's own
``TeacherScoreDataset.compress``. Scores are kept in ``--cache``, the study's by default, and found again there.

    python -m benchmarks.speed.compression --data DIR --minilm MODEL --mpnet MODEL
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import typer

from benchmarks.speed.provenance import provenance

RESULTS = Path(__file__).parent / "results"
SCORES = Path(__file__).parents[1] / "study" / "results" / "scores"
SETTINGS: tuple[tuple[Literal["int8", "float16"], int], ...] = (
    ("int8", 384),
    ("int8", 256),
    ("int8", 192),
    ("int8", 128),
    ("float16", 128),
)


def main(
    data: Annotated[Path, typer.Option(help="Folder with wiki/wiki-55k.txt.", exists=True)],
    minilm: Annotated[Path, typer.Option(help="Folder of all-MiniLM-L6-v2.", exists=True)],
    mpnet: Annotated[Path | None, typer.Option(help="Folder of all-mpnet-base-v2.")] = None,
    rows: Annotated[int, typer.Option(help="Lines of the text: half are fitted, half measured.")] = 8192,
    batch_size: Annotated[int, typer.Option(help="Sentences whose scores are compared.")] = 128,
    cache: Annotated[Path, typer.Option(help="Where teachers' scores are kept.")] = SCORES,
    output: Annotated[Path, typer.Option(help="The raw JSON.")] = RESULTS / "compression.json",
) -> None:
    """Compress the scores of each teacher and of both at several settings."""
    from rankcse_st import TeacherScoreDataset

    sentences = (data / "wiki" / "wiki-55k.txt").read_text(encoding="utf-8").split("\n")[:rows]
    teachers = {"MiniLM": [str(minilm)]}
    if mpnet is not None:
        teachers |= {"mpnet": [str(mpnet)], "MiniLM + mpnet": [str(minilm), str(mpnet)]}
    result: dict[str, Any] = provenance() | {"sentences": rows, "results": []}
    for name, models in teachers.items():
        scored = TeacherScoreDataset.from_sentences(sentences, models, cache_dir=cache)
        for dtype, dimension in SETTINGS:
            _, report = TeacherScoreDataset.compress(scored, dimension, dtype=dtype, batch_size=batch_size)
            result["results"].append({"teacher": name, "dtype": dtype, **report.to_dict()})
            print(
                f"{name:16} {dtype:>8} x {dimension}: {report.bytes_per_vector} bytes, "
                f"Spearman {report.spearman:.4f} (lowest {report.lowest_spearman:.4f}), "
                f"mean error {report.mean_absolute_error:.4f}",
                flush=True,
            )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
