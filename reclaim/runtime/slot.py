"""The managed scratch of one slot: a buffer, the views cut from it, and the demand on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch

from reclaim.buffers import Buffer
from reclaim.errors import WorkspaceLockedError, WorkspaceStateError
from reclaim.runtime.errors import WorkspaceOutOfMemoryError
from reclaim.runtime.layout import ALIGNMENT, Part
from reclaim.runtime.plan import PlanRegister, WorkspacePlan
from reclaim.units import format_bytes, round_up

__all__ = ["Slot"]

_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


class Slot:
    """A `Scratch` that a `WorkspaceManager` owns. Only the manager and the reclaimer call its methods."""

    managed = True
    reclaimable = True

    __slots__ = (
        "_alloc_context",
        "_blocked_bytes",
        "_buffer",
        "_ceiling_bytes",
        "_floor_bytes",
        "_grow_target",
        "_plans",
        "_replaced",
        "_tensor",
        "capacity_bytes",
        "generation",
        "grew",
        "grow_seconds",
        "index",
        "lane",
        "reallocations",
        "required_bytes",
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
    ) -> None:
        self.index = index
        self.ubatch = ubatch
        self.lane = lane
        self.turn: list[None] = [None]
        self.capacity_bytes = 0
        self.required_bytes = 0
        self.generation = 0
        self.reallocations = 0
        self.returned_bytes = 0
        self.grow_seconds = 0.0
        self.grew = False
        self._buffer = buffer
        self._plans = plans
        self._alloc_context = alloc_context
        self._ceiling_bytes: int | None = None
        self._floor_bytes = 0
        self._grow_target: Callable[[int, int, float], int] | None = None
        self._replaced: Callable[[], None] | None = None
        self._blocked_bytes = 0  # what views outside kept from going back at the last shrink
        self._tensor = self._allocate(0)

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
        """Let it grow no further than now."""
        self._ceiling_bytes = self.capacity_bytes

    def unlock(self) -> None:
        """Let it grow again."""
        self._ceiling_bytes = None

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

    def begin_forward(self) -> None:
        """See `Scratch`."""
        self.required_bytes = 0
        self.grew = False

    def fits(self, nbytes: int) -> bool:
        """Whether a request of `nbytes` would succeed under the lock."""
        return self._ceiling_bytes is None or nbytes <= self._ceiling_bytes

    def cut(self, parts: Iterable[Part], nbytes: int) -> list[torch.Tensor]:
        """Views of the parts of a request of `nbytes`, growing first where needed."""
        if nbytes > self.capacity_bytes:
            self._grow(nbytes)
        if nbytes > self.required_bytes:  # after the growth: a refused request is no demand
            self.required_bytes = nbytes
        # Inside inference mode a view would become an inference tensor, which later forwards could not use.
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                return _views(self._tensor, parts)
        return _views(self._tensor, parts)

    def plan_views(self, plan: WorkspacePlan) -> tuple[torch.Tensor, ...]:
        """Cut and keep the views of a plan."""
        views = tuple(self.cut(plan.parts, plan.required_bytes))
        plan.views[self.index] = views
        return views

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
                f"views outside still use {self.stale_bytes} bytes of slot (ubatch {self.ubatch}, lane {self.lane}): "
                f"drop them, or release(force=True)"
            )
        self.abandon()

    def abandon(self) -> None:
        """Become empty, also while views outside still use the storage; it goes back with the last of them."""
        self._drop_views()
        self._buffer.abandon()
        self.capacity_bytes = 0
        self.generation += 1
        self._blocked_bytes = 0

    def _grow(self, nbytes: int) -> None:
        if not self.fits(nbytes):
            raise WorkspaceLockedError(self._locked_message(nbytes))
        started = time.monotonic()
        least = target = round_up(max(nbytes, self._floor_bytes), ALIGNMENT)
        if self._grow_target is not None:
            target = max(least, round_up(self._grow_target(nbytes, self.capacity_bytes, started), ALIGNMENT))
        if self._ceiling_bytes is not None:
            least, target = min(least, self._ceiling_bytes), min(target, self._ceiling_bytes)
        self.grew = True
        try:
            self._replace(target)
        except WorkspaceOutOfMemoryError:
            if target == least:
                raise
            self._replace(least)  # growing ahead was the policy's wish, not the layer's need
        self.reallocations += 1
        self.grow_seconds += time.monotonic() - started

    def _replace(self, nbytes: int) -> None:
        """Release, then allocate. On failure the slot is empty and clean."""
        self._drop_views()
        before = self.capacity_bytes
        self.capacity_bytes = 0
        self.generation += 1
        try:
            self._tensor = self._allocate(nbytes)
        except torch.OutOfMemoryError as error:
            raise WorkspaceOutOfMemoryError(
                f"slot (ubatch {self.ubatch}, lane {self.lane}) could not go from {format_bytes(before)} to "
                f"{format_bytes(nbytes)} on {self.device} and is empty now: {error}"
            ) from error
        self.capacity_bytes = nbytes
        self._blocked_bytes = 0

    def _allocate(self, nbytes: int) -> torch.Tensor:
        with self._alloc_context(), torch.inference_mode(False):
            return self._buffer.resize(nbytes)

    def _drop_views(self) -> None:
        self._plans.drop_views(self.index)
        self._tensor = _NOTHING

    def _locked_message(self, nbytes: int) -> str:
        return (
            f"the workspace is locked, and the request from {_caller()} needs {_both(nbytes)} in slot "
            f"(ubatch {self.ubatch}, lane {self.lane}), which may hold {_both(self._ceiling_bytes or 0)}: "
            f"make the warm-up run the largest shape, or unlock() before this request"
        )


def _views(tensor: torch.Tensor, parts: Iterable[Part]) -> list[torch.Tensor]:
    return [tensor[part.offset : part.offset + part.nbytes].view(part.dtype).view(part.shape) for part in parts]


def _both(nbytes: int) -> str:
    return f"{format_bytes(nbytes)} ({nbytes} B)"


def _caller() -> str:
    """file:line:function of the first frame outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "reclaim":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}:{frame.f_code.co_name}"
