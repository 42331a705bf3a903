"""Several policies on one trace, with the two bounds beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from reclaim.analysis.costs import describe_cost
from reclaim.analysis.replay import ReplayResult, choose_floor, replay
from reclaim.policy import CostModel, Schedule, clairvoyant
from reclaim.policy.granule import PolicyLike
from reclaim.traces import DemandTrace

__all__ = ["Comparison", "ComparisonRow", "compare"]

SCHEMA = "reclaim.compare/1"
CLAIRVOYANT = "clairvoyant"
GROW_ONLY = "grow-only"


@dataclass(frozen=True)
class ComparisonRow:
    """One policy's figures; see `ReplayResult`. ratio: cost_s over the clairvoyant's, None where that is 0."""

    policy: str
    cost_s: float
    ratio: float | None
    hold_byte_s: float
    mean_bytes: float
    peak_bytes: int
    stall_s: float
    grows: int
    shrinks: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """Policies on one trace. rows: cheapest last but the bounds first; results: by policy; optimum: the schedule."""

    trace: DemandTrace
    floor_bytes: int
    cost: CostModel
    rows: tuple[ComparisonRow, ...]
    results: dict[str, ReplayResult]
    optimum: Schedule

    def to_dict(self, trace_name: str | None = None) -> dict[str, Any]:
        """Plain values for JSON; the keys are stable."""
        return {
            "schema": SCHEMA,
            "trace": trace_name,
            "floor_bytes": self.floor_bytes,
            "cost": describe_cost(self.cost),
            "clairvoyant_exact": self.optimum.exact,
            "rows": [asdict(row) for row in self.rows],
        }


def compare(
    trace: DemandTrace,
    policies: Iterable[PolicyLike],
    *,
    cost: CostModel,
    floor_bytes: int | None = None,
    granule_bytes: int | None = None,
    idle: bool = True,
) -> Comparison:
    """Replay a trace against several policies; the keywords are those of `replay`.

    Rows for grow-only and the clairvoyant optimum are always there; the optimum comes first, then grow-only, then
    the rest as given. A policy named twice appears once.
    """
    floor = choose_floor(trace)[0] if floor_bytes is None else floor_bytes
    optimum = clairvoyant(trace.time_s, trace.end_s - trace.time_s, trace.demand_bytes, floor_bytes=floor, cost=cost)
    results: dict[str, ReplayResult] = {}
    for policy in (GROW_ONLY, *policies):
        if isinstance(policy, str) and policy in results:
            continue
        result = replay(trace, policy, cost=cost, floor_bytes=floor, granule_bytes=granule_bytes, idle=idle)
        results[_unused(result.policy, results)] = result
    rows = [_bound_row(trace, optimum, floor, cost)]
    rows += [
        ComparisonRow(
            policy=name,
            cost_s=result.cost_s,
            ratio=_ratio(result.cost_s, optimum.cost_s),
            hold_byte_s=result.hold_byte_s,
            mean_bytes=result.mean_bytes,
            peak_bytes=result.peak_bytes,
            stall_s=result.stall_s,
            grows=result.grows,
            shrinks=result.shrinks,
        )
        for name, result in results.items()
    ]
    return Comparison(trace, floor, cost, tuple(rows), results, optimum)


def _bound_row(trace: DemandTrace, optimum: Schedule, floor: int, cost: CostModel) -> ComparisonRow:
    span = trace.summary().span_s
    peak = int(optimum.capacity_bytes.max(initial=floor))
    return ComparisonRow(
        policy=CLAIRVOYANT,
        cost_s=optimum.cost_s,
        ratio=_ratio(optimum.cost_s, optimum.cost_s),
        hold_byte_s=optimum.hold_byte_s,
        mean_bytes=optimum.hold_byte_s / span if span > 0 else float(floor),
        peak_bytes=peak,
        stall_s=optimum.grows * cost.grow_s,
        grows=optimum.grows,
        shrinks=optimum.shrinks,
    )


def _ratio(cost_s: float, least_s: float) -> float | None:
    return cost_s / least_s if least_s > 0 else None


def _unused(name: str, taken: dict[str, ReplayResult]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    return unique
