"""reclaim demo: the whole story on this machine, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reclaim.cli.common import print_comparison, print_table
from reclaim.units import format_bytes

if TYPE_CHECKING:
    from reclaim.cli.demo.measure import MeasuredRun
    from reclaim.cli.demo.model import ModelConfig
    from reclaim.policy import CostModel

__all__ = ["demo"]

_BUNDLED = "azure-code"
_WARMUP_TOKENS = 256


def demo(
    output_dir: Annotated[Path, typer.Option(help="Where the recordings and reserved.png go.")] = Path("demo-output"),
    forwards: Annotated[int, typer.Option(min=1, help="How many forwards to run.")] = 300,
    policy: Annotated[str, typer.Option(help="The policy to run against grow-only.")] = "three-window",
    intermediate: Annotated[int, typer.Option(min=1, help="Size of an expert; smaller is faster.")] = 1408,
) -> None:
    """Run a small transformer on real traffic, reclaim its scratch, replay and plot.

    The model runs twice on the token counts of a bundled trace: once with scratch that only grows, once reclaimed.
    Outputs must be identical and the replay must repeat the run; otherwise the exit code is 1.
    """
    from reclaim.analysis.compare import compare
    from reclaim.analysis.costs import choose_cost
    from reclaim.analysis.plot import plot_reserved, save_plot
    from reclaim.analysis.replay import replay
    from reclaim.cli.demo.model import ModelConfig
    from reclaim.policy import make, names

    make(policy, 0, choose_cost()[0])  # a bad spec should fail before minutes of work
    output_dir.mkdir(parents=True, exist_ok=True)
    config = ModelConfig(intermediate=intermediate)
    tokens = _bundled_tokens(forwards)
    typer.echo(
        f"model   {config.layers} layers, {config.experts} experts of {config.intermediate}, float32, on the CPU"
    )
    typer.echo(f"traffic {len(tokens)} forwards from {_BUNDLED}: 1 to {max(tokens)} tokens, median {_median(tokens)}")
    plain = _run("grow-only", "grow-only", tokens, output_dir, config)
    reclaimed = _run("reclaimed", policy, tokens, output_dir, config)
    floor = reclaimed.stats.slots[0].floor_bytes
    typer.echo(f"warm-up {_WARMUP_TOKENS} tokens set the floor to {format_bytes(floor)}")
    _print_runs(plain, reclaimed)

    cost, source = choose_cost(reclaimed.trace)
    typer.echo()
    print_comparison(
        compare(reclaimed.trace, names(), cost=cost), "recorded just now", cost, source, "set by the warm-up"
    )
    shown = replay(reclaimed.trace, policy, cost=cost)
    picture = output_dir / "reserved.png"
    axes = plot_reserved(
        replay(reclaimed.trace, "grow-only", cost=cost), shown, title="Scratch of a small transformer on real traffic"
    )
    save_plot(axes, picture)
    typer.echo(f"\nwrote {picture} and the recordings beside it")

    identical = plain.outputs == reclaimed.outputs
    exact = all(_replays_exactly(run, cost) for run in (plain, reclaimed))
    typer.echo(f"outputs of both runs identical: {'yes' if identical else 'NO'}")
    typer.echo(f"replays repeat the recorded capacities exactly: {'yes' if exact else 'NO'}")
    if not (identical and exact):
        raise typer.Exit(1)


def _bundled_tokens(forwards: int) -> list[int]:
    """New tokens of the first forwards of the bundled trace, from its demand and its own formula."""
    from reclaim.traces import bundled
    from reclaim.traces.serving import FusedMoE

    trace = bundled(_BUNDLED)[:forwards]
    numbers = {key: value for key, value in trace.meta["workload"]["demand"].items() if key != "formula"}
    per_token = int(FusedMoE(**numbers).bytes_for_tokens([1])[0])
    return [demand // per_token for demand in trace.demand_bytes.tolist()]


def _median(tokens: list[int]) -> int:
    return sorted(tokens)[len(tokens) // 2]


def _run(name: str, policy: str, tokens: list[int], output_dir: Path, config: ModelConfig) -> MeasuredRun:
    from rich.console import Console
    from rich.progress import Progress

    from reclaim.cli.demo.measure import run_model

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(policy, total=len(tokens))
        return run_model(
            tokens,
            policy=policy,
            recording=output_dir / f"{name}.jsonl",
            config=config,
            warmup_tokens=_WARMUP_TOKENS,
            advance=lambda: progress.advance(task),
        )


def _print_runs(plain: MeasuredRun, reclaimed: MeasuredRun) -> None:
    print_table(
        "",
        ("measured run", "peak resident", "mean resident", "given back", "resizing", "forward p50", "p99"),
        [
            (
                run.policy,
                format_bytes(run.peak_reserved_bytes),
                format_bytes(run.mean_reserved_bytes),
                format_bytes(run.stats.returned_bytes),
                f"{run.stats.resize_seconds * 1e3:.1f} ms",
                f"{run.latency_percentile_s(50) * 1e3:.2f} ms",
                f"{run.latency_percentile_s(99) * 1e3:.2f} ms",
            )
            for run in (plain, reclaimed)
        ],
    )
    saved = 1 - reclaimed.mean_reserved_bytes / plain.mean_reserved_bytes
    typer.echo(f"mean resident scratch of {reclaimed.policy} is {saved:.0%} below {plain.policy}")


def _replays_exactly(run: MeasuredRun, cost: CostModel) -> bool:
    from reclaim.analysis.replay import replay

    assert run.trace.capacity_bytes is not None
    replayed = replay(run.trace, run.policy, cost=cost)
    return bool((replayed.capacity_bytes == run.trace.capacity_bytes).all())
