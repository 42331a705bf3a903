"""Demand over time as data: traces, the recorder, file formats, request logs and the workloads made from them.

Knows nothing of torch or of policies.
"""

if __name__ != "reclaim.traces":
    raise ImportError(f"this folder is the package reclaim.traces, not {__name__!r}: import reclaim.traces")

from reclaim.traces.data import bundled, bundled_path
from reclaim.traces.loading import load, load_requests
from reclaim.traces.recorder import TraceRecorder
from reclaim.traces.serving.requests import Requests
from reclaim.traces.trace import DemandTrace, TraceSummary, TraceWarning

__all__ = [
    "DemandTrace",
    "Requests",
    "TraceRecorder",
    "TraceSummary",
    "TraceWarning",
    "bundled",
    "bundled_path",
    "load",
    "load_requests",
]
