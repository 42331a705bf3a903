"""A policy as seen from a buffer that gives memory back in whole granules.

Replay and the runtime both drive policies through this one class, so that a recorded run replays exactly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf

from reclaim.policy.base import ShrinkPolicy
from reclaim.policy.cost import CostModel
from reclaim.policy.registry import make
from reclaim.units import round_up

__all__ = ["GranulePolicy", "PolicyLike"]

PolicyLike = str | Callable[[int, CostModel], ShrinkPolicy] | ShrinkPolicy


class GranulePolicy:
    """Rounds what a policy sees to the granule, and hands back exact capacities.

    Demand, capacity and floor are rounded up alike, so that an exact fit stays one; the capacities that this
    class takes and returns are exact. A target that would not free a whole granule becomes None.
    """

    __slots__ = ("_finish_forward", "_granule", "floor_bytes", "policy")

    def __init__(self, policy: PolicyLike, *, floor_bytes: int, granule_bytes: int, cost: CostModel) -> None:
        """`policy`: a spec, a factory (floor_bytes, cost) -> ShrinkPolicy, or an instance with the rounded floor."""
        if floor_bytes < 0:
            raise ValueError(f"floor_bytes must not be negative, got {floor_bytes}")
        if granule_bytes < 1:
            raise ValueError(f"granule_bytes must be at least 1, got {granule_bytes}")
        seen_floor = round_up(floor_bytes, granule_bytes)
        if isinstance(policy, str):
            policy = make(policy, seen_floor, cost)
        elif not isinstance(policy, ShrinkPolicy):
            policy = policy(seen_floor, cost)
        if policy.floor_bytes != seen_floor:
            raise ValueError(
                f"the policy's floor_bytes is {policy.floor_bytes}; it must be {seen_floor}, "
                f"the floor {floor_bytes} rounded up to the granule {granule_bytes}"
            )
        self.policy = policy
        self._finish_forward = policy.finish_forward
        self.floor_bytes = floor_bytes
        self._granule = granule_bytes

    def finish_forward(
        self, required_bytes: int, capacity_bytes: int, grew: bool, started: float, ended: float
    ) -> int | None:
        """The exact capacity to shrink to after a forward, or None.

        A capacity below the floor means that the scratch was emptied and not asked for since: nothing to observe.
        """
        if capacity_bytes < self.floor_bytes:
            self.policy.reset()
            return None
        granule = self._granule
        if required_bytes % granule:
            required_bytes = round_up(required_bytes, granule)
        if capacity_bytes % granule:
            capacity_bytes = round_up(capacity_bytes, granule)
        target = self._finish_forward(required_bytes, capacity_bytes, grew=grew, started=started, ended=ended)
        return None if target is None else self._exact(target, capacity_bytes)

    def idle(self, capacity_bytes: int, now: float) -> int | None:
        """The exact capacity to shrink to while no forward runs, or None."""
        seen = round_up(capacity_bytes, self._granule)
        target = self.policy.idle(seen, now=now)
        return None if target is None else self._exact(target, seen)

    def grow_target(self, required_bytes: int, capacity_bytes: int, now: float) -> int:
        """The exact capacity for a request of `required_bytes`; at least that and the floor."""
        required = round_up(required_bytes, self._granule)
        target = self.policy.grow_target(required, round_up(capacity_bytes, self._granule), now=now)
        target = operator.index(target)
        ahead = round_up(target, self._granule) if target > required else 0
        return max(required_bytes, self.floor_bytes, ahead)

    def deadline(self) -> float:
        """See `ShrinkPolicy.deadline`; NaN counts as never."""
        deadline = self.policy.deadline()
        return deadline if deadline == deadline else inf

    def _exact(self, target: int, seen_capacity: int) -> int | None:
        target = max(round_up(operator.index(target), self._granule), self.floor_bytes)
        return target if target < seen_capacity else None
