"""What a reclaimer counts of the forwards of one scratch."""

from __future__ import annotations

from collections import Counter

from reclaim.runtime.scratch import Scratch

__all__ = ["Tally"]


class Tally:
    """Counts since it was made, and the growths of the scratch that have not been accounted for yet.

    ==============  ============================================================
    observed        forwards that the policy saw
    aborted         forwards that ended with an exception
    passed          forwards that passed through, by reason
    grows           forwards in which the scratch grew
    peak_capacity   the most it held, bytes
    peak_demand     the largest demand of a forward, bytes
    ==============  ============================================================
    """

    __slots__ = (
        "_failed_growths",
        "_grow_seconds",
        "_scratch",
        "aborted",
        "grows",
        "observed",
        "passed",
        "peak_capacity",
        "peak_demand",
    )

    def __init__(self, scratch: Scratch) -> None:
        self.observed = self.aborted = self.grows = 0
        self.passed: Counter[str] = Counter()
        self.peak_capacity = scratch.capacity_bytes
        self.peak_demand = 0
        self._scratch = scratch
        self._failed_growths = scratch.failed_growths
        self._grow_seconds = scratch.grow_seconds

    def forward(self, demand: int, capacity: int, grew: bool) -> None:
        """Count what a forward needed and had."""
        self.peak_capacity = max(self.peak_capacity, capacity)
        self.peak_demand = max(self.peak_demand, demand)
        self.grows += grew

    def held(self, capacity: int) -> None:
        """Count what was held before a shrink."""
        self.peak_capacity = max(self.peak_capacity, capacity)

    def grow_seconds(self) -> float:
        """Time spent growing since it was last asked."""
        seconds, self._grow_seconds = self._scratch.grow_seconds - self._grow_seconds, self._scratch.grow_seconds
        return seconds

    def growth_failed(self) -> bool:
        """Whether a growth failed since it was last asked."""
        before, self._failed_growths = self._failed_growths, self._scratch.failed_growths
        return self._failed_growths > before
