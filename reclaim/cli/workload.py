"""reclaim workload: a log of requests becomes a demand trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from reclaim.cli.common import parse_size
from reclaim.units import GIB, format_bytes

__all__ = ["workload"]


def workload(
    requests: Annotated[Path, typer.Argument(help="A request log: Azure LLM inference 2023 CSV.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace to write: .jsonl, .jsonl.gz or .npz.")],
    seconds: Annotated[float | None, typer.Option(min=0, help="Only requests of the first so many seconds.")] = None,
    token_budget: Annotated[int, typer.Option(min=1, help="New tokens of one forward at most.")] = 8192,
    max_sequences: Annotated[int, typer.Option(min=1, help="Sequences in flight at most.")] = 256,
    whole_prompts: Annotated[bool, typer.Option(help="Do not cut prompts into chunks.")] = False,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden size of the model.")] = 4096,
    intermediate: Annotated[int, typer.Option(min=1, help="Intermediate size of one expert.")] = 14336,
    top_k: Annotated[int, typer.Option(min=1, help="Experts a token.")] = 2,
    device_memory: Annotated[
        int, typer.Option(parser=parse_size, metavar="SIZE", help="Memory of the modelled device.")
    ] = 80 * GIB,
) -> None:
    """Serve a request log with a modelled engine, and write the scratch demand of its fused MoE layers.

    Example: reclaim workload AzureLLMInferenceTrace_code.csv --output azure-code.jsonl.gz
    """
    from reclaim.traces import load_requests
    from reclaim.traces.serving import FusedMoE, Scheduler, demand_trace

    try:
        if device_memory == 0:
            raise ValueError("--device-memory must be more than 0")
        scheduler = Scheduler(token_budget=token_budget, max_sequences=max_sequences)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    log = load_requests(requests)
    trace = demand_trace(
        log if seconds is None else log.between(0.0, seconds),
        scheduler=replace(scheduler, chunked=not whole_prompts),
        formula=FusedMoE(hidden=hidden, intermediate=intermediate, top_k=top_k),
        total_bytes=device_memory,
    )
    trace.save(output)
    figures = trace.summary()
    typer.echo(
        f"wrote {output}: {figures.forwards} forwards in {figures.span_s:.1f} s, "
        f"demand median {format_bytes(figures.median_bytes)}, max {format_bytes(figures.max_bytes)}",
        err=True,
    )
