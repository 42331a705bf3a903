"""Freed memory that an allocator keeps for itself, and giving it back."""

from __future__ import annotations

import torch

from reclaim.buffers.kernel import trim_heap

__all__ = ["release_cached"]


def release_cached(device: torch.device) -> None:
    """Let the allocator of a device return what nobody uses: malloc's heap on a CPU, the caching allocator elsewhere.

    Done under a guard for `device`: with another one current, the wrong stream would be waited for.
    """
    if device.type == "cpu":
        trim_heap()
    else:
        with torch.accelerator.device_index(device.index):
            torch.accelerator.empty_cache()
