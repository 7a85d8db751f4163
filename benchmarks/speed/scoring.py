"""Score a large corpus with a fast teacher: throughput beside bare ``encode``, memory, and kills.

The teacher is a static one (embeddings of tokens, averaged), which reads thousands of sentences a second on one core,
so that everything the scorer adds shows. Three parts, each in processes of its own:

``throughput``  bare ``teacher.encode`` and ``TeacherScoreDataset.from_sentences`` by turns, the same sentences.
``memory``      peak anonymous memory, as the operating system counts it, above what the teacher takes.
``kill``        the scorer killed at random moments again and again, resumed, and compared bit for bit.

    python -m benchmarks.speed.scoring --sentences FILE --teacher MODEL --rows 1000000 --output results.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def write_corpus(source: Path, rows: int, target: Path) -> None:
    """``rows`` different sentences: those of ``source`` again and again, numbered."""
    lines = [line for line in source.read_text(encoding="utf-8").split("\n") if line.strip()]
    with target.open("w", encoding="utf-8") as file:
        for row in range(rows):
            file.write(f"{lines[row % len(lines)]} {row // len(lines)}\n")


def static_teacher(model: str) -> Any:
    """The token embeddings of a transformer as a ``StaticEmbedding`` model, on the CPU."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    transformer = SentenceTransformer(model, device="cpu")
    weights = transformer.transformers_model.get_input_embeddings().weight.detach().clone()
    return SentenceTransformer(
        modules=[StaticEmbedding(transformer.tokenizer, embedding_weights=weights)], device="cpu"
    )


def anonymous_megabytes() -> float:
    """What this process holds that is not backed by a file."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("smaps_rollup has no line of anonymous memory")


class PeakMemory:
    """The highest anonymous memory while it runs, in another thread."""

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = anonymous_megabytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self.peak = max(self.peak, anonymous_megabytes())

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def digest(dataset: Any) -> str:
    """A hash of every label and sentence of a dataset, in order."""
    found = hashlib.blake2b(digest_size=16)
    for start in range(0, len(dataset), 4096):
        piece = dataset.with_format("arrow")[start : start + 4096].combine_chunks()
        found.update(piece["label"].combine_chunks().flatten().to_numpy().tobytes())
        found.update("\n".join(piece["sentence"].to_pylist()).encode())
    return found.hexdigest()


def work(arguments: argparse.Namespace) -> None:
    """What one child process does, its result as JSON on the last line."""
    teacher = static_teacher(arguments.teacher)
    teacher.encode(["Nothing is measured before it ran once."])
    start = time.perf_counter()
    with PeakMemory() if arguments.watch else tempfile.TemporaryDirectory() as memory:
        if arguments.work == "bare":
            sentences = arguments.corpus.read_text(encoding="utf-8").split("\n")[:-1]
            start = time.perf_counter()
            teacher.encode(sentences, batch_size=64)
            rows = len(sentences)
        else:
            from rankcse_st import TeacherScoreDataset

            dataset = TeacherScoreDataset.from_sentences(
                arguments.corpus, teacher, cache_dir=arguments.cache, dtype=arguments.dtype, show_progress_bar=False
            )
            rows = len(dataset)
    result: dict[str, Any] = {"seconds": time.perf_counter() - start, "rows": rows}
    if isinstance(memory, PeakMemory):
        result |= {"teacher_megabytes": memory.before, "peak_megabytes_above": memory.peak - memory.before}
    if arguments.work == "digest":
        result["digest"] = digest(dataset)
    print(json.dumps(result))


def child(arguments: argparse.Namespace, what: str, corpus: Path, cache: Path, *, watch: bool = False) -> list[str]:
    """The command line of a child process."""
    command = [sys.executable, "-m", "benchmarks.speed.scoring", "--work", what, "--teacher", arguments.teacher]
    command += ["--corpus", str(corpus), "--cache", str(cache), "--dtype", arguments.dtype]
    return [*command, "--watch"] if watch else command


def run(command: list[str]) -> dict[str, Any]:
    """Run a child to its end and read its result."""
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def throughput(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Bare encoding and scoring by turns."""
    for repetition in range(arguments.repetitions):
        for what in ("bare", "score"):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            result = run(child(arguments, what, folder / "corpus.txt", folder / "cache"))
            yield {"part": "throughput", "what": what, "repetition": repetition, **result}


def memory(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Peak memory of scoring everything."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    yield {"part": "memory", **run(child(arguments, "score", folder / "corpus.txt", folder / "cache", watch=True))}


def kill(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Kill at random moments, resume, and compare with a run that nobody killed."""
    write_corpus(arguments.sentences, arguments.kill_rows, folder / "short.txt")
    expected = run(child(arguments, "digest", folder / "short.txt", folder / "whole"))
    randomness, cache = random.Random(arguments.seed), folder / "killed"
    finished_before: dict[str, int] = {}
    for number in range(arguments.kills):
        process = subprocess.Popen(
            child(arguments, "digest", folder / "short.txt", cache), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        delay = randomness.uniform(0, 1.2 * expected["seconds"]) + arguments.start_seconds
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        finished = {str(path): path.stat().st_mtime_ns for path in cache.rglob("*.arrow")}
        again = [path for path, written in finished_before.items() if finished.get(path) != written]
        yield {"part": "kill", "kill": number, "after_seconds": delay, "files": len(finished), "rewritten": len(again)}
        finished_before = finished
        if number % 5 == 4:  # Start over now and then: a finished corpus has nothing left to interrupt.
            result = run(child(arguments, "digest", folder / "short.txt", cache))
            yield {"part": "kill", "kill": number, "identical": result["digest"] == expected["digest"]}
            shutil.rmtree(cache)
            finished_before = {}


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
    parser.add_argument("--start-seconds", type=float, default=3.0, help="time a process takes to start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=["throughput", "memory", "kill"])
    parser.add_argument("--output", type=Path, default=Path("scoring.json"))
    parser.add_argument("--work", choices=["bare", "score", "digest"], help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(arguments.sentences, arguments.rows, folder / "corpus.txt")
        results = []
        for part in arguments.parts:
            for result in {"throughput": throughput, "memory": memory, "kill": kill}[part](arguments, folder):
                print(json.dumps(result), flush=True)
                results.append(result)
    options = {key: str(value) for key, value in vars(arguments).items() if value is not None}
    arguments.output.write_text(json.dumps({"options": options, "results": results}, indent=1) + "\n")
    rates = {
        what: statistics.median(r["rows"] / r["seconds"] for r in results if r.get("what") == what)
        for what in ("bare", "score")
        if any(r.get("what") == what for r in results)
    }
    if len(rates) == 2:
        print(f"{rates['score']:,.0f} sentences a second, {rates['score'] / rates['bare']:.3f} of bare encode")


if __name__ == "__main__":
    main()
