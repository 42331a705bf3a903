"""Pictures of memory over time. matplotlib is imported on first use, and none of its global state is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reclaim.analysis.compare import CLAIRVOYANT, Comparison
from reclaim.analysis.replay import ReplayResult
from reclaim.analysis.thinning import thin
from reclaim.errors import InputError
from reclaim.files import replace_file
from reclaim.traces import DemandTrace, events
from reclaim.units import GIB, KIB, MIB, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_reserved", "save_plot"]

# Okabe and Ito's colours, which stay apart for colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D3B", "#000000")
_DEMAND, _MEASURED, _OPTIMUM = "#C8CDD3", "#000000", "#6B6B6B"
_PIXELS = 2400  # more columns than any picture of ours has
_FORMATS = (".png", ".svg", ".pdf")


def plot_reserved(
    source: DemandTrace | ReplayResult | Comparison,
    *more: ReplayResult,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw scratch memory over time, and return the axes.

    source: a trace (its demand, the reserved bytes measured while it was recorded, and its capacity), the result of
        a replay, or a comparison, whose optimum is drawn underneath. more: further results on the same trace.
    ax: where to draw; default a new figure of its own, reached as `.figure`, which pyplot does not know.

    Demand is filled, capacities are step lines, the floor is dashed, and stretches in which the recorded reclaimer was
    disabled are shaded.
    """
    trace, results, floor = _unpack(source, more)
    top = max(
        [int(trace.demand_bytes.max(initial=0)), floor or 0]
        + [result.peak_bytes for result in results]
        + [int(column.max(initial=0)) for column in (trace.capacity_bytes, trace.reserved_bytes) if column is not None]
    )
    unit = next((size for size in (GIB, MIB, KIB) if top >= size), 1)
    axes = _new_axes() if ax is None else ax
    seconds, time_label = _time_unit(trace)

    def steps(times: NDArray[np.float64], sizes: NDArray[np.int64], **style: Any) -> None:
        x, y = thin(times, sizes, _PIXELS)
        axes.plot(x / seconds, y / unit, drawstyle="steps-post", **style)

    x, y = thin(*_demand_steps(trace), _PIXELS)
    axes.fill_between(x / seconds, y / unit, step="post", color=_DEMAND, linewidth=0.6, label="demand", zorder=1)
    if isinstance(source, Comparison) and len(trace):
        optimum = source.optimum
        end = trace.end_s[-1:]
        times = np.concatenate((trace.time_s[:1], optimum.time_s, end))
        sizes = np.concatenate(([source.floor_bytes], optimum.capacity_bytes, optimum.capacity_bytes[-1:]))
        steps(times, sizes, color=_OPTIMUM, linewidth=1.0, linestyle=":", label=CLAIRVOYANT, zorder=2)
    for number, result in enumerate(results):
        colour = _COLOURS[number % len(_COLOURS)]
        steps(*result.timeline(), color=colour, linewidth=1.8, label=result.policy, zorder=3)
    if not results and trace.capacity_bytes is not None and len(trace):
        known = trace.capacity_bytes >= 0
        steps(trace.time_s[known], trace.capacity_bytes[known], color=_COLOURS[0], label="capacity, recorded", zorder=3)
    if trace.reserved_bytes is not None:
        # Dashed and thin: where memory really goes back it lies on the capacity, which must still be seen.
        times, sizes = trace.reserved_steps()
        dashes = (0, (4, 3))
        steps(times, sizes, color=_MEASURED, linewidth=0.9, linestyle=dashes, label="reserved, measured", zorder=4)
    if floor:
        axes.axhline(floor / unit, color="#404040", linestyle="--", linewidth=0.9, label=f"floor {format_bytes(floor)}")
    for number, (start, end_of) in enumerate(_disabled_spans(trace)):
        label = "disabled" if number == 0 else None
        axes.axvspan(start / seconds, end_of / seconds, color="#D55E00", alpha=0.15, linewidth=0, label=label)
    _finish(axes, unit, time_label, title, empty=len(trace) == 0, flat=top == 0)
    return axes


def save_plot(axes: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of `axes` as .png, .svg or .pdf, whole or not at all. Raises InputError, OSError."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InputError(f"{path}: end the name of a picture in {', '.join(_FORMATS)}")
    figure = axes.get_figure(root=True)
    assert figure is not None
    with replace_file(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=150)


def _unpack(
    source: DemandTrace | ReplayResult | Comparison, more: tuple[ReplayResult, ...]
) -> tuple[DemandTrace, list[ReplayResult], int | None]:
    if isinstance(source, Comparison):
        return source.trace, [*source.results.values(), *more], source.floor_bytes
    if isinstance(source, ReplayResult):
        return source.trace, [source, *more], source.floor_bytes
    return source, list(more), more[0].floor_bytes if more else source.floor_bytes


def _new_axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(10, 5), layout="constrained").add_subplot()


def _time_unit(trace: DemandTrace) -> tuple[float, str]:
    span = trace.summary().span_s
    for seconds, label, least in ((3600.0, "hours", 7200), (60.0, "minutes", 600), (1.0, "seconds", 1)):
        if span >= least:
            return seconds, label
    return 1e-3, "milliseconds"


def _demand_steps(trace: DemandTrace) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Demand from each start, and none from each end to the next start."""
    times = np.column_stack((trace.time_s, trace.end_s)).ravel()
    sizes = np.column_stack((trace.demand_bytes, np.zeros_like(trace.demand_bytes))).ravel()
    # Between forwards that touch, the step down to zero would have no width.
    gaps = np.append(times[2::2] > times[1:-1:2], True)
    keep = np.column_stack((np.ones(len(trace), bool), gaps[: len(trace)])).ravel()
    return times[keep], sizes[keep]


def _disabled_spans(trace: DemandTrace) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    open_span = False
    ends = trace.end_s
    for index, event in enumerate(trace.event or ()):
        disabled = events.is_disabled(event)
        if disabled:
            start = spans.pop()[0] if open_span else trace.time_s[index].item()
            spans.append((start, ends[index].item()))
        open_span = disabled
    return spans


def _finish(axes: Axes, unit: int, time_label: str, title: str | None, *, empty: bool, flat: bool) -> None:
    axes.set_ylabel(f"scratch memory ({format_bytes(unit).split()[1]})")
    axes.set_xlabel(f"time ({time_label})")
    if flat:
        axes.set_ylim(0, 1)
    else:
        axes.set_ylim(bottom=0)
    if empty:
        axes.set_xlim(0, 1)
        axes.text(0.5, 0.5, "no forwards", transform=axes.transAxes, ha="center", va="center")
    else:
        axes.margins(x=0.01)
    axes.grid(True, axis="y", linewidth=0.4, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, fontsize="small")
    if title:
        axes.set_title(title.replace("$", r"\$"), loc="left", pad=42)  # no formula is meant
