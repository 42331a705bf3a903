"""The runtime on a device with streams, captures and a caching allocator: the simulated one."""

from __future__ import annotations

import threading

import pytest
import torch

from reclaim import (
    EagerWorkspaceReclaimer,
    WorkspaceManager,
    WorkspaceOutOfMemoryError,
    WorkspaceStateError,
    use_graph_workspace,
    use_ubatch,
)

MIB = 1 << 20


def reserved(device: int = 0) -> int:
    return torch.accelerator.memory_reserved(device)


def request(workspace, nbytes):
    (view,) = workspace.get_simultaneous(((nbytes,), torch.uint8))
    return view


def serve(reclaimer, workspace, *sizes):
    for nbytes in sizes:
        with reclaimer.forward():
            request(workspace, nbytes).fill_(1)


@pytest.fixture
def workspace(sim):
    workspace = WorkspaceManager("sim")
    request(workspace, 20 * MIB)
    return workspace


class TestMemory:
    def test_shrinks_reach_the_driver(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        sizes = [20, 20, 200, 400, *[30] * 4, *[25] * 3, 300, *[30] * 4]
        peak = 0
        for nbytes in sizes:
            serve(reclaimer, workspace, nbytes * MIB)
            peak = max(peak, torch.accelerator.max_memory_reserved(0))
        # 30, 30, 30 shrink 400 to 30; the last of them does nothing; 300, then 30, 30, 30 shrink it to 30 again.
        assert workspace.slots[0].capacity_bytes == 30 * MIB
        assert reserved() == 30 * MIB
        assert peak <= 400 * MIB + 2 * MIB  # old and new were never held together
        stats = reclaimer.stats().slots[0]
        assert stats.shrinks == 3  # 400 to 30, 30 to 25, 300 to 30
        assert stats.returned_bytes == (400 - 30 + 30 - 26 + 300 - 30) * MIB  # 25 lie in a segment of 26

    def test_freeing_without_emptying_the_cache_gives_nothing_back(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, release="cache")
        serve(reclaimer, workspace, 400 * MIB, *[30 * MIB] * 4)
        assert workspace.slots[0].capacity_bytes == 30 * MIB
        assert reserved() >= 400 * MIB
        assert reclaimer.stats().returned_bytes == 0

    def test_another_way_of_release_is_refused(self, workspace):
        with pytest.raises(ValueError, match="release must be 'driver' or 'cache', got 'os'"):
            EagerWorkspaceReclaimer(workspace, release="os")

    def test_the_device_of_the_buffer_is_current_while_its_cache_is_emptied(self, sim):
        workspace = WorkspaceManager("sim:1")
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        assert torch.accelerator.current_device_index() == 0
        serve(reclaimer, workspace, 64 * MIB, *[4 * MIB] * 3)
        assert workspace.slots[0].capacity_bytes == 4 * MIB
        assert sim.counts(1).empty_cache_calls > 0
        assert sim.counts(0).empty_cache_calls == 0
        assert torch.accelerator.current_device_index() == 0

    def test_a_growth_that_finds_no_memory_leaves_an_empty_slot_that_can_grow_again(self, sim, workspace):
        sim.set_limit(100 * MIB)
        with pytest.raises(
            WorkspaceOutOfMemoryError, match=r"slot \(ubatch 0, lane 0\) on sim:0 could not get 200 MiB"
        ):
            request(workspace, 200 * MIB)
        assert workspace.slots[0].capacity_bytes == 0
        assert request(workspace, 90 * MIB).numel() == 90 * MIB

    def test_a_growth_does_not_hold_old_and_new_together(self, sim, workspace):
        sim.set_limit(100 * MIB)
        for nbytes in (60 * MIB, 90 * MIB):
            assert request(workspace, nbytes).numel() == nbytes

    def test_a_storage_that_views_outside_use_is_neither_shrunk_nor_lost(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB)
        kept = request(workspace, 64 * MIB)[-1:]
        kept.fill_(7)
        serve(reclaimer, workspace, *[20 * MIB] * 3)
        assert reclaimer.stats().slots[0].skipped == {"pinned": 1}
        assert workspace.stats().slots[0].stale_bytes == 44 * MIB
        request(workspace, 100 * MIB)
        assert kept.cpu().item() == 7
        assert workspace.stats().slots[0].stale_bytes == 64 * MIB

    def test_no_such_device(self, sim):
        with pytest.raises(ValueError, match="sim:7: there are 2"):
            WorkspaceManager("sim:7")
        with pytest.raises(ValueError, match="no buffer for meta"):
            WorkspaceManager("meta")
        with pytest.raises(ValueError, match="mmap buffer serves cpu only, not sim"):
            WorkspaceManager("sim", buffer="mmap")


class TestStreams:
    def test_a_side_stream_inside_a_forward_is_seen_at_the_request(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        plan = workspace.plan(((MIB,), torch.uint8))
        with torch.no_grad(), reclaimer.forward():
            workspace.get(plan)
            assert reclaimer.enabled
            with torch.Stream("sim:0"):
                workspace.get(plan)
            assert reclaimer.disabled_reason == "stream"
        serve(reclaimer, workspace, 64 * MIB, MIB, MIB, MIB)
        assert workspace.slots[0].capacity_bytes == 64 * MIB

    def test_forwards_that_pass_through_may_use_other_streams(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, MIB)
        with torch.Stream("sim:0"):
            with reclaimer.forward(dummy=True):
                request(workspace, MIB)
            with reclaimer.warmup():
                request(workspace, MIB)
        assert reclaimer.enabled

    def test_a_second_stream_turns_it_off_until_it_is_rearmed(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB)
        with torch.Stream("sim:0"):
            serve(reclaimer, workspace, *[MIB] * 4)
            assert reclaimer.disabled_reason == "stream"
            assert workspace.slots[0].capacity_bytes == 64 * MIB
            reclaimer.rearm()
            serve(reclaimer, workspace, *[MIB] * 3)
            assert reclaimer.enabled
            assert workspace.slots[0].capacity_bytes == 20 * MIB

    def test_two_micro_batches_on_two_streams_are_no_change_of_stream(self, sim):
        workspace = WorkspaceManager("sim", num_ubatches=2)
        workspace.reserve(((MIB,), torch.uint8))
        reclaimer = EagerWorkspaceReclaimer(workspace)
        faults = []

        def work(ubatch):
            try:
                with torch.Stream("sim:0"), use_ubatch(ubatch):
                    for _ in range(50):
                        with reclaimer.forward():
                            request(workspace, MIB)
            except Exception as error:
                faults.append(error)

        # One after the other: the simulated streams are per process, not per thread.
        for ubatch in (0, 1):
            thread = threading.Thread(target=work, args=(ubatch,))
            thread.start()
            thread.join()
        assert faults == []
        assert reclaimer.enabled

    def test_memory_that_another_stream_still_uses_is_not_handed_out(self, sim):
        """A layer's work on a side stream is pending when the shrink frees its bytes and others take them."""
        for _ in range(100):
            sim.reset()
            workspace = WorkspaceManager("sim")
            reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0, release="cache")
            serve(reclaimer, workspace, 8 * MIB, 4 * MIB, 4 * MIB)
            torch.accelerator.synchronize(0)
            side = torch.Stream("sim:0")
            with reclaimer.forward(), side:
                request(workspace, 4 * MIB).fill_(7)  # queued on the side stream only
            workspace.release(force=True)
            other = torch.empty(8 * MIB, dtype=torch.uint8, device="sim:0").fill_(1)
            torch.accelerator.current_stream(0).synchronize()
            torch.accelerator.synchronize(0)
            assert (other.cpu() == 1).all()

    def test_pending_work_of_the_same_stream_keeps_its_result(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB, 20 * MIB, 20 * MIB)
        total = torch.empty(MIB, dtype=torch.uint8, device="sim:0")
        with reclaimer.forward():
            view = request(workspace, 20 * MIB)
            view.fill_(1)
            total.copy_(view[:MIB])
            del view
        assert workspace.slots[0].capacity_bytes == 20 * MIB
        request(workspace, 20 * MIB).fill_(9)
        assert (total.cpu() == 1).all()


class TestCapture:
    def test_warmed_up_shapes_are_captured_at_the_same_address_without_an_allocation(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB)
        address, before = request(workspace, 64 * MIB).data_ptr(), sim.counts()
        with sim.capturing(), reclaimer.forward():
            assert request(workspace, 64 * MIB).data_ptr() == address
        assert sim.counts().segments_allocated == before.segments_allocated
        assert sim.counts().segments_freed == before.segments_freed
        assert reclaimer.disabled_reason == "capture"
        serve(reclaimer, workspace, *[MIB] * 5)
        assert request(workspace, 64 * MIB).data_ptr() == address

    def test_a_capture_that_begins_inside_a_forward_is_seen_at_the_request(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB, MIB, MIB)
        with reclaimer.forward():
            request(workspace, MIB)
            with sim.capturing():
                request(workspace, MIB)
            assert reclaimer.disabled_reason == "capture"
        assert workspace.slots[0].capacity_bytes == 64 * MIB
        with pytest.raises(WorkspaceStateError, match="captured graph"):
            reclaimer.rearm()

    def test_growth_under_capture_is_refused_before_any_call_of_the_allocator(self, sim, workspace):
        before = sim.counts()
        with sim.capturing():
            with pytest.raises(WorkspaceStateError, match=r"test_accelerator\.py:\d+:request' asks .* for 64 MiB"):
                request(workspace, 64 * MIB)
            assert request(workspace, MIB).numel() == MIB
        assert sim.counts() == before
        assert workspace.slots[0].capacity_bytes == 20 * MIB

    def test_a_larger_eager_request_leaves_the_graph_its_storage(self, sim, workspace):
        with sim.capturing():
            captured = request(workspace, 4 * MIB)
        address = captured.data_ptr()
        del captured
        request(workspace, 64 * MIB).fill_(1)
        torch.accelerator.synchronize(0)
        assert workspace.stats().slots[0].stale_bytes == 20 * MIB
        fresh = torch.empty(20 * MIB, dtype=torch.uint8, device="sim:0")
        assert not fresh.data_ptr() <= address < fresh.data_ptr() + fresh.numel()
        with pytest.raises(WorkspaceStateError, match="captured graphs use 4194304 bytes"):
            workspace.release()
        workspace.release(force=True)
        assert workspace.stats().slots[0].stale_bytes == 0

    def test_a_reclaimer_built_over_a_captured_scratch_stays_off(self, sim, workspace):
        with sim.capturing():
            request(workspace, MIB)
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        serve(reclaimer, workspace, *[MIB] * 4)
        assert reclaimer.disabled_reason == "capture"
        assert workspace.slots[0].capacity_bytes == 20 * MIB

    def test_nothing_is_freed_while_another_thread_is_in_a_declared_capture(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        serve(reclaimer, workspace, 64 * MIB, MIB, MIB)
        entered, leave = threading.Event(), threading.Event()

        def capture():
            with use_graph_workspace():
                entered.set()
                leave.wait(10)

        thread = threading.Thread(target=capture)
        thread.start()
        entered.wait(10)
        before = sim.counts()
        serve(reclaimer, workspace, MIB)
        assert sim.counts().segments_freed == before.segments_freed
        assert reclaimer.stats().slots[0].skipped == {"capture": 1}
        leave.set()
        thread.join()
        serve(reclaimer, workspace, MIB, MIB, MIB)
        assert workspace.slots[0].capacity_bytes == 20 * MIB


class TestGraphWorkspace:
    def test_warm_up_and_capture_of_graphs_leave_the_eager_scratch_to_the_reclaimer(self, sim, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        with use_graph_workspace():
            for nbytes in (48 * MIB, 16 * MIB):
                address = request(workspace, nbytes).data_ptr()
                with sim.capturing():
                    assert request(workspace, nbytes).data_ptr() == address
        serve(reclaimer, workspace, 64 * MIB, MIB, MIB, MIB)
        assert reclaimer.enabled
        assert workspace.slots[0].capacity_bytes == 20 * MIB
        graph = workspace.stats().slots[1]
        assert (graph.graph, graph.capacity_bytes, graph.captured_bytes) == (True, 48 * MIB, 48 * MIB)
        with use_graph_workspace():
            assert request(workspace, MIB).data_ptr() == address

    def test_after_a_capture_it_does_not_grow_until_it_is_released(self, sim, workspace):
        with use_graph_workspace():
            with sim.capturing(), pytest.raises(WorkspaceStateError, match="while a graph is captured"):
                request(workspace, MIB)
            request(workspace, MIB)
            with sim.capturing():
                request(workspace, MIB)
            with pytest.raises(WorkspaceStateError, match=r"captured graphs hold its 1 MiB in place"):
                request(workspace, 2 * MIB)
        workspace.release()  # of the eager scratch; the graphs' stays
        assert workspace.stats().slots[1].capacity_bytes == MIB
        workspace.release(graph=True)
        assert workspace.stats().slots[1].capacity_bytes == 0
        with use_graph_workspace():
            assert request(workspace, 2 * MIB).numel() == 2 * MIB

    def test_persistent_objects_are_those_of_the_slot(self, sim, workspace):
        counter = workspace.get_persistent("counter", (4,), torch.int32, zero_init=True)
        with use_graph_workspace():
            assert workspace.get_persistent("counter", (4,), torch.int32) is counter

    def test_a_lock_holds_for_it_too(self, sim, workspace):
        with use_graph_workspace():
            workspace.reserve(((4 * MIB,), torch.uint8))
        workspace.lock()
        with use_graph_workspace():
            assert workspace.try_get_simultaneous(((8 * MIB,), torch.uint8)) is None
            assert request(workspace, 4 * MIB).numel() == 4 * MIB
