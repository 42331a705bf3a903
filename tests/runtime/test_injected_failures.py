"""Allocation failures at every point of random sequences: what must hold after each, whatever failed."""

from __future__ import annotations

import random

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, WorkspaceManager, WorkspaceOutOfMemoryError, WorkspaceStateError

KIB = 1 << 10


@pytest.mark.parametrize("policy", ["three-window", "exact-fit"])
@pytest.mark.parametrize("block", range(5))
def test_a_slot_is_always_whole_or_empty(policy, block, monkeypatch):
    for seed in range(100 * block, 100 * block + 100):
        run_sequence(random.Random(seed), policy)


def run_sequence(choose, policy):
    workspace = WorkspaceManager("cpu")
    slot = workspace.slots[0]
    workspace.reserve(((4 * KIB,), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(workspace, policy)
    resize = slot._buffer.resize
    failing = [0.0]

    def scarce(nbytes, **options):
        if nbytes and choose.random() < failing[0]:
            raise torch.OutOfMemoryError("injected")
        return resize(nbytes, **options)

    slot._buffer.resize = scarce
    kept = []
    failing[0] = 0.3
    with torch.inference_mode():
        for _ in range(30):
            step(choose, workspace, reclaimer, kept)
            check(workspace, slot)
            assert all((view == value).all() for view, value in kept)
        failing[0] = 0.0
        kept.clear()
        if not reclaimer.enabled:
            assert reclaimer.disabled_reason == "regrow-failed"
            reclaimer.rearm()
        for _ in range(8):  # a window begun before may have to end first
            with reclaimer.forward():
                workspace.get_simultaneous(((KIB,), torch.uint8))
        check(workspace, slot)
        assert slot.capacity_bytes == 4 * KIB  # back at the floor, with everything working


def step(choose, workspace, reclaimer, kept):
    action = choose.choice(["forward", "forward", "forward", "climb", "keep", "drop", "release", "raise"])
    size = choose.randrange(1, 64) * KIB
    try:
        if action == "release":
            workspace.release(force=choose.random() < 0.5)
        elif action == "drop":
            kept.clear()
        else:
            with reclaimer.forward():
                for nbytes in (size // 2, size) if action == "climb" else (size,):
                    (view,) = workspace.get_simultaneous(((nbytes,), torch.uint8))
                if action == "keep" and not kept:
                    view.fill_(choose.randrange(200))
                    kept.append((view[:KIB], int(view[0])))
                del view
                if action == "raise":
                    raise LookupError
    except (WorkspaceOutOfMemoryError, WorkspaceStateError, LookupError):
        pass


def check(workspace, slot):
    assert slot.turn == [None]  # no forward was left open
    assert slot._tensor.numel() == slot.capacity_bytes
    assert slot.capacity_bytes in (0, slot._buffer.capacity_bytes)
    if slot.capacity_bytes:
        assert slot._tensor.untyped_storage().nbytes() == slot.capacity_bytes
        with torch.inference_mode(False):
            slot._tensor[-1:].clone()  # the last byte is there
