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

__all__ = ["CLAIRVOYANT", "Comparison", "ComparisonRow", "compare"]

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
    """Policies on one trace.

    rows: the clairvoyant optimum, grow-only, then the others as given.
    results: the replays by the policy's name. optimum: the clairvoyant's schedule.
    """

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
    policies: str | Iterable[PolicyLike],
    *,
    cost: CostModel,
    floor_bytes: int | None = None,
    granule_bytes: int | None = None,
    idle: bool = True,
) -> Comparison:
    """Replay a trace against several policies; the keywords are those of `replay`, and so are the errors.

    Rows for the clairvoyant optimum and grow-only are always there. A policy given twice appears once.
    """
    given = (policies,) if isinstance(policies, str) else policies
    floor = choose_floor(trace, floor_bytes)[0]
    optimum = clairvoyant(trace.time_s, trace.end_s - trace.time_s, trace.demand_bytes, floor_bytes=floor, cost=cost)
    results: dict[str, ReplayResult] = {}
    for policy in dict.fromkeys((GROW_ONLY, *given)):
        result = replay(trace, policy, cost=cost, floor_bytes=floor, granule_bytes=granule_bytes, idle=idle)
        results[_unused(result.policy, results)] = result
    least = optimum.cost_s
    rows = [_bound_row(trace, optimum, floor)]
    rows += [
        ComparisonRow(policy=name, ratio=result.cost_s / least if least > 0 else None, **result.figures())
        for name, result in results.items()
    ]
    return Comparison(trace, floor, cost, tuple(rows), results, optimum)


def _bound_row(trace: DemandTrace, optimum: Schedule, floor: int) -> ComparisonRow:
    span = trace.summary().span_s
    return ComparisonRow(
        policy=CLAIRVOYANT,
        cost_s=optimum.cost_s,
        ratio=1.0 if optimum.cost_s > 0 else None,
        hold_byte_s=optimum.hold_byte_s,
        mean_bytes=optimum.hold_byte_s / span if span > 0 else float(floor),
        peak_bytes=int(optimum.capacity_bytes.max(initial=floor)),
        stall_s=optimum.stall_s,
        grows=optimum.grows,
        shrinks=optimum.shrinks,
    )


def _unused(name: str, taken: dict[str, ReplayResult]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    return unique
