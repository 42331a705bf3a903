from __future__ import annotations

import pytest
import torch

import reclaim


@pytest.fixture(autouse=True)
def _forget():
    reclaim.reset_workspace_manager()
    yield
    reclaim.reset_workspace_manager()


def test_before_init_the_error_is_an_assertion_too():
    assert not reclaim.is_workspace_manager_initialized()
    for call in (reclaim.current_workspace_manager, reclaim.lock_workspace, reclaim.unlock_workspace):
        with pytest.raises(AssertionError, match="call init_workspace_manager"):
            call()
    with pytest.raises(reclaim.WorkspaceStateError):
        reclaim.current_workspace_manager()


def test_init_lock_unlock_and_reset():
    reclaim.init_workspace_manager(torch.device("cpu"), 2, 2, max_bytes=1 << 30)
    manager = reclaim.current_workspace_manager()
    assert len(manager.slots) == 4
    reclaim.lock_workspace()
    assert manager.is_locked()
    reclaim.unlock_workspace()
    assert not manager.is_locked()
    reclaim.reset_workspace_manager()
    assert not reclaim.is_workspace_manager_initialized()


def test_a_second_init_warns_with_both_devices_and_replaces(caplog):
    reclaim.init_workspace_manager("cpu")
    first = reclaim.current_workspace_manager()
    reclaim.init_workspace_manager("cpu")
    assert reclaim.current_workspace_manager() is not first
    assert caplog.text.count("cpu") == 2
