"""Requests where torch traces instead of running."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from reclaim import EagerWorkspaceReclaimer, WorkspaceStateError

REQUEST = ((64,), torch.float32)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@torch.no_grad()
def test_a_request_that_must_be_traced_is_one_clear_error(workspace):
    @torch.compile(backend="eager", fullgraph=True)
    def model(x):
        (scratch,) = workspace.get_simultaneous(REQUEST)
        return scratch.copy_(x) + 1

    with pytest.raises(Exception, match="cannot be requested inside a compiled region"):
        model(torch.ones(64))


@torch.no_grad()
def test_a_request_that_may_break_the_graph_works(workspace):
    @torch.compile(backend="eager")
    def model(x):
        (scratch,) = workspace.get_simultaneous(REQUEST)
        return scratch.copy_(x) + 1

    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    for _ in range(3):
        with reclaimer.forward():
            assert (model(torch.ones(64)) == 2).all()
    stats = reclaimer.stats().slots[0]
    assert (stats.observed, stats.peak_demand_bytes) == (3, 256)


@torch.no_grad()
def test_a_request_inside_an_opaque_op_works_in_a_full_graph(workspace):
    plan = workspace.plan(REQUEST)

    @torch.library.custom_op("reclaim_test::add_one", mutates_args=())
    def add_one(x: torch.Tensor) -> torch.Tensor:
        (scratch,) = workspace.get(plan)
        return scratch.copy_(x) + 1

    @add_one.register_fake
    def _(x):
        return torch.empty_like(x)

    @torch.compile(backend="eager", fullgraph=True)
    def model(x):
        return add_one(x) * 2

    reclaimer = EagerWorkspaceReclaimer(workspace, floor_bytes=0)
    for _ in range(3):
        with reclaimer.forward():
            assert (model(torch.ones(64)) == 4).all()
    assert reclaimer.stats().slots[0].peak_demand_bytes == 256


def test_under_fake_tensors_it_is_one_clear_error_and_works_afterwards(workspace):
    with FakeTensorMode(), pytest.raises(WorkspaceStateError, match="FakeTensorMode"):
        workspace.get_simultaneous(REQUEST)
    (view,) = workspace.get_simultaneous(REQUEST)
    view.fill_(1)
    assert (view == 1).all()
