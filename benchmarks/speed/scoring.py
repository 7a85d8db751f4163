"""Score a large corpus with a fast teacher: throughput beside bare ``encode``, memory, and kills.

The teacher is a static one (embeddings of tokens, averaged), which reads thousands of sentences a second on one core,
so that everything the scorer adds shows. Three parts, each in processes of its own:

``throughput``  bare ``teacher.encode`` and ``TeacherScoreDataset.from_sentences`` by turns, the same sentences in
                batches of the same size. Bare encoding is given a list; the scorer reads and checks the file,
                identifies the teacher, and writes all scores to disk.
``memory``      peak anonymous memory, as the operating system counts it, above what the teacher takes.
``kill``        two teachers; the scorer killed (SIGKILL) at random moments while it scores, again and again, then
                resumed: no sentence of a finished shard is encoded again, and the result is the same bit for bit.

    python -m benchmarks.speed.scoring --sentences FILE --teacher MODEL --rows 1000000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

RESULTS = Path(__file__).parent / "results"
BATCH_SIZE = 64
STARTED, SCORED = "started", "scored"
KILLS_A_ROUND = 5


def write_corpus(source: Path, rows: int, target: Path) -> None:
    """``rows`` different sentences: those of ``source`` again and again, numbered."""
    lines = list(dict.fromkeys(line for line in source.read_text(encoding="utf-8").split("\n") if line.strip()))
    with target.open("w", encoding="utf-8") as file:
        for row in range(rows):
            file.write(f"{lines[row % len(lines)]} {row // len(lines)}\n")


def static_teacher(model: str, width: int | None = None) -> Any:
    """The token embeddings of a transformer, or the first ``width`` numbers of each, as a ``StaticEmbedding`` model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    transformer = SentenceTransformer(model, device="cpu")
    weights = transformer.transformers_model.get_input_embeddings().weight.detach()[:, :width].clone()
    return SentenceTransformer(
        modules=[StaticEmbedding(transformer.tokenizer, embedding_weights=weights)], device="cpu"
    )


def counted(teacher: Any, counts: list[int]) -> Any:
    """The teacher, which notes in ``counts`` how many sentences it is given."""
    encode = teacher.encode

    def counting(sentences: list[str], **options: Any) -> Any:
        counts.append(len(sentences))
        return encode(sentences, **options)

    teacher.encode = counting
    return teacher


def digest(dataset: Any) -> str:
    """A hash of every label and sentence of a dataset, in order."""
    found = hashlib.blake2b(digest_size=16)
    for start in range(0, len(dataset), 4096):
        piece = dataset.with_format("arrow")[start : start + 4096].combine_chunks()
        found.update(piece["label"].combine_chunks().flatten().to_numpy().tobytes())
        found.update("\n".join(piece["sentence"].to_pylist()).encode())
    return found.hexdigest()


def work(arguments: argparse.Namespace) -> None:
    """What one child process does, its result as JSON on the last line; all imports come before the clock."""
    from benchmarks.speed.memory import PeakMemory
    from rankcse_st import TeacherScoreDataset

    counts: list[int] = []
    widths = (None, 128) if arguments.work == "digest" else (None,)
    teachers = [static_teacher(arguments.teacher, width) for width in widths]
    for teacher in teachers:
        teacher.encode(["Nothing is measured before it ran once."])
        if arguments.work == "digest":
            counted(teacher, counts)
    sentences = arguments.corpus.read_text(encoding="utf-8").split("\n")[:-1] if arguments.work == "bare" else []
    print(STARTED, flush=True)
    with PeakMemory() if arguments.work == "memory" else nullcontext() as memory:
        started, cpu_started = time.perf_counter(), time.process_time()
        if arguments.work == "bare":
            rows = len(teachers[0].encode(sentences, batch_size=BATCH_SIZE, show_progress_bar=False))
        else:
            dataset = TeacherScoreDataset.from_sentences(
                arguments.corpus,
                teachers,
                cache_dir=arguments.cache,
                dtype=arguments.dtype,
                batch_size=BATCH_SIZE,
                show_progress_bar=False,
            )
            rows = len(dataset)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    print(SCORED, flush=True)
    result: dict[str, Any] = {"seconds": seconds, "cpu_seconds": cpu_seconds, "rows": rows}
    if memory is not None:
        result |= {"teacher_mib": memory.before, "peak_mib_above": memory.above}
    if arguments.work == "digest":
        result |= {"digest": digest(dataset), "encoded": sum(counts)}
    print(json.dumps(result))


def start(arguments: argparse.Namespace, what: str, corpus: Path, cache: Path) -> subprocess.Popen[str]:
    """Start a child process, and wait until it is about to do what is measured."""
    command = [sys.executable, "-m", "benchmarks.speed.scoring", "--work", what, "--teacher", arguments.teacher]
    command += ["--corpus", str(corpus), "--cache", str(cache), "--dtype", arguments.dtype]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not any(line.strip() == STARTED for line in iter(process.stdout.readline, "")):
        sys.exit(f"A process that was to {what} ended with exit code {process.wait()}.")
    return process


def rest_of(process: subprocess.Popen[str]) -> str:
    """What else the child prints; it has ended then."""
    assert process.stdout is not None
    output = process.stdout.read()
    process.wait()
    return output


