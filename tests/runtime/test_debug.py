from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, WorkspaceManager

KIB = 1 << 10


@pytest.fixture
def debugged(monkeypatch):
    monkeypatch.setenv("RECLAIM_DEBUG", "1")
    return WorkspaceManager("cpu")


@torch.no_grad()
def test_a_view_kept_beyond_the_next_request_reads_nan(debugged):
    (view,) = debugged.get_simultaneous(((64,), torch.float32))
    view.fill_(1)
    debugged.get_simultaneous(((16,), torch.float32))
    assert view.isnan().all()


@torch.no_grad()
def test_fresh_scratch_reads_nan_and_views_are_fresh(debugged):
    plan = debugged.plan(((64,), torch.float32))
    (first,) = debugged.get(plan)
    (second,) = debugged.get(plan)
    assert first is not second
    assert second.isnan().all()


@torch.no_grad()
def test_a_view_kept_beyond_its_forward_reads_nan(debugged):
    debugged.reserve(((KIB,), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(debugged)
    with reclaimer.forward():
        (view,) = debugged.get_simultaneous(((64,), torch.float32))
        view.fill_(1)
    assert (view == 1).all()
    with reclaimer.forward():
        assert view.isnan().all()


@torch.no_grad()
def test_an_intact_retained_span_is_spared(debugged):
    debugged.reserve(((8 * KIB,), torch.uint8))
    view, _ = debugged.get_retained("cache", (KIB,), torch.uint8)
    view.fill_(7)
    reclaimer = EagerWorkspaceReclaimer(debugged)
    for _ in range(3):
        with reclaimer.forward():
            debugged.get_simultaneous(((6 * KIB,), torch.uint8))
            debugged.get_simultaneous(((2 * KIB,), torch.uint8))
    again, intact = debugged.get_retained("cache", (KIB,), torch.uint8)
    assert intact
    assert (again == 7).all()


def test_resizes_lock_and_unlock_are_logged_with_the_caller(debugged, caplog):
    caplog.set_level(logging.INFO, logger="reclaim")
    debugged.reserve(((KIB,), torch.uint8))
    debugged.lock()
    debugged.unlock()
    resized, locked, unlocked = (record.getMessage() for record in caplog.records)
    assert "test_resizes_lock_and_unlock" in resized
    assert "0 B -> 1 KiB on cpu" in resized
    assert "locked slot (ubatch 0, lane 0) at 1 KiB" in locked
    assert "unlocked slot" in unlocked


def test_it_reclaims_all_the_same(debugged):
    debugged.reserve(((KIB,), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(debugged)
    for size in (64 * KIB, KIB, KIB, KIB):
        with reclaimer.forward():
            debugged.get_simultaneous(((size,), torch.uint8))
    assert debugged.stats().capacity_bytes == 4 * KIB
    assert reclaimer.stats().slots[0].observed == 4


@pytest.mark.parametrize(("debug", "dies"), [("1", True), ("0", False)])
def test_a_write_through_an_old_address_above_the_capacity_dies_at_once(debug, dies):
    code = """
import ctypes, torch
from reclaim import WorkspaceManager
workspace = WorkspaceManager("cpu")
(view,) = workspace.get_simultaneous(((1 << 20,), torch.uint8))
address = view.data_ptr()
del view
workspace.slots[0].reallocate(4096)
ctypes.memset(address, 1, 4096)  # what is still there may be written
ctypes.memset(address + (1 << 19), 1, 1)
workspace.get_simultaneous(((1 << 20,), torch.uint8))[0].fill_(2)
"""
    environment = {"RECLAIM_DEBUG": debug, "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (done.returncode != 0) == dies, done.stderr.decode()
