"""The scratch of captured graphs, beside the one of eager forwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from reclaim.buffers import Buffer
from reclaim.errors import WorkspaceStateError
from reclaim.runtime.caller import caller
from reclaim.runtime.plan import PlanRegister
from reclaim.runtime.slot import Slot
from reclaim.units import format_bytes

__all__ = ["GraphSlot"]


class GraphSlot(Slot):
    """What requests inside `use_graph_workspace` get. No reclaimer serves it, so that it never shrinks.

    It grows while the shapes of the graphs are warmed up. Once a capture was handed its address, it does not move.
    Persistent objects are those of the slot beside it: eager forwards and graphs share their counters.
    """

    __slots__ = ()

    def __init__(
        self,
        beside: Slot,
        buffer: Buffer,
        plans: PlanRegister,
        alloc_context: Callable[[], AbstractContextManager[object]],
        on_pressure: Callable[[int], object] | None,
    ) -> None:
        super().__init__(beside.index, beside.ubatch, beside.lane, buffer, plans, alloc_context, on_pressure)
        self.persistent = beside.persistent

    def __str__(self) -> str:
        return f"graph workspace (ubatch {self.ubatch}, lane {self.lane})"

    def _check_growth(self, nbytes: int) -> None:
        super()._check_growth(nbytes)
        if self.captured_bytes and not self.address_stable:
            raise WorkspaceStateError(
                f"'{caller()}' asks {self} for {format_bytes(nbytes)}, and captured graphs hold its "
                f"{format_bytes(self.capacity_bytes)} in place: warm up the largest shape before the first capture, or "
                f"release(graph=True) after the graphs are gone"
            )
