"""reclaim.trace/1 as a numpy archive, for long traces: the same names as in JSON lines, the header as JSON bytes."""

from __future__ import annotations

import io
import os
import zipfile
import zlib

import msgspec
import numpy as np

from reclaim.errors import TraceFormatError
from reclaim.files import replace_file
from reclaim.traces.formats.header import check_header, encode_header
from reclaim.traces.trace import DemandTrace

__all__ = ["matches", "parse", "write"]

_REQUIRED = ("header", "time_s", "duration_s", "demand_bytes")
_OPTIONAL = ("capacity_bytes", "reserved_bytes")


def matches(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a zip archive."""
    return start.startswith(b"PK\x03\x04")


def parse(content: bytes, path: str | os.PathLike[str]) -> DemandTrace:
    """The trace in the content of a file. Raises TraceFormatError. Nothing in the archive is unpickled."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise TraceFormatError(f"{path}: damaged npz file ({error})") from None
    for name in _REQUIRED:
        if name not in arrays:
            raise TraceFormatError(f"{path}: the archive has no array {name!r}")
    try:
        header = msgspec.json.decode(arrays["header"].tobytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{path}: header: not JSON ({error})") from None
    meta = check_header(header, f"{path}: header")
    event = arrays.get("event")
    if event is not None and (event.dtype.kind != "U" or event.ndim != 1):
        raise TraceFormatError(f"{path}: event must be an array of texts, got {event.dtype} {event.shape}")
    try:
        return DemandTrace(
            time_s=arrays["time_s"],
            duration_s=arrays["duration_s"],
            demand_bytes=arrays["demand_bytes"],
            event=None if event is None else [str(text) or None for text in event],
            meta=meta,
            **{name: arrays.get(name) for name in _OPTIONAL},
        )
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error}") from None


def write(trace: DemandTrace, path: str | os.PathLike[str]) -> None:
    """Write a trace, whole or not at all."""
    arrays: dict[str, np.ndarray] = {
        "header": np.frombuffer(encode_header(trace.meta, path), dtype=np.uint8),
        "time_s": trace.time_s,
        "duration_s": trace.duration_s,
        "demand_bytes": trace.demand_bytes,
    }
    arrays |= {name: getattr(trace, name) for name in _OPTIONAL if getattr(trace, name) is not None}
    if trace.event is not None:
        arrays["event"] = np.array([text or "" for text in trace.event])
    with replace_file(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # none is named allow_pickle
