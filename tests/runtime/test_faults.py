"""Nothing of ours may break a user's forward, whatever fails and wherever."""

from __future__ import annotations

import ctypes
import gc
import mmap
import weakref

import pytest
import torch

from reclaim import (
    DemandTrace,
    EagerWorkspaceReclaimer,
    TraceFormatError,
    TraceRecorder,
    WorkspaceManager,
    WorkspaceStateError,
)
from reclaim.buffers.mmap import MmapBuffer
from reclaim.policy import GrowOnlyPolicy

KIB, MIB = 1 << 10, 1 << 20
BYTES = torch.uint8


class Faulty(GrowOnlyPolicy):
    """Fails in the methods named when it was made."""

    def __init__(self, floor_bytes, *faults, **answers):
        super().__init__(floor_bytes)
        self.faults, self.answers = faults, answers

    def _run(self, name, default):
        if name in self.faults:
            raise KeyError(f"fault in {name}")
        return self.answers.get(name, default)

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        return self._run("finish_forward", None)

    def grow_target(self, required_bytes, capacity_bytes, *, now=0.0):
        return self._run("grow_target", required_bytes)

    def deadline(self):
        return self._run("deadline", 0.0)

    def idle(self, capacity_bytes, *, now):
        return self._run("idle", None)

    def reset(self):
        return self._run("reset", None)

    def resized(self, *, grew, seconds, new_bytes):
        return self._run("resized", None)


def faulty(workspace, *faults, **answers):
    floor = workspace.stats().capacity_bytes
    return EagerWorkspaceReclaimer(workspace, lambda floor, cost: Faulty(floor, *faults, **answers), floor_bytes=floor)


@pytest.mark.parametrize("fault", ["finish_forward", "grow_target", "reset", "resized", "deadline", "idle"])
def test_a_policy_that_raises_anywhere_is_switched_off_once(workspace, ask, fault, caplog):
    ask(KIB)
    reclaimer = faulty(workspace, fault)
    for size in (MIB, KIB, 2 * MIB):
        with reclaimer.forward():
            ask(size)
        with pytest.raises(LookupError), reclaimer.forward():
            raise LookupError
        reclaimer.poll()
        with reclaimer.forward(multi_stream=False, dummy=True):
            ask(KIB)
    assert workspace.stats().capacity_bytes == 2 * MIB
    assert reclaimer.disabled_reason == "error"
    assert caplog.text.count(f"fault in {fault}") == 1
    assert reclaimer.stats().slots[0].forwards == 9


@pytest.mark.parametrize("nonsense", ["much", 1.5, object(), [1]])
@pytest.mark.parametrize("method", ["finish_forward", "grow_target"])
def test_nonsense_from_a_policy_is_a_fault_too(workspace, ask, method, nonsense):
    ask(KIB)
    reclaimer = faulty(workspace, **{method: nonsense})
    with reclaimer.forward():
        ask(MIB)
    with reclaimer.forward():
        ask(KIB)
    assert reclaimer.disabled_reason == "error"
    assert workspace.stats().capacity_bytes == MIB


def test_a_shrink_below_the_floor_or_above_the_capacity_is_not_carried_out(workspace, ask):
    ask(8 * KIB)
    reclaimer = faulty(workspace, finish_forward=-5)
    with reclaimer.forward():
        ask(MIB)
    assert workspace.stats().capacity_bytes == 8 * KIB
    reclaimer = faulty(workspace, finish_forward=1 << 60)
    with reclaimer.forward():
        ask(MIB)
    assert workspace.stats().capacity_bytes == MIB
    assert reclaimer.enabled


def test_growing_ahead_that_fails_falls_back_to_what_the_layer_needs(workspace, ask):
    reclaimer = faulty(workspace, grow_target=1 << 60)
    with reclaimer.forward():
        ask(MIB)
    assert workspace.stats().capacity_bytes == MIB
    assert reclaimer.enabled


def test_pages_that_are_locked_stay_and_nothing_breaks(workspace, ask):
    libc = ctypes.CDLL(None, use_errno=True)
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    with reclaimer.forward():
        (view,) = workspace.get_simultaneous(((4 * MIB,), BYTES))
        view.fill_(1)
        if libc.mlock(ctypes.c_void_p(view.data_ptr()), ctypes.c_size_t(4 * MIB)):
            pytest.skip("this process may not lock 4 MiB")
        del view
    for _ in range(3):
        with reclaimer.forward():
            ask(KIB)
    stats = reclaimer.stats().slots[0]
    assert (stats.enabled, stats.shrinks) == (True, 1)
    assert (stats.claimed_bytes, stats.returned_bytes) == (4 * MIB - mmap.PAGESIZE, 0)  # claimed, but not returned
    assert stats.reserved_bytes == 4 * MIB
    with reclaimer.forward():
        ask(2 * MIB)
    assert workspace.stats().capacity_bytes == 2 * MIB


