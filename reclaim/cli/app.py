"""The table of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from reclaim import __version__
from reclaim.cli.compare import compare
from reclaim.cli.demo import demo
from reclaim.cli.plot import plot
from reclaim.cli.policies import policies
from reclaim.cli.replay import replay
from reclaim.cli.workload import workload

__all__ = ["Abort", "UsageError", "app"]

# typer carries its own copy of click from 0.16 on; the base of its errors is found from one that it exports.
UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[2]

Abort = typer.Abort

app = typer.Typer(
    name="reclaim",
    help="Give back the scratch memory of an inference engine's eager forwards.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (demo, replay, compare, plot, workload, policies):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reclaim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
