from __future__ import annotations

import gc
import threading
import weakref
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import (
    EagerWorkspaceReclaimer,
    WorkspaceLockedError,
    WorkspaceManager,
    WorkspaceOutOfMemoryError,
    WorkspaceStateError,
    use_ubatch,
    use_workspace_lane,
)

KIB, MIB = 1 << 10, 1 << 20
BYTES = torch.uint8


def test_views_live_side_by_side_and_have_the_asked_shapes(workspace):
    first, second, third = workspace.get_simultaneous(
        ((3, 5), torch.float32), ((100,), torch.bfloat16), ((), torch.int64)
    )
    assert (first.shape, first.dtype) == ((3, 5), torch.float32)
    assert (second.shape, second.dtype) == ((100,), torch.bfloat16)
    assert (third.shape, third.dtype) == ((), torch.int64)
    assert [view.data_ptr() - first.data_ptr() for view in (first, second, third)] == [0, 256, 512]
    first.fill_(1)
    second.fill_(2)
    third.fill_(3)
    assert (first == 1).all()
    assert (second == 2).all()
    assert third == 3


def test_the_next_request_begins_at_the_same_place(workspace):
    (first,) = workspace.get_simultaneous(((1024,), BYTES))
    (second,) = workspace.get_simultaneous(((16, 16), torch.float32))
    assert first.data_ptr() == second.data_ptr()


def test_it_compares_bytes_not_elements(workspace):
    workspace.reserve(((2000,), torch.int8))  # 2048 B after rounding
    capacity = workspace.slots[0].capacity_bytes
    generation = workspace.slots[0].generation
    workspace.get_simultaneous(((500,), torch.float32))  # 2000 B fit
    assert (workspace.slots[0].capacity_bytes, workspace.slots[0].generation) == (capacity, generation)
    workspace.get_simultaneous(((1000,), torch.float32))  # 4000 B do not
    assert workspace.slots[0].capacity_bytes == 4096
    assert workspace.slots[0].generation == generation + 1


def test_capacity_is_the_largest_request_not_the_sum(workspace, ask):
    for size in (3, 5, 8, 11, 14, 17, 20, 24):
        ask(size * MIB)
    for size in (3, 5, 8, 11, 14, 17, 20, 24):
        ask(size * MIB)
    assert workspace.stats().capacity_bytes == 24 * MIB


def test_empty_parts_are_empty_views_also_on_an_empty_slot(workspace):
    empty, also = workspace.get_simultaneous(((0, 7), torch.float32), ((0,), BYTES))
    assert (empty.shape, also.shape) == ((0, 7), (0,))
    assert workspace.stats().capacity_bytes == 0


@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2, torch.int4, torch.uint2, torch.bool, torch.uint16],
)
def test_any_dtype_can_be_asked_for(workspace, dtype):
    (view,) = workspace.get_simultaneous(((4, 3), dtype))
    assert (view.dtype, view.shape) == (dtype, (4, 3))


def test_requests_beyond_4_gib_are_views_like_any_other(workspace):
    (view,) = workspace.get_simultaneous((((1 << 32) + 1,), BYTES))  # address space only: no page is touched
    assert view.numel() == (1 << 32) + 1
    assert workspace.stats().capacity_bytes == (1 << 32) + 256


def test_an_absurd_request_is_refused_before_anything_is_freed(workspace, ask):
    ask(MIB)
    before = workspace.stats()
    with pytest.raises(ValueError, match="beyond"):
        workspace.get_simultaneous(((1 << 62, 4), BYTES))
    with pytest.raises(ValueError, match="negative"):
        workspace.get_simultaneous(((-5,), BYTES))
    assert workspace.stats() == before


def test_a_refused_growth_leaves_a_clean_empty_slot_that_can_grow(workspace, ask):
    ask(MIB)
    with pytest.raises(WorkspaceOutOfMemoryError, match="could not get 4 EiB") as caught:
        workspace.get_simultaneous(((1 << 62,), BYTES))
    assert isinstance(caught.value, torch.OutOfMemoryError)
    assert workspace.stats().capacity_bytes == 0
    ask(2 * MIB)
    assert workspace.stats().capacity_bytes == 2 * MIB


