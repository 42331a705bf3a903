"""How parts that live at the same time are laid out in one scratch."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from reclaim.units import round_up

__all__ = ["ALIGNMENT", "Part", "lay_out"]

ALIGNMENT = 256  # bytes; every part starts and ends at a multiple of it, as in vLLM

_LARGEST_BYTES = 2**63 - ALIGNMENT  # what a storage can address


class Part(NamedTuple):
    """One tensor inside a scratch: bytes [offset, offset + nbytes)."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int


def lay_out(requests: Iterable[tuple[Iterable[Any], torch.dtype]]) -> tuple[tuple[Part, ...], int]:
    """The parts, one after another from offset 0, and the bytes they need together, a multiple of 256.

    requests: (shape, dtype) of each part; numpy integers are as good as Python's.
    Raises ValueError naming the part whose size is negative or beyond 2^63, TypeError for what is no shape or dtype.
    """
    parts: list[Part] = []
    offset = 0
    for shape, dtype in requests:
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"request {len(parts)}: expected (shape, dtype), got dtype {dtype!r}")
        sizes = tuple(operator.index(size) for size in shape)
        nbytes = dtype.itemsize
        for size in sizes:
            if size < 0:
                raise ValueError(f"request {len(parts)}: shape {sizes} has a negative size")
            nbytes *= size
        if offset + nbytes > _LARGEST_BYTES:
            raise ValueError(f"request {len(parts)}: shape {sizes} of {dtype} ends beyond 2^63 bytes")
        parts.append(Part(sizes, dtype, offset, nbytes))
        offset += round_up(nbytes, ALIGNMENT)
    return tuple(parts), offset
