"""One scratch under one policy: the guards before a forward, and the decision after it.

Nothing of ours may break a user's forward. Every call into a policy, a recorder or an owner's flag that happens in
one is therefore guarded: a fault is logged, reclaiming of the slot is switched off, and the forward goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ContextDecorator
from math import inf
from time import monotonic
from types import TracebackType

from reclaim.errors import OverlappingForwardError, WorkspaceStateError
from reclaim.policy.granule import GranulePolicy
from reclaim.runtime.attribution import Attribution
from reclaim.runtime.guard import Guard
from reclaim.runtime.recording import Recording
from reclaim.runtime.scratch import Scratch, between_forwards
from reclaim.runtime.shrinker import Shrinker
from reclaim.runtime.stats import SlotReclaimStats
from reclaim.runtime.tally import Tally
from reclaim.traces import TraceRecorder, events
from reclaim.units import format_bytes

__all__ = ["SlotReclaimer"]

logger = logging.getLogger("reclaim")


class SlotReclaimer(ContextDecorator):
    """The state of one slot. It is itself the context manager of a forward that declares nothing.

    As a decorator it wraps a function in such a forward, on this slot.

    Guards, in this order: an active forward; a graph, dummy or captured forward; disabled or not reclaimable; a
    changed stream. Between `enter` and `exit` the scratch's turn is taken.
    """

    def __init__(
        self,
        scratch: Scratch,
        make_policy: Callable[[int, int], GranulePolicy],
        floor_bytes: int,
        recorder: TraceRecorder | None,
        spec: str | None = None,
        attribute: bool = False,
        to_driver: bool = True,
    ) -> None:
        """`make_policy`: (floor_bytes, granule_bytes) -> a fresh policy. `spec`: what it is made from.

        to_driver: let what is given back leave the allocator's cache, too.
        attribute: tell which plan set each forward's demand; costs what the short path saves.
        """
        self.scratch = scratch
        self._guard = Guard(scratch, self._choose_path)
        self._begun = False
        self._make_policy = make_policy
        self._recording = None if recorder is None else Recording(recorder, scratch)
        self._spec = spec
        self._to_driver = to_driver
        self._attribution = Attribution() if attribute else None
        self._turn = scratch.turn
        self._passing: str | None = None
        self._started = 0.0
        self._rearmed = False
        self._tally = Tally(scratch)
        self._shrinker = Shrinker(scratch)
        self._set_floor(floor_bytes)

    def warm_up(self, on: bool) -> None:
        """Let forwards pass through from now on; or no longer, with what the scratch then holds as the floor.

        Raises WorkspaceStateError inside a forward.
        """
        with between_forwards(self.scratch, "warmup()"):
            self._guard.warming_up = on
            # An old floor must not raise what this warm-up needs.
            self._set_floor(0 if on else self.scratch.capacity_bytes)
            if not on:
                logger.info("%s was warmed up: its floor is %s", self.scratch, format_bytes(self.floor_bytes))

    @property
    def disabled_reason(self) -> str | None:
        """Why it passes everything through; None while it reclaims."""
        return self._guard.disabled_reason

    @property
    def floor_bytes(self) -> int:
        """Never shrunk below."""
        return self._policy.floor_bytes

    @property
    def policy_name(self) -> str:
        """What the policy calls itself."""
        return self._policy.policy.name

    def __enter__(self) -> None:
        if self._watchful:
            self.enter()
            return
        # The short path: nothing can stop this forward but another one.
        try:
            self._turn.pop()
        except IndexError:
            raise _overlapping() from None
        scratch = self.scratch
        scratch.required_bytes = 0
        scratch.grew = False
        if self._timed:
            self._started = monotonic()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        scratch = self.scratch
        if self._watchful or exc_type is not None or scratch.grew:
            self.exit(failed=exc_type is not None)
            return
        try:
            ended = monotonic() if self._timed else 0.0
            demand, capacity = scratch.required_bytes, scratch.capacity_bytes
            tally = self._tally
            if demand > tally.peak_demand:
                tally.peak_demand = demand
            tally.observed += 1
            target = self._policy.finish_forward(demand, capacity, False, self._started, ended)
            event = None if target is None else self._shrink(target)
            if self._recording is not None:
                self._recording.append(self._started, ended, demand, capacity, event)
        except Exception:
            self._guard.give_up()
        finally:
            self._turn.append(None)

    def begin(self, graph: bool, dummy: bool, multi_stream: bool) -> None:
        """`enter`, for a forward that `end` will end."""
        self.enter(graph, dummy, multi_stream)
        self._begun = True

    def end(self, failed: bool) -> None:
        """`exit`, for a forward that `begin` began. Raises WorkspaceStateError when none was."""
        if not self._begun:
            raise WorkspaceStateError("end() without begin(): no forward of this slot was begun so")
        self._begun = False
        self.exit(failed)

    def enter(self, graph: bool = False, dummy: bool = False, multi_stream: bool = False) -> None:
        """Begin a forward. Raises OverlappingForwardError when one is active, before anything else."""
        try:
            self._turn.pop()
        except IndexError:
            raise _overlapping() from None
        try:
            self._started = monotonic()
            scratch = self.scratch
            scratch.required_bytes = 0
            scratch.grew = False
            self._passing = self._guard.check(graph or scratch.in_graph, dummy, multi_stream)
            if self._passing == events.UNRECLAIMABLE:
                self._policy.policy.reset()
            if self._passing is None:
                scratch.begin_forward(measure=self._recording is not None)
        except Exception:
            self._guard.give_up()
            self._passing = self._guard.disabled_event()
        except BaseException:  # Ctrl-C: the body will not run
            self._turn.append(None)
            raise

    def exit(self, failed: bool) -> None:
        """End the forward. Never raises for a fault of ours."""
        try:
            ended = monotonic()
            scratch = self.scratch
            if self._passing is None:
                scratch.end_forward()
            # After the body, but before a shrink: what the forward really had.
            capacity, demand, grew = scratch.capacity_bytes, scratch.required_bytes, scratch.grew
            self._tally.forward(demand, capacity, grew)
            if grew and self._recording is not None:
                self._recording.resized()
            event = self._conclude(failed, demand, capacity, grew, ended)
            if self._rearmed:
                self._rearmed = False
                self._choose_path()
                event = events.join(events.REARMED, event)
            if grew:
                event = events.join(events.GREW, event)
            if self._attribution is not None and demand:
                name = scratch.required_by or "unknown"
                self._attribution.add(demand, name)
                event = events.join(events.by(name), event)
            if self._verbose:
                logger.debug(
                    "forward on %s: demand %s of %s, %s", scratch, demand, capacity, event or "nothing to give back"
                )
            if self._recording is not None and not self._guard.warming_up:
                self._recording.append(self._started, ended, demand, capacity, event)
            if self._tally.growth_failed() and self._shrinker.shrinks:
                self._guard.regrowth_failed()
            seconds = self._tally.grow_seconds()
            if grew and self.disabled_reason is None:
                self._policy.policy.resized(grew=True, seconds=seconds, new_bytes=capacity)
        except Exception:
            self._guard.give_up()
        finally:
            self._passing = None
            self._turn.append(None)

    def poll(self, now: float) -> float:
        """Let the policy act between forwards; when it wants to be asked next, infinity if never.

        Inside a forward it does nothing and answers `now`. On an accelerator it must be called on the stream of the
        forwards, and it is a change of stream otherwise.
        """
        try:
            self._turn.pop()
        except IndexError:
            return now
        try:
            passing = self._guard.check(self.scratch.in_graph, False, False)
            if passing is not None or self.scratch.capacity_bytes < self.floor_bytes:
                return inf
            if self._policy.deadline() <= now:
                target = self._policy.idle(self.scratch.capacity_bytes, now)
                if target is not None:
                    self._shrink(target)
            return self._policy.deadline()
        except Exception:
            self._guard.give_up()
            return inf
        finally:
            self._turn.append(None)

    def rearm(self) -> None:
        """Reclaim again after a stream change or an error; waits for the device first.

        Raises WorkspaceStateError inside a forward, when a captured graph holds the scratch's address, when another
        reclaimer serves the scratch, or when the environment forbids it.
        """
        with between_forwards(self.scratch, "rearm()"):
            if self._guard.rearm():
                self._policy.policy.reset()
                self._rearmed = True
                self._choose_path()

    def grow_target(self, required_bytes: int, capacity_bytes: int, now: float) -> int:
        """See `ScratchClient`."""
        if self.disabled_reason is None:
            try:
                return self._policy.grow_target(required_bytes, capacity_bytes, now)
            except Exception:
                self._guard.give_up()
        return required_bytes

    def captured(self) -> None:
        """See `ScratchClient`."""
        self._guard.captured()

    def strayed(self) -> None:
        """See `ScratchClient`. A forward that passes through may use what streams it likes."""
        if self._passing is None and not self._guard.warming_up:
            self._guard.strayed()

    def replaced(self) -> None:
        """See `ScratchClient`."""
        self._guard.replaced()

    def stats(self) -> SlotReclaimStats:
        """Figures since it was built."""
        scratch, tally = self.scratch, self._tally
        return SlotReclaimStats(
            scratch=str(scratch),
            enabled=self.disabled_reason is None,
            disabled_reason=self.disabled_reason,
            policy=self._spec or self.policy_name,
            floor_bytes=self.floor_bytes,
            capacity_bytes=scratch.capacity_bytes,
            peak_capacity_bytes=max(tally.peak_capacity, scratch.capacity_bytes),
            reserved_bytes=scratch.reserved_bytes,
            stale_bytes=scratch.stale_bytes,
            peak_demand_bytes=tally.peak_demand,
            peak_demand_by=None if self._attribution is None else self._attribution.peak_by,
            fixed_demand_by=None if self._attribution is None else self._attribution.fixed_by,
            forwards=tally.observed + tally.aborted + tally.passed.total(),
            observed=tally.observed,
            aborted=tally.aborted,
            grows=tally.grows,
            reallocations=scratch.reallocations,
            shrinks=self._shrinker.shrinks,
            failed=self._shrinker.failed,
            returned_bytes=self._shrinker.returned_bytes,
            claimed_bytes=self._shrinker.claimed_bytes,
            grow_seconds=scratch.grow_seconds,
            shrink_seconds=self._shrinker.seconds,
            capture_guard=self._guard.sees_capture,
            passed=dict(tally.passed),
            skipped=dict(self._shrinker.skipped),
        )

    def _set_floor(self, floor_bytes: int) -> None:
        """Start again with a new floor and a fresh policy."""
        floor = self.scratch.bind(floor_bytes, self, to_driver=self._to_driver)
        self._policy = self._make_policy(floor, self.scratch.granule_bytes)
        self._choose_path()

    def _choose_path(self) -> None:
        """Whether forwards have flags or streams to look at, and whether somebody wants to know the time or all."""
        self._verbose = logger.isEnabledFor(logging.DEBUG)
        self._watchful = self._rearmed or self._attribution is not None or self._verbose or not self._guard.plain
        self._timed = self._recording is not None or self._policy.policy.uses_time

    def _conclude(self, failed: bool, demand: int, capacity: int, grew: bool, ended: float) -> str | None:
        """What came of the forward, as an event."""
        passing = self._passing or self._guard.disabled_event()  # the latter by a fault inside the forward
        if passing is not None:
            self._tally.passed[passing.removeprefix("pass:")] += 1
            if passing == events.passed("capture"):
                self.scratch.end_capture()
                if self.scratch.captured_bytes:
                    self._guard.captured()
            return passing
        if failed or demand > capacity:  # the latter when a layer went on after a growth that failed
            self._tally.aborted += 1
            self._policy.policy.reset()
            return events.ABORTED
        if self.scratch.in_graph:
            self._tally.passed["graph"] += 1
            return events.passed("graph")
        if not self.scratch.reclaimable:
            self._tally.passed["unreclaimable"] += 1
            self._policy.policy.reset()
            return events.UNRECLAIMABLE
        self._tally.observed += 1
        target = self._policy.finish_forward(demand, capacity, grew, self._started, ended)
        return None if target is None else self._shrink(target)

    def _shrink(self, target: int) -> str:
        self._tally.held(self.scratch.capacity_bytes)
        event = self._shrinker.shrink(target)
        if event == events.SHRANK:
            if self._recording is not None:
                self._recording.resized()
            self._policy.policy.resized(grew=False, seconds=self._shrinker.last_seconds, new_bytes=target)
        elif self.scratch.capacity_bytes == 0:  # the smaller allocation failed
            self._policy.policy.reset()
        return event


def _overlapping() -> OverlappingForwardError:
    return OverlappingForwardError(
        "a forward is already active on this scratch: end it first, or give concurrent forwards slots of their own"
    )
