"""What a device's allocator keeps, what the system has left, and giving back the first to the second."""

from __future__ import annotations

import os

import torch

from reclaim.buffers.kernel import trim_heap

__all__ = ["free_bytes", "release_cached"]


def release_cached(device: torch.device) -> None:
    """Let the allocator of a device return what nobody uses: malloc's heap on a CPU, the caching allocator elsewhere.

    Done under a guard for `device`: with another one current, the wrong stream would be waited for.
    """
    if device.type == "cpu":
        trim_heap()
    else:
        with torch.accelerator.device_index(device.index):
            torch.accelerator.empty_cache()


def free_bytes(device: torch.device) -> int | None:
    """What the system has left on a device, other processes' share included; None where it does not tell.

    Asks the driver, which may wait for it: for error messages, not for the hot path.
    """
    try:
        if device.type == "cpu":
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(torch.accelerator.get_memory_info(device.index)[0])
    except (AttributeError, ValueError, OSError, RuntimeError):  # an older torch, another system, another allocator
        return None
