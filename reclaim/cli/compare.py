"""reclaim compare: many policies on one trace, against the clairvoyant optimum."""

from __future__ import annotations

from typing import Annotated

import typer

from reclaim.cli.common import (
    CostOption,
    FloorOption,
    JsonOption,
    PolicyOption,
    load_trace,
    print_comparison,
    print_json,
)

__all__ = ["compare"]


def compare(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files or names of bundled traces.")],
    policy: PolicyOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    floor: FloorOption = None,
    cost: CostOption = None,
    json: JsonOption = False,
) -> None:
    """Compare policies on traces; without --policy, all of them.

    The rows for grow-only and for the clairvoyant optimum are always there.

    Example: reclaim compare azure-code --policy three-window --policy three-window:forwards=10
    """
    from reclaim.analysis.compare import compare as run
    from reclaim.analysis.costs import choose_cost
    from reclaim.analysis.replay import choose_floor
    from reclaim.policy import names

    documents = []
    for number, name in enumerate(traces):
        trace = load_trace(name)
        prices, price_source = choose_cost(trace, cost)
        floor_bytes, floor_source = choose_floor(trace, floor)
        comparison = run(trace, policy or names(), cost=prices, floor_bytes=floor_bytes)
        if json:
            documents.append(comparison.to_dict(name))
            continue
        if number:
            typer.echo()
        print_comparison(comparison, name, prices, price_source, floor_source)
    if json:
        print_json(documents[0] if len(documents) == 1 else documents)
