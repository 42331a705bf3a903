from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from time import monotonic

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import (
    CostModel,
    DemandTrace,
    EagerWorkspaceReclaimer,
    OverlappingForwardError,
    PolicySpecError,
    TraceRecorder,
    WorkspaceManager,
    WorkspaceOutOfMemoryError,
    WorkspaceStateError,
    replay,
    use_workspace_lane,
)
from reclaim.policy import GrowOnlyPolicy, ShrinkPolicy, ThreeWindowPolicy

KIB, MIB = 1 << 10, 1 << 20
BYTES = torch.uint8
COST = CostModel(1 << 34, 1e-3, 1e-3)


def run(reclaimer, ask, *sizes):
    for size in sizes:
        with reclaimer.forward():
            ask(size)


def slot_stats(reclaimer):
    return reclaimer.stats().slots[0]


def test_three_underfilled_forwards_return_the_memory_to_the_system(workspace, ask):
    ask(32 * MIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    run(reclaimer, ask, 256 * MIB, 32 * MIB, 16 * MIB)
    assert workspace.stats().reserved_bytes == 256 * MIB
    run(reclaimer, ask, 8 * MIB)
    stats = slot_stats(reclaimer)
    assert workspace.stats().capacity_bytes == workspace.stats().reserved_bytes == stats.floor_bytes == 32 * MIB
    assert stats.returned_bytes == stats.claimed_bytes == 224 * MIB
    assert (stats.forwards, stats.observed, stats.grows, stats.shrinks) == (4, 4, 1, 1)
    assert (stats.peak_capacity_bytes, stats.peak_demand_bytes) == (256 * MIB, 256 * MIB)
    assert stats.shrink_seconds > 0
    assert stats.enabled


def test_the_demand_of_a_forward_is_its_largest_request(workspace, ask, tmp_path):
    with TraceRecorder(tmp_path / "run.jsonl") as recorder:
        reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder, floor_bytes=0)
        with reclaimer.forward():
            for size in (64 * KIB, 16 * KIB, 48 * KIB):
                ask(size)
        with reclaimer.forward():
            workspace.get_simultaneous(((100,), BYTES), ((300,), BYTES))  # 256 + 512
        with reclaimer.forward():
            pass
    assert DemandTrace.load(recorder.path).demand_bytes.tolist() == [64 * KIB, 768, 0]


def test_equal_demand_at_the_floor_changes_nothing(workspace, ask):
    ask(MIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    generation = workspace.slots[0].generation
    run(reclaimer, ask, *[MIB] * 1000)
    assert workspace.slots[0].generation == generation
    stats = slot_stats(reclaimer)
    assert (stats.grows, stats.shrinks, stats.observed) == (0, 0, 1000)


def test_a_lower_floor_can_be_given_and_a_higher_one_is_refused(workspace, ask):
    ask(8 * MIB)
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=MIB)
    run(reclaimer, ask, 2 * MIB, MIB, MIB)
    assert workspace.stats().capacity_bytes == 2 * MIB
    for floor in (-1, 16 * MIB):
        with pytest.raises(ValueError, match="not between 0 and the capacity now"):
            EagerWorkspaceReclaimer(workspace, floor_bytes=floor)


def test_the_floor_is_the_largest_of_all_warm_ups(workspace, ask):
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    with reclaimer.warmup():
        run(reclaimer, ask, 55_141_376, 59_473_920, 1_048_576)
    assert reclaimer.floor_bytes == 59_473_920
    stats = slot_stats(reclaimer)
    assert (stats.observed, stats.passed) == (0, {"warmup": 3})
    run(reclaimer, ask, *[MIB] * 10)
    assert workspace.stats().capacity_bytes == 59_473_920


def test_a_wholly_empty_scratch_has_no_floor(workspace):
    with pytest.raises(WorkspaceStateError, match="run the warm-up first, or pass floor_bytes=0"):
        EagerWorkspaceReclaimer(workspace)


def test_a_slot_that_is_empty_beside_a_warm_one_has_floor_0():
    workspace = WorkspaceManager("cpu", num_lanes=2)
    workspace.reserve(((MIB,), BYTES), all_slots=False)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    assert [slot.floor_bytes for slot in reclaimer.stats().slots] == [MIB, 0]


