"""What the users of vLLM's WorkspaceManager and of TensorRT-LLM's EagerWorkspaceReclaimer count on, by public names."""

from __future__ import annotations

import pytest
import torch

from reclaim import (
    EagerWorkspaceReclaimer,
    WorkspaceLockedError,
    WorkspaceManager,
    use_ubatch,
    use_workspace_lane,
)

BYTES = torch.uint8


class TestWorkspaceManager:
    def test_two_ubatches_and_two_lanes_are_four_buffers_sized_apart(self):
        workspace = WorkspaceManager("cpu", num_ubatches=2, num_lanes=2)
        views = {}
        for ubatch in (0, 1):
            for lane in (0, 1):
                with use_ubatch(ubatch), use_workspace_lane(lane):
                    (views[ubatch, lane],) = workspace.get_simultaneous(((256 * (1 + 2 * ubatch + lane),), BYTES))
        assert len({view.data_ptr() for view in views.values()}) == 4
        assert [slot.capacity_bytes for slot in workspace.stats().slots] == [256, 512, 768, 1024]

    def test_a_lock_keeps_the_address_and_refuses_growth_until_unlock(self):
        workspace = WorkspaceManager("cpu")

        def address(nbytes):
            return workspace.get_simultaneous(((nbytes,), BYTES))[0].data_ptr()

        first = address(256)
        workspace.lock()
        assert address(256) == address(8) == first
        with pytest.raises(WorkspaceLockedError, match="Workspace is locked but allocation from"):
            address(512)
        workspace.unlock()
        address(512)
        assert workspace.stats().capacity_bytes == 512

    def test_persistent_objects_are_one_a_slot_and_made_once(self):
        workspace = WorkspaceManager("cpu", num_lanes=2)
        made = []

        def factory():
            made.append(object())
            return made[-1]

        assert workspace.get_persistent_resource("key", factory) is workspace.get_persistent_resource("key", factory)
        with use_workspace_lane(1):
            other = workspace.get_persistent_resource("key", factory)
        assert (len(made), other is made[1]) == (2, True)


class TestEagerWorkspaceReclaimer:
    """Floor 4096 throughout; one page is 4096 bytes, so that the sizes are those of the peer."""

    @pytest.fixture
    def engine(self):
        workspace = WorkspaceManager("cpu")
        workspace.reserve(((4096,), BYTES))
        return workspace, EagerWorkspaceReclaimer(workspace)

    @staticmethod
    def run(engine, *forwards, **flags):
        workspace, reclaimer = engine
        addresses = []
        for layers in forwards:
            with reclaimer.forward(**flags):
                for nbytes in layers:
                    addresses.append(workspace.get_simultaneous(((nbytes,), BYTES))[0].data_ptr())
        return addresses

    def capacity(self, engine):
        return engine[0].stats().capacity_bytes

    def test_layers_share_one_address_and_the_third_underfilled_forward_shrinks(self, engine):
        self.run(engine, (16384,))
        addresses = self.run(engine, (8192, 4096), (8192,))
        assert len(set(addresses)) == 1
        assert self.capacity(engine) == 16384
        self.run(engine, (4096, 8192))
        assert self.capacity(engine) == 8192
        self.run(engine, (2048,), (2048,), (2048,))
        assert self.capacity(engine) == 4096

    def test_an_exception_propagates_and_the_count_begins_again(self, engine):
        self.run(engine, (16384,), (4096,), (4096,))
        with pytest.raises(LookupError), engine[1].forward():
            raise LookupError
        self.run(engine, (4096,), (4096,))
        assert self.capacity(engine) == 16384
        self.run(engine, (4096,))
        assert self.capacity(engine) == 4096

    @pytest.mark.parametrize("above_floor", [True, False])
    def test_a_change_of_stream_disables_it_for_good_and_it_still_serves(self, engine, above_floor):
        if above_floor:
            self.run(engine, (16384,))
        self.run(engine, (4096,), multi_stream=True)
        assert engine[1].disabled_reason == "stream"
        self.run(engine, (4096,), (4096,), (4096,), (8192,))
        assert engine[1].disabled_reason == "stream"
        assert self.capacity(engine) == (16384 if above_floor else 8192)
