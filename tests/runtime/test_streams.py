"""Streams and capture, with a stand-in for the accelerator: the reclaimer sees a scratch that says it is on CUDA."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, Scratch, WorkspaceStateError
from reclaim.policy import GrowOnlyPolicy
from reclaim.runtime.streams import StreamWatch

KIB = 1 << 10


class FakeScratch:
    """A moving scratch of integers on a device that is not there."""

    granule_bytes = 1
    reclaimable = True
    address_stable = False
    locked = False
    managed = True
    stale_bytes = 0
    grow_seconds = 0.0
    reallocations = returned_bytes = failed_growths = 0
    in_graph = False
    required_by = None
    captured_bytes = 0

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        self.streams = StreamWatch(self.device)
        self.turn: list[None] = [None]
        self.capacity_bytes = self.required_bytes = self.generation = 0
        self.grew = False

    @property
    def reserved_bytes(self) -> int:
        return self.capacity_bytes

    def bind(self, floor_bytes, client, *, to_driver):
        return floor_bytes

    def end_capture(self) -> None:
        self.captured_bytes = self.required_bytes

    def begin_forward(self, *, measure=True) -> None:
        self.required_bytes, self.grew = 0, False

    def end_forward(self) -> None:
        pass

    def ask(self, nbytes: int) -> None:
        self.required_bytes = max(self.required_bytes, nbytes)
        if nbytes > self.capacity_bytes:
            self.capacity_bytes, self.grew = nbytes, True

    def reallocate(self, nbytes: int) -> bool:
        self.capacity_bytes = nbytes
        return True


class FakeAccelerator:
    """The current stream: (device index, handle), and whether it is being captured."""

    def __init__(self) -> None:
        self.index, self.handle, self.capturing = 0, 88, False
        self.synchronised = 0

    def current_stream(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(device_index=self.index, stream_id=self.handle, is_capturing=lambda: self.capturing)

    def synchronize(self, index: int) -> None:
        self.synchronised += 1


@pytest.fixture
def accelerator(monkeypatch):
    fake = FakeAccelerator()
    monkeypatch.setattr(torch._C, "_accelerator_getStream", fake.current_stream)
    monkeypatch.setattr(torch.accelerator, "synchronize", fake.synchronize)
    return fake


@pytest.fixture
def scratch():
    scratch: Scratch = FakeScratch()
    return scratch


def run(reclaimer, scratch, *sizes, **flags):
    for size in sizes:
        with reclaimer.forward(**flags):
            scratch.ask(size)


def test_on_one_stream_it_reclaims(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB, KIB, KIB, KIB)
    assert scratch.capacity_bytes == KIB
    assert reclaimer.stats().slots[0].capture_guard is True


@pytest.mark.parametrize(("index", "handle"), [(0, 89), (1, 88)])
def test_another_stream_switches_it_off_also_with_the_same_handle_elsewhere(
    accelerator, scratch, index, handle, caplog
):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB)
    accelerator.index, accelerator.handle = index, handle
    run(reclaimer, scratch, KIB, KIB, KIB, KIB)
    assert reclaimer.disabled_reason == "stream"
    assert scratch.capacity_bytes == 64 * KIB
    assert len(caplog.records) == 1


def test_a_change_of_stream_counts_at_the_floor_too(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 0)
    accelerator.handle = 7
    run(reclaimer, scratch, 0)
    assert reclaimer.disabled_reason == "stream"


def test_only_rearm_switches_it_on_again_and_waits_for_the_device(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB)
    accelerator.handle = 7
    run(reclaimer, scratch, KIB)
    accelerator.handle = 88
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert reclaimer.disabled_reason == "stream"
    assert accelerator.synchronised == 0
    accelerator.handle = 7
    reclaimer.rearm()
    assert accelerator.synchronised == 1
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert scratch.capacity_bytes == KIB


def test_a_graph_forward_on_another_stream_is_no_stream_change(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB)
    accelerator.handle = 7
    run(reclaimer, scratch, KIB, graph=True)
    accelerator.handle = 88
    assert reclaimer.enabled
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert scratch.capacity_bytes == KIB


def test_an_undeclared_capture_of_a_moving_scratch_switches_it_off_for_good(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB)
    accelerator.capturing = True
    run(reclaimer, scratch, KIB)
    accelerator.capturing = False
    assert reclaimer.disabled_reason == "capture"
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert scratch.capacity_bytes == 64 * KIB
    with pytest.raises(WorkspaceStateError, match="captured graph"):
        reclaimer.rearm()


def test_a_capture_that_asked_for_nothing_is_harmless(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB, KIB, KIB)
    accelerator.capturing = True
    run(reclaimer, scratch, 0)
    accelerator.capturing = False
    run(reclaimer, scratch, KIB)  # the window goes on
    assert scratch.capacity_bytes == KIB


def test_an_address_stable_scratch_keeps_what_a_capture_was_handed_and_shrinks_to_that(accelerator, scratch):
    scratch.address_stable = True
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB)
    accelerator.capturing = True
    run(reclaimer, scratch, 4 * KIB)
    accelerator.capturing = False
    assert reclaimer.enabled
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert scratch.capacity_bytes == 4 * KIB
    run(reclaimer, scratch, KIB, KIB, KIB)
    assert scratch.capacity_bytes == 4 * KIB
    assert reclaimer.stats().slots[0].skipped == {"capture": 1}


def test_nothing_shrinks_while_capturing(accelerator, scratch):
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB, KIB, KIB)
    accelerator.capturing = True
    with reclaimer.forward():
        pass
    assert reclaimer.poll() == float("inf")
    assert scratch.capacity_bytes == 64 * KIB


def test_a_flag_that_turns_unreclaimable_resets_the_window(accelerator, scratch):
    scratch.managed = False
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB, KIB, KIB)
    with reclaimer.forward():
        scratch.reclaimable = False
    run(reclaimer, scratch, KIB)
    scratch.reclaimable = True
    run(reclaimer, scratch, KIB, KIB)
    assert scratch.capacity_bytes == 64 * KIB
    run(reclaimer, scratch, KIB)
    assert scratch.capacity_bytes == KIB
    assert reclaimer.stats().slots[0].passed == {"unreclaimable": 2}


def test_a_locked_moving_scratch_is_observed_and_never_shrunk(accelerator, scratch):
    scratch.locked = True
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    run(reclaimer, scratch, 64 * KIB, KIB, KIB, KIB)
    assert scratch.capacity_bytes == 64 * KIB
    assert reclaimer.stats().slots[0].skipped == {"locked": 1}


def test_without_a_capture_query_it_says_so(accelerator, scratch, monkeypatch, caplog):
    real = torch.Stream

    class OlderStream:
        """torch.Stream before 2.13."""

    monkeypatch.setattr(torch, "Stream", OlderStream)
    scratch.device = torch.device("xpu", 0)
    scratch.streams = StreamWatch(scratch.device)
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    assert "graph capture cannot be told on xpu:0" in caplog.text
    assert reclaimer.stats().slots[0].capture_guard is False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: accelerator.capturing)
    scratch.device = torch.device("cuda", 0)
    scratch.streams = StreamWatch(scratch.device)
    reclaimer = EagerWorkspaceReclaimer(scratch, floor_bytes=0)
    accelerator.capturing = True
    run(reclaimer, scratch, KIB)
    assert reclaimer.disabled_reason == "capture"
    assert real is not torch.Stream


def test_a_growth_while_disabled_is_not_charged_to_the_next_one(accelerator, scratch):
    heard = []

    class Listening(GrowOnlyPolicy):
        def resized(self, *, grew, seconds, new_bytes):
            heard.append((grew, seconds, new_bytes))

    reclaimer = EagerWorkspaceReclaimer(scratch, lambda floor, cost: Listening(floor), floor_bytes=0)
    for size, seconds, flags in ((KIB, 1.0, {}), (2 * KIB, 5.0, {"multi_stream": True}), (4 * KIB, 2.0, {})):
        if size == 4 * KIB:
            reclaimer.rearm()
        with reclaimer.forward(**flags):
            scratch.ask(size)
            scratch.grow_seconds += seconds
    assert heard == [(True, 1.0, KIB), (True, 2.0, 4 * KIB)]
