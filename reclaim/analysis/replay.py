"""Run a policy over a recorded trace, on the clock of the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from reclaim.policy import CostModel
from reclaim.policy.granule import GranulePolicy, PolicyLike
from reclaim.traces import DemandTrace

__all__ = ["ReplayResult", "choose_floor", "replay"]

# How a recorded forward was treated by the reclaimer, told by the last part of its event.
_UNSEEN = ("pass:graph", "pass:dummy", "pass:capture")  # the policy's state stays
_RESET = ("pass:unreclaimable", "aborted", "disabled:")  # the policy forgets its window


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """What a policy did on a trace.

    policy: its name, or the spec it was made from.
    capacity_bytes: int64, the capacity held during each forward.
    cost_s: hold_byte_s / total_bytes plus the resizes, in device-seconds.
    hold_byte_s: the integral of the capacity over time.
    grows, shrinks: resizes; a forward counts one growth at most.
    stall_s: seconds that forwards waited for growths.
    mean_bytes, peak_bytes: capacity over time.
    """

    policy: str
    trace: DemandTrace
    floor_bytes: int
    cost: CostModel
    capacity_bytes: NDArray[np.int64]
    cost_s: float
    hold_byte_s: float
    grows: int
    shrinks: int
    stall_s: float
    mean_bytes: float
    peak_bytes: int
    _change_s: list[float] = field(repr=False)
    _change_bytes: list[int] = field(repr=False)

    def timeline(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Change points: from times[i] on the capacity is sizes[i]. The last point is the end of the trace."""
        return np.array(self._change_s, dtype=np.float64), np.array(self._change_bytes, dtype=np.int64)


def choose_floor(trace: DemandTrace) -> tuple[int, str]:
    """The floor for a trace that names none is its median positive demand; the second value says which it was."""
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
    floor_bytes: default `choose_floor(trace)`. granule_bytes: default the trace's own, else 1.
    idle: whether the policy may act between forwards, as `EagerWorkspaceReclaimer.poll` lets it.

    The clock: forward i starts at time_s[i] and ends duration_s[i] later, at the latest when the next one starts.
    At its start a demand above the capacity grows it; it is held through the forward; at its end the policy decides;
    in the gap it may decide when idle. The capacity begins at the floor; a recorded run that began above its floor
    (start_bytes in the header) pays for a growth to there first. Forwards that the recording marks as passed,
    aborted or disabled are treated as the reclaimer treated them.

    Raises ValueError on a negative floor, PolicySpecError on a bad spec.
    """
    floor = choose_floor(trace)[0] if floor_bytes is None else floor_bytes
    granule = trace.meta.get("granule_bytes", 1) if granule_bytes is None else granule_bytes
    driven = GranulePolicy(policy, floor_bytes=floor, granule_bytes=granule, cost=cost)
    run = _Replay(driven, cost, floor, trace.time_s[0].item() if len(trace) else 0.0)
    if len(trace) and floor == trace.floor_bytes:
        run.begin_at(trace.meta.get("start_bytes", 0))
    starts, ends, demands = trace.time_s.tolist(), trace.end_s.tolist(), trace.demand_bytes.tolist()
    events = trace.event or [None] * len(trace)
    held = np.empty(len(trace), dtype=np.int64)
    for index, (start, end, demand, event) in enumerate(zip(starts, ends, demands, events, strict=True)):
        if idle:
            run.wait(start)
        held[index] = run.forward(start, end, demand, event)
    span = ends[-1] - starts[0] if len(trace) else 0.0
    return ReplayResult(
        policy=policy if isinstance(policy, str) else driven.policy.name,
        trace=trace,
        floor_bytes=floor,
        cost=cost,
        capacity_bytes=held,
        cost_s=cost.hold_s(hold := run.hold_until(ends[-1] if ends else 0.0))
        + run.stall_s
        + run.shrinks * cost.shrink_s,
        hold_byte_s=hold,
        grows=run.grows,
        shrinks=run.shrinks,
        stall_s=run.stall_s,
        mean_bytes=hold / span if span > 0 else float(run.capacity),
        peak_bytes=max(run.sizes),
        _change_s=[*run.times, ends[-1]] if ends else run.times,
        _change_bytes=[*run.sizes, run.capacity] if ends else run.sizes,
    )


class _Replay:
    """The scratch of one replay: its capacity, and what has been paid so far."""

    def __init__(self, policy: GranulePolicy, cost: CostModel, floor: int, start: float) -> None:
        self._policy = policy
        self._cost = cost
        self._now = start
        self._held = 0.0
        self.capacity = floor
        self.grows = self.shrinks = 0
        self.stall_s = 0.0
        self.times = [start]
        self.sizes = [floor]

    def begin_at(self, capacity: int) -> None:
        """Start with more than the floor."""
        if capacity > self.capacity:
            self._set(capacity, self._now)

    def hold_until(self, now: float) -> float:
        """Pay for holding up to `now`; the sum so far, in byte-seconds."""
        self._held += self.capacity * (now - self._now)
        self._now = now
        return self._held

    def forward(self, start: float, end: float, demand: int, event: str | None) -> int:
        """One forward; the capacity held during it."""
        grew = demand > self.capacity
        if grew:
            self._set(self._policy.grow_target(demand, self.capacity, start), start)
        held = self.capacity
        treatment = event.rpartition(",")[2] if event else ""
        if treatment.startswith(_UNSEEN):
            return held
        if treatment.startswith(_RESET):
            self._policy.policy.reset()
            return held
        target = self._policy.finish_forward(demand, held, grew, start, end)
        if target is not None:
            self._set(target, end)
        return held

    def wait(self, until: float) -> None:
        """Let the policy act in the gap before the next forward."""
        last = -inf
        while (due := self._policy.deadline()) < until:
            now = max(due, self._now, last)
            target = self._policy.idle(self.capacity, now)
            if target is not None:
                self._set(target, now)
            elif due <= last:  # it did not use up its deadline: do not spin
                return
            last = due

    def _set(self, capacity: int, now: float) -> None:
        self.hold_until(now)
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
