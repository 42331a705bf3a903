"""The managed scratch of one slot: the requests on its storage, and the demand they make."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch

from reclaim.buffers import Buffer
from reclaim.runtime.layout import ALIGNMENT, Part
from reclaim.runtime.persistent import PersistentStore
from reclaim.runtime.plan import PlanRegister, WorkspacePlan
from reclaim.runtime.slot_storage import SlotStorage
from reclaim.runtime.tracing import refuse_tracing
from reclaim.units import round_up

__all__ = ["Retained", "Slot"]


class Retained(NamedTuple):
    """The tail span that was handed out last: bytes [start, capacity), of which nbytes were asked for."""

    key: Hashable
    start: int
    nbytes: int


class Slot(SlotStorage):
    """A `Scratch` that a `WorkspaceManager` owns. Only the manager and the reclaimer call its methods."""

    managed = True
    reclaimable = True
    in_graph = False

    __slots__ = (
        "_recorded",
        "index",
        "lane",
        "last_bytes",
        "persistent",
        "required_by",
        "required_bytes",
        "retained",
        "turn",
        "ubatch",
        "unsettled",
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
        super().__init__(buffer, plans, alloc_context, on_pressure)
        self.index = index
        self.ubatch = ubatch
        self.lane = lane
        self.turn: list[None] = [None]
        self.required_bytes = 0
        self.required_by: str | None = None
        self.last_bytes = 0  # of the last request, whose views live until the next one
        self.retained: Retained | None = None
        self.persistent = PersistentStore(str(self))
        self._recorded: set[tuple[int, int]] = set()  # (generation, stream) that the allocator knows of
        self._retain(None)

    def __str__(self) -> str:
        return f"slot (ubatch {self.ubatch}, lane {self.lane})"

    def lock(self) -> None:
        """Let it grow no further than now, and take no new persistent key."""
        self._ceiling_bytes = self.capacity_bytes
        self.persistent.locked = True

    def unlock(self) -> None:
        """Let it grow again."""
        self._ceiling_bytes = None
        self.persistent.locked = False

    def begin_forward(self, *, measure: bool = True) -> None:
        """See `Scratch`."""
        self.required_bytes = 0
        self.grew = False

    def end_forward(self) -> None:
        """See `Scratch`."""

    def end_capture(self) -> None:
        """See `Scratch`; the requests have done it."""

    def count(self, nbytes: int, name: str) -> None:
        """Let a request of `nbytes` from the start, which fits, count as demand and end what it reaches into."""
        if self.streams is not None:
            self._watch(nbytes)
        self.last_bytes = nbytes
        retained = self.retained
        if retained is not None:
            if nbytes > retained.start:
                self._retain(None)
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
        if self.streams is not None:
            self._watch(self.capacity_bytes)
        start = self.capacity_bytes - span
        retained = Retained(key, start, part.nbytes)
        intact = self.retained == retained
        self._retain(retained)
        if live + span > self.required_bytes:
            self.required_bytes = live + span
            self.required_by = f"retained {key!r}"
        (view,) = self._views((part._replace(offset=start),))
        return view, intact

    def _watch(self, nbytes: int) -> None:
        """On an accelerator: what the stream of a request that reaches up to `nbytes` means for the storage."""
        assert self.streams is not None
        stream = self.streams.current()
        if self.streams.capturing(stream):
            self.captured_bytes = max(self.captured_bytes, nbytes)
            if self._client is not None:
                self._client.captured()
            return
        seen = (self.generation, stream.stream_id)
        if seen not in self._recorded:
            # The allocator must not hand freed storage out again before this stream has passed it.
            self._recorded = {pair for pair in self._recorded if pair[0] == self.generation} | {seen}
            if self._tensor.numel():
                self._tensor.record_stream(stream)
        if not self.streams.strays(stream):
            self.streams.settled = stream
        elif self._client is not None:
            self._client.strayed()

    def _changed(self, nbytes: int) -> None:
        super()._changed(nbytes)
        self._retain(None)
        if self.streams is not None:
            self.streams.settled = None

    def _retain(self, retained: Retained | None) -> None:
        self.retained = retained
        # Asked before kept views are handed out as they are; None where there is nothing to ask.
        self.unsettled: Callable[[], bool] | None = None
        if retained is not None:
            self.unsettled = _always
        elif self.streams is not None:
            self.unsettled = self.streams.unsettled


def _always() -> bool:
    return True