def run(arguments: argparse.Namespace, what: str, corpus: Path, cache: Path) -> dict[str, Any]:
    """Run a child to its end and read its result."""
    process = start(arguments, what, corpus, cache)
    output = rest_of(process)
    if process.returncode:
        sys.exit(f"A process that was to {what} ended with exit code {process.returncode}.")
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def throughput(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Bare encoding and scoring by turns."""
    for repetition in range(arguments.repetitions):
        for what in ("bare", "score"):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            result = run(arguments, what, folder / "corpus.txt", folder / "cache")
            yield {"part": "throughput", "what": what, "repetition": repetition, **result}


def memory(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Peak memory of scoring everything."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    yield {"part": "memory", **run(arguments, "memory", folder / "corpus.txt", folder / "cache")}


def kill(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Kill at random moments, resume, and compare with a run that nobody killed."""
    corpus, cache = folder / "short.txt", folder / "killed"
    write_corpus(arguments.sentences, arguments.kill_rows, corpus)
    expected = run(arguments, "digest", corpus, folder / "whole")
    assert expected["encoded"] == 2 * arguments.kill_rows  # By each of the two teachers.
    randomness = random.Random(arguments.seed)
    kills, before = 0, dict[Path, tuple[int, int]]()
    while kills < arguments.kills:
        process = start(arguments, "digest", corpus, cache)
        delay = randomness.uniform(0, 0.4 * expected["seconds"])
        time.sleep(delay)
        process.kill()
        landed = SCORED not in rest_of(process)  # Else it was faster, and no scoring was killed.
        kills += landed
        after = finished(cache)
        yield {
            "part": "kill",
            "landed": landed,
            "after_seconds": delay,
            "finished_before": len(before),
            "finished_after": len(after),
            "unfinished_files": len(list(cache.rglob("*.part"))),
            "rewritten": sum(after.get(path) != state for path, state in before.items()),
        }
        before = after
        if not landed or kills % KILLS_A_ROUND == 0 or kills == arguments.kills:
            # A finished corpus has nothing left to interrupt: finish it, compare, and start over.
            missing = 2 * arguments.kill_rows - sum(
                rows for path, (rows, _) in before.items() if "teachers" in path.parts
            )
            result = run(arguments, "digest", corpus, cache)
            yield {
                "part": "resume",
                "missing": missing,
                "encoded": result["encoded"],
                "identical": result["digest"] == expected["digest"],
            }
            shutil.rmtree(cache)
            before = {}


def finished(cache: Path) -> dict[Path, tuple[int, int]]:
    """The files that are there, with their rows and the time of their writing."""
    import pyarrow as pa

    found = {}
    for path in cache.rglob("*.arrow"):
        with pa.memory_map(str(path)) as source:
            found[path] = (pa.ipc.open_stream(source).read_all().num_rows, path.stat().st_mtime_ns)
    return found


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers that the limits are for."""
    import numpy as np

    from benchmarks.speed.timing import interval

    found: dict[str, Any] = {}
    rates = {
        what: np.array([r["rows"] / r["seconds"] for r in results if r["part"] == "throughput" and r["what"] == what])
        for what in ("bare", "score")
    }
    if len(rates["bare"]) == len(rates["score"]) > 0:
        ratio = rates["score"] / rates["bare"]
        low, high = interval(ratio)
        found["sentences_a_second"] = {what: float(np.median(rate)) for what, rate in rates.items()}
        found["throughput_ratio"] = {"ratio": float(np.median(ratio)), "low": low, "high": high}
    for result in results:
        if result["part"] == "memory":
            found["peak_mib_above"] = result["peak_mib_above"]
    resumed = [r for r in results if r["part"] == "resume"]
    if resumed:
        killed = [r for r in results if r["part"] == "kill" and r["landed"]]
        found["kills"] = len(killed)
        found["kills_inside_a_write"] = sum(r["unfinished_files"] > 0 for r in killed)
        found["files_rewritten"] = sum(r["rewritten"] for r in killed)
        found["sentences_encoded_again"] = sum(r["encoded"] - r["missing"] for r in resumed)
        found["identical"] = f"{sum(r['identical'] for r in resumed)} of {len(resumed)}"
    return found


def main() -> None:
    """Run the parts and write what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, help="a text file, one sentence a line")
    parser.add_argument("--teacher", required=True, help="a transformer whose token embeddings become the teacher")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float16")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kill-rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=["throughput", "memory", "kill"])
    parser.add_argument("--output", type=Path, default=RESULTS / "scoring.json")
    parser.add_argument("--work", choices=["bare", "score", "memory", "digest"], help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return
    from benchmarks.speed.provenance import provenance

    report: dict[str, Any] = provenance() | {"rows": arguments.rows, "kill_rows": arguments.kill_rows}
    report |= {"dtype": arguments.dtype, "results": []}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(arguments.sentences, arguments.rows, folder / "corpus.txt")
        for part in arguments.parts:
            for result in {"throughput": throughput, "memory": memory, "kill": kill}[part](arguments, folder):
                print(json.dumps(result), flush=True)
                report["results"].append(result)
                report["summary"] = summary(report["results"])
                arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
