"""Shrink to what the last forward needed."""

from __future__ import annotations

from typing import ClassVar

from reclaim.policy.base import ShrinkPolicy

__all__ = ["ExactFitPolicy"]


class ExactFitPolicy(ShrinkPolicy):
    """After every forward, shrink to its demand; to the floor after one that asked for nothing.

    Source: the lower bound on memory that any policy without foresight can reach between forwards.
    State: none. Guarantee: never holds more than the last forward needed, or the floor.
    Wrong as a policy to run: it pays a growth for every rise in demand. It is there to compare with.
    """

    name: ClassVar[str] = "exact-fit"
    uses_time: ClassVar[bool] = False

    def finish_forward(
        self, required_bytes: int, capacity_bytes: int, *, grew: bool, started: float = 0.0, ended: float = 0.0
    ) -> int | None:
        """See `ShrinkPolicy.finish_forward`."""
        if not 0 <= required_bytes <= capacity_bytes or capacity_bytes < self.floor_bytes:
            raise self._bad_forward(required_bytes, capacity_bytes)
        target = max(self.floor_bytes, required_bytes)
        return target if target < capacity_bytes else None