def test_a_second_warm_up_sets_the_floor_lower_or_higher(workspace, ask):
    ask(8 * MIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    workspace.release(force=True)
    with reclaimer.warmup():
        run(reclaimer, ask, MIB)
    assert reclaimer.floor_bytes == MIB
    with reclaimer.warmup():
        run(reclaimer, ask, 2 * MIB)
    assert reclaimer.floor_bytes == 2 * MIB


def test_growth_goes_to_the_floor_at_least(workspace, ask):
    ask(4 * MIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    workspace.release(force=True)
    run(reclaimer, ask, 0, KIB)
    assert workspace.stats().capacity_bytes == 4 * MIB


class TestExceptions:
    def test_they_go_through_unchanged_and_the_forward_does_not_count(self, workspace, ask):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        run(reclaimer, ask, MIB, KIB, KIB)
        error = KeyError("mine")
        with pytest.raises(KeyError) as caught, reclaimer.forward():
            raise error
        assert caught.value is error
        assert slot_stats(reclaimer).aborted == 1
        run(reclaimer, ask, KIB, KIB)  # the window began again: two are not enough
        assert workspace.stats().capacity_bytes == MIB
        run(reclaimer, ask, KIB)
        assert workspace.stats().capacity_bytes == 4 * KIB

    def test_nothing_is_kept_of_them(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)

        class Marker:
            pass

        marker = Marker()
        reference = weakref.ref(marker)

        def fail(local):
            raise RuntimeError

        try:
            with reclaimer.forward():
                fail(marker)
        except RuntimeError:
            pass
        del marker
        gc.collect()
        assert reference() is None

    def test_a_growth_that_fails_surfaces_and_the_next_forward_works(self, workspace, ask):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with pytest.raises(WorkspaceOutOfMemoryError), reclaimer.forward():
            ask(1 << 62)
        assert workspace.stats().capacity_bytes == 0
        run(reclaimer, ask, MIB)
        assert workspace.stats().capacity_bytes == MIB
        assert reclaimer.enabled

    def test_a_layer_may_go_on_after_a_growth_that_failed(self, workspace, ask):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with reclaimer.forward():
            ask(MIB)
            with pytest.raises(WorkspaceOutOfMemoryError):
                ask(1 << 62)
        assert (slot_stats(reclaimer).aborted, slot_stats(reclaimer).peak_demand_bytes) == (1, MIB)
        with reclaimer.forward():
            with pytest.raises(WorkspaceOutOfMemoryError):
                ask(1 << 62)
            ask(KIB)
        assert (slot_stats(reclaimer).observed, slot_stats(reclaimer).capacity_bytes) == (1, KIB)
        assert reclaimer.enabled

    def test_a_shrink_that_fails_is_counted_never_raised(self, workspace, ask, monkeypatch, caplog):
        ask(MIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        run(reclaimer, ask, 8 * MIB, MIB, MIB)

        def refuse(nbytes, **options):
            raise torch.OutOfMemoryError("no memory today")

        with monkeypatch.context() as patch:
            patch.setattr(workspace.slots[0]._buffer, "resize", refuse)
            run(reclaimer, ask, MIB)
        assert "no memory today" in caplog.text
        stats = slot_stats(reclaimer)
        assert (stats.failed, stats.shrinks, stats.capacity_bytes, stats.floor_bytes) == (1, 0, 0, MIB)
        run(reclaimer, ask, 0, KIB)
        assert (workspace.stats().capacity_bytes, reclaimer.enabled) == (MIB, True)

    def test_a_policy_that_fails_switches_reclaiming_off_and_says_so(self, workspace, ask, caplog):
        class Broken(GrowOnlyPolicy):
            def finish_forward(self, *args, **kwargs):
                raise ZeroDivisionError("policy bug")

        reclaimer = EagerWorkspaceReclaimer(workspace, lambda floor, cost: Broken(floor), floor_bytes=0)
        run(reclaimer, ask, MIB, KIB)
        assert reclaimer.disabled_reason == "error"
        assert "policy bug" in caplog.text
        run(reclaimer, ask, KIB)
        assert slot_stats(reclaimer).passed == {"disabled:error": 2}

    def test_a_recorder_that_fails_stops_recording_only(self, workspace, ask, tmp_path, caplog):
        recorder = TraceRecorder(tmp_path / "run.jsonl")
        reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder, floor_bytes=0)
        run(reclaimer, ask, MIB)
        recorder.close()
        run(reclaimer, ask, KIB, KIB, KIB)
        assert "recording stopped" in caplog.text
        assert reclaimer.enabled
        assert slot_stats(reclaimer).shrinks == 1


class TestOverlap:
    def test_a_nested_forward_is_refused_and_the_outer_one_goes_on(self, workspace, ask):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with reclaimer.forward():
            ask(MIB)
            for inner in (reclaimer.forward(), reclaimer.forward(graph=True), reclaimer.forward(all_slots=True)):
                with pytest.raises(OverlappingForwardError, match="already active"), inner:
                    pass
            ask(2 * MIB)
        assert slot_stats(reclaimer).observed == 1
        assert slot_stats(reclaimer).peak_demand_bytes == 2 * MIB
        run(reclaimer, ask, KIB)

    def test_another_thread_is_refused_too(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        errors = []

        def other():
            try:
                with reclaimer.forward():
                    pass
            except OverlappingForwardError as error:
                errors.append(error)

        with reclaimer.forward():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert len(errors) == 1

    def test_two_reclaimers_of_one_scratch_do_not_overlap(self, workspace):
        first, second = (EagerWorkspaceReclaimer(workspace, floor_bytes=0) for _ in range(2))
        with first.forward(), pytest.raises(OverlappingForwardError), second.forward():
            pass

    def test_an_end_without_its_begin_does_not_let_a_second_forward_in(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with reclaimer.forward():
            with pytest.raises(WorkspaceStateError, match="without begin"):
                reclaimer.end()
            with pytest.raises(OverlappingForwardError), reclaimer.forward():
                pass

    def test_interleaved_tasks_are_refused_not_mixed_up(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)

        async def forward():
            with reclaimer.forward():
                await asyncio.sleep(0)

        async def both():
            return await asyncio.gather(forward(), forward(), return_exceptions=True)

        results = asyncio.run(both())
        assert [type(result) for result in results] == [type(None), OverlappingForwardError]

    def test_of_many_threads_exactly_one_is_inside(self, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        inside, seen, refused = [0], [], [0]

        def work():
            for _ in range(300):
                try:
                    with reclaimer.forward():
                        inside[0] += 1
                        seen.append(inside[0])
                        inside[0] -= 1
                except OverlappingForwardError:
                    refused[0] += 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(seen) == {1}
        assert len(seen) + refused[0] == 1200
        assert slot_stats(reclaimer).forwards == len(seen)


class TestDeclaredForwards:
    @pytest.mark.parametrize("flag", ["graph", "dummy"])
    def test_they_pass_through_and_leave_the_window_as_it_was(self, workspace, ask, flag):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        run(reclaimer, ask, MIB, KIB, KIB)
        with reclaimer.forward(**{flag: True}):
            ask(KIB)
        assert workspace.stats().capacity_bytes == MIB
        run(reclaimer, ask, KIB)  # the third that counts
        assert workspace.stats().capacity_bytes == 4 * KIB
        assert slot_stats(reclaimer).passed == {flag: 1}

    def test_several_streams_switch_it_off_until_rearm(self, workspace, ask, caplog):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        run(reclaimer, ask, MIB, KIB, KIB)
        for _ in range(2):
            with reclaimer.forward(multi_stream=True):
                ask(KIB)
        assert reclaimer.disabled_reason == "stream"
        assert not reclaimer.enabled
        assert len(caplog.records) == 1  # one warning, not one a forward
        run(reclaimer, ask, KIB, KIB, KIB)
        assert workspace.stats().capacity_bytes == MIB
        reclaimer.rearm()
        assert reclaimer.enabled
        run(reclaimer, ask, KIB, KIB)  # the window begins anew
        assert workspace.stats().capacity_bytes == MIB
        run(reclaimer, ask, KIB)
        assert workspace.stats().capacity_bytes == 4 * KIB

    def test_all_slots_enter_together_or_not_at_all(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with use_workspace_lane(1):
            reclaimer.begin()
        with pytest.raises(OverlappingForwardError), reclaimer.forward(all_slots=True):
            pass
        with use_workspace_lane(1):
            reclaimer.end()
        with reclaimer.forward(all_slots=True), use_workspace_lane(1):
            workspace.get_simultaneous(((KIB,), BYTES))
        first, second = reclaimer.stats().slots
        assert (first.observed, first.aborted, first.grows) == (1, 1, 0)
        assert (second.observed, second.aborted, second.grows) == (2, 0, 1)

    def test_slots_shrink_apart(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        for size in (64 * KIB, 8 * KIB, 8 * KIB, 8 * KIB):
            with reclaimer.forward(all_slots=True):
                workspace.get_simultaneous(((size,), BYTES))
                with use_workspace_lane(1):
                    workspace.get_simultaneous(((64 * KIB,), BYTES))
        assert [slot.capacity_bytes for slot in workspace.slots] == [8 * KIB, 64 * KIB]
        assert reclaimer.stats().capacity_bytes == 72 * KIB

    def test_begin_and_end_are_the_same_as_the_context(self, workspace, ask):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        for size in (MIB, KIB, KIB, KIB):
            reclaimer.begin()
            ask(size)
            reclaimer.end()
        assert workspace.stats().capacity_bytes == 4 * KIB
        reclaimer.begin()
        reclaimer.end(failed=True)
        assert slot_stats(reclaimer).aborted == 1
        with pytest.raises(WorkspaceStateError, match="without begin"):
            reclaimer.end()


class TestPinnedViews:
    def test_a_pinned_scratch_is_not_touched_counted_and_warned_of_once(self, workspace, ask, caplog):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        with reclaimer.forward():
            (leaked,) = workspace.get_simultaneous(((64 * MIB,), BYTES))
            leaked.fill_(7)
            leaked = leaked[:10]
        for _ in range(15):
            run(reclaimer, ask, KIB)
        stats = slot_stats(reclaimer)
        assert (stats.shrinks, stats.returned_bytes, stats.skipped) == (0, 0, {"pinned": 5})
        assert stats.stale_bytes == 64 * MIB - 4 * KIB
        assert stats.reserved_bytes == 64 * MIB
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "keeps views" in caplog.text
        del leaked
        run(reclaimer, ask, KIB, KIB, KIB)
        assert slot_stats(reclaimer).returned_bytes == 64 * MIB - 4 * KIB
        assert slot_stats(reclaimer).stale_bytes == 0

    def test_a_held_exception_pins_what_its_frames_hold(self, workspace, ask):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)

        def layer():
            view = workspace.get_simultaneous(((MIB,), BYTES))
            raise RuntimeError(str(len(view)))

        held = None
        try:
            with reclaimer.forward():
                layer()
        except RuntimeError as error:
            held = error
        run(reclaimer, ask, KIB, KIB, KIB)
        assert slot_stats(reclaimer).skipped == {"pinned": 1}
        held = None  # noqa: F841
        run(reclaimer, ask, KIB, KIB, KIB)
        assert slot_stats(reclaimer).shrinks == 1

    def test_a_locked_stable_scratch_shrinks_and_grows_back_to_the_ceiling(self, workspace, ask):
        ask(MIB)
        workspace.lock()
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=4 * KIB)
        run(reclaimer, ask, KIB, KIB, KIB)
        assert workspace.stats().capacity_bytes == 4 * KIB
        run(reclaimer, ask, MIB)
        assert workspace.stats().capacity_bytes == MIB


class TestRecording:
    def test_the_events_tell_what_happened(self, workspace, ask, tmp_path):
        ask(KIB)
        with TraceRecorder(tmp_path / "run.jsonl") as recorder:
            reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder)
            run(reclaimer, ask, MIB, KIB, KIB, KIB)
            with reclaimer.forward(graph=True):
                ask(2 * KIB)
            with pytest.raises(RuntimeError), reclaimer.forward():
                raise RuntimeError
            with reclaimer.forward(multi_stream=True):
                ask(8 * KIB)
            reclaimer.rearm()
            run(reclaimer, ask, 16 * KIB, KIB)
        trace = DemandTrace.load(recorder.path)
        assert trace.event == (
            "grew", None, None, "shrank", "pass:graph", "aborted",
            "grew,disabled:stream", "grew,rearmed", None,
        )  # fmt: skip
        assert trace.demand_bytes.tolist() == [MIB, KIB, KIB, KIB, 2 * KIB, 0, 8 * KIB, 16 * KIB, KIB]
        assert trace.capacity_bytes.tolist() == [
            MIB, MIB, MIB, MIB, 4 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 16 * KIB,
        ]  # fmt: skip
        assert (trace.time_s[0], trace.meta["policy"], trace.meta["device"]) == (0.0, "three-window", "cpu")
        assert (trace.meta["floor_bytes"], trace.meta["granule_bytes"]) == (KIB, 4096)

    def test_reserved_bytes_are_sampled_at_resizes_and_not_in_every_forward(self, workspace, ask, tmp_path):
        ask(4 * KIB)
        with TraceRecorder(tmp_path / "run.jsonl") as recorder:
            reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder)
            run(reclaimer, ask, MIB, KIB, KIB, KIB, *[KIB] * 50)
        sampled = DemandTrace.load(recorder.path).reserved_bytes.tolist()
        assert sampled[0] == MIB
        assert sampled[3] == 4 * KIB
        assert sampled.count(-1) > 40

    def test_release_first_never_holds_old_and_new(self, workspace, ask, tmp_path):
        ask(MIB)
        with TraceRecorder(tmp_path / "run.jsonl") as recorder:
            reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder)
            run(reclaimer, ask, 2 * MIB)
        assert DemandTrace.load(recorder.path).reserved_bytes.max() == 2 * MIB  # not 3

    def test_one_recorder_serves_one_slot(self, tmp_path):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        with TraceRecorder(tmp_path / "run.jsonl") as recorder:
            with pytest.raises(ValueError, match="one recorder serves one slot"):
                EagerWorkspaceReclaimer(workspace, recorder=recorder, floor_bytes=0)
            EagerWorkspaceReclaimer(workspace.slots[1], recorder=recorder, floor_bytes=0)

    @settings(max_examples=40, deadline=None)
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from(
                    ["plain", "plain", "plain", "graph", "dummy", "fail", "climb", "multi_stream", "rearm"]
                ),
                st.integers(0, 40),
            ),
            max_size=40,
        ),
        policy=st.sampled_from(["three-window", "three-window:forwards=1", "exact-fit", "grow-only"]),
        warm=st.integers(0, 20),
        floor=st.integers(0, 20),
    )
    def test_a_recorded_run_replays_forward_by_forward(self, tmp_path_factory, steps, policy, warm, floor):
        workspace = WorkspaceManager("cpu")

        def ask(nbytes):
            workspace.get_simultaneous(((nbytes,), BYTES))

        ask(warm * 1000)
        path = tmp_path_factory.mktemp("run") / "run.jsonl"
        with TraceRecorder(path) as recorder:
            reclaimer = EagerWorkspaceReclaimer(
                workspace, policy, recorder=recorder, floor_bytes=min(floor, warm) * 1000
            )
            for kind, amount in steps:
                flags = {kind: True} if kind in ("graph", "dummy", "multi_stream") else {}
                if kind == "rearm":
                    reclaimer.rearm()
                    continue
                try:
                    with reclaimer.forward(**flags):
                        for size in (amount // 3, amount) if kind == "climb" else (amount,):
                            ask(size * 1000)
                        if kind == "fail":
                            raise LookupError
                except LookupError:
                    pass
        trace = DemandTrace.load(path)
        replayed = replay(trace, policy, cost=COST)
        expected = [] if trace.capacity_bytes is None else trace.capacity_bytes.tolist()
        assert replayed.capacity_bytes.tolist() == expected
        stats = reclaimer.stats().slots[0]
        began_higher = trace.meta["start_bytes"] > trace.meta["floor_bytes"] and len(trace) > 0
        assert (replayed.grows, replayed.shrinks) == (stats.grows + began_higher, stats.shrinks)
        assert stats.reallocations >= stats.grows


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 1 << 20), max_size=40),
    warm=st.integers(0, 1 << 18),
    policy=st.sampled_from(["three-window", "exact-fit", "three-window:forwards=2"]),
)
def test_capacity_is_never_below_demand_or_floor(sizes, warm, policy):
    workspace = WorkspaceManager("cpu")
    workspace.reserve(((warm,), BYTES))
    reclaimer = EagerWorkspaceReclaimer(workspace, policy, floor_bytes=workspace.stats().capacity_bytes)
    for size in sizes:
        with reclaimer.forward():
            workspace.get_simultaneous(((size,), BYTES))
            demand = workspace.slots[0].required_bytes
            assert demand == -(-size // 256) * 256
            assert workspace.slots[0].capacity_bytes >= max(demand, reclaimer.floor_bytes)
        assert workspace.slots[0].capacity_bytes >= reclaimer.floor_bytes


class TestPolicies:
    def test_a_bad_spec_or_an_instance_is_refused(self, workspace):
        with pytest.raises(PolicySpecError, match="three-windw"):
            EagerWorkspaceReclaimer(workspace, "three-windw", floor_bytes=0)
        with pytest.raises(ValueError, match="each slot needs its own"):
            EagerWorkspaceReclaimer(workspace, ThreeWindowPolicy(0), floor_bytes=0)

    def test_a_factory_gets_floor_and_cost_and_makes_one_a_slot(self):
        made = []

        def factory(floor, cost):
            made.append((floor, cost))
            return ThreeWindowPolicy(floor)

        workspace = WorkspaceManager("cpu", num_lanes=2)
        workspace.reserve(((5000,), BYTES))
        EagerWorkspaceReclaimer(workspace, factory, cost=COST)
        assert made == [(8192, COST)] * 2  # 5,120 B rounded up to pages

    def test_a_growth_target_and_what_resizes_took_reach_the_policy(self, workspace, ask):
        heard = []

        class Doubling(GrowOnlyPolicy):
            def grow_target(self, required_bytes, capacity_bytes, *, now=0.0):
                return 2 * required_bytes

            def resized(self, *, grew, seconds, new_bytes):
                heard.append((grew, seconds >= 0, new_bytes))

        reclaimer = EagerWorkspaceReclaimer(workspace, lambda floor, cost: Doubling(floor), floor_bytes=0)
        run(reclaimer, ask, 10_000)  # seen as 12,288, so 24,576
        assert workspace.stats().capacity_bytes == 24_576
        assert heard == [(True, True, 24_576)]

    def test_poll_lets_a_policy_act_between_forwards(self, workspace, ask):
        class Timed(ShrinkPolicy):
            name = "timed"

            def __init__(self, floor_bytes):
                super().__init__(floor_bytes)
                self.due = float("inf")

            def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
                assert 0 < started <= ended
                self.due = ended + 5
                return

            def deadline(self):
                return self.due

            def idle(self, capacity_bytes, *, now):
                self.due = float("inf")
                return self.floor_bytes

        ask(4 * KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace, lambda floor, cost: Timed(floor))
        run(reclaimer, ask, MIB)
        now = monotonic()
        due = reclaimer.poll(now)
        assert now + 4 < due < now + 5
        assert workspace.stats().capacity_bytes == MIB
        with reclaimer.forward():
            assert reclaimer.poll(now + 100) == now + 100  # not inside a forward
        assert workspace.stats().capacity_bytes == MIB
        assert reclaimer.poll(now + 100) == float("inf")
        assert workspace.stats().capacity_bytes == 4 * KIB
        assert slot_stats(reclaimer).shrinks == 1


def test_nothing_of_cuda_is_asked_on_a_cpu(workspace, ask, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("an accelerator was asked")

    for name in ("current_stream", "is_current_stream_capturing", "synchronize", "init"):
        monkeypatch.setattr(torch.cuda, name, forbidden)
    for name in ("current_stream", "synchronize", "empty_cache"):
        monkeypatch.setattr(torch.accelerator, name, forbidden)
    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    run(reclaimer, ask, MIB, KIB, KIB, KIB)
    reclaimer.rearm()
    assert slot_stats(reclaimer).capture_guard is None


def test_attaching_again_and_again_leaves_nothing_behind(workspace, ask):
    ask(MIB)
    references = []
    for _ in range(10):
        reclaimer = EagerWorkspaceReclaimer(workspace)
        run(reclaimer, ask, KIB)
        references.append(weakref.ref(reclaimer))
    assert workspace.stats().capacity_bytes == MIB
    del reclaimer
    gc.collect()
    # The scratch keeps the growth rule of the last one only.
    assert sum(reference() is not None for reference in references) == 0


def test_a_compiled_model_steps_the_policy_in_every_call(workspace):
    plan = workspace.plan(((64,), torch.float32))

    @torch.compile(backend="eager")
    def model(x, scratch):
        scratch.copy_(x * 2)
        return scratch + 1

    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    for _ in range(3):
        with reclaimer.forward():
            out = model(torch.ones(64), *workspace.get(plan))
    assert (out == 3).all()
    assert slot_stats(reclaimer).observed == 3


@pytest.fixture(autouse=True)
def _log_level(caplog):
    caplog.set_level(logging.WARNING, logger="reclaim")
