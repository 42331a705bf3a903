"""From a log of requests to a demand trace: requests -> forwards (scheduler) -> bytes (demand formulas)."""

from reclaim.traces.serving.demand import FusedMoE
from reclaim.traces.serving.requests import Requests
from reclaim.traces.serving.scheduler import Forwards, Scheduler, StepTime
from reclaim.traces.serving.workload import demand_trace

__all__ = ["Forwards", "FusedMoE", "Requests", "Scheduler", "StepTime", "demand_trace"]
