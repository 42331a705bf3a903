"""What several commands share: arguments, tables, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclaim.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from reclaim.policy import CostModel
    from reclaim.traces import DemandTrace

__all__ = [
    "CostOption",
    "FloorOption",
    "JsonOption",
    "PolicyOption",
    "TraceArgument",
    "load_trace",
    "parse_size",
    "print_comparison",
    "print_json",
    "print_table",
]


def parse_size(text: str | int) -> int:
    """A size on the command line; bad ones are usage errors."""
    try:
        size = parse_bytes(str(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error)) from None
    if not 0 <= size < 2**63:
        raise typer.BadParameter(f"{text!r} is negative or more than 8 EiB")
    return size


TraceArgument = Annotated[
    str,
    typer.Argument(help="A trace file (.jsonl, .jsonl.gz, .npz), or the name of a bundled trace, such as azure-code."),
]
PolicyOption = Annotated[
    list[str], typer.Option("--policy", "-p", help="name or name:key=value,key=value; may be repeated.")
]
CostOption = Annotated[
    Path | None,
    typer.Option(
        "--cost",
        envvar="RECLAIM_COST",
        metavar="FILE",
        help="JSON file with total_bytes, grow_s, shrink_s and s_per_byte.",
    ),
]
FloorOption = Annotated[
    int | None,
    typer.Option(
        "--floor", parser=parse_size, metavar="SIZE", help="Never shrink below, such as 64MiB; else the trace's."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def load_trace(name: str) -> DemandTrace:
    """A trace from a file, or a bundled one by its name."""
    from reclaim.traces import bundled, load

    path = Path(name)
    return bundled(name) if not path.exists() and path.name == name and not path.suffix else load(path)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """A table; the first `left` columns are text, the others numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=number >= left)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    # Wider than the terminal is wrapped by it; rich would cut cells instead, names first.
    unlimited = console.options.update(width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    console.print(table)


def print_comparison(comparison: Any, name: str, cost: CostModel, cost_source: str, floor_source: str) -> None:
    """The rows of a `Comparison`, with what they were computed from."""
    from reclaim.analysis.costs import format_cost

    typer.echo(f"trace {name}: {len(comparison.trace)} forwards in {comparison.trace.summary().span_s:.1f} s")
    typer.echo(f"floor {format_bytes(comparison.floor_bytes)} ({floor_source})")
    typer.echo(f"cost  {format_cost(cost)} ({cost_source})")
    if not comparison.optimum.exact:
        typer.echo("the clairvoyant row is a lower bound: growing and shrinking do not cost the same")
    print_table(
        "",
        ("policy", "cost (device-s)", "x clairvoyant", "mean", "peak", "stalls (s)", "grows", "shrinks"),
        [
            (
                row.policy,
                f"{row.cost_s:.3f}",
                "-" if row.ratio is None else f"{row.ratio:.3f}",
                format_bytes(row.mean_bytes),
                format_bytes(row.peak_bytes),
                f"{row.stall_s:.3f}",
                str(row.grows),
                str(row.shrinks),
            )
            for row in comparison.rows
        ],
    )
