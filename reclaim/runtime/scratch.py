"""What the reclaimer needs of a scratch, whoever owns its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from reclaim.errors import WorkspaceStateError
from reclaim.runtime.streams import StreamWatch

__all__ = ["Scratch", "ScratchClient", "between_forwards"]


class ScratchClient(Protocol):
    """What a scratch tells the reclaimer that it serves. Nothing here may raise: a layer's request is waiting."""

    def grow_target(self, required_bytes: int, capacity_bytes: int, now: float) -> int:
        """The capacity to grow to, at least `required_bytes`."""

    def captured(self) -> None:
        """A request was made while a graph was captured, which keeps the address."""

    def strayed(self) -> None:
        """A request was made on another stream than that of the forwards."""

    def replaced(self) -> None:
        """Another reclaimer was built over the scratch."""


class Scratch(Protocol):
    """One growable byte buffer of one slot. Sizes are bytes."""

    required_bytes: int
    """The largest request since `begin_forward`."""

    required_by: str | None
    """Who made that request, where known."""

    grew: bool
    """Whether it grew since `begin_forward`."""

    captured_bytes: int
    """How far from its start captured graphs may use it: no shrink goes below, and none is possible if it moves."""

    @property
    def streams(self) -> StreamWatch | None:
        """The streams it is used on; None on a CPU, which has none."""

    @property
    def device(self) -> torch.device:
        """Where its memory lives."""

    @property
    def capacity_bytes(self) -> int:
        """Storage held now, exactly."""

    @property
    def reserved_bytes(self) -> int:
        """What the system has given for it now, as the system counts it. May take a millisecond."""

    @property
    def stale_bytes(self) -> int:
        """Bytes that should have gone back but are held by views outside."""

    @property
    def granule_bytes(self) -> int:
        """The step in which it can give bytes back."""

    @property
    def generation(self) -> int:
        """Rises by 1 with every grow, shrink or move; a view of an earlier generation is stale."""

    @property
    def reallocations(self) -> int:
        """How often it grew since it was made, every step of a climb counted."""

    @property
    def returned_bytes(self) -> int:
        """Bytes that went back to the system in its shrinks since it was made, as the system counts them."""

    @property
    def grow_seconds(self) -> float:
        """Time spent growing since it was made."""

    @property
    def reclaimable(self) -> bool:
        """Whether its owner allows it to shrink now."""

    @property
    def in_graph(self) -> bool:
        """Whether its owner says that the forward belongs to a graph."""

    @property
    def failed_growths(self) -> int:
        """Growths that failed for lack of memory since it was made."""

    @property
    def address_stable(self) -> bool:
        """Whether its address survives a resize."""

    @property
    def locked(self) -> bool:
        """Whether a ceiling stands: it may not grow beyond its capacity at the lock."""

    @property
    def managed(self) -> bool:
        """Whether demand is only counted here, and `reclaimable` is always True.

        Then `begin_forward` sets required_bytes to 0 and grew to False and does no more, which is harmless in a
        forward that passes through, `end_forward` does nothing, and the reclaimer need call neither.
        """

    @property
    def turn(self) -> list[None]:
        """Holds one entry while no forward is active, and none while one is.

        Taking it is `turn.pop()`, which is atomic across threads and a third of the price of a lock. Whoever took it
        puts it back with `turn.append(None)`. Nothing may resize the scratch without it.
        """

    def bind(self, floor_bytes: int, client: ScratchClient, *, to_driver: bool) -> int:
        """Serve a reclaimer: every growth goes to at least `floor_bytes`, and to what it answers to `grow_target`.

        A scratch serves one reclaimer, the last one built over it; the one before hears it through its `replaced`.
        to_driver: let freed memory leave the allocator's cache, too.
        Returns the floor as this scratch holds it, rounded up to its alignment.
        """

    def begin_forward(self, *, measure: bool = True) -> None:
        """Set the logical size to zero and keep the storage; without `measure`, only where a shrink is possible."""

    def end_capture(self) -> None:
        """Bring captured_bytes up to date after a forward that began under an undeclared capture."""

    def end_forward(self) -> None:
        """Bring required_bytes and grew up to date, and storage below the floor up to it."""

    def reallocate(self, nbytes: int) -> bool:
        """Drop the storage first, then hold exactly `nbytes`; 0 releases.

        False when views outside still use what would go: then nothing changed.
        Raises WorkspaceOutOfMemoryError, leaving it empty.
        """


@contextmanager
def between_forwards(scratch: Scratch, what: str) -> Iterator[None]:
    """Keep forwards away from a scratch for a moment. Raises WorkspaceStateError when one is active."""
    try:
        scratch.turn.pop()
    except IndexError:
        raise WorkspaceStateError(f"{what} inside a forward on this scratch: call it between forwards") from None
    try:
        yield
    finally:
        scratch.turn.append(None)
