"""What holding and resizing memory costs, in one currency."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

__all__ = ["CostModel"]


@dataclass(frozen=True)
class CostModel:
    """Prices in device-seconds, so that memory and stalls can be added up.

    Holding b bytes for t seconds costs b / total_bytes * t: the share of the device that nobody else could use.
    A growth stalls the device for grow_s + s_per_byte * new size; a shrink for shrink_s.

    total_bytes: memory of the device (on a CPU, of the machine).
    grow_s, shrink_s: seconds of one resize.
    s_per_byte: further seconds for each byte of the new size of a growth.

    Raises ValueError unless total_bytes > 0 and every time is finite and not negative.
    """

    total_bytes: int
    grow_s: float
    shrink_s: float
    s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if self.total_bytes <= 0:
            raise ValueError(f"total_bytes must be positive, got {self.total_bytes}")
        if not isinstance(self.total_bytes, int):
            raise ValueError(f"total_bytes must be a whole number, got {self.total_bytes}")
        for field in ("grow_s", "shrink_s", "s_per_byte"):
            value = getattr(self, field)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{field} must be finite and not negative, got {value}")

    @property
    def round_trip_byte_s(self) -> float:
        """K: the price of one shrink and coming back, in byte-seconds of holding."""
        return (self.grow_s + self.shrink_s) * self.total_bytes

    def hold_s(self, hold_byte_s: float) -> float:
        """The price of holding, given the integral of capacity over time."""
        return hold_byte_s / self.total_bytes

    def growth_s(self, new_bytes: int) -> float:
        """The stall of a growth to `new_bytes`."""
        return self.grow_s + self.s_per_byte * new_bytes
