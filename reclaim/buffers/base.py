"""The contract of every buffer."""

from __future__ import annotations

from typing import Protocol

import torch

__all__ = ["Buffer"]


class Buffer(Protocol):
    """Storage for one slot that can give bytes back to the system.

    A buffer serves one slot and one thread at a time. It never resizes by itself.
    """

    @property
    def name(self) -> str:
        """What it is called in specs and reports: "mmap"."""

    @property
    def device(self) -> torch.device:
        """Where its tensors live."""

    @property
    def granule_bytes(self) -> int:
        """The step in which it can give bytes back."""

    @property
    def address_stable(self) -> bool:
        """Whether every tensor so far began at the same address, so that an old address still holds."""

    @property
    def capacity_bytes(self) -> int:
        """The size of the storage it last handed out; 0 when empty."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the system holds for it now, as the system counts them. May take a millisecond."""

    @property
    def system_bytes(self) -> int:
        """A count of the system's, which falls by what a shrink gives back; others may share it. May take 1 ms."""

    @property
    def pinned_bytes(self) -> int:
        """How far from the start living tensors of any generation reach; 0 when none lives.

        Asked after the slot has dropped its own tensors, it says how much outside views still use.
        """

    @property
    def stale_bytes(self) -> int:
        """Bytes of abandoned storage that outside views keep from going back."""

    def resize(self, nbytes: int, *, to_driver: bool = True) -> torch.Tensor:
        """Give back what lies above `nbytes`, and return a one-dimensional uint8 tensor of exactly that size.

        to_driver: not only to the allocator's cache, where there is one, but out of it; waits for the device.
        The tensor has a storage of its own; its content is undefined. The caller has dropped its own tensors of
        this buffer, and shrinks only to `pinned_bytes` or more: what outside views use is never given back.
        Raises torch.OutOfMemoryError, leaving the buffer empty, when the system refuses.
        """

    def reopen(self) -> torch.Tensor:
        """A tensor of the present capacity over the present storage. Allocates nothing and changes nothing.

        For a slot that dropped its own tensor to see whether anyone else has one, and somebody has.
        """

    def abandon(self) -> None:
        """Become empty and leave the storage to whoever still has views of it; it goes back with the last one."""
