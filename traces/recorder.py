"""Recording a run while it happens."""

from __future__ import annotations

import operator
import os
import time
import weakref
from math import inf
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from reclaim.errors import TraceExistsError, TraceFormatError, WorkspaceStateError
from reclaim.traces.formats.header import encode_header
from reclaim.traces.formats.jsonl import ForwardRecord

__all__ = ["TraceRecorder"]

_FLUSH_RECORDS = 128
_SIZE_TYPES = (int, NoneType)


class TraceRecorder:
    """Writes one JSON line a forward to a file that is a valid trace at every moment.

    Lines are gathered and handed to the system once a second of recorded time, or every 128 forwards: a process that
    is killed loses those at most, and perhaps tears a line, which `DemandTrace.load` drops with a warning. `close`,
    the end of the `with` block, and the end of the interpreter write the rest; a forked child writes nothing.

    The times given are seconds of any monotonic clock; the first becomes 0 in the file, and the header keeps it
    as origin_ns, beside the wall-clock time of that moment (wall_time_s). One recorder serves one slot and one
    thread at a time.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, flush_s: float = 1.0, **meta: Any
    ) -> None:
        """`meta`: what the header should say besides, such as source; it wins over what the reclaimer knows.

        Raises TraceExistsError when `path` exists and `overwrite` is False, TraceFormatError when its name does not
        end in .jsonl or meta cannot be written as JSON, OSError when the file cannot be written.
        """
        self.path = Path(path)
        if self.path.suffix != ".jsonl":
            raise TraceFormatError(f"{path}: a recording is plain .jsonl; load and save it to compress it")
        encode_header(meta, path)
        try:
            file = open(self.path, "wb" if overwrite else "xb", buffering=0)  # noqa: SIM115
        except FileExistsError:
            raise TraceExistsError(f"{path} exists: choose another name, or pass overwrite=True") from None
        self._given = meta
        self._described: dict[str, Any] = {"clock": "monotonic"}
        self._flush_s = flush_s
        self._flush_due = 0.0
        self._origin_s: float | None = None
        self._last_s = 0.0
        self._writer = _Writer(file)
        # Also runs at interpreter exit, so that a script which never closes loses nothing.
        self._finalizer = weakref.finalize(self, self._writer.close)
        self._write_header()

    def describe(self, **meta: Any) -> None:
        """Say in the header what is known of the run; without effect once a forward is recorded."""
        if self._origin_s is None and not self.closed:
            self._described.update(meta)
            self._write_header()

    def append(
        self,
        time_s: float,
        duration_s: float,
        demand_bytes: int,
        capacity_bytes: int | None = None,
        reserved_bytes: int | None = None,
        event: str | None = None,
    ) -> None:
        """Record one forward.

        Raises ValueError on a negative size, or a time that is not finite or before the last; TypeError on a size
        that is no integer; WorkspaceStateError when closed; OSError when the disk is full, after which nothing more
        is written.
        """
        origin = self._origin_s
        # The first time becomes 0; time_s - time_s is 0 too, or NaN where the time is not finite.
        start = time_s - (time_s if origin is None else origin)
        if not (
            self._last_s <= start < inf
            and 0.0 <= duration_s < inf
            and demand_bytes >= 0
            and (capacity_bytes is None or capacity_bytes >= 0)
            and (reserved_bytes is None or reserved_bytes >= 0)
        ):
            raise ValueError(
                f"cannot record time_s={time_s}, duration_s={duration_s}, demand_bytes={demand_bytes}, "
                f"capacity_bytes={capacity_bytes}, reserved_bytes={reserved_bytes}: times must be finite and not "
                f"before the last, sizes not negative"
            )
        if not (
            type(start) is type(duration_s) is float
            and type(demand_bytes) is int
            and type(capacity_bytes) in _SIZE_TYPES
            and type(reserved_bytes) in _SIZE_TYPES
        ):
            start, duration_s = float(start), float(duration_s)
            demand_bytes = _size(demand_bytes)
            capacity_bytes = None if capacity_bytes is None else _size(capacity_bytes)
            reserved_bytes = None if reserved_bytes is None else _size(reserved_bytes)
        if origin is None:
            self._begin(time_s)
        self._last_s = start
        pending = self._writer.pending
        pending.append(ForwardRecord(start, demand_bytes, duration_s, capacity_bytes, reserved_bytes, event))
        if start >= self._flush_due or len(pending) >= _FLUSH_RECORDS:
            self._flush_due = start + self._flush_s
            self._writer.flush()

    def flush(self) -> None:
        """Hand everything recorded so far to the operating system. Raises OSError when the disk is full."""
        self._writer.flush()

    def close(self) -> None:
        """Write the rest and close the file; a second call does nothing. Raises OSError when the disk is full."""
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

    def _begin(self, time_s: float) -> None:
        if self.closed:
            raise WorkspaceStateError(f"the recording {self.path} is closed")
        self._described.update(wall_time_s=time.time(), origin_ns=round(time_s * 1e9))
        self._write_header()
        self._origin_s = time_s

    def _write_header(self) -> None:
        """Write the header anew; no forward stands behind it yet."""
        self._writer.begin(encode_header({**self._described, **self._given}, self.path))


class _Writer:
    """The file, and the lines not yet handed to it; apart from the recorder, so that a finalizer can hold it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()
        self._process = os.getpid()
        self._broken = False
        self.pending: list[ForwardRecord] = []

    def begin(self, header: bytes) -> None:
        if self._file.tell() and os.getpid() == self._process:
            self._file.seek(0)
            self._file.truncate()
        self._write(header + b"\n")

    def flush(self) -> None:
        # Taken out first: what a full disk cut off must not be written again behind the cut.
        lines, self.pending = self.pending, []
        if lines:
            # Encoding many at once costs half of encoding each when it comes.
            self._write(self._encoder.encode_lines(lines))

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()

    def _write(self, content: bytes) -> None:
        if self._broken or os.getpid() != self._process:
            return
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._broken = True  # a torn line must stay the last one
            raise


def _size(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"a size is an integer of bytes, not {value}")
    return operator.index(value)
