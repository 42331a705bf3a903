"""The header that every format of ours carries, checked in one place."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from reclaim.errors import TraceFormatError

__all__ = ["SCHEMA", "check_header", "encode_header"]

SCHEMA = "reclaim.trace/1"


def encode_header(meta: dict[str, Any], path: str | os.PathLike[str]) -> bytes:
    """The header of a trace with this meta, as JSON. Raises TraceFormatError when it could not be read back."""
    try:
        encoded = msgspec.json.encode(_header(meta))
        check_header(msgspec.json.decode(encoded), f"{path}: header")
    except (TypeError, msgspec.MsgspecError) as error:
        raise TraceFormatError(f"{path}: the header cannot hold {meta}: {error}") from None
    return encoded


def _header(meta: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA} | {key: value for key, value in meta.items() if value is not None and key != "schema"}


def check_header(header: Any, where: str) -> dict[str, Any]:
    """The meta in a decoded header. Raises TraceFormatError, which begins with `where`."""
    if not isinstance(header, dict) or "schema" not in header:
        raise TraceFormatError(f'{where}: no trace header; a trace begins with {{"schema":"{SCHEMA}", ...}}')
    if header["schema"] != SCHEMA:
        raise TraceFormatError(f"{where}: schema is {header['schema']!r}; this version reads {SCHEMA!r}")
    for field, least in (("floor_bytes", 0), ("start_bytes", 0), ("granule_bytes", 1), ("total_bytes", 1)):
        value = header.get(field)
        if value is not None and (type(value) is not int or value < least):
            raise TraceFormatError(
                f"{where}: {field} is {value!r}; it must be a whole number of bytes, at least {least}"
            )
    return {key: value for key, value in header.items() if key != "schema"}
