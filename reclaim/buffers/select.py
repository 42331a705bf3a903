"""Which buffer serves a device."""

from __future__ import annotations

import sys

import torch

from reclaim.buffers.base import Buffer
from reclaim.buffers.cache import CacheBuffer
from reclaim.buffers.mmap import MmapBuffer

__all__ = ["choose_buffer"]

_KINDS = ("auto", "cache", "mmap")


def choose_buffer(
    device: torch.device, kind: str = "auto", *, max_bytes: int | None = None, guard_tail: bool = False
) -> Buffer:
    """A new buffer on `device`: the named kind, or with "auto" the best that the device has.

    max_bytes: up to which a buffer with a stable address keeps it.
    guard_tail: let a stray write above the capacity fault at once, where the buffer can.
    Raises ValueError when the kind is unknown or does not serve the device.
    """
    if kind not in _KINDS:
        raise ValueError(f"no buffer {kind!r}; there are: {', '.join(_KINDS)}")
    if kind == "auto":
        kind = "mmap" if device.type == "cpu" and sys.platform.startswith("linux") else "cache"
    if kind == "mmap":
        if device.type != "cpu":
            raise ValueError(f"the mmap buffer serves cpu only, not {device}: use 'cache' or 'auto'")
        return MmapBuffer(max_bytes, guard_tail=guard_tail)
    return CacheBuffer(_with_index(device))


def _with_index(device: torch.device) -> torch.device:
    """The device by its number, so that it stays the same whichever one is current. Raises ValueError if not here."""
    if device.type == "cpu":
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device.type or not torch.accelerator.is_available():
        raise ValueError(f"no buffer for {device}: this machine and torch have no such accelerator")
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    if index >= torch.accelerator.device_count():
        raise ValueError(f"no buffer for {device}: there are {torch.accelerator.device_count()} such devices")
    return torch.device(device.type, index)
