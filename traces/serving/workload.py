"""A request log served by a modelled engine, as a demand trace."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from reclaim.traces.serving.demand import FusedMoE
from reclaim.traces.serving.requests import Requests
from reclaim.traces.serving.scheduler import Scheduler
from reclaim.traces.trace import DemandTrace

__all__ = ["demand_trace"]


def demand_trace(
    requests: Requests,
    *,
    scheduler: Scheduler | None = None,
    formula: FusedMoE | None = None,
    floor_tokens: int | None = None,
    total_bytes: int | None = None,
) -> DemandTrace:
    """Serve `requests` with a scheduler, and ask a formula what each forward needs.

    floor_tokens: the floor of the trace is the demand of so many tokens; default: a full decode batch, as after a
        warm-up over decode batches only.
    total_bytes: memory of the modelled device, for the price of holding.
    Times are rounded to microseconds. The header says how the trace was made.
    """
    scheduler = scheduler or Scheduler()
    formula = formula or FusedMoE()
    forwards = scheduler.run(requests)
    tokens = scheduler.max_sequences if floor_tokens is None else floor_tokens
    floor = int(formula.bytes_for_tokens(np.array([tokens]))[0])
    meta = {
        "floor_bytes": floor,
        "total_bytes": total_bytes,
        "clock": "modelled",
        "workload": {"scheduler": asdict(scheduler), "demand": formula.describe(), "floor_tokens": tokens},
        **requests.meta,
    }
    return DemandTrace(
        time_s=forwards.time_s.round(6),
        duration_s=forwards.duration_s.round(6),
        demand_bytes=formula.bytes(forwards),
        meta={key: value for key, value in meta.items() if value is not None},
    )
