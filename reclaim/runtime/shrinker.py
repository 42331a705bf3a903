"""Carrying out the shrinks that a policy asks for, or saying why not."""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic

from reclaim.runtime.errors import WorkspaceOutOfMemoryError
from reclaim.runtime.graphs import capture_declared
from reclaim.runtime.scratch import Scratch
from reclaim.traces import events
from reclaim.units import format_bytes

__all__ = ["Shrinker"]

logger = logging.getLogger("reclaim")

_PINNED_BEFORE_WARNING = 3


class Shrinker:
    """Shrinks one scratch, and counts what came of it. Called while the scratch's turn is taken."""

    def __init__(self, scratch: Scratch) -> None:
        self.shrinks = 0
        self.failed = 0
        self.claimed_bytes = 0
        self.seconds = 0.0
        self.last_seconds = 0.0
        self.skipped: Counter[str] = Counter()
        self._scratch = scratch
        self._returned_before = scratch.returned_bytes
        self._pinned_in_a_row = 0

    @property
    def returned_bytes(self) -> int:
        """Bytes that went back to the system, as the system counts them."""
        return self._scratch.returned_bytes - self._returned_before

    def shrink(self, target: int) -> str:
        """Shrink to `target` bytes; what came of it, as an event. Never raises for lack of memory."""
        scratch = self._scratch
        capacity = scratch.capacity_bytes
        reason = self._forbidden()
        if reason is not None:
            self.skipped[reason] += 1
            return events.skipped(reason)
        target = max(target, scratch.captured_bytes)
        started = monotonic()
        try:
            done = scratch.reallocate(target)
        except WorkspaceOutOfMemoryError as error:
            logger.warning("a shrink to %s failed: %s", format_bytes(target), error)
            self.failed += 1
            return events.skipped("out-of-memory")
        if not done:
            self._count_pinned()
            return events.skipped("pinned")
        self.last_seconds = monotonic() - started
        self.seconds += self.last_seconds
        self.shrinks += 1
        self.claimed_bytes += capacity - target
        self._pinned_in_a_row = 0
        return events.SHRANK

    def _forbidden(self) -> str | None:
        scratch = self._scratch
        if scratch.locked and not scratch.address_stable:
            return "locked"
        if scratch.captured_bytes and (scratch.captured_bytes >= scratch.capacity_bytes or not scratch.address_stable):
            return "capture"
        if scratch.streams is not None and capture_declared():
            return "capture"  # freeing memory would break it, in whichever thread it runs
        return None

    def _count_pinned(self) -> None:
        self.skipped["pinned"] += 1
        self._pinned_in_a_row += 1
        if self._pinned_in_a_row == _PINNED_BEFORE_WARNING:
            logger.warning(
                "%d shrinks in a row were skipped: a layer keeps views of the scratch after its forward, which hold %s",
                _PINNED_BEFORE_WARNING,
                format_bytes(self._scratch.stale_bytes),
            )
