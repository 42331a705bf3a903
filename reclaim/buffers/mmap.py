"""Host memory from an anonymous mapping, given back page by page with madvise(MADV_DONTNEED)."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from typing import Any

import torch

from reclaim.buffers.kernel import allow_access, resident_bytes
from reclaim.units import format_bytes, round_up

__all__ = ["MmapBuffer"]

# Python 3.11's mmap module does not name it yet; the value is Linux's on every architecture torch runs on.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class MmapBuffer:
    """A CPU buffer whose address does not change and whose tail goes back to the kernel at once.

    A private anonymous mapping of `max_bytes` of address space is made once; it takes no memory until pages are
    written. A tensor covers its first `capacity_bytes`. A shrink drops the pages above the new capacity, so that
    the process's resident memory falls; a growth only widens the tensor. Should a request exceed `max_bytes`, or the
    system refuse so much address space, the buffer moves to a larger mapping and `address_stable` becomes False.

    Linux only: elsewhere MADV_DONTNEED need not free anything.
    """

    name = "mmap"

    def __init__(self, max_bytes: int | None = None, *, guard_tail: bool = False) -> None:
        """Set up an empty buffer.

        max_bytes: address space to reserve; default the machine's memory.
        guard_tail: forbid access to the pages above the capacity, so that a write through an old address kills the
            process there and then. For finding mistakes.
        Raises ValueError when max_bytes is not positive or the system is not Linux.
        """
        if not sys.platform.startswith("linux"):
            raise ValueError("the mmap buffer needs Linux, whose MADV_DONTNEED returns pages at once")
        if max_bytes is not None and max_bytes < 1:
            raise ValueError(f"max_bytes must be positive, got {max_bytes}")
        self.device = torch.device("cpu")
        self.granule_bytes = mmap.PAGESIZE
        self.address_stable = True
        self.capacity_bytes = 0
        self._guard_tail = guard_tail
        self._max_bytes = max_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._mapping: mmap.mmap | None = None
        self._mapping_bytes = 0
        self._exposed_bytes = 0  # pages above this were never handed out, or have been given back
        # A tensor holds its memoryview, and the memoryview the mapping: a dead reference means that no view of
        # that generation lives.
        self._generations: list[tuple[weakref.ref[Any], int]] = []
        self._abandoned: list[tuple[weakref.ref[Any], int]] = []

    @property
    def reserved_bytes(self) -> int:
        """Resident bytes of the mapping, as the kernel counts them, and of abandoned ones still in use."""
        mapping = self._mapping  # once: another thread may be reading while the owner moves
        return self.stale_bytes + (0 if mapping is None else resident_bytes(mapping, self._exposed_bytes))

    @property
    def system_bytes(self) -> int:
        """See `Buffer.system_bytes`; the resident bytes are counted for this buffer alone."""
        return self.reserved_bytes

    @property
    def pinned_bytes(self) -> int:
        """See `Buffer.pinned_bytes`."""
        return max((size for _, size in _living(self._generations)), default=0)

    @property
    def stale_bytes(self) -> int:
        """See `Buffer.stale_bytes`; counts what the views cover, resident or not."""
        return sum(size for _, size in _living(self._abandoned))

    def resize(self, nbytes: int, *, to_driver: bool = True) -> torch.Tensor:
        """See `Buffer.resize`; there is no cache in between."""
        self.capacity_bytes = 0
        if nbytes and (self._mapping is None or nbytes > self._mapping_bytes):
            self._move(nbytes)
        self._give_back(nbytes)
        self._exposed_bytes = max(self._exposed_bytes, nbytes)
        self.capacity_bytes = nbytes
        if self._guard_tail and self._mapping is not None:
            allow_access(self._mapping, round_up(nbytes, self.granule_bytes))
        return self.reopen()

    def reopen(self) -> torch.Tensor:
        """See `Buffer.reopen`."""
        if self.capacity_bytes == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        assert self._mapping is not None
        view = memoryview(self._mapping)[: self.capacity_bytes]
        self._generations = [*_living(self._generations), (weakref.ref(view), self.capacity_bytes)]
        return torch.frombuffer(view, dtype=torch.uint8)

    def _give_back(self, nbytes: int) -> None:
        start = round_up(nbytes, self.granule_bytes)
        if self._mapping is not None and start < self._exposed_bytes:
            length = round_up(self._exposed_bytes, self.granule_bytes) - start
            try:
                self._mapping.madvise(mmap.MADV_DONTNEED, start, length)
            except OSError:
                return  # locked pages (mlockall) stay, and reserved_bytes goes on counting them
            self._exposed_bytes = start

    def abandon(self) -> None:
        """See `Buffer.abandon`."""
        self.capacity_bytes = 0
        living = _living(self._generations)
        if living:
            self._abandoned = [*_living(self._abandoned), max(living, key=lambda entry: entry[1])]
        if self._mapping is not None:
            self.address_stable = False
        self._generations = []
        self._exposed_bytes = 0
        self._mapping = None  # the last reference, unless views live

    def _move(self, nbytes: int) -> None:
        """A new mapping of at least `nbytes`; the old one goes as soon as no outside view needs it."""
        self.abandon()
        nbytes = round_up(nbytes, self.granule_bytes)
        reason = ""  # as text: an exception kept here would keep this frame, and the buffer, alive
        for size in (max(nbytes, self._max_bytes), nbytes):
            try:
                self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
                self._mapping_bytes = size
                return
            except (OSError, OverflowError) as error:
                reason = str(error)
        raise torch.OutOfMemoryError(f"the system refuses a mapping of {format_bytes(nbytes)} ({reason})")


def _living(generations: list[tuple[weakref.ref[Any], int]]) -> list[tuple[weakref.ref[Any], int]]:
    return [entry for entry in generations if entry[0]() is not None]
