"""What outlives requests: persistent objects and the retained tail."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import (
    EagerWorkspaceReclaimer,
    WorkspaceLockedError,
    WorkspaceManager,
    WorkspaceStateError,
    use_ubatch,
    use_workspace_lane,
)

KIB = 1 << 10
BYTES = torch.uint8


class TestPersistent:
    def test_a_key_has_one_tensor_a_slot_zeroed_once(self):
        workspace = WorkspaceManager("cpu", num_ubatches=2, num_lanes=2)
        tensors = []
        for ubatch in (0, 1):
            for lane in (0, 1):
                with use_ubatch(ubatch), use_workspace_lane(lane):
                    tensor = workspace.get_persistent("counter", (3,), torch.int32, zero_init=True)
                    assert (tensor == 0).all()
                    tensor.fill_(7)
                    assert workspace.get_persistent("counter", [3], torch.int32, zero_init=True) is tensor
                    assert (tensor == 7).all()
                    tensors.append(tensor)
        assert len({tensor.data_ptr() for tensor in tensors}) == 4

    @pytest.mark.parametrize(("shape", "dtype"), [((4,), torch.int32), ((3,), torch.int64)])
    def test_another_shape_or_dtype_is_refused(self, workspace, shape, dtype):
        workspace.get_persistent("counter", (3,), torch.int32)
        with pytest.raises(ValueError, match="requested shape"):
            workspace.get_persistent("counter", shape, dtype)

    def test_it_is_no_inference_tensor(self, workspace):
        with torch.inference_mode():
            tensor = workspace.get_persistent("counter", (3,), torch.int32)
        assert not tensor.is_inference()

    def test_resizing_the_scratch_does_not_touch_it(self, workspace, ask):
        tensor = workspace.get_persistent("counter", (3,), torch.int32, zero_init=True)
        ask(KIB)
        ask(1 << 20)
        workspace.release(force=True)
        assert workspace.get_persistent("counter", (3,), torch.int32) is tensor
        assert (tensor == 0).all()

    def test_a_factory_runs_once_a_slot_and_may_ask_for_other_keys(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        made = []

        def factory():
            made.append(workspace.get_persistent_resource("inner", lambda: "inner"))
            return object()

        first = workspace.get_persistent_resource("outer", factory)
        assert workspace.get_persistent_resource("outer", factory) is first
        with use_workspace_lane(1):
            assert workspace.get_persistent_resource("outer", factory) is not first
        assert made == ["inner", "inner"]

    def test_a_factory_that_asks_for_itself_is_an_error_and_can_be_mended(self, workspace):
        def factory():
            return workspace.get_persistent_resource("key", factory)

        with pytest.raises(WorkspaceStateError, match="asks for 'key' itself"):
            workspace.get_persistent_resource("key", factory)
        assert workspace.get_persistent_resource("key", lambda: 1) == 1

    def test_a_factory_that_fails_leaves_nothing(self, workspace):
        def factory():
            raise KeyError("no")

        with pytest.raises(KeyError):
            workspace.get_persistent_resource("key", factory)
        assert workspace.get_persistent_resource("key", lambda: None) is None
        assert workspace.get_persistent_resource("key", factory) is None  # None is an object like any other

    def test_a_new_key_under_lock_is_refused_and_an_old_one_is_not(self, workspace):
        workspace.get_persistent("old", (1,), torch.int32)
        workspace.lock()
        workspace.get_persistent("old", (1,), torch.int32)
        with pytest.raises(
            WorkspaceLockedError, match=r"'new'\) was not allocated during warmup for slot .*test_kept.py"
        ):
            workspace.get_persistent("new", (1,), torch.int32)
        workspace.unlock()
        workspace.get_persistent("new", (1,), torch.int32)

    @pytest.mark.parametrize("inside", [False, True])
    def test_the_alloc_context_is_for_scratch_unless_asked_otherwise(self, inside):
        entered = []

        @contextmanager
        def pool():
            entered.append(1)
            yield

        workspace = WorkspaceManager("cpu", alloc_context=pool, persistent_in_context=inside)
        workspace.get_persistent("counter", (1,), torch.int32)
        assert bool(entered) == inside


class TestRetained:
    def test_it_is_the_tail_and_intact_for_the_same_key_and_size(self, workspace, ask):
        workspace.reserve(((8 * KIB,), BYTES))
        view, intact = workspace.get_retained("cache", (KIB,), BYTES)
        assert not intact
        view.fill_(9)
        ask(4 * KIB)
        again, intact = workspace.get_retained("cache", (KIB,), BYTES)
        assert intact
        assert (again == 9).all()
        assert again.data_ptr() == view.data_ptr()
        assert workspace.stats().capacity_bytes == 8 * KIB

    def test_the_same_rounded_size_is_not_the_same_size(self, workspace):
        workspace.reserve(((8 * KIB,), BYTES))
        workspace.get_retained("cache", (1000,), BYTES)
        assert workspace.get_retained("cache", (1001,), BYTES)[1] is False  # both end on the same 256 bytes
        assert workspace.get_retained("cache", (1001,), BYTES)[1] is True

    def test_another_key_takes_it_over(self, workspace):
        workspace.get_retained("cache", (KIB,), BYTES)
        assert workspace.get_retained("other", (KIB,), BYTES)[1] is False
        assert workspace.get_retained("cache", (KIB,), BYTES)[1] is False

    def test_a_request_that_reaches_into_it_ends_it_and_one_that_touches_does_not(self, workspace, ask):
        workspace.reserve(((8 * KIB,), BYTES))
        workspace.get_retained("cache", (KIB,), BYTES)
        ask(7 * KIB)
        assert workspace.get_retained("cache", (KIB,), BYTES)[1] is True
        ask(7 * KIB + 1)
        workspace.slots[0].begin_forward()  # no live views, so that it is not a growth that ends it
        assert workspace.get_retained("cache", (KIB,), BYTES)[1] is False
        assert workspace.stats().capacity_bytes == 8 * KIB

    @torch.no_grad()
    def test_a_plan_with_cached_views_ends_it_too(self, workspace):
        workspace.reserve(((8 * KIB,), BYTES))
        plan = workspace.plan(((7 * KIB + 1,), BYTES))
        views = workspace.get(plan)
        workspace.slots[0].begin_forward()  # whose views are worthless now, so that the span need not avoid them
        workspace.get_retained("cache", (KIB,), BYTES)
        assert workspace.get(plan) is views
        workspace.slots[0].begin_forward()
        assert workspace.get_retained("cache", (KIB,), BYTES)[1] is False

    def test_any_resize_ends_it_also_when_the_capacity_comes_back(self, workspace, ask):
        workspace.reserve(((8 * KIB,), BYTES))
        workspace.get_retained("cache", (KIB,), BYTES)
        workspace.slots[0].reallocate(4 * KIB)
        ask(8 * KIB)
        workspace.slots[0].begin_forward()
        assert workspace.get_retained("cache", (KIB,), BYTES)[1] is False

    def test_it_never_overlaps_the_last_requests_views(self, workspace):
        (live,) = workspace.get_simultaneous(((8 * KIB,), BYTES))
        live.fill_(1)
        view, intact = workspace.get_retained("cache", (KIB,), BYTES)
        view.fill_(2)
        assert not intact
        assert (live == 1).all()
        assert workspace.stats().capacity_bytes == 9 * KIB

    def test_demand_is_the_sum_of_what_lives_together(self, workspace):
        slot = workspace.slots[0]
        workspace.reserve(((16 * KIB,), BYTES))
        slot.begin_forward()
        workspace.get_retained("cache", (1000,), BYTES)
        assert slot.required_bytes == 1024
        workspace.get_simultaneous(((4 * KIB,), BYTES))
        assert slot.required_bytes == 5 * KIB
        workspace.get_simultaneous(((16 * KIB,), BYTES))  # reaches in: the span is gone
        assert slot.required_bytes == 16 * KIB

    def test_a_retained_forward_is_not_shrunk_below_both(self, workspace, ask):
        ask(KIB)
        reclaimer = EagerWorkspaceReclaimer(workspace)
        for size in (64 * KIB, KIB, KIB, KIB):
            with reclaimer.forward():
                ask(size)
                workspace.get_retained("cache", (8 * KIB,), BYTES)
        assert workspace.stats().capacity_bytes == 12 * KIB  # 1 + 8 KiB on whole pages

    def test_under_lock_it_is_refused_when_it_would_grow(self, workspace, ask):
        ask(KIB)
        workspace.lock()
        with pytest.raises(WorkspaceLockedError):
            workspace.get_retained("cache", (KIB,), BYTES)

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["ask", "plan", "retain", "begin"]), st.integers(0, 40), st.sampled_from("ab")),
            max_size=30,
        )
    )
    def test_intact_means_intact(self, steps):
        workspace = WorkspaceManager("cpu")
        workspace.reserve(((4 * KIB,), BYTES))
        written: dict[tuple[str, int], int] = {}
        for number, (action, amount, key) in enumerate(steps):
            nbytes = amount * 128
            if action == "retain":
                view, intact = workspace.get_retained(key, (nbytes,), BYTES)
                if intact:
                    assert (view == written[key, nbytes]).all()
                view.fill_(number)
                written[key, nbytes] = number
            elif action == "begin":
                workspace.slots[0].begin_forward()
            else:
                request = ((nbytes,), BYTES)
                views = (
                    workspace.get_simultaneous(request) if action == "ask" else workspace.get(workspace.plan(request))
                )
                views[0].fill_(200)
            assert workspace.slots[0].capacity_bytes >= workspace.slots[0].required_bytes
