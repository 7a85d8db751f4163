"""Run any models through MTEB: ``python -m benchmarks.evaluate MODEL ... --tasks sts,transfer --data DIR``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def main(
    models: Annotated[list[str], typer.Argument(help="Paths or hub names; NAME=PATH to name one.")],
    tasks: Annotated[
        str, typer.Option(help="Groups (sts, transfer, ranking, geometry) and MTEB task names, comma-separated.")
    ] = "sts",
    data: Annotated[Path | None, typer.Option(help="Folder of JSONL files that stands in for the hub.")] = None,
    output: Annotated[Path, typer.Option(help="Where results go and are looked for.")] = Path("benchmark-results"),
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at once.")] = 128,
    device: Annotated[str | None, typer.Option(help="Where to load the models, e.g. cuda or cpu.")] = None,
    nested: Annotated[bool, typer.Option("--nested", help="Transfer: choose C in each outer fold.")] = False,
    first_only: Annotated[
        bool, typer.Option("--first-only", help="Ranking: only the first sentence of a pair may be a query.")
    ] = False,
    partial_data: Annotated[
        bool, typer.Option("--partial-data", help="Accept local data with other numbers of rows.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Compute anew what is there.")] = False,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the code of a model.")] = False,
) -> None:
    """Evaluate models; what is complete is read, an interrupted run is taken up by the same command."""
    if data is not None and all(Path(model.split("=", 1)[-1]).expanduser().exists() for model in models):
        # Everything is here: nothing may wait for a hub that cannot be reached. Read when the hub's client is imported.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from rankcse_st.benchmark.console import evaluate_on_console

    report = evaluate_on_console(
        models,
        tasks,
        data=data,
        output=output,
        batch_size=batch_size,
        device=device,
        nested=nested,
        symmetric=not first_only,
        partial_data=partial_data,
        overwrite=overwrite,
        trust_remote_code=trust_remote_code,
    )
    if report.failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
