"""The public face of reclaiming: wrap every forward of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from time import monotonic
from types import TracebackType

from reclaim.analysis.costs import choose_cost
from reclaim.errors import WorkspaceStateError
from reclaim.policy import CostModel, ShrinkPolicy
from reclaim.policy.granule import GranulePolicy, PolicyLike
from reclaim.runtime.manager import WorkspaceManager
from reclaim.runtime.scratch import Scratch
from reclaim.runtime.slot_reclaimer import SlotReclaimer
from reclaim.runtime.stats import ReclaimerStats
from reclaim.traces import TraceRecorder

__all__ = ["EagerWorkspaceReclaimer"]


class EagerWorkspaceReclaimer:
    """Measures what each eager forward needs and gives back what a policy says is not worth holding.

        reclaimer = EagerWorkspaceReclaimer(workspace)
        for batch in batches:
            with reclaimer.forward():
                model(batch)

    Entering a forward sets the logical size of the scratch to zero and keeps its storage; requests raise it to the
    forward's demand; at the end the policy may shrink the scratch, which releases first and allocates then.

    A forward passes through, unmeasured by the policy, when it is declared or found to belong to a graph, or is a
    dummy. When the stream changes, the slot is switched off until `rearm`; when an undeclared capture took a moving
    scratch's address, for good. An exception in the body goes through unchanged, and that forward does not count.
    A scratch is served by the reclaimer built over it last; an earlier one passes through from then on.
    """

    def __init__(
        self,
        scratch: WorkspaceManager | Scratch,
        policy: PolicyLike = "three-window",
        *,
        floor_bytes: int | None = None,
        recorder: TraceRecorder | None = None,
        release: str = "driver",
        cost: CostModel | None = None,
        attribute: bool = False,
    ) -> None:
        """Build it after the warm-up, whose capacity becomes the floor, or see `warmup`.

        scratch: a workspace manager, all of whose slots are served, or one scratch.
        policy: a spec such as "three-window:forwards=5", or a factory (floor_bytes, cost) -> ShrinkPolicy; every slot
            has an instance of its own.
        floor_bytes: never shrink below it; default the capacity now, and not above it. A lower one makes sense after
            a warm-up that ran the largest shape, which would leave nothing to reclaim; 0 before a `warmup`.
        recorder: gets a line a forward; it serves one slot.
        release: "driver" lets freed memory leave the device's caching allocator, which waits for the device and empties
            all of its cache; "cache" leaves it there for torch to use. On a CPU it goes back to the kernel either way.
        cost: prices for policies that weigh memory against time; default 1 ms a resize and this machine's memory.

        attribute: let stats and the recording say which plan set each forward's demand, and stats which one always
            asks for the same. Adds about a microsecond.

        Raises PolicySpecError for a bad spec, ValueError for another `release`, a floor out of range, an instance in
        place of a factory, or a recorder for several slots; WorkspaceStateError when nothing was warmed up and no
        floor is given.
        """
        if isinstance(policy, ShrinkPolicy):
            raise ValueError("pass a spec or a factory (floor_bytes, cost) -> ShrinkPolicy: each slot needs its own")
        if release not in ("driver", "cache"):
            raise ValueError(f"release must be 'driver' or 'cache', got {release!r}")
        scratches = scratch.slots if isinstance(scratch, WorkspaceManager) else (scratch,)
        if recorder is not None and len(scratches) > 1:
            raise ValueError(f"one recorder serves one slot, not {len(scratches)}: build a reclaimer for each slot")
        if floor_bytes is None and not any(each.capacity_bytes for each in scratches):
            raise WorkspaceStateError(
                "the scratch is empty, so there is no floor: run the warm-up first, or pass floor_bytes=0"
            )
        cost = cost or choose_cost()[0]

        def make_policy(floor: int, granule: int) -> GranulePolicy:
            return GranulePolicy(policy, floor_bytes=floor, granule_bytes=granule, cost=cost)

        self._manager = scratch if isinstance(scratch, WorkspaceManager) else None
        self._recorder = recorder
        spec = policy if isinstance(policy, str) else None
        self._slots = tuple(
            SlotReclaimer(
                each,
                make_policy,
                _choose_floor(each, floor_bytes),
                recorder,
                spec,
                attribute=attribute,
                to_driver=release == "driver",
            )
            for each in scratches
        )
        self._first = self._slots[0]
        self._only = self._first if len(self._slots) == 1 else None
        self._spec = spec or self._first.policy_name
        self._total_bytes = cost.total_bytes
        self._describe()

    def forward(
        self, *, all_slots: bool = False, graph: bool = False, dummy: bool = False, multi_stream: bool = False
    ) -> AbstractContextManager[None]:
        """The context of one forward on the current slot, or on all of them; a decorator, too, for that slot.

        graph: it replays or captures a graph. dummy: its demand is not real traffic. multi_stream: it uses several
        streams. Entering raises OverlappingForwardError when a forward is active on the slot.
        """
        if not (all_slots or graph or dummy or multi_stream):
            return self._only or self._current()
        slots = self._slots if all_slots else (self._current(),)
        return _DeclaredForward(slots, graph, dummy, multi_stream)

    def begin(self, *, graph: bool = False, dummy: bool = False, multi_stream: bool = False) -> None:
        """Begin a forward where a `with` block does not fit. Every `begin` needs its `end`."""
        self._current().begin(graph, dummy, multi_stream)

    def end(self, *, failed: bool = False) -> None:
        """End the forward that `begin` began; `failed`: it broke off and does not count.

        Raises WorkspaceStateError when none was begun.
        """
        self._current().end(failed)

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """Forwards inside pass through; afterwards the floor of each slot is what it holds then, lower or higher.

        Nothing is recorded inside. A recording that began before keeps the floor of its header: warm up first.
        Raises WorkspaceStateError inside a forward.
        """
        for slot in self._slots:
            slot.warm_up(True)
        try:
            yield
        finally:
            for slot in self._slots:
                slot.warm_up(False)
            self._describe()

    def poll(self, now: float | None = None) -> float:
        """Let policies act while no forward runs. Call it from the engine's idle loop, on the engine's thread.

        now: seconds of `time.monotonic`, the default. Returns when the next call could matter; infinity if never,
        `now` while a forward runs.
        """
        now = monotonic() if now is None else now
        return min(slot.poll(now) for slot in self._slots)

    def rearm(self) -> None:
        """Switch reclaiming on again after a stream change or an error; waits for the device.

        Raises WorkspaceStateError inside a forward, when a captured graph holds a moving scratch's address, or when
        another reclaimer was built over the scratch.
        """
        for slot in self._slots:
            slot.rearm()

    @property
    def enabled(self) -> bool:
        """Whether every slot reclaims."""
        return self.disabled_reason is None

    @property
    def disabled_reason(self) -> str | None:
        """Why the first disabled slot is off, or None when all reclaim.

        stream, capture, error, replaced (by another reclaimer), regrow-failed, or RECLAIM_DISABLE.
        """
        return next((slot.disabled_reason for slot in self._slots if slot.disabled_reason), None)

    @property
    def floor_bytes(self) -> int:
        """The floor of the current slot."""
        return self._current().floor_bytes

    def stats(self) -> ReclaimerStats:
        """Figures of every slot since it was built."""
        return ReclaimerStats(tuple(slot.stats() for slot in self._slots))

    def _current(self) -> SlotReclaimer:
        return self._first if self._manager is None else self._slots[self._manager.current_slot().index]

    def _describe(self) -> None:
        if self._recorder is not None:
            slot = self._first
            self._recorder.describe(
                policy=self._spec,
                floor_bytes=slot.floor_bytes,
                start_bytes=slot.scratch.capacity_bytes,
                granule_bytes=slot.scratch.granule_bytes,
                device=str(slot.scratch.device),
                total_bytes=self._total_bytes,
            )


class _DeclaredForward(ContextDecorator):
    """A forward on several slots, or with something declared. Entering is all or nothing."""

    def __init__(self, slots: tuple[SlotReclaimer, ...], graph: bool, dummy: bool, multi_stream: bool) -> None:
        self._slots = slots
        self._flags = (graph, dummy, multi_stream)

    def __enter__(self) -> None:
        entered: list[SlotReclaimer] = []
        try:
            for slot in self._slots:
                slot.enter(*self._flags)
                entered.append(slot)
        except BaseException:
            for slot in reversed(entered):
                slot.exit(failed=True)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for slot in reversed(self._slots):
            slot.exit(failed=exc_type is not None)


def _choose_floor(scratch: Scratch, floor_bytes: int | None) -> int:
    if floor_bytes is None:
        return scratch.capacity_bytes
    if not 0 <= floor_bytes <= scratch.capacity_bytes:
        raise ValueError(
            f"floor_bytes={floor_bytes} is not between 0 and the capacity now, {scratch.capacity_bytes}: "
            f"run the warm-up or reserve() first"
        )
    return floor_bytes