def test_views_made_inside_inference_mode_work_outside(workspace):
    plan = workspace.plan(((4,), torch.float32))
    with torch.inference_mode():
        (view,) = workspace.get(plan)
        (other,) = workspace.get_simultaneous(((4,), torch.float32))
    assert not view.is_inference()
    assert not other.is_inference()
    (view * torch.ones(4, requires_grad=True)).sum().backward()


def test_the_default_device_does_not_matter(workspace):
    with torch.device("meta"):
        (view,) = workspace.get_simultaneous(((4,), torch.float32))
        kept = workspace.get_persistent("kept", (4,), torch.float32)
    assert view.device.type == kept.device.type == "cpu"


@torch.no_grad()
def test_the_same_request_gives_the_same_views_and_a_list_shape_works_too(workspace):
    first = workspace.get_simultaneous(((4, 4), torch.float32), ((2,), BYTES))
    second = workspace.get_simultaneous(((4, 4), torch.float32), ((2,), BYTES))
    third = workspace.get_simultaneous(([4, 4], torch.float32), ([2], BYTES))
    assert all(a is b for a, b in zip(first, second, strict=True))
    assert [view.shape for view in third] == [(4, 4), (2,)]
    first.clear()
    assert len(workspace.get_simultaneous(((4, 4), torch.float32), ((2,), BYTES))) == 2


def test_endlessly_new_requests_do_not_pile_up(workspace):
    for size in range(3000):
        workspace.get_simultaneous(((size,), BYTES))
    assert len(workspace._recent) <= 512
    assert len(workspace._plans._plans) <= 512


def test_room_can_be_made_when_a_growth_fails(monkeypatch):
    asked = []
    workspace = WorkspaceManager("cpu", on_pressure=asked.append)
    buffer = workspace.slots[0]._buffer
    resize = buffer.resize

    def scarce(nbytes, **options):
        if not asked:
            raise torch.OutOfMemoryError("full")
        return resize(nbytes, **options)

    monkeypatch.setattr(buffer, "resize", scarce)
    (view,) = workspace.get_simultaneous(((MIB,), BYTES))
    assert (asked, view.numel()) == ([MIB], MIB)


