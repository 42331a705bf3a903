from __future__ import annotations

import gc
import weakref

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, OverlappingForwardError, WorkspaceStateError, attach

KIB, MIB = 1 << 10, 1 << 20


class Layer(torch.nn.Module):
    def __init__(self, workspace):
        super().__init__()
        self.workspace = workspace

    def forward(self, nbytes):
        if nbytes < 0:
            raise LookupError("broken batch")
        self.workspace.get_simultaneous(((nbytes,), torch.uint8))


@pytest.fixture
def reclaimer(workspace, ask):
    ask(KIB)
    return EagerWorkspaceReclaimer(workspace)


def test_every_call_of_the_module_is_a_forward(workspace, reclaimer):
    module = Layer(workspace)
    handle = attach(module, reclaimer)
    for nbytes in (MIB, KIB, KIB, KIB):
        module(nbytes)
    assert workspace.stats().capacity_bytes == 4 * KIB
    assert reclaimer.stats().slots[0].observed == 4  # a module that returns None has not failed
    handle.remove()
    handle.remove()
    module(KIB)
    assert reclaimer.stats().slots[0].forwards == 4


def test_a_module_that_raises_ends_its_forward_uncounted(workspace, reclaimer):
    module = Layer(workspace)
    attach(module, reclaimer)
    with pytest.raises(LookupError, match="broken batch"):
        module(-1)
    module(KIB)
    stats = reclaimer.stats().slots[0]
    assert (stats.aborted, stats.observed) == (1, 1)


def test_a_call_while_an_exception_is_handled_has_not_failed(workspace, reclaimer):
    module = torch.nn.Identity()
    attach(module, reclaimer)
    try:
        raise KeyError
    except KeyError:
        module(torch.zeros(1))
    assert reclaimer.stats().slots[0].observed == 1


def test_a_hook_that_fails_before_the_forward_ends_it_too(workspace, reclaimer):
    module = Layer(workspace)
    attach(module, reclaimer)

    def refuse(_module, _args):
        raise ValueError("not today")

    other = module.register_forward_pre_hook(refuse)
    with pytest.raises(ValueError, match="not today"):
        module(KIB)
    other.remove()
    module(KIB)
    assert reclaimer.stats().slots[0].aborted == 1


def test_an_attached_module_inside_another_is_refused_and_the_outer_one_goes_on(workspace, reclaimer):
    inner = Layer(workspace)

    class Outer(torch.nn.Module):
        def forward(self, nbytes):
            with pytest.raises(OverlappingForwardError):
                inner(nbytes)
            workspace.get_simultaneous(((nbytes,), torch.uint8))

    outer = Outer()
    attach(inner, reclaimer)
    attach(outer, reclaimer)
    outer(KIB)
    assert reclaimer.stats().slots[0].observed == 1
    inner(KIB)
    assert reclaimer.stats().slots[0].observed == 2


def test_ten_rounds_of_attach_and_remove_leave_nothing_behind(workspace, reclaimer):
    module = Layer(workspace)
    handles = []
    for _ in range(10):
        handle = attach(module, reclaimer)
        module(KIB)
        handle.remove()
        handles.append(weakref.ref(handle))
    del handle
    gc.collect()
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
    assert [handle() for handle in handles] == [None] * 10


def test_a_forward_is_a_decorator_too(workspace, reclaimer):
    @reclaimer.forward()
    def step(nbytes):
        workspace.get_simultaneous(((nbytes,), torch.uint8))
        return nbytes

    @reclaimer.forward(dummy=True)
    def profile():
        workspace.get_simultaneous(((KIB,), torch.uint8))

    assert [step(nbytes) for nbytes in (MIB, KIB, KIB, KIB)] == [MIB, KIB, KIB, KIB]
    profile()
    profile()
    stats = reclaimer.stats().slots[0]
    assert (stats.observed, stats.shrinks, stats.passed) == (4, 1, {"dummy": 2})


@pytest.mark.parametrize(("value", "off"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_environment_can_switch_every_reclaimer_off(workspace, ask, monkeypatch, value, off):
    monkeypatch.setenv("RECLAIM_DISABLE", value)
    ask(KIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    for nbytes in (MIB, KIB, KIB, KIB):
        with reclaimer.forward():
            ask(nbytes)
    assert workspace.stats().capacity_bytes == (MIB if off else 4 * KIB)
    assert reclaimer.disabled_reason == ("RECLAIM_DISABLE" if off else None)
    if off:
        with pytest.raises(WorkspaceStateError, match="RECLAIM_DISABLE"):
            reclaimer.rearm()


def test_memory_that_cannot_be_had_again_after_a_shrink_stops_shrinking(workspace, ask, monkeypatch):
    ask(KIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    for nbytes in (MIB, KIB, KIB, KIB):
        with reclaimer.forward():
            ask(nbytes)
    resize = workspace.slots[0]._buffer.resize

    def scarce(nbytes, **options):
        if nbytes > 4 * KIB:
            raise torch.OutOfMemoryError("others took it")
        return resize(nbytes, **options)

    with monkeypatch.context() as patch:
        patch.setattr(workspace.slots[0]._buffer, "resize", scarce)
        with (
            pytest.raises(torch.OutOfMemoryError, match=r"after it had been shrunk.*others took it"),
            reclaimer.forward(),
        ):
            ask(MIB)
    assert reclaimer.disabled_reason == "regrow-failed"
    with reclaimer.forward():
        ask(MIB)
    assert workspace.stats().capacity_bytes == MIB
    reclaimer.rearm()
    assert reclaimer.enabled
