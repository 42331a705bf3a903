"""Never shrink."""

from __future__ import annotations

from typing import ClassVar

from reclaim.policy.base import ShrinkPolicy

__all__ = ["GrowOnlyPolicy"]


class GrowOnlyPolicy(ShrinkPolicy):
    """Keep the largest capacity ever needed.

    Source: vLLM's WorkspaceManager. State: none. Guarantee: the fewest growths of all policies.
    Wrong when one large forward is followed by hours of small ones.
    """

    name: ClassVar[str] = "grow-only"
    uses_time: ClassVar[bool] = False

    def finish_forward(
        self, required_bytes: int, capacity_bytes: int, *, grew: bool, started: float = 0.0, ended: float = 0.0
    ) -> int | None:
        """See `ShrinkPolicy.finish_forward`; always None."""
        if not 0 <= required_bytes <= capacity_bytes or capacity_bytes < self.floor_bytes:
            raise self._bad_forward(required_bytes, capacity_bytes)
        return None
