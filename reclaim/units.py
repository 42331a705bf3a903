"""Sizes in bytes, as text and rounded. Standard library only; everything else may import it.

Sizes are integers of bytes. KiB, MiB, GiB are powers of 1024; kB, MB, GB powers of 1000.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["GIB", "KIB", "MIB", "format_bytes", "parse_bytes", "round_up"]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FACTORS: dict[str, int] = {
    "b": 1,
    **{f"{prefix}ib": 1024 ** (power + 1) for power, prefix in enumerate("kmgtpe")},
    **{f"{prefix}b": 1000 ** (power + 1) for power, prefix in enumerate("kmgtpe")},
}
_SIZE = re.compile(r"\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*([A-Za-z]*)\s*")


def round_up(nbytes: int, granule_bytes: int) -> int:
    """The smallest multiple of `granule_bytes` that is not below `nbytes`."""
    return -(-nbytes // granule_bytes) * granule_bytes


def format_bytes(nbytes: float, *, exact: bool = False) -> str:
    """A size for people: `format_bytes(3_683_535_776)` is '3.43 GiB'.

    exact: every byte, as '3683535776 B', which `parse_bytes` reads back to the same value.
    """
    if exact:
        return f"{int(nbytes)} B"
    value, unit = float(nbytes), 0
    while unit + 1 < len(_BINARY) and round(abs(value), 2) >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {_BINARY[unit]}"


def parse_bytes(text: str) -> int:
    """Bytes from text: '16376 MiB', '1.5GiB', '1 kB', or a bare number of bytes.

    A fraction of a byte is rounded to the nearest. Raises ValueError when the text is no size.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a size: write a number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB")
    number = Fraction(match[1].replace(",", "").replace("_", ""))
    return round(number * factor)
