"""The environment variables that the runtime reads, each when the object it concerns is built.

RECLAIM_DISABLE=1   every reclaimer passes through
RECLAIM_DEBUG=1     every workspace manager runs in debug mode, see reclaim.runtime.debug

The command reads RECLAIM_COST besides: the file with the prices of a replay.
"""

from __future__ import annotations

import os

__all__ = ["DEBUG", "DISABLE", "is_set"]

DEBUG = "RECLAIM_DEBUG"
DISABLE = "RECLAIM_DISABLE"


def is_set(variable: str) -> bool:
    """Whether a variable is there and neither empty nor 0."""
    return os.environ.get(variable, "0") not in ("", "0")
