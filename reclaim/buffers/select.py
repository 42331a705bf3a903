"""Which buffer serves a device."""

from __future__ import annotations

import torch

from reclaim.buffers.base import Buffer
from reclaim.buffers.mmap import MmapBuffer

__all__ = ["choose_buffer"]


def choose_buffer(
    device: torch.device, kind: str = "auto", *, max_bytes: int | None = None, guard_tail: bool = False
) -> Buffer:
    """A new buffer on `device`: the named kind, or with "auto" the best that the device has.

    guard_tail: let a stray write above the capacity fault at once, where the buffer can.
    Raises ValueError when the kind is unknown or does not serve the device.
    """
    if kind not in ("auto", "mmap"):
        raise ValueError(f"no buffer {kind!r}; there are: auto, mmap")
    if device.type != "cpu":
        raise ValueError(f"no buffer for {device}: the mmap buffer serves cpu only")
    return MmapBuffer(max_bytes, guard_tail=guard_tail)
