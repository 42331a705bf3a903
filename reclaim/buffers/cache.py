"""Memory from the device's own allocator, given back by emptying that allocator's cache."""

from __future__ import annotations

import weakref

import torch

from reclaim.buffers.kernel import resident_bytes_at
from reclaim.buffers.memory import release_cached
from reclaim.units import MIB, format_bytes, round_up

__all__ = ["CacheBuffer"]

_SEGMENT_BYTES = 2 * MIB  # the caching allocator takes memory from the driver in steps of this


class CacheBuffer:
    """A buffer on any device that torch can allocate on; it moves with every resize.

    Old storage is freed before the new one is allocated. Freed and no more, it would stay in the caching allocator,
    and a smaller buffer carved out of it would keep all of it from the driver. So the cache is emptied in between,
    which waits for the device and returns whatever else lies unused in the cache, too.
    """

    name = "cache"
    address_stable = False

    def __init__(self, device: torch.device) -> None:
        """Set up an empty buffer on `device`, whose index is given unless it is the CPU."""
        self.device = device
        self.granule_bytes = _SEGMENT_BYTES
        self.capacity_bytes = 0
        # The storage object dies with the last tensor over it, and so does the reference.
        self._storage: weakref.ref[torch.UntypedStorage] | None = None
        self._abandoned: list[tuple[weakref.ref[torch.UntypedStorage], int]] = []

    @property
    def reserved_bytes(self) -> int:
        """On a CPU resident bytes; elsewhere the whole segments that its storage fills, abandoned ones included.

        An allocator does not tell which of its segments serve whom.
        """
        return self.stale_bytes + self._resident_bytes()

    @property
    def system_bytes(self) -> int:
        """See `Buffer.system_bytes`; on an accelerator everything that the allocator has from the driver."""
        if self.device.type == "cpu":
            return self.reserved_bytes
        return int(torch.accelerator.memory_reserved(self.device.index))

    @property
    def pinned_bytes(self) -> int:
        """See `Buffer.pinned_bytes`; a storage is freed whole, so any view pins all of it."""
        return self.capacity_bytes if self._living_storage() is not None else 0

    @property
    def stale_bytes(self) -> int:
        """See `Buffer.stale_bytes`."""
        return sum(size for storage, size in self._abandoned if storage() is not None)

    def resize(self, nbytes: int, *, to_driver: bool = True) -> torch.Tensor:
        """See `Buffer.resize`."""
        self.abandon()
        if to_driver:
            release_cached(self.device)
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        try:
            # Not torch.empty, which would fill it with a value under use_deterministic_algorithms.
            storage = torch.UntypedStorage(nbytes, device=self.device)  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # how the CPU's allocator says it
            raise torch.OutOfMemoryError(f"no {format_bytes(nbytes)} on {self.device}: {error}") from error
        self.capacity_bytes = nbytes
        self._storage = weakref.ref(storage)
        return self.reopen()

    def reopen(self) -> torch.Tensor:
        """See `Buffer.reopen`."""
        tensor = torch.empty(0, dtype=torch.uint8, device=self.device)
        storage = self._living_storage()
        if storage is None:
            return tensor
        return tensor.set_(storage, 0, (self.capacity_bytes,))  # type: ignore[call-overload, no-any-return]

    def abandon(self) -> None:
        """See `Buffer.abandon`."""
        self._abandoned = [entry for entry in self._abandoned if entry[0]() is not None]
        if self._storage is not None and self._living_storage() is not None:
            self._abandoned.append((self._storage, self.capacity_bytes))
        self._storage = None
        self.capacity_bytes = 0

    def _living_storage(self) -> torch.UntypedStorage | None:
        return None if self._storage is None else self._storage()

    def _resident_bytes(self) -> int:
        storage = self._living_storage()
        if storage is not None and self.device.type == "cpu":
            return resident_bytes_at(storage.data_ptr(), self.capacity_bytes)
        return round_up(self.capacity_bytes, self.granule_bytes)
