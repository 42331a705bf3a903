"""The lines that a slot writes to a recorder, which must never fail a forward."""

from __future__ import annotations

import logging

from reclaim.runtime.scratch import Scratch
from reclaim.traces import TraceRecorder

__all__ = ["Recording"]

logger = logging.getLogger("reclaim")

_SAMPLE_S = 0.1  # reserved bytes, which take a millisecond to count, are sampled at resizes, and else so often


class Recording:
    """What one scratch does, line by line. A recorder that fails is dropped and reported once."""

    def __init__(self, recorder: TraceRecorder, scratch: Scratch) -> None:
        self._recorder: TraceRecorder | None = recorder
        self._scratch = scratch
        self._sample_due = 0.0

    def resized(self) -> None:
        """Let the next line say what the system holds."""
        self._sample_due = 0.0

    def append(self, started: float, ended: float, demand: int, capacity: int, event: str | None) -> None:
        """A forward: times of the monotonic clock, sizes in bytes, and what became of it."""
        if self._recorder is None:
            return
        try:
            reserved = None
            if ended >= self._sample_due:
                reserved = self._scratch.reserved_bytes
                self._sample_due = ended + _SAMPLE_S
            self._recorder.append(started, ended - started, demand, capacity, reserved, event)
        except Exception as error:
            logger.warning("recording stopped: %s", error)
            self._recorder = None
