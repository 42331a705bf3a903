"""Where the prices of an analysis come from, and saying so."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from reclaim.errors import InputError
from reclaim.policy import CostModel
from reclaim.traces import DemandTrace
from reclaim.units import format_bytes

__all__ = ["choose_cost", "describe_cost", "format_cost", "read_cost"]

_DEFAULT_RESIZE_S = 1e-3


class _CostFile(msgspec.Struct, forbid_unknown_fields=True):
    total_bytes: int
    grow_s: float
    shrink_s: float
    s_per_byte: float = 0.0


def read_cost(path: str | os.PathLike[str]) -> CostModel:
    """A cost model from a JSON file with the fields of `CostModel`. Raises InputError, OSError."""
    try:
        with open(path, "rb") as file:
            fields = msgspec.json.decode(file.read(), type=_CostFile)
        return CostModel(fields.total_bytes, fields.grow_s, fields.shrink_s, fields.s_per_byte)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None


def choose_cost(trace: DemandTrace | None = None, path: str | os.PathLike[str] | None = None) -> tuple[CostModel, str]:
    """The prices to use, and where they come from.

    The file `path`; without one, 1 ms a resize and the memory of the device that the trace names, or else of this
    machine. Raises as `read_cost` does.
    """
    if path is not None:
        return read_cost(path), str(path)
    total = trace.meta.get("total_bytes") if trace is not None else None
    if total is not None:
        return CostModel(total, _DEFAULT_RESIZE_S, _DEFAULT_RESIZE_S), "memory from the trace, resize times assumed"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return CostModel(total, _DEFAULT_RESIZE_S, _DEFAULT_RESIZE_S), "memory of this machine, resize times assumed"


def describe_cost(cost: CostModel) -> dict[str, Any]:
    """The prices as plain values, for JSON."""
    return {
        "total_bytes": cost.total_bytes,
        "grow_s": cost.grow_s,
        "shrink_s": cost.shrink_s,
        "s_per_byte": cost.s_per_byte,
    }


def format_cost(cost: CostModel) -> str:
    """The prices as one line."""
    return f"{format_bytes(cost.total_bytes)}, grow {cost.grow_s * 1e3:g} ms, shrink {cost.shrink_s * 1e3:g} ms"