def test_an_alloc_context_that_fails_in_a_pinned_shrink_leaves_the_size_true(ask):
    from contextlib import contextmanager

    broken = [False]

    @contextmanager
    def pool():
        if broken[0]:
            raise OSError("pool is gone")
        yield

    workspace = WorkspaceManager("cpu", alloc_context=pool)
    (view,) = workspace.get_simultaneous(((MIB,), BYTES))
    broken[0] = True
    assert not workspace.slots[0].reallocate(KIB)
    (again,) = workspace.get_simultaneous(((MIB,), BYTES))
    assert again.data_ptr() == view.data_ptr()


def test_a_recorder_that_cannot_write_never_stops_reclaiming(workspace, ask, tmp_path, caplog, monkeypatch):
    recorder = TraceRecorder(tmp_path / "run.jsonl")
    reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder, floor_bytes=0)

    def refuse(*args):
        raise MemoryError

    monkeypatch.setattr(recorder, "append", refuse)
    for size in (MIB, KIB, KIB, KIB):
        with reclaimer.forward():
            ask(size)
    assert "recording stopped" in caplog.text
    assert (reclaimer.enabled, workspace.stats().capacity_bytes) == (True, mmap.PAGESIZE)


def test_a_header_that_cannot_be_written_is_refused_when_the_recorder_is_made(tmp_path):
    with pytest.raises(TraceFormatError, match="header cannot hold"):
        TraceRecorder(tmp_path / "run.jsonl", device=torch.device("cpu"))
    assert list(tmp_path.iterdir()) == []


def test_the_floor_of_a_warm_up_reaches_the_recording(workspace, ask, tmp_path):
    with TraceRecorder(tmp_path / "run.jsonl", source="mine") as recorder:
        reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder, floor_bytes=0)
        with reclaimer.warmup(), reclaimer.forward():
            ask(MIB)
        with reclaimer.forward():
            ask(KIB)
    trace = DemandTrace.load(recorder.path)
    assert (trace.meta["floor_bytes"], trace.meta["start_bytes"], trace.meta["source"]) == (MIB, MIB, "mine")
    assert trace.demand_bytes.tolist() == [KIB]


def test_warm_up_and_rearm_wait_for_the_end_of_a_forward(workspace):
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    with reclaimer.forward():
        with pytest.raises(WorkspaceStateError, match="inside a forward"), reclaimer.warmup():
            pass
        with pytest.raises(WorkspaceStateError, match="inside a forward"):
            reclaimer.rearm()


def test_a_scratch_serves_the_reclaimer_built_last(workspace, ask):
    ask(MIB)
    first = EagerWorkspaceReclaimer(workspace, "exact-fit", floor_bytes=0)
    second = EagerWorkspaceReclaimer(workspace)
    with first.forward():
        ask(KIB)
    assert (first.disabled_reason, workspace.stats().capacity_bytes) == ("replaced", MIB)
    with pytest.raises(WorkspaceStateError, match="another reclaimer"):
        first.rearm()
    with second.forward():
        ask(2 * MIB)
    assert second.enabled


def test_a_plan_of_another_workspace_is_refused(workspace):
    other = WorkspaceManager("cpu")
    plan = other.plan(((KIB,), BYTES))
    other.get(plan)
    with pytest.raises(ValueError, match="belongs to another workspace"):
        workspace.get(plan)
    assert workspace.slots[0].required_bytes == 0


def test_a_poll_does_not_leave_an_old_measurement_for_the_next_forward(workspace, ask, tmp_path):
    ask(KIB)
    with TraceRecorder(tmp_path / "run.jsonl") as recorder:
        reclaimer = EagerWorkspaceReclaimer(
            workspace, lambda floor, cost: Faulty(floor, idle=0), recorder=recorder, floor_bytes=0
        )
        with reclaimer.forward():
            ask(MIB)
        reclaimer.poll()
        assert workspace.stats().capacity_bytes == 0
        with reclaimer.forward():
            ask(2 * MIB)
    assert DemandTrace.load(recorder.path).reserved_bytes.tolist() == [MIB, 2 * MIB]


def test_a_growth_outside_forwards_counts_for_the_peak(workspace, ask):
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    ask(MIB)
    assert reclaimer.stats().slots[0].peak_capacity_bytes == MIB


def test_a_refused_mapping_does_not_keep_its_buffer_alive():
    buffer = MmapBuffer(max_bytes=1 << 62)  # refused, so that it falls back to what is needed
    buffer.resize(MIB)
    reference = weakref.ref(buffer)
    gc.disable()
    try:
        del buffer
        assert reference() is None
    finally:
        gc.enable()
