from __future__ import annotations

import json

import pytest

from reclaim import DemandTrace, PolicySpecError, compare, replay
from reclaim.policy import CostModel, ThreeWindowPolicy

COST = CostModel(total_bytes=100, grow_s=0.5, shrink_s=0.5)


@pytest.fixture
def trace():
    # 0-1: 100, then 20 for four forwards of 1 s each, and 100 again in 5-6. Floor 10.
    return DemandTrace(
        time_s=[0, 1, 2, 3, 4, 5],
        duration_s=[1] * 6,
        demand_bytes=[100, 20, 20, 20, 20, 100],
        meta={"floor_bytes": 10},
    )


def names_of(comparison):
    return [row.policy for row in comparison.rows]


def test_the_rows_are_the_optimum_grow_only_and_then_as_given(trace):
    assert names_of(compare(trace, ["three-window", "exact-fit"], cost=COST)) == [
        "clairvoyant",
        "grow-only",
        "three-window",
        "exact-fit",
    ]
    assert names_of(compare(trace, [], cost=COST)) == ["clairvoyant", "grow-only"]


def test_the_figures_of_the_optimum_and_of_each_policy(trace):
    optimum, grow_only, three, exact = compare(trace, ["three-window", "exact-fit"], cost=COST).rows
    # The optimum: 100, 20 * 4, 100 = 280 byte-seconds = 2.8 s, and three changes of 0.5 s: 4.3 s.
    assert (optimum.cost_s, optimum.ratio) == (pytest.approx(4.3), 1.0)
    assert (optimum.hold_byte_s, optimum.mean_bytes) == (280.0, pytest.approx(280 / 6))
    assert (optimum.peak_bytes, optimum.stall_s, optimum.grows, optimum.shrinks) == (100, 1.0, 2, 1)
    # Grow-only: 600 byte-seconds and one growth: 6.5 s.
    assert (grow_only.cost_s, grow_only.ratio) == (pytest.approx(6.5), pytest.approx(6.5 / 4.3))
    assert (grow_only.hold_byte_s, grow_only.mean_bytes, grow_only.peak_bytes) == (600.0, 100.0, 100)
    assert (grow_only.stall_s, grow_only.grows, grow_only.shrinks) == (0.5, 1, 0)
    # Three-window: 100 B for 4 s, 20 for 1 s, 100 for 1 s = 520; three changes: 6.7 s.
    assert (three.cost_s, three.hold_byte_s, three.grows, three.shrinks) == (pytest.approx(6.7), 520.0, 2, 1)
    # Exact-fit shrinks at the end of the first underfilled forward: 200 + 60 + 100 = 360; three changes: 5.1 s.
    assert (exact.cost_s, exact.hold_byte_s, exact.grows, exact.shrinks) == (pytest.approx(5.1), 360.0, 2, 1)


def test_each_row_is_the_replay_of_its_policy(trace):
    comparison = compare(trace, ["three-window:forwards=2"], cost=COST, granule_bytes=16)
    alone = replay(trace, "three-window:forwards=2", cost=COST, granule_bytes=16)
    assert comparison.rows[-1].cost_s == comparison.results["three-window:forwards=2"].cost_s == alone.cost_s
    assert list(comparison.results) == ["grow-only", "three-window:forwards=2"]


def test_a_policy_named_twice_appears_once(trace):
    twice = ["three-window", "grow-only", "three-window"]
    assert names_of(compare(trace, twice, cost=COST)) == ["clairvoyant", "grow-only", "three-window"]


def test_policies_of_one_name_that_are_not_the_same_are_told_apart(trace):
    policies = [
        "three-window",
        lambda floor, _: ThreeWindowPolicy(floor, forwards=1),
        ThreeWindowPolicy(10, forwards=2),
    ]
    assert names_of(compare(trace, policies, cost=COST))[2:] == ["three-window", "three-window (2)", "three-window (3)"]


def test_a_spec_after_a_factory_of_that_name_is_not_lost(trace):
    policies = [lambda floor, _: ThreeWindowPolicy(floor, forwards=1), "three-window"]
    rows = compare(trace, policies, cost=COST).rows[2:]
    assert [row.hold_byte_s for row in rows] == [
        replay(trace, "three-window:forwards=1", cost=COST).hold_byte_s,
        replay(trace, "three-window", cost=COST).hold_byte_s,
    ]


def test_the_floor_is_chosen_once_for_all(trace):
    comparison = compare(trace, ["three-window"], cost=COST, floor_bytes=50)
    assert comparison.floor_bytes == 50
    assert {result.floor_bytes for result in comparison.results.values()} == {50}
    assert comparison.optimum.capacity_bytes.min() == 50
    assert compare(trace, [], cost=COST).floor_bytes == 10


def test_without_idle_no_policy_is_asked_between_forwards(trace):
    asked = []

    class Idler(ThreeWindowPolicy):
        name = "idler"

        def deadline(self):
            return 0.0

        def idle(self, capacity_bytes, *, now):
            asked.append(now)
            assert len(asked) < 100, "it spins"

    trace.duration_s[:] = 0.5  # so that there are gaps
    compare(trace, [lambda floor, _: Idler(floor)], cost=COST, idle=False)
    assert asked == []
    compare(trace, [lambda floor, _: Idler(floor)], cost=COST)
    assert asked


def test_without_any_cost_there_is_no_ratio():
    trace = DemandTrace(time_s=[0, 1], duration_s=[1, 1], demand_bytes=[0, 0])
    assert [row.ratio for row in compare(trace, ["exact-fit"], cost=COST).rows] == [None] * 3


def test_an_empty_trace_can_be_compared():
    comparison = compare(DemandTrace(time_s=[], demand_bytes=[]), ["three-window"], cost=COST)
    assert [(row.cost_s, row.ratio, row.mean_bytes, row.peak_bytes) for row in comparison.rows] == [(0, None, 0, 0)] * 3


def test_no_ratio_lies_below_one_when_the_optimum_is_exact(trace):
    comparison = compare(trace, ["three-window", "exact-fit", "three-window:forwards=1"], cost=COST)
    assert comparison.optimum.exact
    assert all(row.ratio >= 1 for row in comparison.rows)


def test_the_dictionary_has_stable_keys_and_is_json(trace):
    given = compare(trace, ["three-window"], cost=COST).to_dict("run.jsonl")
    assert json.loads(json.dumps(given)) == given
    assert list(given) == ["schema", "trace", "floor_bytes", "cost", "clairvoyant_exact", "rows"]
    assert (given["schema"], given["trace"], given["floor_bytes"]) == ("reclaim.compare/1", "run.jsonl", 10)
    assert given["cost"] == {"total_bytes": 100, "grow_s": 0.5, "shrink_s": 0.5, "s_per_byte": 0.0}
    assert given["clairvoyant_exact"] is True
    keys = ["policy", "cost_s", "ratio", "hold_byte_s", "mean_bytes", "peak_bytes", "stall_s", "grows", "shrinks"]
    assert [list(row) for row in given["rows"]] == [keys] * 3
    assert compare(trace, [], cost=COST).to_dict()["trace"] is None


def test_the_dictionary_says_when_the_optimum_is_only_a_bound(trace):
    unequal = compare(trace, [], cost=CostModel(100, 0.5, 0.1))
    assert unequal.to_dict()["clairvoyant_exact"] is False


def test_a_bad_spec_among_them_is_refused(trace):
    with pytest.raises(PolicySpecError, match="no policy 'exact'"):
        compare(trace, ["three-window", "exact"], cost=COST)
