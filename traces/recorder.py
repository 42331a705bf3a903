"""Recording a run while it happens."""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from reclaim.errors import TraceExistsError, TraceFormatError, WorkspaceStateError
from reclaim.traces.formats.header import make_header
from reclaim.traces.formats.jsonl import ForwardRecord

__all__ = ["TraceRecorder"]

_FLUSH_RECORDS = 1024


class TraceRecorder:
    """Writes one JSON line a forward to a file that is a valid trace at every moment.

    Lines are gathered and handed to the system once a second of recorded time, or every 1,024 forwards: a process that
    is killed loses the last second at most, and perhaps tears a line, which `DemandTrace.load` drops with a
    warning. `close`, the end of the `with` block, and the end of the interpreter write the rest.

    The times given are seconds of any monotonic clock; the first becomes 0 in the file, and the header keeps it
    as origin_ns, beside the wall-clock time of that moment (wall_time_s). One recorder serves one slot and one
    thread at a time.

    Raises TraceExistsError when `path` exists and `overwrite` is False, TraceFormatError when its name does not
    end in .jsonl, OSError when it cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, flush_s: float = 1.0, **meta: Any
    ) -> None:
        """`meta`: what the header should say besides, such as floor_bytes, device or source."""
        self.path = Path(path)
        if self.path.suffix != ".jsonl":
            raise TraceFormatError(f"{path}: a recording is plain .jsonl; load and save it to compress it")
        try:
            file = open(self.path, "wb" if overwrite else "xb")  # noqa: SIM115
        except FileExistsError:
            raise TraceExistsError(f"{path} exists: choose another name, or pass overwrite=True") from None
        self._meta = {"clock": "monotonic", **meta}
        self._flush_s = flush_s
        self._flush_due = 0.0
        self._origin_s: float | None = None
        self._writer = _Writer(file)
        # Also runs at interpreter exit, so that a script which never closes loses nothing.
        self._finalizer = weakref.finalize(self, self._writer.close)

    def describe(self, **meta: Any) -> None:
        """Add to the header what is not said there yet; without effect once a forward is recorded."""
        self._meta = {**meta, **self._meta}

    def append(
        self,
        time_s: float,
        duration_s: float,
        demand_bytes: int,
        capacity_bytes: int | None = None,
        reserved_bytes: int | None = None,
        event: str | None = None,
    ) -> None:
        """Record one forward. Raises ValueError on a negative size or time, WorkspaceStateError when closed."""
        origin = self._origin_s
        if origin is None:
            origin = self._begin(time_s)
        start = time_s - origin
        if not (start >= 0.0 <= duration_s and demand_bytes >= 0):
            raise ValueError(f"cannot record time_s={time_s} duration_s={duration_s} demand_bytes={demand_bytes}")
        pending = self._writer.pending
        pending.append(ForwardRecord(start, demand_bytes, duration_s, capacity_bytes, reserved_bytes, event))
        if start >= self._flush_due or len(pending) >= _FLUSH_RECORDS:
            self._flush_due = start + self._flush_s
            self._writer.flush()

    def flush(self) -> None:
        """Hand everything recorded so far to the operating system. Raises OSError when the disk is full."""
        self._writer.flush()

    def close(self) -> None:
        """Write the rest and close the file; a second call does nothing."""
        if self._origin_s is None and self._finalizer.alive:
            self._begin(0.0)
        self._finalizer()
        self._origin_s = None  # the next append finds the recording closed

    @property
    def closed(self) -> bool:
        """Whether the recording has ended."""
        return not self._finalizer.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, time_s: float) -> float:
        if self.closed:
            raise WorkspaceStateError(f"the recording {self.path} is closed")
        self._origin_s = time_s
        header = make_header({"wall_time_s": time.time(), "origin_ns": round(time_s * 1e9), **self._meta})
        self._writer.pending.append(header)
        return time_s


class _Writer:
    """The file, and the lines not yet handed to it; apart from the recorder, so that a finalizer can hold it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()
        self.pending: list[ForwardRecord | dict[str, Any]] = []

    def flush(self) -> None:
        if self.pending:
            # Encoding many at once costs half of encoding each when it comes.
            self._file.write(self._encoder.encode_lines(self.pending))
            self.pending.clear()
            self._file.flush()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()
