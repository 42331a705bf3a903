"""The contract of every policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import ClassVar

__all__ = ["ShrinkPolicy"]


class ShrinkPolicy(ABC):
    """Decides after each forward whether the scratch of one slot should shrink, and to what.

    One instance serves one slot. Sizes are bytes; times are seconds of one monotonic clock. A policy never
    assumes that its answer was applied: it believes the capacity it is told next. It must hold O(1) state, or
    state bounded by its parameters, and be deterministic.

    Subclasses set `name`, take their parameters as explicit keyword-only arguments of `__init__` (with `cost`
    among them where they need a `CostModel`), implement `finish_forward`, and override the rest as needed.
    """

    name: ClassVar[str]

    uses_time: ClassVar[bool] = True
    """Whether the policy looks at the times it is given; where False, the runtime need not read a clock."""

    def __init__(self, floor_bytes: int) -> None:
        """`floor_bytes`: the capacity below which the scratch never shrinks. ValueError if negative."""
        if floor_bytes < 0:
            raise ValueError(f"floor_bytes must not be negative, got {floor_bytes}")
        self.floor_bytes = floor_bytes

    @abstractmethod
    def finish_forward(
        self, required_bytes: int, capacity_bytes: int, *, grew: bool, started: float = 0.0, ended: float = 0.0
    ) -> int | None:
        """Observe one finished forward; return a new capacity, or None to leave it.

        required_bytes: the largest request of the forward; 0 if it asked for nothing.
        capacity_bytes: the capacity now, after any growth inside the forward.
        grew: whether the scratch grew during the forward.
        started, ended: when the forward began and ended.

        The answer satisfies floor_bytes <= answer < capacity_bytes.
        Raises ValueError if required_bytes < 0 or capacity_bytes < max(required_bytes, floor_bytes).
        """

    def grow_target(self, required_bytes: int, capacity_bytes: int, *, now: float = 0.0) -> int:
        """The capacity to grow to when a request exceeds `capacity_bytes`; at least `required_bytes`."""
        return required_bytes

    def deadline(self) -> float:
        """The next time at which `idle` could shrink; infinity when never.

        A due deadline is used up by `idle`, whether it shrinks or not, so that a poller never spins.
        """
        return inf

    def idle(self, capacity_bytes: int, *, now: float) -> int | None:
        """Decide while no forward runs. Same answer as `finish_forward`."""
        return None

    def reset(self) -> None:
        """Forget the current observation window: what was seen does not count towards the next shrink."""

    def expect(self, required_bytes: int, within_s: float) -> None:
        """Hear that a forward needing `required_bytes` is due within `within_s` seconds."""

    def price(self, free_bytes: int) -> None:
        """Hear how much device memory is free, when that changes."""

    def resized(self, *, grew: bool, seconds: float, new_bytes: int) -> None:
        """Hear what a resize really took."""

    def _bad_forward(self, required_bytes: int, capacity_bytes: int) -> ValueError:
        """The error for arguments of `finish_forward` that break its contract."""
        return ValueError(
            f"need 0 <= required_bytes <= capacity_bytes and capacity_bytes >= floor_bytes, got "
            f"required_bytes={required_bytes}, capacity_bytes={capacity_bytes}, floor_bytes={self.floor_bytes}"
        )
