"""Figures of a workspace and of its reclaimer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ReclaimerStats", "SlotReclaimStats", "SlotStats", "WorkspaceStats"]


@dataclass(frozen=True)
class SlotStats:
    """One slot of a workspace now. Sizes are bytes.

    ================  ==========================================================================
    ubatch, lane      which slot
    graph             whether it is the workspace of graphs beside that slot
    buffer            the kind of buffer behind it
    capacity_bytes    storage held, exactly
    reserved_bytes    what the system holds for it, as the system counts it
    required_bytes    the largest request of the current or last forward
    required_by       the plan that made it: its name, or where it was planned
    stale_bytes       what should have gone back but views outside still use
    generation        how often the storage changed
    captured_bytes    how far from its start captured graphs may use it
    locked            whether it may not grow beyond its size at the lock
    ================  ==========================================================================
    """

    ubatch: int
    lane: int
    graph: bool
    buffer: str
    capacity_bytes: int
    reserved_bytes: int
    required_bytes: int
    required_by: str | None
    stale_bytes: int
    generation: int
    captured_bytes: int
    locked: bool


@dataclass(frozen=True)
class WorkspaceStats:
    """Every slot of a workspace, and their sums."""

    slots: tuple[SlotStats, ...]

    @property
    def capacity_bytes(self) -> int:
        """Storage held by all slots."""
        return sum(slot.capacity_bytes for slot in self.slots)

    @property
    def reserved_bytes(self) -> int:
        """What the system holds for all slots."""
        return sum(slot.reserved_bytes for slot in self.slots)


@dataclass(frozen=True)
class SlotReclaimStats:
    """What a reclaimer did with one scratch since it was built. Sizes are bytes, times seconds.

    ====================  ======================================================================
    scratch               which one
    enabled               whether it still reclaims
    disabled_reason       why not, or None
    policy                the spec it was made from, or the policy's name
    floor_bytes           never shrunk below
    capacity_bytes        storage held now
    peak_capacity_bytes   the most it held
    reserved_bytes        what the system holds now, as the system counts it
    stale_bytes           what should have gone back but views outside still use
    peak_demand_bytes     the largest demand of a forward
    peak_demand_by        with attribute=True: the plan that set it
    fixed_demand_by       with attribute=True: the plan that set the demand of the last 1,000 forwards or more, when
                          it was always the same: a fixed bound, under which nothing can ever be reclaimed
    forwards              forwards entered, of which
    observed                  the policy saw so many,
    passed                    so many passed through, by reason,
    aborted                   and so many ended with an exception
    grows                 forwards in which it grew
    reallocations         growths, every step of a climb counted
    shrinks               shrinks that were carried out
    skipped               shrinks that were not, by reason
    failed                shrinks after which the new allocation failed
    returned_bytes        bytes that went back to the system in shrinks, as the system counts them
    claimed_bytes         bytes that capacity fell by in the same shrinks
    grow_seconds          time inside forwards spent growing
    shrink_seconds        time between forwards spent shrinking
    capture_guard         whether graph capture can be detected on this device and torch; None: no need
    ====================  ======================================================================
    """

    scratch: str
    enabled: bool
    disabled_reason: str | None
    policy: str
    floor_bytes: int
    capacity_bytes: int
    peak_capacity_bytes: int
    reserved_bytes: int
    stale_bytes: int
    peak_demand_bytes: int
    peak_demand_by: str | None
    fixed_demand_by: str | None
    forwards: int
    observed: int
    aborted: int
    grows: int
    reallocations: int
    shrinks: int
    failed: int
    returned_bytes: int
    claimed_bytes: int
    grow_seconds: float
    shrink_seconds: float
    capture_guard: bool | None
    passed: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ReclaimerStats:
    """Every slot of a reclaimer, and the sums most asked for."""

    slots: tuple[SlotReclaimStats, ...]

    @property
    def capacity_bytes(self) -> int:
        """Storage held by all slots."""
        return sum(slot.capacity_bytes for slot in self.slots)

    @property
    def reserved_bytes(self) -> int:
        """What the system holds for all slots."""
        return sum(slot.reserved_bytes for slot in self.slots)

    @property
    def returned_bytes(self) -> int:
        """Bytes that went back to the system in all shrinks so far."""
        return sum(slot.returned_bytes for slot in self.slots)

    @property
    def grows(self) -> int:
        """Forwards in which a slot grew."""
        return sum(slot.grows for slot in self.slots)

    @property
    def shrinks(self) -> int:
        """Shrinks carried out in all slots."""
        return sum(slot.shrinks for slot in self.slots)

    @property
    def resize_seconds(self) -> float:
        """Time spent growing and shrinking."""
        return sum(slot.grow_seconds + slot.shrink_seconds for slot in self.slots)
