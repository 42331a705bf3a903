"""Run a policy over a recorded trace, on the clock of the trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reclaim.policy import CostModel
from reclaim.policy.granule import GranulePolicy, PolicyLike
from reclaim.traces import DemandTrace, events

__all__ = ["ReplayResult", "choose_floor", "replay"]


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """What a policy did on a trace. Sizes are bytes, times seconds.

    policy: the spec it was made from, or its name.
    capacity_bytes: int64, the capacity held during each forward.
    grows, shrinks: resizes; a forward counts one growth at most.
    stall_s: what the growths cost.
    change_s, change_bytes: see `timeline`.
    """

    policy: str
    trace: DemandTrace
    floor_bytes: int
    cost: CostModel
    capacity_bytes: NDArray[np.int64]
    grows: int
    shrinks: int
    stall_s: float
    change_s: NDArray[np.float64]
    change_bytes: NDArray[np.int64]

    def timeline(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Change points: from times[i] on the capacity is sizes[i]. The last point is the end of the trace."""
        return self.change_s, self.change_bytes

    @cached_property
    def hold_byte_s(self) -> float:
        """The integral of the capacity over time."""
        return float(np.dot(self.change_bytes[:-1].astype(np.float64), np.diff(self.change_s)))

    @property
    def cost_s(self) -> float:
        """The price of holding and of all resizes, in device-seconds."""
        return self.cost.hold_s(self.hold_byte_s) + self.stall_s + self.shrinks * self.cost.shrink_s

    @property
    def mean_bytes(self) -> float:
        """The capacity on average over time."""
        span = float(self.change_s[-1] - self.change_s[0])
        return self.hold_byte_s / span if span > 0 else float(self.change_bytes[-1])

    @property
    def peak_bytes(self) -> int:
        """The largest capacity."""
        return int(self.change_bytes.max())

    def figures(self) -> dict[str, Any]:
        """The figures that tables and JSON show, by name."""
        return {
            "cost_s": self.cost_s,
            "hold_byte_s": self.hold_byte_s,
            "mean_bytes": self.mean_bytes,
            "peak_bytes": self.peak_bytes,
            "stall_s": self.stall_s,
            "grows": self.grows,
            "shrinks": self.shrinks,
        }


def choose_floor(trace: DemandTrace, floor_bytes: int | None = None) -> tuple[int, str]:
    """The floor to replay with, and where it comes from.

    The one given, or the recorded run's, or else the median positive demand.
    """
    if floor_bytes is not None:
        return floor_bytes, "as given"
    if trace.floor_bytes is not None:
        return trace.floor_bytes, "of the recorded run"
    positive = trace.demand_bytes[trace.demand_bytes > 0]
    return int(np.median(positive)) if len(positive) else 0, "median positive demand"


def replay(
    trace: DemandTrace,
    policy: PolicyLike,
    *,
    cost: CostModel,
    floor_bytes: int | None = None,
    granule_bytes: int | None = None,
    idle: bool = True,
) -> ReplayResult:
    """Replay a trace against one policy.

    policy: a spec such as "three-window:forwards=5", a factory (floor_bytes, cost) -> ShrinkPolicy, or a fresh
        instance whose floor is `floor_bytes` rounded up to the granule.
    floor_bytes: default see `choose_floor`. granule_bytes: default the trace's own, else 1.
    idle: whether the policy may act between forwards, as `EagerWorkspaceReclaimer.poll` lets it.

    The clock: forward i starts at time_s[i] and ends duration_s[i] later, at the latest when the next one starts.
    At its start a demand above the capacity grows it; it is held through the forward; at its end the policy decides;
    in the gap it may decide when idle. The capacity begins at the floor; a recorded run that began above its floor
    (start_bytes in the header) pays for a growth to there first. Forwards that the recording marks as passed, aborted
    or disabled are treated as the reclaimer treated them.

    Raises ValueError on a negative floor or a granule below 1, PolicySpecError on a bad spec.
    """
    floor = choose_floor(trace, floor_bytes)[0]
    granule = trace.meta.get("granule_bytes", 1) if granule_bytes is None else granule_bytes
    driven = GranulePolicy(policy, floor_bytes=floor, granule_bytes=granule, cost=cost)
    starts, ends, demands = trace.time_s.tolist(), trace.end_s.tolist(), trace.demand_bytes.tolist()
    run = _Replay(driven, cost, floor, starts[0] if starts else 0.0)
    if starts and floor == trace.floor_bytes:
        run.begin_at(trace.meta.get("start_bytes", 0))
    held = np.empty(len(trace), dtype=np.int64)
    notes = trace.event or [None] * len(trace)
    for index, (start, end, demand, event) in enumerate(zip(starts, ends, demands, notes, strict=True)):
        if idle:
            run.wait(start)
        held[index] = run.forward(start, end, demand, event)
    return ReplayResult(
        policy=policy if isinstance(policy, str) else driven.policy.name,
        trace=trace,
        floor_bytes=floor,
        cost=cost,
        capacity_bytes=held,
        grows=run.grows,
        shrinks=run.shrinks,
        stall_s=run.stall_s,
        change_s=np.array([*run.times, run.now], dtype=np.float64),
        change_bytes=np.array([*run.sizes, run.capacity], dtype=np.int64),
    )


class _Replay:
    """The scratch of one replay: its capacity, when it changed, and what that cost."""

    def __init__(self, policy: GranulePolicy, cost: CostModel, floor: int, start: float) -> None:
        self._policy = policy
        self._cost = cost
        self.now = start  # the end of the last forward
        self.capacity = floor
        self.grows = self.shrinks = 0
        self.stall_s = 0.0
        self.times = [start]
        self.sizes = [floor]

    def begin_at(self, capacity: int) -> None:
        """Start with more than the floor."""
        if capacity > self.capacity:
            self._set(capacity, self.now)

    def forward(self, start: float, end: float, demand: int, event: str | None) -> int:
        """One forward; the capacity held during it."""
        grew = demand > self.capacity
        if grew:
            self._set(self._policy.grow_target(demand, self.capacity, start), start)
        self.now = end
        held = self.capacity
        if event is not None and events.unseen(event):
            return held
        if event is not None and events.forgets(event):
            self._policy.policy.reset()
            return held
        target = self._policy.finish_forward(demand, held, grew, start, end)
        if target is not None:
            self._set(target, end)
        return held

    def wait(self, until: float) -> None:
        """Let the policy act in the gap between the last forward and the next."""
        now, asked = self.now, -inf
        while (due := self._policy.deadline()) < until:
            now = max(now, due)
            if now >= until:
                return  # overdue, but the next forward starts at once
            target = self._policy.idle(self.capacity, now)
            if target is not None:
                self._set(target, now)
            elif due <= asked:  # it did not use up its deadline: do not spin
                return
            asked = max(due, asked)

    def _set(self, capacity: int, now: float) -> None:
        grew = capacity > self.capacity
        if grew:
            self.grows += 1
            seconds = self._cost.growth_s(capacity)
            self.stall_s += seconds
        else:
            self.shrinks += 1
            seconds = self._cost.shrink_s
        self.capacity = capacity
        self.times.append(now)
        self.sizes.append(capacity)
        self._policy.policy.resized(grew=grew, seconds=seconds, new_bytes=capacity)
