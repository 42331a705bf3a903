"""The managed scratch of one slot: a buffer, the views cut from it, and the demand on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch

from reclaim.buffers import Buffer
from reclaim.buffers.cached import release_cached
from reclaim.errors import WorkspaceLockedError, WorkspaceStateError
from reclaim.runtime.caller import caller
from reclaim.runtime.errors import WorkspaceOutOfMemoryError
from reclaim.runtime.layout import ALIGNMENT, Part
from reclaim.runtime.persistent import PersistentStore
from reclaim.runtime.plan import PlanRegister, WorkspacePlan
from reclaim.runtime.tracing import refuse_tracing
from reclaim.units import format_bytes, round_up

__all__ = ["Retained", "Slot"]

_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


class Retained(NamedTuple):
    """The tail span that was handed out last: bytes [start, capacity), of which nbytes were asked for."""

    key: Hashable
    start: int
    nbytes: int


class Slot:
    """A `Scratch` that a `WorkspaceManager` owns. Only the manager and the reclaimer call its methods."""

    managed = True
    reclaimable = True
    in_graph = False

    __slots__ = (
        "_alloc_context",
        "_blocked_bytes",
        "_buffer",
        "_ceiling_bytes",
        "_floor_bytes",
        "_grow_target",
        "_on_pressure",
        "_plans",
        "_replaced",
        "_tensor",
        "capacity_bytes",
        "failed_growths",
        "generation",
        "grew",
        "grow_seconds",
        "index",
        "lane",
        "last_bytes",
        "persistent",
        "reallocations",
        "required_by",
        "required_bytes",
        "retained",
        "returned_bytes",
        "turn",
        "ubatch",
    )

    def __init__(
        self,
        index: int,
        ubatch: int,
        lane: int,
        buffer: Buffer,
        plans: PlanRegister,
        alloc_context: Callable[[], AbstractContextManager[object]],
        on_pressure: Callable[[int], object] | None,
    ) -> None:
        self.index = index
        self.ubatch = ubatch
        self.lane = lane
        self.turn: list[None] = [None]
        self.capacity_bytes = 0
        self.required_bytes = 0
        self.required_by: str | None = None
        self.last_bytes = 0  # of the last request, whose views live until the next one
        self.generation = 0
        self.reallocations = 0
        self.failed_growths = 0
        self.returned_bytes = 0
        self.grow_seconds = 0.0
        self.grew = False
        self.retained: Retained | None = None
        self.persistent = PersistentStore(str(self))
        self._buffer = buffer
        self._plans = plans
        self._alloc_context = alloc_context
        self._on_pressure = on_pressure
        self._ceiling_bytes: int | None = None
        self._floor_bytes = 0
        self._grow_target: Callable[[int, int, float], int] | None = None
        self._replaced: Callable[[], None] | None = None
        self._blocked_bytes = 0  # what views outside kept from going back at the last shrink
        self._tensor = _NOTHING

    def __str__(self) -> str:
        return f"slot (ubatch {self.ubatch}, lane {self.lane})"

    @property
    def device(self) -> torch.device:
        """See `Scratch`."""
        return self._buffer.device

    @property
    def buffer_name(self) -> str:
        """The kind of buffer behind it."""
        return self._buffer.name

    @property
    def granule_bytes(self) -> int:
        """See `Scratch`."""
        return self._buffer.granule_bytes

    @property
    def address_stable(self) -> bool:
        """See `Scratch`."""
        return self._buffer.address_stable

    @property
    def reserved_bytes(self) -> int:
        """See `Scratch`."""
        return self._buffer.reserved_bytes

    @property
    def stale_bytes(self) -> int:
        """See `Scratch`."""
        return self._blocked_bytes + self._buffer.stale_bytes

    @property
    def locked(self) -> bool:
        """See `Scratch`."""
        return self._ceiling_bytes is not None

    def lock(self) -> None:
        """Let it grow no further than now, and take no new persistent key."""
        self._ceiling_bytes = self.capacity_bytes
        self.persistent.locked = True

    def unlock(self) -> None:
        """Let it grow again."""
        self._ceiling_bytes = None
        self.persistent.locked = False

    def bind(
        self, floor_bytes: int, grow_target: Callable[[int, int, float], int], replaced: Callable[[], None]
    ) -> int:
        """See `Scratch`."""
        if self._replaced is not None and self._replaced != replaced:
            self._replaced()
        self._floor_bytes = round_up(floor_bytes, ALIGNMENT)
        self._grow_target = grow_target
        self._replaced = replaced
        return self._floor_bytes

    def begin_forward(self, *, measure: bool = True) -> None:
        """See `Scratch`."""
        self.required_bytes = 0
        self.grew = False

    def end_forward(self) -> None:
        """See `Scratch`."""

    def fits(self, nbytes: int) -> bool:
        """Whether a request of `nbytes` would succeed under the lock."""
        return self._ceiling_bytes is None or nbytes <= self._ceiling_bytes

    def ensure(self, nbytes: int) -> None:
        """Grow where a request of `nbytes` would need it."""
        if nbytes > self.capacity_bytes:
            self._grow(nbytes)

    def count(self, nbytes: int, name: str) -> None:
        """Let a request of `nbytes` from the start, which fits, count as demand and end what it reaches into."""
        self.last_bytes = nbytes
        retained = self.retained
        if retained is not None:
            if nbytes > retained.start:
                self.retained = None
            else:
                nbytes += round_up(retained.nbytes, ALIGNMENT)  # both live: the demand is their sum
        if nbytes > self.required_bytes:
            self.required_bytes = nbytes
            self.required_by = name

    def plan_views(self, plan: WorkspacePlan) -> tuple[torch.Tensor, ...]:
        """Cut and keep the views of a plan, growing first where needed. Raises WorkspaceStateError while tracing."""
        refuse_tracing()
        self.ensure(plan.required_bytes)
        self.count(plan.required_bytes, plan.name)
        views = tuple(self._views(plan.parts))
        # With gradients on, an in-place write would tie a kept view to the graph of each forward, for ever.
        if not torch.is_grad_enabled():
            plan.views[self] = views
        return views

    def retain(self, key: Hashable, part: Part) -> tuple[torch.Tensor, bool]:
        """The tail span, and whether it still holds what the same key and size left there.

        Grows rather than overlap the views of the last request of this forward.
        """
        span = round_up(part.nbytes, ALIGNMENT)
        live = self.last_bytes if self.required_bytes else 0  # a forward that asked for nothing has no live views
        self.ensure(live + span)
        start = self.capacity_bytes - span
        retained = Retained(key, start, part.nbytes)
        intact = self.retained == retained
        self.retained = retained
        if live + span > self.required_bytes:
            self.required_bytes = live + span
            self.required_by = f"retained {key!r}"
        (view,) = self._views((part._replace(offset=start),))
        return view, intact

    def reallocate(self, nbytes: int) -> bool:
        """See `Scratch`."""
        self._drop_views()
        pinned = self._buffer.pinned_bytes
        if pinned > nbytes:
            self._tensor = self._buffer.reopen()
            self._blocked_bytes = pinned - nbytes
            return False
        before = self._buffer.reserved_bytes
        self._replace(nbytes)
        self.returned_bytes += max(0, before - self._buffer.reserved_bytes)
        return True

    def release(self, *, force: bool) -> None:
        """Shrink to the floor, or with `force` to nothing, whoever has views.

        Without `force`, raises WorkspaceStateError when views outside still use what would go.
        """
        target = 0 if force else self._floor_bytes
        if self.capacity_bytes <= target or self.reallocate(target):
            return
        if not force:
            raise WorkspaceStateError(
                f"views outside still use {self.stale_bytes} bytes of {self}: drop them, or release(force=True)"
            )
        self.abandon()

    def abandon(self) -> None:
        """Become empty, also while views outside still use the storage; it goes back with the last of them."""
        self._drop_views()
        self._buffer.abandon()
        self.capacity_bytes = 0
        self.generation += 1
        self.retained = None
        self._blocked_bytes = 0

    def _views(self, parts: Iterable[Part]) -> list[torch.Tensor]:
        # Inside inference mode a view would become an inference tensor, which later forwards could not use. A view
        # of the detached tensor leaves the history of what is written to it to itself.
        with torch.inference_mode(False):
            try:
                return _views(self._tensor.detach(), parts)
            except AssertionError as error:  # how FakeTensorMode refuses real tensors
                raise WorkspaceStateError(
                    f"scratch cannot be handed out under FakeTensorMode; reserve what is needed outside it: {error}"
                ) from error

    def _grow(self, nbytes: int) -> None:
        if not self.fits(nbytes):
            raise WorkspaceLockedError(
                f"Workspace is locked but allocation from '{caller()}' requires {_both(nbytes)}, current size is "
                f"{_both(self.capacity_bytes)} of at most {_both(self._ceiling_bytes or 0)} in {self}. Let the "
                f"warm-up run the largest shape, or unlock() before this request."
            )
        started = time.monotonic()
        least = target = round_up(max(nbytes, self._floor_bytes), ALIGNMENT)
        if self._grow_target is not None:
            target = max(least, round_up(self._grow_target(nbytes, self.capacity_bytes, started), ALIGNMENT))
        if self._ceiling_bytes is not None:
            least, target = min(least, self._ceiling_bytes), min(target, self._ceiling_bytes)
        self.grew = True
        self._drop_views()
        try:
            self._replace(target)
        except WorkspaceOutOfMemoryError:
            self._replace_under_pressure(least)  # growing ahead was the policy's wish, not the layer's need
        self.reallocations += 1
        self.grow_seconds += time.monotonic() - started

    def _replace_under_pressure(self, nbytes: int) -> None:
        """The second and last attempt, after making what room can be made."""
        release_cached(self.device)
        if self._on_pressure is not None:
            self._on_pressure(nbytes)
        try:
            self._replace(nbytes)
        except WorkspaceOutOfMemoryError:
            self.failed_growths += 1
            raise

    def _replace(self, nbytes: int) -> None:
        """Release, then allocate; the caller has dropped the views. On failure the slot is empty and clean."""
        self.capacity_bytes = 0
        self.generation += 1
        self.retained = None
        try:
            with self._alloc_context(), torch.inference_mode(False):
                self._tensor = self._buffer.resize(nbytes)
        except torch.OutOfMemoryError as error:
            shrunk = ", after it had been shrunk" if self.returned_bytes else ""
            raise WorkspaceOutOfMemoryError(
                f"'{caller()}': {self} on {self.device} could not get {_both(nbytes)}{shrunk}, and is empty: {error}"
            ) from error
        self.capacity_bytes = nbytes
        self._blocked_bytes = 0

    def _drop_views(self) -> None:
        self._plans.drop_views(self)
        self._tensor = _NOTHING


def _views(tensor: torch.Tensor, parts: Iterable[Part]) -> list[torch.Tensor]:
    return [tensor[part.offset : part.offset + part.nbytes].view(part.dtype).view(part.shape) for part in parts]


def _both(nbytes: int) -> str:
    return f"{format_bytes(nbytes)} ({nbytes} B)"
