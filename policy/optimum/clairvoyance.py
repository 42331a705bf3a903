"""The least cost over all capacity schedules, for a trace known in advance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reclaim.policy.cost import CostModel
from reclaim.policy.optimum.segments import least_cost_segments

__all__ = ["Schedule", "clairvoyant"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """A capacity schedule by its change points.

    cost_s: its cost in device-seconds; when not `exact`, a lower bound on what any schedule can cost.
    exact: whether cost_s is the least cost itself.
    time_s, capacity_bytes: from time_s[i] on, the capacity is capacity_bytes[i]; it starts at the floor, so a
        first entry above the floor is a growth.
    hold_byte_s: the integral of the capacity over time.
    grows, shrinks: changes of capacity, the one from the floor at the start among them.
    stall_s: what its growths cost.
    """

    cost_s: float
    exact: bool
    time_s: NDArray[np.float64]
    capacity_bytes: NDArray[np.int64]
    hold_byte_s: float
    grows: int
    shrinks: int
    stall_s: float


def clairvoyant(
    time_s: ArrayLike, duration_s: ArrayLike, demand_bytes: ArrayLike, *, floor_bytes: int, cost: CostModel
) -> Schedule:
    """The cheapest schedule that never falls below a running forward's demand or the floor.

    time_s, duration_s, demand_bytes: arrays of one length, a forward each, in order of time. A forward ends at
        the latest when the next one starts; between forwards there is no demand.
    The schedule starts at the floor, may change at any time, also ahead of a growth, and ends with the last forward.

    Exact for grow_s == shrink_s and s_per_byte == 0. Otherwise the least cost with every change at the cheaper of
    the two prices, which is a lower bound (`exact` is False). O(n log n) time, O(n) memory.

    Raises ValueError on arrays of different lengths, times that are not finite or out of order, and sizes that are no
    integers or negative.
    """
    starts, demand, width = _slots(time_s, duration_s, demand_bytes)
    if floor_bytes < 0:
        raise ValueError(f"floor_bytes must not be negative, got {floor_bytes}")
    excess = np.maximum(demand - floor_bytes, 0)
    change_s = min(cost.grow_s, cost.shrink_s)
    exact = cost.grow_s == cost.shrink_s and cost.s_per_byte == 0

    runs = np.flatnonzero(np.diff(excess, prepend=-1))  # equal neighbours are one slot
    widths = np.add.reduceat(width, runs) if len(runs) else width
    price, segments = least_cost_segments(excess[runs].tolist(), widths.tolist(), change_s * cost.total_bytes)

    changes = starts[runs[[start for start, _ in segments]]] if segments else starts
    levels = np.array([floor_bytes + level for _, level in segments], dtype=np.int64)
    total_s = float(width.sum())
    steps = np.diff(levels, prepend=floor_bytes)
    until = np.append(changes[1:], starts[0] + total_s) if segments else changes
    return Schedule(
        cost_s=cost.hold_s(floor_bytes * total_s + price),
        exact=exact,
        time_s=changes,
        capacity_bytes=levels,
        hold_byte_s=float(np.dot(levels.astype(np.float64), until - changes)),
        grows=int((steps > 0).sum()),
        shrinks=int((steps < 0).sum()),
        stall_s=sum(cost.growth_s(level) for level in levels[steps > 0].tolist()),
    )


def _slots(
    time_s: ArrayLike, duration_s: ArrayLike, demand_bytes: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Start, demand and width of every forward and every gap after one."""
    time = np.asarray(time_s, dtype=np.float64)
    duration = np.asarray(duration_s, dtype=np.float64)
    demand = np.asarray(demand_bytes)
    if demand.size and demand.dtype.kind not in "iu":
        raise ValueError(f"demand_bytes must hold integers, got {demand.dtype}")
    demand = demand.astype(np.int64)
    if not (time.ndim == 1 and time.shape == duration.shape == demand.shape):
        raise ValueError(
            f"time_s, duration_s and demand_bytes must be arrays of one length, "
            f"got shapes {time.shape}, {duration.shape} and {demand.shape}"
        )
    gaps = np.diff(time)
    if not (np.isfinite(time).all() and np.isfinite(duration).all()):
        raise ValueError("time_s and duration_s must be finite")
    if (gaps < 0).any() or (duration < 0).any() or (demand < 0).any():
        raise ValueError("time_s must not decrease, and duration_s and demand_bytes must not be negative")
    busy = duration.copy()
    busy[:-1] = np.minimum(duration[:-1], gaps)
    idle = np.append(gaps - busy[:-1], 0.0)[: len(time)]
    starts = np.column_stack((time, time + busy)).ravel()
    width = np.column_stack((busy, idle)).ravel()
    need = np.column_stack((demand, np.zeros_like(demand))).ravel()
    keep = np.column_stack((np.ones(len(time), bool), idle > 0)).ravel()
    return starts[keep], need[keep], width[keep]
