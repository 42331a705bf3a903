"""One door for every file: what it is, is told from its content."""

from __future__ import annotations

import os
from pathlib import Path

from reclaim.errors import TraceFormatError
from reclaim.traces import formats
from reclaim.traces.readers import azure
from reclaim.traces.serving.requests import Requests
from reclaim.traces.trace import DemandTrace

__all__ = ["load", "load_requests"]


def load(path: str | os.PathLike[str]) -> DemandTrace:
    """Read a demand trace. Raises TraceFormatError, also for a request log; OSError."""
    content = Path(path).read_bytes()  # once: a pipe cannot be read again
    if azure.matches(content):
        raise TraceFormatError(f"{path}: this is a request log, not a trace: turn it into one with 'reclaim workload'")
    return formats.parse(content, path)


def load_requests(path: str | os.PathLike[str]) -> Requests:
    """Read a request log. Raises TraceFormatError, OSError."""
    content = Path(path).read_bytes()
    if not azure.matches(content):
        raise TraceFormatError(
            f"{path}: no request log that is known: Azure's begin with TIMESTAMP,ContextTokens,GeneratedTokens"
        )
    return azure.parse(content, path)
