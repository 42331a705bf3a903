"""The workspace of an engine: one scratch a slot, handed out as views."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from reclaim.buffers import Buffer, choose_buffer
from reclaim.errors import WorkspaceStateError
from reclaim.runtime.caller import caller
from reclaim.runtime.debug import DebugSlot
from reclaim.runtime.environment import DEBUG, is_set
from reclaim.runtime.graph_slot import GraphSlot
from reclaim.runtime.layout import lay_out
from reclaim.runtime.plan import PlanRegister, WorkspacePlan
from reclaim.runtime.scratch import between_forwards
from reclaim.runtime.selection import FIRST, selection
from reclaim.runtime.slot import Slot
from reclaim.runtime.stats import SlotStats, WorkspaceStats
from reclaim.runtime.tracing import refuse_tracing

__all__ = ["WorkspaceManager"]

Request = tuple[Iterable[int], torch.dtype]
T = TypeVar("T")

_RECENT_REQUESTS = 512  # as many distinct requests keep their views; more, and all are forgotten

_gradients_on = torch.is_grad_enabled  # looked up once: `get` is called by every layer


class WorkspaceManager:
    """Scratch memory shared by all layers of an engine; takes the place of vLLM's class of the same name.

    A slot is a (micro-batch, lane) pair. Each has one untyped buffer, which grows to the largest request so far, and
    from which every request is cut anew: what a layer left there is gone at the next request. Views are valid until
    the next request; those of a plan, until the slot is resized.

    Requests are (shape, dtype) pairs. Each part starts at a multiple of 256 bytes.
    """

    def __init__(
        self,
        device: torch.device | str,
        num_ubatches: int | None = None,
        num_lanes: int = 1,
        alloc_context: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        buffer: str = "auto",
        ubatch_of: Callable[[], int] | None = None,
        max_bytes: int | None = None,
        on_pressure: Callable[[int], object] | None = None,
        persistent_in_context: bool = False,
    ) -> None:
        """Set up the slots; nothing is allocated before the first request.

        device: where the scratch lives.
        num_ubatches, num_lanes: at least one each; num_ubatches None means one.
        alloc_context: entered around every allocation of scratch.
        buffer: "auto" or the name of a buffer; see reclaim.buffers.
        ubatch_of: asked at every request for the running micro-batch, in place of `use_ubatch`.
        max_bytes: the largest capacity that keeps its address; default the memory of the device.
        on_pressure: called with the bytes needed when a growth fails, to make room; the growth is then tried again.
        persistent_in_context: enter alloc_context around persistent tensors too. Off by default: a sleep pool that
            drops its content would lose counters and locks kept there.

        Raises ValueError when a count is below one or no such buffer serves the device.
        """
        num_ubatches = 1 if num_ubatches is None else num_ubatches
        for name, count in (("num_ubatches", num_ubatches), ("num_lanes", num_lanes)):
            if count < 1:
                raise ValueError(f"{name} must be at least one, got {count}")
        self.device = torch.device(device)
        self._num_ubatches = num_ubatches
        self._num_lanes = num_lanes
        self._ubatch_of = ubatch_of
        self._plans = PlanRegister()
        debugging = is_set(DEBUG)

        def make_buffer() -> Buffer:
            return choose_buffer(self.device, buffer, max_bytes=max_bytes, guard_tail=debugging)

        make_slot = DebugSlot if debugging else Slot
        shared = (self._plans, alloc_context, on_pressure)
        self._slots: tuple[Slot, ...] = tuple(
            make_slot(index, index // num_lanes, index % num_lanes, make_buffer(), *shared)
            for index in range(num_ubatches * num_lanes)
        )
        self._graph_slots = tuple(GraphSlot(slot, make_buffer(), *shared) for slot in self._slots)
        self._first = self._slots[0]
        self._first_selection = FIRST if ubatch_of is None else None  # what `get` need not look up
        self._persistent_context = alloc_context if persistent_in_context else nullcontext
        self._recent: dict[tuple[Request, ...], WorkspacePlan] = {}

    def get_simultaneous(self, *requests: Request) -> list[torch.Tensor]:
        """Views of all parts, which live side by side in the current slot; it grows where needed.

        With gradients off, the same request gives the same view objects until the slot is resized: do not change
        their shape in place.
        Raises ValueError for an impossible size, WorkspaceLockedError when it would have to grow while locked,
        WorkspaceOutOfMemoryError when it cannot.
        """
        try:
            plan = self._recent[requests]
        except (KeyError, TypeError):  # the latter by a list as shape, which has no hash
            plan = self._recall(requests)
        return [*self.get(plan)]

    def try_get_simultaneous(self, *requests: Request) -> list[torch.Tensor] | None:
        """Like `get_simultaneous`, but None where that would raise WorkspaceLockedError."""
        plan = self._recall(requests)
        return list(self.get(plan)) if self.current_slot().fits(plan.required_bytes) else None

    def plan(self, *requests: Request, name: str | None = None) -> WorkspacePlan:
        """Work a request out once, for `get`. Nothing is allocated yet.

        name: what to call it in reports; default the file, line and function of the caller.
        Raises WorkspaceStateError while tracing, ValueError for an impossible size.
        """
        refuse_tracing()
        parts, nbytes = lay_out(requests)
        return WorkspacePlan(parts, nbytes, self._plans, name or caller())

    def get(self, plan: WorkspacePlan) -> tuple[torch.Tensor, ...]:
        """The views of a plan of this manager; the same objects until the slot is resized, unless gradients are on.

        Raises as `get_simultaneous` does, and ValueError for another manager's plan.
        """
        # The fast path of every layer: no call of ours, and what is rare is left to `_get_slowly`.
        slot = self._first if selection() is self._first_selection else self.current_slot()
        try:
            views = plan.views[slot]
        except KeyError:
            return self._get_slowly(slot, plan)
        unsettled = slot.unsettled
        if (unsettled is not None and unsettled()) or _gradients_on():
            return self._get_slowly(slot, plan)
        slot.last_bytes = nbytes = plan.required_bytes
        if nbytes > slot.required_bytes:
            slot.required_bytes = nbytes
            slot.required_by = plan.name
        return views

    def _get_slowly(self, slot: Slot, plan: WorkspacePlan) -> tuple[torch.Tensor, ...]:
        if plan.register is not self._plans:
            raise ValueError(f"{plan} belongs to another workspace: plan it on this one")
        views = plan.views.get(slot)
        if views is None or _gradients_on():
            return slot.plan_views(plan)
        slot.count(plan.required_bytes, plan.name)
        return views

    def reserve(self, *requests: Request, all_slots: bool = True) -> None:
        """Let every slot, or the current one, grow to this request now. It hands out nothing and is no demand.

        Inside `use_graph_workspace`, the workspaces of graphs.
        """
        _, nbytes = lay_out(requests)
        everyone = self._graph_slots if selection().graph else self._slots
        for slot in everyone if all_slots else (self.current_slot(),):
            slot.ensure(nbytes)

    def get_persistent(
        self, key: Hashable, shape: Iterable[int], dtype: torch.dtype, *, zero_init: bool = False
    ) -> torch.Tensor:
        """A tensor of its own for `key` in the current slot, the same at every request; zeroed once with `zero_init`.

        Raises ValueError when shape or dtype differ from the first request's, and as `get_persistent_resource`.
        """
        (part,), _ = lay_out(((shape, dtype),))

        def make() -> torch.Tensor:
            factory = torch.zeros if zero_init else torch.empty
            with self._persistent_context(), torch.inference_mode(False):
                return factory(part.shape, dtype=dtype, device=self.device)

        tensor: torch.Tensor = self.current_slot().persistent.get((torch.Tensor, key), make)
        if tuple(tensor.shape) != part.shape or tensor.dtype != dtype:
            raise ValueError(
                f"persistent workspace {key!r} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}; "
                f"requested shape {part.shape} and dtype {dtype}: use another key"
            )
        return tensor

    def get_persistent_resource(self, key: Hashable, factory: Callable[[], T]) -> T:
        """What `factory` made for `key` in the current slot at the first request. A factory may ask for other keys.

        Raises WorkspaceLockedError for a new key while locked, WorkspaceStateError when a factory asks for its own.
        """
        made: T = self.current_slot().persistent.get(key, factory)
        return made

    def get_retained(self, key: Hashable, shape: Iterable[int], dtype: torch.dtype) -> tuple[torch.Tensor, bool]:
        """A view of the end of the current slot, which outlives requests, and whether it is intact.

        Intact: it still holds what the last `get_retained` left there, which had the same key and size, and since
        which no request reached into it and the slot was not resized. Only the latest key is remembered. The span
        never overlaps the views of the last request; the slot grows instead. Raises as `get_simultaneous`.
        """
        (part,), _ = lay_out(((shape, dtype),))
        return self.current_slot().retain(key, part)

    def lock(self) -> None:
        """From now on no slot grows beyond its present capacity, and no new persistent key is taken.

        Requests that would need it raise WorkspaceLockedError.
        """
        for slot in (*self._slots, *self._graph_slots):
            slot.lock()

    def unlock(self) -> None:
        """Let slots grow again."""
        for slot in (*self._slots, *self._graph_slots):
            slot.unlock()

    def is_locked(self) -> bool:
        """Whether `lock` is in force."""
        return self._first.locked

    def release(self, *, force: bool = False, graph: bool = False) -> None:
        """Give back what lies above the floor of every slot; with `force`, everything.

        graph: all of the workspaces of graphs instead, which are then assumed to be gone.

        Without `force`, raises WorkspaceStateError when views outside or captured graphs still use a slot. With it,
        those views keep their memory and the slot starts anew. Inside a forward it always raises WorkspaceStateError.
        Slots are released one by one: those before the one that raises stay released.
        """
        for slot in self._graph_slots if graph else self._slots:
            with between_forwards(slot, "release()"):
                slot.release(force=force or graph)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The scratch of every slot, ordered by micro-batch, then lane; those of graphs are not among them."""
        return self._slots

    def current_slot(self) -> Slot:
        """The slot of the running code. Raises WorkspaceStateError when it is not configured."""
        ubatch, lane, graph = selection()
        if self._ubatch_of is not None:
            ubatch = self._ubatch_of()
        if not 0 <= ubatch < self._num_ubatches:
            raise WorkspaceStateError(
                f"ubatch {ubatch} is not configured; the manager has {self._num_ubatches}: pass a larger num_ubatches"
            )
        if lane >= self._num_lanes:
            raise WorkspaceStateError(
                f"workspace lane {lane} is not configured; the manager has {self._num_lanes}: pass a larger num_lanes"
            )
        return (self._graph_slots if graph else self._slots)[ubatch * self._num_lanes + lane]

    def _recall(self, requests: tuple[Request, ...]) -> WorkspacePlan:
        """The plan of a request seen lately, or a new one."""
        try:
            return self._recent[requests]
        except KeyError:
            pass
        except TypeError:  # a list as shape has no hash
            return self.plan(*requests)
        if len(self._recent) >= _RECENT_REQUESTS:
            self._recent.clear()
        plan = self._recent[requests] = self.plan(*requests)
        return plan

    def stats(self) -> WorkspaceStats:
        """What every slot holds now, and the workspaces of graphs that were used.

        May be called from any thread; each figure is read by itself.
        """
        return WorkspaceStats(
            tuple(
                SlotStats(
                    ubatch=slot.ubatch,
                    lane=slot.lane,
                    graph=isinstance(slot, GraphSlot),
                    buffer=slot.buffer_name,
                    capacity_bytes=slot.capacity_bytes,
                    reserved_bytes=slot.reserved_bytes,
                    required_bytes=slot.required_bytes,
                    required_by=slot.required_by if slot.required_bytes else None,
                    stale_bytes=slot.stale_bytes,
                    generation=slot.generation,
                    captured_bytes=slot.captured_bytes,
                    locked=slot.locked,
                )
                for slot in (*self._slots, *(slot for slot in self._graph_slots if slot.generation))
            )
        )
