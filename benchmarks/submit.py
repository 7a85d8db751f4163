"""Prepare official results for MTEB's leaderboard: ``python -m benchmarks.submit RESULTS ORG/NAME --to DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def main(
    results: Annotated[Path, typer.Argument(help="The folder of results that the evaluation wrote.")],
    model: Annotated[str, typer.Argument(help="The model's name on the hub.")],
    to: Annotated[Path, typer.Option(help="A new folder for the submission.")],
    revision: Annotated[str | None, typer.Option(help="The commit, if there are results of several.")] = None,
    card: Annotated[str | None, typer.Option(help="Folder with the model's card, if not the hub's.")] = None,
) -> None:
    """Collect, complete and check; nothing is sent anywhere."""
    from rankcse_st.benchmark.submission import prepare_submission

    try:
        submission = prepare_submission(results, model, to, revision=revision, card=card)
    except (ValueError, FileExistsError, ImportError) as error:
        typer.secho(str(error), err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from None
    typer.echo(f"{len(submission.tasks)} results of {model} in {submission.folder / 'results'}, loaded by MTEB.")
    typer.echo(f"Draft of the model's meta: {submission.meta_file}")
    if submission.to_fill_in:
        typer.echo(f"Fill in there: {', '.join(submission.to_fill_in)}")


if __name__ == "__main__":
    typer.run(main)
