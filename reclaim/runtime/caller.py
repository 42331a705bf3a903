"""Who asked, for messages."""

from __future__ import annotations

import sys

__all__ = ["caller"]


def caller() -> str:
    """file:line:function of the first frame outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "reclaim":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}:{frame.f_code.co_name}"
