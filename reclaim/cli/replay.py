"""reclaim replay: one policy or several on recorded traces."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reclaim.cli.common import CostOption, FloorOption, JsonOption, PolicyOption, load_trace, print_json, print_table
from reclaim.units import format_bytes

__all__ = ["replay"]


def replay(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files or names of bundled traces.")],
    policy: PolicyOption = ["three-window"],  # noqa: B006 - typer reads the default, nobody changes it
    floor: FloorOption = None,
    cost: CostOption = None,
    json: JsonOption = False,
) -> None:
    """Replay recorded traces under a policy.

    Example: reclaim replay azure-code --policy three-window:forwards=5 --json
    """
    from reclaim.analysis.costs import choose_cost, describe_cost
    from reclaim.analysis.replay import choose_floor
    from reclaim.analysis.replay import replay as run

    documents: list[dict[str, Any]] = []
    for name in traces:
        trace = load_trace(name)
        prices, price_source = choose_cost(trace, cost)
        floor_bytes, floor_source = choose_floor(trace, floor)
        for spec in policy:
            result = run(trace, spec, cost=prices, floor_bytes=floor_bytes)
            documents.append(
                {
                    "trace": name,
                    "policy": spec,
                    "forwards": len(trace),
                    "floor_bytes": floor_bytes,
                    "floor_source": floor_source,
                    "cost": describe_cost(prices),
                    "cost_source": price_source,
                    **result.figures(),
                }
            )
    if json:
        print_json({"schema": "reclaim.replay/1", "results": documents})
        return
    print_table(
        "",
        ("trace", "policy", "floor", "cost (device-s)", "mean", "peak", "stalls (s)", "grows", "shrinks"),
        [
            (
                document["trace"],
                document["policy"],
                format_bytes(document["floor_bytes"]),
                f"{document['cost_s']:.3f}",
                format_bytes(document["mean_bytes"]),
                format_bytes(document["peak_bytes"]),
                f"{document['stall_s']:.3f}",
                str(document["grows"]),
                str(document["shrinks"]),
            )
            for document in documents
        ],
        left=2,
    )
