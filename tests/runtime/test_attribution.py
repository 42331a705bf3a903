from __future__ import annotations

import torch

from reclaim import CostModel, DemandTrace, EagerWorkspaceReclaimer, TraceRecorder, replay

KIB = 1 << 10
BYTES = torch.uint8


def test_stats_name_the_plan_that_set_the_demand(workspace):
    small = workspace.plan(((KIB,), BYTES), name="router")
    large = workspace.plan(((8 * KIB,), BYTES), name="experts")
    workspace.get(small)
    workspace.get(large)
    workspace.get(small)
    assert workspace.stats().slots[0].required_by == "experts"
    workspace.slots[0].begin_forward()
    assert workspace.stats().slots[0].required_by is None


def test_without_a_name_it_is_the_place_of_the_request(workspace):
    workspace.get_simultaneous(((KIB,), BYTES))
    by = workspace.stats().slots[0].required_by
    assert by.endswith(":test_without_a_name_it_is_the_place_of_the_request")
    assert "test_attribution.py:" in by


def test_a_retained_span_is_named_too(workspace):
    workspace.get_retained("cache", (KIB,), BYTES)
    assert workspace.stats().slots[0].required_by == "retained 'cache'"


@torch.no_grad()
def test_a_demand_that_never_varies_is_pinned_on_its_plan(workspace):
    bound = workspace.plan(((8 * KIB,), BYTES), name="indexer, at its bound")
    small = workspace.plan(((KIB,), BYTES), name="router")
    workspace.get(small)
    reclaimer = EagerWorkspaceReclaimer(workspace, attribute=True)

    def stats():
        return reclaimer.stats().slots[0]

    for number in range(1000):
        assert stats().fixed_demand_by is None, number
        with reclaimer.forward():
            workspace.get(small)
            workspace.get(bound)
    assert (stats().fixed_demand_by, stats().peak_demand_by) == ("indexer, at its bound",) * 2
    with reclaimer.forward():
        workspace.get(small)
    assert stats().fixed_demand_by is None


def test_a_recording_names_the_plans_and_replays_all_the_same(workspace, tmp_path):
    small = workspace.plan(((KIB,), BYTES), name="router")
    large = workspace.plan(((64 * KIB,), BYTES), name="experts, fused")
    workspace.get(small)
    with TraceRecorder(tmp_path / "run.jsonl") as recorder:
        reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder, attribute=True)
        for plan in (large, small, small, small, small):
            with reclaimer.forward():
                workspace.get(plan)
        with reclaimer.forward(graph=True):
            workspace.get(small)
    trace = DemandTrace.load(recorder.path)
    assert trace.event == (
        "by:experts; fused,grew", "by:router", "by:router", "by:router,shrank", "by:router", "by:router,pass:graph",
    )  # fmt: skip
    replayed = replay(trace, "three-window", cost=CostModel(1 << 30, 1e-3, 1e-3))
    assert (replayed.capacity_bytes == trace.capacity_bytes).all()


def test_without_asking_nothing_is_attributed(workspace, ask):
    ask(KIB)
    reclaimer = EagerWorkspaceReclaimer(workspace)
    with reclaimer.forward():
        ask(KIB)
    stats = reclaimer.stats().slots[0]
    assert (stats.peak_demand_by, stats.fixed_demand_by) == (None, None)
