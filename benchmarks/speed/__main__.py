"""``python -m benchmarks.speed``: what RankCSE costs, measured side by side; on a GPU with ``--device cuda``.

Unattended, and within five minutes on a data-centre GPU. On a CPU the shapes are smaller.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import typer

from benchmarks.speed.provenance import provenance

RESULTS = Path(__file__).parent / "results"
PARTS = ("steps", "stages", "memory", "loading")
# The paper's hours for four epochs over a million sentences on an A100 (knowl 11), base and large.
PAPER_HOURS = {"bert-base": 2.0, "bert-large": 3.7}


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    part: Annotated[str, typer.Option(help="steps, stages, memory, loading or all")] = "all",
    repetitions: Annotated[int | None, typer.Option(help="Turns of each variant.")] = None,
    batch_size: Annotated[int, typer.Option(help="Sentences in a training step's batch.")] = 128,
    output: Annotated[Path, typer.Option(help="Folder for the raw JSON and the table.")] = RESULTS,
) -> None:
    """Measure training steps, the loss by itself, its peak memory, and what labels add to a batch."""
    import torch

    from benchmarks.speed.stages import peak_memory, stages
    from benchmarks.speed.timing import interleaved, ratios

    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("there is no CUDA device here", param_hint="--device")
    if part not in (*PARTS, "all"):
        raise typer.BadParameter(f"expected one of {', '.join(PARTS)} or all, got {part!r}", param_hint="--part")
    place = torch.device(device)
    cuda = place.type == "cuda"
    result: dict[str, Any] = provenance() | {
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads",
    }
    if part in ("steps", "all"):
        shapes = ("bert-base", "bert-large") if cuda else ("minilm-6",)
        result["steps"] = {
            shape: _measure_steps(shape, place, batch_size, repetitions or (20 if cuda else 15)) for shape in shapes
        }
    if part in ("stages", "all"):
        result["stages"] = {}
        for rows in (128, 512, 2048, 8192):
            turns = repetitions or (20 if cuda or rows < 2048 else 5)
            seconds = interleaved(stages(rows, 768, place), turns, place)
            table = ratios(seconds, "contrastive of sentence-transformers")
            result["stages"][rows] = {"seconds": seconds, "ratios": table}
            _print(f"the loss by itself, {rows} sentences, width 768", table)
        result["share_of_a_step"] = _share_of_a_step(result["stages"][128]["ratios"], place)
    if part in ("memory", "all") and not cuda:
        rows = 16_384
        result["memory"] = {kind: peak_memory(kind, rows, 768) for kind in ("plain", "cached")}
        print(f"peak MiB of the loss at {rows} sentences: {result['memory']}", flush=True)
    if part in ("loading", "all") and not cuda:
        from benchmarks.speed.loading import loading

        result["loading"] = loading(repetitions or 200)
        for case in ("one column", "two columns"):
            added = result["loading"][case]["added"]
            print(
                f"labels add to a batch of {result['loading']['batch_size']}, {case}: "
                f"{added['added_ms']:.2f} ms ({added['low']:.2f} to {added['high']:.2f})",
                flush=True,
            )
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{place.type}-{part}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Raw results in {path}")


def _measure_steps(shape: str, device: Any, batch_size: int, repetitions: int) -> dict[str, Any]:
    import torch

    from benchmarks.demo.corpus import docstring_sentences
    from benchmarks.speed.steps import Steps, random_model
    from benchmarks.speed.timing import interleaved, ratios

    sentences = docstring_sentences()
    cuda = device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(shape, sentences, Path(folder), device, seed=0)
        teachers = [random_model(shape, sentences, Path(folder), device, seed=seed) for seed in (1, 2)]
        steps = Steps(
            model,
            sentences,
            label_width=sum(teacher.get_embedding_dimension() or 0 for teacher in teachers),
            batch_size=batch_size,
            teachers=teachers,
            dtype=torch.bfloat16 if cuda else None,
        )
        seconds = interleaved(steps.variants, repetitions, device)
        table = ratios(seconds, "SimCSE")
        _print(f"training step, {shape}, batches of {batch_size}, 32 tokens", table)
        measured: dict[str, Any] = {"seconds": seconds, "ratios": table, "batch_size": batch_size}
        if cuda:
            measured["peak_gib"] = {}
            for name, step in steps.variants.items():
                torch.cuda.reset_peak_memory_stats(device)
                step()
                measured["peak_gib"][name] = torch.cuda.max_memory_allocated(device) / 2**30
        measured["tokens_a_second"] = {
            name: steps.tokens_a_batch / (row["median_ms"] / 1e3) for name, row in table.items()
        }
        million = 4 * 1_000_000 / batch_size / 3600
        measured["hours_for_four_epochs_of_a_million"] = {
            name: row["median_ms"] / 1e3 * million for name, row in table.items()
        } | ({"the paper, on an A100": PAPER_HOURS[shape]} if shape in PAPER_HOURS else {})
    return measured


def _share_of_a_step(stages: dict[str, dict[str, float]], device: Any) -> dict[str, Any]:
    """How much of a BERT-base SimCSE step of 128 sentences the loss by itself would take."""
    import torch

    from benchmarks.demo.corpus import docstring_sentences
    from benchmarks.speed.steps import Steps, random_model
    from benchmarks.speed.timing import interleaved

    sentences = docstring_sentences()
    with tempfile.TemporaryDirectory() as folder:
        model = random_model("bert-base", sentences, Path(folder), device, seed=0)
        dtype = torch.bfloat16 if device.type == "cuda" else None
        steps = Steps(model, sentences, label_width=768, batch_size=128, teachers=[], dtype=dtype)
        seconds = interleaved({"SimCSE": steps.variants["SimCSE"]}, 3, device, warmup=1)["SimCSE"]
    loss_ms, step_ms = stages["three terms, ListNet"]["median_ms"], 1e3 * median(seconds)
    print(f"{loss_ms:.1f} ms of the three terms are {loss_ms / step_ms:.2%} of {step_ms:.0f} ms, a BERT-base step")
    return {"step_seconds": seconds, "step_ms": step_ms, "loss_ms": loss_ms, "share": loss_ms / step_ms}


def _print(title: str, table: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    for name, row in table.items():
        print(f"  {name:40} {row['median_ms']:10.1f} ms  {row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
