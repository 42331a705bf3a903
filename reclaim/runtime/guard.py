"""Whether a forward may be reclaimed, and why not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from reclaim.errors import WorkspaceStateError
from reclaim.runtime.environment import DISABLE, is_set
from reclaim.runtime.scratch import Scratch
from reclaim.traces import events

__all__ = ["Guard"]

logger = logging.getLogger("reclaim")

# Why reclaiming is off, besides the environment variable.
_CAPTURE = "capture"
_ERROR = "error"
_REGROW_FAILED = "regrow-failed"
_REPLACED = "replaced"
_STREAM = "stream"


class Guard:
    """The conditions of one scratch, in their order: graph, dummy, warm-up or capture; disabled; owner's flag; stream.

    That no other forward is active comes before them all, and is the scratch's turn.
    """

    def __init__(self, scratch: Scratch, changed: Callable[[], None]) -> None:
        """`changed`: called when `plain` may have changed."""
        self.disabled_reason: str | None = None
        if is_set(DISABLE):
            self.disabled_reason = DISABLE
        elif scratch.captured_bytes and not scratch.address_stable:
            self.disabled_reason = _CAPTURE
        self._warming_up = False
        self._scratch = scratch
        self._changed = changed
        self._streams = scratch.streams
        if self._streams is not None and not self._streams.sees_capture:
            logger.warning("graph capture cannot be told on %s with this torch: declare graph forwards", scratch.device)

    @property
    def plain(self) -> bool:
        """Whether no undeclared forward can be stopped by anything here, so that `check` need not be asked."""
        return self._streams is None and self.disabled_reason is None and not self._warming_up and self._scratch.managed

    @property
    def sees_capture(self) -> bool | None:
        """Whether graph capture can be told; None on a CPU, where there is none."""
        return None if self._streams is None else self._streams.sees_capture

    @property
    def warming_up(self) -> bool:
        """Whether forwards pass through as warm-up."""
        return self._warming_up

    @warming_up.setter
    def warming_up(self, on: bool) -> None:
        self._warming_up = on
        self._changed()

    def check(self, graph: bool, dummy: bool, multi_stream: bool) -> str | None:
        """Why this forward passes through, as an event, or None."""
        if graph:
            return events.passed("graph")
        if dummy:
            return events.passed("dummy")
        if self._warming_up:
            return events.passed("warmup")
        if self._streams is not None and self._streams.capturing():
            return events.passed("capture")
        if self.disabled_reason is None:
            if not self._scratch.reclaimable:
                return events.UNRECLAIMABLE
            if multi_stream:
                self._disable(_STREAM, "the engine runs this forward on several streams")
            elif self._streams is not None and not self._streams.begin():
                self._disable(_STREAM, "a forward runs on another stream than the first; rearm() to go on with it")
        return self.disabled_event()

    def disabled_event(self) -> str | None:
        """The event of a forward while reclaiming is off; None while it is on."""
        return None if self.disabled_reason is None else events.disabled(self.disabled_reason)

    def captured(self) -> None:
        """A graph was captured that holds the address: scratch that moves is then fixed for good."""
        if not self._scratch.address_stable:
            self._disable(_CAPTURE, "a graph was captured that holds this scratch's address")

    def strayed(self) -> None:
        """A layer of an observed forward works on another stream."""
        self._disable(_STREAM, "a request came on another stream than that of the forwards")

    def regrowth_failed(self) -> None:
        """Memory that was given back could not be had again."""
        self._disable(_REGROW_FAILED, "memory that had been given back could not be had again")

    def replaced(self) -> None:
        """Another reclaimer serves the scratch from now on."""
        logger.info("another reclaimer was built over this scratch; the one before passes through from now on")
        self.disabled_reason = _REPLACED
        self._changed()

    def give_up(self) -> None:
        """Called while an exception of ours is handled, which must not reach the user's forward."""
        logger.exception("the reclaimer met an error and switches itself off")
        self._disable(_ERROR, "see the error above; rearm() tries again")

    def rearm(self) -> bool:
        """Reclaim again; whether it was off. Waits for the device.

        Raises WorkspaceStateError when a captured graph holds the scratch's address, when another reclaimer serves the
        scratch, or when the environment forbids it.
        """
        refusals = {
            _CAPTURE: "a captured graph holds this scratch's address: it can never move again",
            _REPLACED: "another reclaimer was built over this scratch: use that one",
            DISABLE: f"{DISABLE} was set when this reclaimer was built",
        }
        if self.disabled_reason in refusals:
            raise WorkspaceStateError(refusals[self.disabled_reason])
        if self._streams is not None:
            self._streams.forget()
        was_off = self.disabled_reason is not None
        if was_off:
            logger.info("reclaiming of %s is on again (it was off: %s)", self._scratch, self.disabled_reason)
        self.disabled_reason = None
        self._changed()
        return was_off

    def _disable(self, reason: str, why: str) -> None:
        if self.disabled_reason is None:
            logger.warning("reclaiming of %s is off (%s): %s", self._scratch, reason, why)
        self.disabled_reason = reason
        self._changed()
