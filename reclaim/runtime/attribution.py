"""Which plan sets the demand, and whether it is always the same."""

from __future__ import annotations

__all__ = ["Attribution"]

_FIXED_AFTER = 1000


class Attribution:
    """Follows the demand of one scratch, forward by forward."""

    def __init__(self) -> None:
        self.peak_by: str | None = None
        self._peak_bytes = 0
        self._last_bytes = 0
        self._last_by = ""
        self._unchanged = 0

    def add(self, demand_bytes: int, name: str) -> None:
        """The demand of a forward, and the name of the plan that set it."""
        if demand_bytes > self._peak_bytes:
            self._peak_bytes, self.peak_by = demand_bytes, name
        self._unchanged = self._unchanged + 1 if demand_bytes == self._last_bytes else 1
        self._last_bytes, self._last_by = demand_bytes, name

    @property
    def fixed_by(self) -> str | None:
        """The plan behind a demand that has not varied for 1,000 forwards; None while it varies."""
        return self._last_by if self._unchanged >= _FIXED_AFTER else None
