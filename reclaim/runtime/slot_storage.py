"""The memory of one slot: holding it, growing it, giving it back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch

from reclaim.buffers import Buffer
from reclaim.buffers.memory import free_bytes, release_cached
from reclaim.errors import WorkspaceLockedError, WorkspaceStateError
from reclaim.runtime.caller import caller
from reclaim.runtime.errors import WorkspaceOutOfMemoryError
from reclaim.runtime.graphs import capture_declared
from reclaim.runtime.layout import ALIGNMENT, Part
from reclaim.runtime.plan import PlanRegister
from reclaim.runtime.scratch import ScratchClient
from reclaim.runtime.streams import StreamWatch
from reclaim.units import format_bytes, round_up

__all__ = ["SlotStorage"]

_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


class SlotStorage:
    """A buffer, the tensor over it, and the rules by which it changes size. `Slot` adds the requests.

    What a captured graph was handed stays where it is: scratch with a stable address keeps that prefix, scratch that
    moves keeps the old storage for the graph when it has to grow, and a graph workspace refuses to grow.
    """

    __slots__ = (
        "_alloc_context",
        "_blocked_bytes",
        "_buffer",
        "_ceiling_bytes",
        "_client",
        "_floor_bytes",
        "_for_graphs",
        "_on_pressure",
        "_plans",
        "_tensor",
        "_to_driver",
        "capacity_bytes",
        "captured_bytes",
        "failed_growths",
        "generation",
        "grew",
        "grow_seconds",
        "reallocations",
        "returned_bytes",
        "streams",
    )

    def __init__(
        self,
        buffer: Buffer,
        plans: PlanRegister,
        alloc_context: Callable[[], AbstractContextManager[object]],
        on_pressure: Callable[[int], object] | None,
    ) -> None:
        self.capacity_bytes = 0
        self.captured_bytes = 0
        self.generation = 0
        self.reallocations = 0
        self.failed_growths = 0
        self.returned_bytes = 0
        self.grow_seconds = 0.0
        self.grew = False
        self.streams = None if buffer.device.type == "cpu" else StreamWatch(buffer.device)
        self._buffer = buffer
        self._plans = plans
        self._alloc_context = alloc_context
        self._on_pressure = on_pressure
        self._client: ScratchClient | None = None
        self._floor_bytes = 0
        self._to_driver = True
        self._ceiling_bytes: int | None = None
        self._blocked_bytes = 0  # what views outside kept from going back at the last shrink
        self._tensor = _NOTHING
        self._for_graphs: list[torch.Tensor] = []  # outgrown, but captured graphs use them

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

    def bind(self, floor_bytes: int, client: ScratchClient, *, to_driver: bool) -> int:
        """See `Scratch`."""
        if self._client is not None and self._client is not client:
            self._client.replaced()
        self._floor_bytes = round_up(floor_bytes, ALIGNMENT)
        self._client = client
        self._to_driver = to_driver
        return self._floor_bytes

    def fits(self, nbytes: int) -> bool:
        """Whether a request of `nbytes` would succeed under the lock."""
        return self._ceiling_bytes is None or nbytes <= self._ceiling_bytes

    def ensure(self, nbytes: int) -> None:
        """Grow where a request of `nbytes` would need it."""
        if nbytes > self.capacity_bytes:
            self._grow(nbytes)

    def reallocate(self, nbytes: int) -> bool:
        """See `Scratch`."""
        self._drop_views()
        pinned = self._buffer.pinned_bytes
        if pinned > nbytes:
            self._tensor = self._buffer.reopen()
            self._blocked_bytes = pinned - nbytes
            return False
        before = self._buffer.system_bytes
        self._replace(nbytes)
        self.returned_bytes += max(0, before - self._buffer.system_bytes)
        return True

    def release(self, *, force: bool) -> None:
        """Shrink to the floor, or with `force` to nothing, whoever has views or captured it.

        Without `force`, raises WorkspaceStateError when views outside or captured graphs still use what would go.
        """
        target = 0 if force else self._floor_bytes
        if self.capacity_bytes <= target and not (force and self._for_graphs):
            return
        if self.captured_bytes > target and not force:
            raise WorkspaceStateError(
                f"captured graphs use {self.captured_bytes} bytes of {self}: drop them, then release(force=True)"
            )
        self._for_graphs.clear()
        self.captured_bytes = 0
        if self.reallocate(target):
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
        self._changed(0)
        self._blocked_bytes = 0

    def _views(self, parts: Iterable[Part]) -> list[torch.Tensor]:
        # Inside inference mode a view would become an inference tensor, which later forwards could not use. A view
        # of the detached tensor leaves the history of what is written to it to itself.
        with torch.inference_mode(False):
            try:
                tensor = self._tensor.detach()
                return [
                    tensor[part.offset : part.offset + part.nbytes].view(part.dtype).view(part.shape) for part in parts
                ]
            except AssertionError as error:  # how FakeTensorMode refuses real tensors
                raise WorkspaceStateError(
                    f"scratch cannot be handed out under FakeTensorMode; reserve what is needed outside it: {error}"
                ) from error

    def _grow(self, nbytes: int) -> None:
        self._check_growth(nbytes)
        started = time.monotonic()
        least = target = round_up(max(nbytes, self._floor_bytes), ALIGNMENT)
        if self._client is not None:
            target = max(least, round_up(self._client.grow_target(nbytes, self.capacity_bytes, started), ALIGNMENT))
        if self._ceiling_bytes is not None:
            least, target = min(least, self._ceiling_bytes), min(target, self._ceiling_bytes)
        self.grew = True
        if self.captured_bytes and not self.address_stable:
            self._for_graphs.append(self._tensor)
        self._drop_views()
        try:
            self._replace(target)
        except WorkspaceOutOfMemoryError:
            self._replace_under_pressure(least)  # growing ahead was the policy's wish, not the layer's need
        self.reallocations += 1
        self.grow_seconds += time.monotonic() - started

    def _check_growth(self, nbytes: int) -> None:
        """Raise before anything changes where it must not grow."""
        if not self.fits(nbytes):
            raise WorkspaceLockedError(
                f"Workspace is locked but allocation from '{caller()}' requires {_both(nbytes)}, current size is "
                f"{_both(self.capacity_bytes)} of at most {_both(self._ceiling_bytes or 0)} in {self}. Let the "
                f"warm-up run the largest shape, or unlock() before this request."
            )
        if self.streams is not None and self.streams.capturing():
            raise WorkspaceStateError(
                f"'{caller()}' asks {self} for {_both(nbytes)} while a graph is captured, and it holds only "
                f"{_both(self.capacity_bytes)}: run this shape once, uncaptured, before the capture"
            )

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
        self._changed(0)
        try:
            with self._alloc_context(), torch.inference_mode(False):
                self._tensor = self._buffer.resize(nbytes, to_driver=self._to_driver and not capture_declared())
        except torch.OutOfMemoryError as error:
            shrunk = ", after it had been shrunk" if self.returned_bytes else ""
            free = free_bytes(self.device)
            left = "" if free is None else f"; the system has {format_bytes(free)} left there"
            raise WorkspaceOutOfMemoryError(
                f"'{caller()}': {self} on {self.device} could not get {_both(nbytes)}{shrunk}, and is empty{left}: "
                f"{error}"
            ) from error
        self.capacity_bytes = nbytes
        self._blocked_bytes = 0

    def _changed(self, nbytes: int) -> None:
        """Another storage, of `nbytes`, from now on."""
        self.capacity_bytes = nbytes
        self.generation += 1

    def _drop_views(self) -> None:
        self._plans.drop_views(self)
        self._tensor = _NOTHING


def _both(nbytes: int) -> str:
    return f"{format_bytes(nbytes)} ({nbytes} B)"
