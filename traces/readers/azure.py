"""The request logs of Azure's LLM inference dataset of 2023: CSV with arrival, prompt and output tokens."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from datetime import datetime

import numpy as np

from reclaim.errors import TraceFormatError
from reclaim.traces.serving.requests import Requests

__all__ = ["matches", "parse"]

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_META = {
    "source": "Azure LLM inference trace 2023 (Patel et al., Splitwise, ISCA 2024)",
    "licence": "CC-BY-4.0",
}


def matches(start: bytes) -> bool:
    """Whether a file that begins with these bytes is such a log."""
    return start.removeprefix(b"\xef\xbb\xbf").startswith(",".join(_COLUMNS).encode())


def parse(content: bytes, path: str | os.PathLike[str]) -> Requests:
    """The log in the content of a file; arrivals count from the first.

    Raises TraceFormatError, naming file, line and column.
    """
    nanoseconds: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    for where, row in _rows(content, path):
        nanoseconds.append(_nanoseconds(row[0], where))
        if nanoseconds[-1] < nanoseconds[max(0, len(nanoseconds) - 2)]:
            raise TraceFormatError(f"{where}: TIMESTAMP: {row[0]} is before the line above")
        prompts.append(_count(row[1], 1, f"{where}: ContextTokens"))
        outputs.append(_count(row[2], 0, f"{where}: GeneratedTokens"))
    origin = nanoseconds[0] if nanoseconds else 0
    return Requests(
        arrival_s=(np.array(nanoseconds, dtype=np.int64) - origin) / 1e9,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        meta={**_META, "origin_ns": origin},
    )


def _rows(content: bytes, path: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """file:line and the fields of every request."""
    # A byte that is no UTF-8 becomes a character that is no digit, and is then reported with its line.
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig", errors="replace"), newline=""))
    try:
        if tuple(next(rows, ())) != _COLUMNS:
            raise TraceFormatError(f"{path}:1: expected the columns {', '.join(_COLUMNS)}")
        for row in rows:
            if row:
                where = f"{path}:{rows.line_num}"
                if len(row) != len(_COLUMNS):
                    raise TraceFormatError(f"{where}: expected {len(_COLUMNS)} fields, got {len(row)}")
                yield where, row
    except csv.Error as error:
        raise TraceFormatError(f"{path}:{rows.line_num}: {error}") from None


def _nanoseconds(text: str, where: str) -> int:
    """Nanoseconds since 1970 of a time without zone; the seventh digit is beyond datetime's microseconds."""
    seconds, _, fraction = text.partition(".")
    try:
        moment = datetime.fromisoformat(seconds)
        whole = int((moment - datetime(1970, 1, 1)).total_seconds()) * 10**9
        if fraction and not (fraction.isascii() and fraction.isdigit()):
            raise ValueError
        return whole + int(fraction.ljust(9, "0")[:9])
    except (ValueError, TypeError):
        raise TraceFormatError(f"{where}: TIMESTAMP: {text!r} is no time") from None


def _count(text: str, least: int, where: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) < 2**63:
        raise TraceFormatError(f"{where}: {text!r} is no whole number of tokens, at least {least}")
    return int(text)
