"""The demand traces that come with the project; README.md says how each was made."""

from __future__ import annotations

from pathlib import Path

from reclaim.errors import TraceFormatError
from reclaim.traces.trace import DemandTrace

__all__ = ["bundled", "bundled_path"]

_SUFFIX = ".jsonl.gz"


def bundled_path(name: str) -> Path:
    """The file of a bundled trace. Raises TraceFormatError, listing the names, when there is none."""
    folder = Path(__file__).parent
    path = folder / f"{name}{_SUFFIX}"
    if not path.is_file():
        known = sorted(file.name.removesuffix(_SUFFIX) for file in folder.glob(f"*{_SUFFIX}"))
        raise TraceFormatError(f"no bundled trace {name!r}; there are: {', '.join(known)}")
    return path


def bundled(name: str) -> DemandTrace:
    """A bundled trace by its name, such as azure-conv."""
    return DemandTrace.load(bundled_path(name))
