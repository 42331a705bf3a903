"""RECLAIM_DEBUG=1: make mistakes with scratch show themselves, at the price of speed."""

from __future__ import annotations

import logging

import torch

from reclaim.runtime.caller import caller
from reclaim.runtime.plan import WorkspacePlan
from reclaim.runtime.slot import Slot
from reclaim.units import format_bytes

__all__ = ["DebugSlot"]

logger = logging.getLogger("reclaim")

POISON = 0xFF  # NaN in every floating dtype, -1 in signed integers


class DebugSlot(Slot):
    """A slot whose content turns to NaN as soon as nobody may rely on it any more.

    Every request gets fresh views, poisons the bytes of the request before, an intact retained span aside, and is
    poisoned itself; every forward begins with everything poisoned but that span. Resizes, lock and unlock are logged
    with the caller.
    """

    __slots__ = ()

    managed = False  # so that `begin_forward` is called

    def begin_forward(self, *, measure: bool = True) -> None:
        """See `Scratch`."""
        super().begin_forward(measure=measure)
        self._poison(self._spared())

    def count(self, nbytes: int, name: str) -> None:
        """See `Slot`."""
        before = self.last_bytes
        super().count(nbytes, name)
        self._poison(min(max(before, nbytes), self._spared()))

    def plan_views(self, plan: WorkspacePlan) -> tuple[torch.Tensor, ...]:
        """See `Slot`; keeps nothing."""
        views = super().plan_views(plan)
        plan.views.pop(self, None)
        return views

    def lock(self) -> None:
        """See `Slot`."""
        super().lock()
        logger.info("'%s' locked %s at %s on %s", caller(), self, format_bytes(self.capacity_bytes), self._where())

    def unlock(self) -> None:
        """See `Slot`."""
        super().unlock()
        logger.info("'%s' unlocked %s at %s on %s", caller(), self, format_bytes(self.capacity_bytes), self._where())

    def _replace(self, nbytes: int) -> None:
        before = self.capacity_bytes
        super()._replace(nbytes)
        logger.info(
            "'%s' resized %s: %s -> %s on %s",
            caller(),
            self,
            format_bytes(before),
            format_bytes(nbytes),
            self._where(),
        )

    def _spared(self) -> int:
        """Where an intact retained span begins, or the end."""
        return self.capacity_bytes if self.retained is None else self.retained.start

    def _where(self) -> str:
        if self.device.type == "cpu":
            return str(self.device)
        return f"{self.device}, stream {torch.accelerator.current_stream().stream_id}"

    def _poison(self, nbytes: int) -> None:
        with torch.inference_mode(False), torch.no_grad():
            self._tensor[:nbytes].fill_(POISON)
