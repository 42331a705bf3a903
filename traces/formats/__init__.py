"""Our own file formats: JSON lines (plain or gzip) for people, npz for long traces. One file each."""

from __future__ import annotations

import os
from pathlib import Path

from reclaim.errors import TraceFormatError
from reclaim.traces.formats import jsonl, npz
from reclaim.traces.trace import DemandTrace

__all__ = ["parse", "read", "write"]


def read(path: str | os.PathLike[str]) -> DemandTrace:
    """Read a trace in any of our formats, told apart by content. Raises TraceFormatError, OSError."""
    return parse(Path(path).read_bytes(), path)


def parse(content: bytes, path: str | os.PathLike[str]) -> DemandTrace:
    """The trace in the content of a file; `path` is for messages. Raises TraceFormatError."""
    return npz.parse(content, path) if npz.matches(content) else jsonl.parse(content, path)


def write(trace: DemandTrace, path: str | os.PathLike[str]) -> None:
    """Write a trace, whole or not at all, in the format that the name asks for."""
    name = Path(path).name
    if name.endswith(".npz"):
        npz.write(trace, path)
    elif name.endswith((".jsonl", ".jsonl.gz")):
        jsonl.write(trace, path, compress=name.endswith(".gz"))
    else:
        raise TraceFormatError(f"{path}: end the name of a trace in .jsonl, .jsonl.gz or .npz")
