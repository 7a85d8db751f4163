"""``python -m benchmarks.speed.report``: tables, with the limits beside them, of the raw results that are there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

STEP_LIMITS = {
    "RankCSE, attached scores": "at most 1.05",
    "RankCSE, attached scores, ListMLE": "at most 1.05",
    "distillation, one view": "at most 0.60",
}
STAGE_LIMITS = {"three terms, ListNet": "at most 2.50"}


def table(headers: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A markdown table; all columns but the first are numbers."""
    names = list(headers)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def ratio_rows(ratios: dict[str, dict[str, float]], limits: dict[str, str]) -> Iterator[list[object]]:
    """Milliseconds, the ratio to the first one, its interval and its limit."""
    for name, row in ratios.items():
        interval = f"{row['low']:.2f} to {row['high']:.2f}" if row["low"] < row["high"] else ""
        yield [name, f"{row['median_ms']:.1f}", f"{row['ratio']:.2f}", interval, limits.get(name, "")]


def timings(found: dict[str, Any]) -> Iterator[str]:
    """Everything that ``python -m benchmarks.speed`` measures."""
    headers = ("", "ms", "ratio", "95 % interval", "limit")
    for shape, measured in found.get("steps", {}).items():
        yield f"### A training step: {shape}, batches of {measured['batch_size']}, {found['device']}\n"
        yield table(headers, ratio_rows(measured["ratios"], STEP_LIMITS))
        if "peak_gib" in measured:
            hours = measured["hours_for_four_epochs_of_a_million"]
            rows = [
                [name, f"{measured['tokens_a_second'][name]:,.0f}", f"{gib:.2f}", f"{hours[name]:.2f}"]
                for name, gib in measured["peak_gib"].items()
            ]
            paper = hours.get("the paper, on an A100")
            yield table(("", "tokens a second", "peak GiB", "hours for four epochs of a million"), rows)
            yield f"The paper's hours, on an A100: {paper}.\n" if paper else ""
    for rows, measured in found.get("stages", {}).items():
        yield f"### The loss by itself: {rows} sentences, width 768, {found['device']}\n"
        yield table(headers, ratio_rows(measured["ratios"], STAGE_LIMITS))
    share = found.get("share_of_a_step")
    if share:
        yield (
            f"At 128 sentences the three terms take {share['loss_ms']:.1f} ms, {share['share']:.2%} of a BERT-base "
            f"SimCSE step of {share['step_ms']:.0f} ms.\n"
        )
    memory = found.get("memory")
    if memory:
        yield "### Peak memory of the loss at 16,384 sentences\n"
        limits = {"cached": "at most 1/8 = 0.125"}
        rows = [
            [kind, f"{mib:.0f}", f"{mib / memory['plain']:.3f}", limits.get(kind, "")] for kind, mib in memory.items()
        ]
        yield table(("", "MiB", "of the plain loss", "limit"), rows)
    loading = found.get("loading")
    if loading:
        yield f"### Labels in a batch of {loading['batch_size']}, width {loading['label_width']}, no workers\n"
        rows = []
        for case, limit in (("one column", "at most 2.00"), ("two columns", "")):
            added = loading[case]["added"]
            interval = f"{added['low']:.2f} to {added['high']:.2f}"
            times = [f"{added[key]:.2f}" for key in ("baseline_median_ms", "median_ms", "added_ms")]
            rows.append([f"{case}, {tuple(loading[case]['label_shape'])}", *times, interval, limit])
        yield table(("", "ms without", "ms with", "added ms", "95 % interval", "limit"), rows)


def scoring(found: dict[str, Any]) -> Iterator[str]:
    """What ``benchmarks.speed.scoring`` measures."""
    summary = found["summary"]
    yield f"### Scoring {found['rows']:,} sentences by a static teacher\n"
    rows: list[list[object]] = []
    if "throughput_ratio" in summary:
        rate, ratio = summary["sentences_a_second"], summary["throughput_ratio"]
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}" if ratio["low"] < ratio["high"] else "one pair of runs"
        rows.append(["sentences a second, bare `encode`", f"{rate['bare']:,.0f}", "", ""])
        rows.append(["sentences a second, scored", f"{rate['score']:,.0f}", "", ""])
        rows.append(["ratio", f"{ratio['ratio']:.3f}", interval, "at least 0.95"])
    if "peak_mib_above" in summary:
        rows.append(["anonymous MiB above the teacher's", f"{summary['peak_mib_above']:.0f}", "", "at most 1,536"])
    if "kills" in summary:
        rows.append([f"kills while scoring {found['kill_rows']:,}", summary["kills"], "", "20"])
        rows.append(["finished files written again", summary["files_rewritten"], "", "0"])
        rows.append(["sentences encoded again", summary["sentences_encoded_again"], "", "0"])
        rows.append(["resumed to the same bits", summary["identical"], "", "all"])
    yield table(("", "", "95 % interval", "limit"), rows)


def compression(found: dict[str, Any]) -> Iterator[str]:
    """What ``benchmarks.speed.compression`` measures."""
    yield "### Smaller scores\n"
    yield table(
        ("teacher", "stored as", "bytes", "Spearman", "lowest", "mean error", "limit"),
        (
            [
                row["teacher"],
                f"{row['dtype']} x {row['dimension']}",
                row["bytes_per_vector"],
                f"{row['spearman']:.4f}",
                f"{row['lowest_spearman']:.3f}",
                f"{row['mean_absolute_error']:.4f}",
                "at least 0.99" if row["bytes_per_vector"] == 256 and row["dtype"] == "int8" else "",
            ]
            for row in found["results"]
        ),
    )
    row = found["results"][0]
    yield f"In-batch scores of {row['rows']:,} sentences that were not fitted, batches of {row['batch_size']}.\n"


def sampler(found: dict[str, Any]) -> Iterator[str]:
    """What ``benchmarks.speed.sampler`` measures."""
    yield f"### An epoch's order by neighbours: {found['rows']:,} vectors ({found['vectors']}, {found['width']} wide)\n"
    rows = []
    for row in found["results"]:
        size = row["group_size"]
        shares = [
            f"{row[key]:.2f}" if key in row else ""
            for key in (f"mates_in_true_top_{size - 1}", "mates_in_true_top_100")
        ]
        seconds = [row["seconds_first_epoch"], row["seconds_later_epoch"]]
        rows.append([size, *seconds, row["peak_anonymous_mib_above_baseline"], *shares, "at most 120 s"])
    yield table(
        ("group size", "s, first epoch", "s, later", "anonymous MiB", "recall", "of mates in the top 100", "limit"),
        rows,
    )


FILES: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "cpu-*.json": timings,
    "cuda-*.json": timings,
    "scoring.json": scoring,
    "scoring-kills.json": scoring,
    "compression.json": compression,
    "sampler.json": sampler,
}


def main(results: Path = RESULTS) -> None:
    """Write ``report.md`` beside the raw results."""
    parts = ["# Speed and scale\n", "Written by `python -m benchmarks.speed.report` from the JSON files beside it.\n"]
    for pattern, write in FILES.items():
        for path in sorted(results.glob(pattern)):
            found = json.loads(path.read_text())
            parts += [part for part in write(found) if part]
            versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
            parts.append(f"<sub>[{path.name}]({path.name}): `{found['command']}`; {versions}</sub>\n")
    (results / "report.md").write_text("\n".join(parts), encoding="utf-8")
    print(f"Tables in {results / 'report.md'}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
