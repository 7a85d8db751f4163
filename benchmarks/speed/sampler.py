"""Measure the neighbour batch sampler: seconds for an epoch's order, peak memory, and the recall of its groups.

    python -m benchmarks.speed.sampler --rows 100000 --width 384
    python -m benchmarks.speed.sampler --vectors vectors.npy --group-size 8 32

Without ``--vectors`` the vectors are synthetic: clusters of clusters with noise, about as hard to partition as real
sentences' embeddings. Each group size is measured in a fresh process, so that one's memory does not hide another's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from datasets.arrow_writer import ArrowWriter

from benchmarks.speed.memory import PeakMemory
from benchmarks.speed.provenance import provenance

RESULTS = Path(__file__).parent / "results"


def synthetic_vectors(rows: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors around centres, which lie around centres themselves; one coarse cluster for each 1,000 rows."""
    coarse = rng.standard_normal((max(rows // 1000, 1), width), dtype=np.float32)
    fine = coarse[rng.integers(len(coarse), size=max(rows // 20, 1))]
    fine = fine + rng.standard_normal(fine.shape, dtype=np.float32)
    vectors = fine[rng.integers(len(fine), size=rows)]
    vectors += 1.5 * rng.standard_normal(vectors.shape, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_dataset(vectors: np.ndarray, path: Path) -> None:
    """Write the vectors as a dataset would have them on disk, so that the sampler reads a memory-mapped file."""
    features = Features({"sentence": Value("string"), "label": List(Value("float32"), length=vectors.shape[1])})
    with ArrowWriter(features=features, path=str(path)) as writer:
        for start in range(0, len(vectors), 4096):
            chunk = vectors[start : start + 4096]
            texts = [f"sentence {row}" for row in range(start, start + len(chunk))]
            writer.write_batch({"sentence": texts, "label": list(chunk)})
        writer.finalize()


def measure(path: str, group_size: int, options: dict[str, Any], connection: Any) -> None:
    """Build a sampler, order two epochs, and send what it took."""
    from rankcse_st.sampler import NeighbourBatchSampler

    dataset = Dataset.from_file(path)
    seconds = []
    with PeakMemory() as memory:
        sampler = NeighbourBatchSampler(dataset, 128, False, seed=0, group_size=group_size, **options)
        for epoch in range(2):
            start = time.perf_counter()
            sampler.set_epoch(epoch)
            rows = sum(len(batch) for batch in sampler)
            seconds.append(round(time.perf_counter() - start, 2))
    assert rows == len(dataset)
    result: dict[str, Any] = {
        "group_size": group_size,
        "seconds_first_epoch": seconds[0],
        "seconds_later_epoch": seconds[1],
        "peak_anonymous_mib_above_baseline": round(memory.above, 1),
    }
    if group_size > 1:
        for k in sorted({group_size - 1, 4 * group_size, 100}):
            result[f"mates_in_true_top_{k}"] = round(sampler.recall(k), 4)
        vectors = dataset.with_format("numpy")["label"][:]
        groups = sampler.groups()[:2000]
        cosines = [(v @ v.T).sum() - len(v) for v in (vectors[group] for group in groups)]
        result["mean_cosine_in_groups"] = round(float(np.mean(cosines) / (group_size * (group_size - 1))), 4)
    connection.send(result)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--vectors", type=Path, help="a .npy file of unit vectors instead of synthetic ones")
    parser.add_argument("--group-size", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--cell-size", type=int, default=16384)
    parser.add_argument("--output", type=Path, default=RESULTS / "sampler.json", help="the raw JSON")
    args = parser.parse_args(arguments)

    if args.vectors is not None:
        vectors = np.load(args.vectors).astype(np.float32)
    else:
        vectors = synthetic_vectors(args.rows, args.width, np.random.default_rng(0))
    options = {"dimension": args.dimension, "cell_size": args.cell_size}
    report: dict[str, Any] = provenance() | {
        "vectors": args.vectors.name if args.vectors else "synthetic",
        "rows": len(vectors),
        "width": vectors.shape[1],
        **options,
        "results": [],
    }
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.arrow"
        write_dataset(vectors, path)
        del vectors
        for group_size in args.group_size:
            receiver, sender = spawn.Pipe(duplex=False)
            process = spawn.Process(target=measure, args=(str(path), group_size, options, sender))
            process.start()
            sender.close()
            try:
                report["results"].append(receiver.recv())
            except EOFError:
                process.join()
                sys.exit(f"The process for groups of {group_size} ended with exit code {process.exitcode}.")
            process.join()
            print(json.dumps(report["results"][-1]), flush=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
