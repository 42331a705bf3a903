"""reclaim.trace/1 as JSON lines: a header, then one object a forward. gzip is told by its magic bytes."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
import zlib
from math import isfinite
from typing import Annotated

import msgspec
import numpy as np

from reclaim.errors import TraceFormatError
from reclaim.files import replace_file
from reclaim.traces.formats.header import check_header, encode_header
from reclaim.traces.trace import NOT_SAMPLED, DemandTrace, TraceWarning

__all__ = ["ForwardRecord", "parse", "write"]

_GZIP = b"\x1f\x8b"
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_FIELD = re.compile(r"(.*) - at `\$\.(\w+)`")


class ForwardRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One line of a trace file."""

    time_s: _Seconds
    demand_bytes: _Bytes
    duration_s: _Seconds | None = None
    capacity_bytes: _Bytes | None = None
    reserved_bytes: _Bytes | None = None
    event: str | None = None


_decoder = msgspec.json.Decoder(ForwardRecord)


def parse(content: bytes, path: str | os.PathLike[str]) -> DemandTrace:
    """The trace in the content of a file; a torn last line is dropped with a TraceWarning. Raises TraceFormatError."""
    lines, torn, number = _split(_unzip(content, path))
    if not lines:
        raise TraceFormatError(f"{path}: empty file; a trace begins with a header line")
    try:
        header = msgspec.json.decode(lines[0])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{path}:1: the header is not JSON ({error})") from None
    meta = check_header(header, f"{path}:1")
    records = _decode(path, lines[1:])
    if torn:
        try:
            records += _decode(path, [torn], first=number)
        except TraceFormatError:
            if _is_json(torn):  # whole, and wrong all the same
                raise
            warnings.warn(f"{path}:{number}: dropped a torn last line", TraceWarning, stacklevel=4)
    _check_order(path, records)
    return _assemble(records, meta)


def write(trace: DemandTrace, path: str | os.PathLike[str], *, compress: bool) -> None:
    """Write a trace, whole or not at all."""
    encoder = msgspec.json.Encoder()
    lines = [encode_header(trace.meta, path), *map(encoder.encode, _records(trace)), b""]
    content = b"\n".join(lines)
    with replace_file(path) as file:
        # mtime 0: the same trace always gives the same file.
        file.write(gzip.compress(content, 9, mtime=0) if compress else content)


def _unzip(content: bytes, path: str | os.PathLike[str]) -> bytes:
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormatError(f"{path}: damaged gzip file ({error})") from None


def _split(content: bytes) -> tuple[list[bytes], bytes, int]:
    """The whole lines without empty ones at the end, what stands after the last line end, and its line number."""
    *lines, torn = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines and torn:
        lines, torn = [torn], b""
    number = len(lines) + 1
    while lines and not lines[-1].strip():
        lines.pop()
    return lines, torn.strip(), number


def _decode(path: str | os.PathLike[str], lines: list[bytes], first: int = 2) -> list[ForwardRecord]:
    decode = _decoder.decode
    records: list[ForwardRecord] = []
    for line in lines:
        try:
            records.append(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TraceFormatError(f"{path}:{len(records) + first}: {_explain(str(error), line)}") from None
    return records


def _explain(message: str, line: bytes) -> str:
    """A decoder's message with the field in front, where it names one."""
    if not line.strip():
        return "empty line"
    match = _FIELD.fullmatch(message)
    if match:
        return f"{match[2]}: {match[1]}"
    # Python's own decoder lets NaN and Infinity through, and so tells which field holds them.
    fields = json.loads(line) if _is_json(line) else None
    for field, value in fields.items() if isinstance(fields, dict) else ():
        if isinstance(value, float) and not isfinite(value):
            return f"{field}: {value} is not a finite number"
    return message


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _check_order(path: str | os.PathLike[str], records: list[ForwardRecord]) -> None:
    last = 0.0
    for number, record in enumerate(records, 2):
        if record.time_s < last:
            raise TraceFormatError(f"{path}:{number}: time_s: {record.time_s} is before {last} on the line above")
        last = record.time_s


def _assemble(records: list[ForwardRecord], meta: dict[str, object]) -> DemandTrace:
    def sampled(name: str) -> list[int] | None:
        column = [getattr(record, name) for record in records]
        return None if all(v is None for v in column) else [NOT_SAMPLED if v is None else v for v in column]

    durations = [record.duration_s for record in records]
    trace = DemandTrace(
        time_s=[record.time_s for record in records],
        demand_bytes=[record.demand_bytes for record in records],
        capacity_bytes=sampled("capacity_bytes"),
        reserved_bytes=sampled("reserved_bytes"),
        event=(record.event for record in records),
        meta=meta,
    )
    # The trace guessed every duration; the recorded ones take their place.
    known = np.array([d is not None for d in durations], dtype=bool)
    trace.duration_s[known] = [d for d in durations if d is not None]
    return trace


def _records(trace: DemandTrace) -> list[ForwardRecord]:
    count = len(trace)

    def column(values: np.ndarray | None) -> list[int | None]:
        return [None] * count if values is None else [None if v == NOT_SAMPLED else v for v in values.tolist()]

    return [
        ForwardRecord(*fields)
        for fields in zip(
            trace.time_s.tolist(),
            trace.demand_bytes.tolist(),
            trace.duration_s.tolist(),
            column(trace.capacity_bytes),
            column(trace.reserved_bytes),
            trace.event or [None] * count,
            strict=True,
        )
    ]
