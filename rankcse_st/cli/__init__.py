"""The command line: ``rankcse-st train``, ``rankcse-st score`` and ``rankcse-st evaluate``.

Thin on purpose: it reads files and options, and leaves the work to the library. torch and sentence-transformers are
imported inside the commands, so that ``--help`` and a mistyped option answer at once.
"""

from __future__ import annotations

import typer

from rankcse_st import __version__
from rankcse_st.cli.evaluate import evaluate
from rankcse_st.cli.score import score
from rankcse_st.cli.train import train

__all__ = ["app"]

app = typer.Typer(
    name="rankcse-st",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train a sentence encoder without labels, so that it ranks sentences as its teachers do.",
)
app.command(no_args_is_help=True)(train)
app.command(no_args_is_help=True)(score)
app.command(no_args_is_help=True)(evaluate)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rankcse-st {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass
