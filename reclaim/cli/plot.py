"""reclaim plot: memory over time as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reclaim.cli.common import CostOption, FloorOption, PolicyOption, TraceArgument, load_trace

__all__ = ["plot"]


def plot(
    trace: TraceArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: .png, .svg or .pdf.")],
    policy: PolicyOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    floor: FloorOption = None,
    cost: CostOption = None,
    title: Annotated[str | None, typer.Option(help="A title above the picture.")] = None,
) -> None:
    """Draw a trace: demand, what was measured, and the capacity under policies.

    Without --policy only what the trace holds is drawn; with it, the clairvoyant optimum and grow-only too.

    Example: reclaim plot azure-code --policy three-window --output reserved.png
    """
    from reclaim.analysis.compare import compare
    from reclaim.analysis.costs import choose_cost
    from reclaim.analysis.plot import plot_reserved, save_plot

    loaded = load_trace(trace)
    if policy:
        prices, _ = choose_cost(loaded, cost)
        axes = plot_reserved(compare(loaded, policy, cost=prices, floor_bytes=floor), title=title)
    else:
        axes = plot_reserved(loaded, title=title)
    save_plot(axes, output)
    typer.echo(f"wrote {output}", err=True)