class TestPlans:
    def test_with_gradients_on_a_view_is_not_tied_to_the_forward_before(self, workspace):
        plan = workspace.plan(((8, 8), torch.float32))
        weight = torch.nn.Parameter(torch.ones(8, 8))
        histories = []
        for _ in range(3):
            (view,) = workspace.get(plan)
            assert not view.requires_grad
            x = torch.ones(8, 8)
            view.copy_(x @ weight)
            histories.append(weakref.ref(x))  # the graph keeps x for the gradient of weight
            del view, x
        gc.collect()
        assert [history() for history in histories] == [None] * 3
        with torch.no_grad():
            assert not workspace.get(plan)[0].requires_grad

    @torch.no_grad()
    def test_get_returns_the_same_views_until_a_resize(self, workspace):
        plan = workspace.plan(((4, 4), torch.float32), ((10,), BYTES))
        views = workspace.get(plan)
        assert workspace.get(plan) is views
        workspace.reserve(((MIB,), BYTES))
        renewed = workspace.get(plan)
        assert renewed is not views
        assert [view.shape for view in renewed] == [(4, 4), (10,)]

    def test_get_counts_as_demand_also_when_the_views_are_cached(self, workspace):
        plan = workspace.plan(((1000,), BYTES))
        workspace.get(plan)
        workspace.slots[0].begin_forward()
        workspace.get(plan)
        assert workspace.slots[0].required_bytes == 1024

    def test_a_plan_does_not_pin_the_storage(self, workspace):
        plan = workspace.plan(((8 * MIB,), BYTES))
        workspace.get(plan)
        assert workspace.slots[0].reallocate(MIB)
        assert workspace.stats().capacity_bytes == MIB

    def test_the_manager_does_not_keep_a_plan_alive(self, workspace):
        plan = workspace.plan(((8,), BYTES))
        workspace.get(plan)
        reference = weakref.ref(plan)
        del plan
        gc.collect()
        assert reference() is None

    def test_planning_allocates_nothing(self, workspace):
        workspace.plan(((MIB,), BYTES))
        assert workspace.stats().capacity_bytes == 0

    def test_a_plan_of_nothing_gives_nothing(self, workspace):
        assert workspace.get(workspace.plan()) == ()

    def test_plans_of_slots_are_apart(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        plan = workspace.plan(((100,), BYTES))
        (first,) = workspace.get(plan)
        with use_workspace_lane(1):
            (second,) = workspace.get(plan)
            second.fill_(2)
        first.fill_(1)
        assert (second == 2).all()


class TestLock:
    def test_growth_names_the_caller_the_sizes_and_the_way_out(self, workspace, ask):
        ask(1000)
        workspace.lock()
        assert workspace.is_locked()
        with pytest.raises(WorkspaceLockedError) as caught:
            ask(2000)
        message = str(caught.value)
        assert message.startswith("Workspace is locked but allocation from '")
        assert "conftest.py" in message
        assert ":request" in message
        assert "2 KiB (2048 B)" in message
        assert "1 KiB (1024 B)" in message
        assert "ubatch 0, lane 0" in message
        assert "unlock()" in message
        assert isinstance(caught.value, AssertionError)

    def test_what_fits_is_served_and_unlock_lets_it_grow(self, workspace, ask):
        ask(1024)
        workspace.lock()
        ask(1024)
        assert workspace.try_get_simultaneous(((2000,), BYTES)) is None
        assert workspace.try_get_simultaneous(((1000,), BYTES)) is not None
        workspace.unlock()
        ask(2048)
        assert workspace.stats().capacity_bytes == 2048


class TestSlots:
    def test_slots_grow_apart(self):
        workspace = WorkspaceManager("cpu", num_ubatches=2, num_lanes=3)
        assert [(slot.ubatch, slot.lane) for slot in workspace.slots] == [
            (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
        ]  # fmt: skip
        with use_ubatch(1), use_workspace_lane(2):
            (view,) = workspace.get_simultaneous(((MIB,), BYTES))
        assert [slot.capacity_bytes for slot in workspace.slots] == [0, 0, 0, 0, 0, MIB]
        assert view.numel() == MIB

    def test_reserve_sizes_all_slots_or_one(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        workspace.reserve(((KIB,), BYTES))
        assert [slot.capacity_bytes for slot in workspace.slots] == [KIB, KIB]
        workspace.reserve(((MIB,), BYTES), all_slots=False)
        assert [slot.capacity_bytes for slot in workspace.slots] == [MIB, KIB]

    def test_an_unknown_slot_is_an_error_at_the_request(self, workspace):
        plan = workspace.plan(((1,), BYTES))
        with use_workspace_lane(1), pytest.raises(RuntimeError, match="lane 1 is not configured"):
            workspace.get(plan)
        with use_ubatch(2), pytest.raises(WorkspaceStateError, match="ubatch 2 is not configured"):
            workspace.get_simultaneous(((1,), BYTES))

    def test_negative_choices_and_counts_are_refused(self):
        with pytest.raises(ValueError, match="non-negative"), use_workspace_lane(-1):
            pass
        with pytest.raises(ValueError, match="non-negative"), use_ubatch(-1):
            pass
        with pytest.raises(ValueError, match="num_lanes must be at least one"):
            WorkspaceManager("cpu", num_lanes=0)
        with pytest.raises(ValueError, match="num_ubatches must be at least one"):
            WorkspaceManager("cpu", num_ubatches=0)

    def test_the_engine_can_tell_the_micro_batch(self):
        running = [0]
        workspace = WorkspaceManager("cpu", num_ubatches=2, ubatch_of=lambda: running[0])
        plan = workspace.plan(((KIB,), BYTES))
        running[0] = 1
        workspace.get(plan)
        assert [slot.capacity_bytes for slot in workspace.slots] == [0, KIB]
        running[0] = 2
        with pytest.raises(RuntimeError, match="ubatch 2 is not configured"):
            workspace.get(plan)

    def test_a_thread_does_not_inherit_the_choice(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        with use_workspace_lane(1):
            thread = threading.Thread(target=workspace.reserve, args=(((KIB,), BYTES),), kwargs={"all_slots": False})
            thread.start()
            thread.join()
        assert [slot.capacity_bytes for slot in workspace.slots] == [KIB, 0]


class TestRelease:
    def test_it_goes_to_the_floor_or_with_force_to_nothing(self, workspace, ask):
        ask(MIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        with reclaimer.forward():
            ask(8 * MIB)
        workspace.release()
        assert workspace.stats().capacity_bytes == workspace.stats().reserved_bytes == MIB
        workspace.release(force=True)
        assert workspace.stats().capacity_bytes == workspace.stats().reserved_bytes == 0
        with reclaimer.forward():
            ask(64 * KIB)
        assert workspace.stats().capacity_bytes == MIB  # growth goes to the floor at least

    def test_inside_a_forward_it_is_refused_and_nothing_changes(self, workspace, ask):
        reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
        with reclaimer.forward():
            ask(MIB)
            with pytest.raises(WorkspaceStateError, match="inside a forward"):
                workspace.release(force=True)
            assert workspace.stats().capacity_bytes == MIB

    def test_while_views_live_it_is_refused_unless_forced(self, workspace):
        (view,) = workspace.get_simultaneous(((MIB,), BYTES))
        view.fill_(7)
        with pytest.raises(WorkspaceStateError, match="views outside still use 1048576 bytes"):
            workspace.release()
        assert workspace.stats().capacity_bytes == MIB
        workspace.release(force=True)
        assert workspace.stats().capacity_bytes == 0
        assert workspace.slots[0].stale_bytes == MIB
        (fresh,) = workspace.get_simultaneous(((MIB,), BYTES))
        fresh.fill_(1)
        assert (view == 7).all()


def test_allocations_of_scratch_run_inside_the_alloc_context():
    entered = []

    @contextmanager
    def pool():
        entered.append("in")
        yield
        entered.append("out")

    workspace = WorkspaceManager("cpu", alloc_context=pool)
    entered.clear()
    workspace.reserve(((KIB,), BYTES))
    assert entered == ["in", "out"]


def test_every_change_of_capacity_is_a_generation(workspace, ask):
    slot = workspace.slots[0]
    generations = [slot.generation]
    ask(MIB)
    generations.append(slot.generation)
    ask(2 * MIB)
    generations.append(slot.generation)
    slot.reallocate(KIB * 4)
    generations.append(slot.generation)
    assert generations == [0, 1, 2, 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["ask", "keep", "drop", "shrink", "release"]), st.integers(0, 300)), max_size=25)
)
def test_a_pinned_storage_is_never_moved_nor_overwritten(steps):
    workspace = WorkspaceManager("cpu")
    slot = workspace.slots[0]
    kept = None
    for action, amount in steps:
        nbytes = amount * KIB
        if action == "ask":
            (view,) = workspace.get_simultaneous(((nbytes,), BYTES))
            assert slot.capacity_bytes >= nbytes
            assert slot.required_bytes >= nbytes
            del view
        elif action == "keep":
            (kept,) = workspace.get_simultaneous(((nbytes,), BYTES))
            kept.fill_(amount % 251)
            value = amount % 251
        elif action == "drop":
            kept = None
        elif action == "shrink":
            before = slot.capacity_bytes
            target = min(nbytes, before)
            done = slot.reallocate(target)
            assert slot.capacity_bytes == (target if done else before)
            if not done:
                assert kept is not None
                assert slot.stale_bytes > 0
        elif kept is None:
            workspace.release(force=True)
            assert slot.capacity_bytes == 0
        if kept is not None and kept.numel():
            # Nobody wrote since: a view that lives must still read what was put there.
            assert (kept == value).all()
            assert slot.capacity_bytes >= kept.numel()
