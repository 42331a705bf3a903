"""Shrink after a run of underfilled forwards."""

from __future__ import annotations

from typing import ClassVar

from reclaim.policy.base import ShrinkPolicy

__all__ = ["ThreeWindowPolicy"]


class ThreeWindowPolicy(ShrinkPolicy):
    """After `forwards` consecutive underfilled forwards, shrink to the largest demand among them.

    A forward is underfilled when it needed less than the capacity. A growth, an exact fit, or being at the floor
    starts the count again; a forward that asked for nothing is not counted. The window tumbles: after a shrink
    the next one is judged afresh.

    Source: the WorkspaceShrinkPolicy of TensorRT-LLM's EagerWorkspaceReclaimer, whose window is fixed at 3.
    State: two integers; O(1) a step. Guarantee: at most one shrink in `forwards` forwards.
    Wrong when large forwards recur every few forwards: each recurrence then pays a growth.
    """

    name: ClassVar[str] = "three-window"
    uses_time: ClassVar[bool] = False

    def __init__(self, floor_bytes: int, *, forwards: int = 3) -> None:
        """`forwards`: the length of the window, at least 1."""
        super().__init__(floor_bytes)
        if forwards < 1:
            raise ValueError(f"forwards must be at least 1, got {forwards}")
        self.forwards = forwards
        self._remaining = forwards
        self._window_max = 0

    def finish_forward(
        self, required_bytes: int, capacity_bytes: int, *, grew: bool, started: float = 0.0, ended: float = 0.0
    ) -> int | None:
        """See `ShrinkPolicy.finish_forward`."""
        if not 0 <= required_bytes <= capacity_bytes or capacity_bytes < self.floor_bytes:
            raise self._bad_forward(required_bytes, capacity_bytes)
        if required_bytes == 0:
            return None
        if grew or capacity_bytes == self.floor_bytes or required_bytes == capacity_bytes:
            self.reset()
            return None
        if required_bytes > self._window_max:
            self._window_max = required_bytes
        self._remaining -= 1
        if self._remaining > 0:
            return None
        target = max(self.floor_bytes, self._window_max)
        self.reset()
        return target if target < capacity_bytes else None  # None only if somebody else shrank it meanwhile

    def reset(self) -> None:
        """Start the window again."""
        self._remaining = self.forwards
        self._window_max = 0
