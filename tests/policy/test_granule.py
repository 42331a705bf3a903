from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import PolicySpecError
from reclaim.policy import CostModel, ShrinkPolicy, ThreeWindowPolicy, make, names
from reclaim.policy.granule import GranulePolicy

COST = CostModel(1 << 30, 1e-3, 1e-3)
PAGE = 4096


class Spy(ShrinkPolicy):
    """Notes what it is shown, and answers with what it is told to."""

    name = "spy"

    def __init__(self, floor_bytes, answer=None):
        super().__init__(floor_bytes)
        self.answer = answer
        self.seen = []
        self.resets = 0
        self.due = inf

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        self.seen.append((required_bytes, capacity_bytes, grew, started, ended))
        return self.answer

    def idle(self, capacity_bytes, *, now):
        self.seen.append((capacity_bytes, now))
        return self.answer

    def grow_target(self, required_bytes, capacity_bytes, *, now=0.0):
        self.seen.append((required_bytes, capacity_bytes, now))
        return required_bytes if self.answer is None else self.answer

    def deadline(self):
        return self.due

    def reset(self):
        self.resets += 1


def spied(floor=0, answer=None, granule=PAGE):
    spy = Spy(-(-floor // granule) * granule, answer)
    return spy, GranulePolicy(spy, floor_bytes=floor, granule_bytes=granule, cost=COST)


def test_demand_capacity_and_floor_are_seen_rounded_up_alike():
    spy, driven = spied(floor=100)
    driven.finish_forward(1, 5000, True, 1.0, 2.0)
    # floor 100 -> 4096; demand 1 -> 4096; capacity 5000 -> 8192
    assert (spy.floor_bytes, driven.floor_bytes) == (4096, 100)
    assert spy.seen == [(4096, 8192, True, 1.0, 2.0)]


def test_whole_granules_and_zero_are_seen_as_they_are():
    spy, driven = spied()
    driven.finish_forward(0, 8192, False, 0.0, 0.0)
    driven.finish_forward(4096, 8192, False, 0.0, 0.0)
    assert [seen[:2] for seen in spy.seen] == [(0, 8192), (4096, 8192)]


@pytest.mark.parametrize("name", [name for name in names() if name != "grow-only"])
def test_an_exact_fit_remains_one(name):
    # 5000 of 5000, and 4900 of 5000: both are 8192 of 8192 to the policy
    driven = GranulePolicy(name, floor_bytes=0, granule_bytes=PAGE, cost=COST)
    for demand in (5000, 4900) * 5:
        assert driven.finish_forward(demand, 5000, False, 0.0, 0.0) is None


def test_the_answer_is_a_capacity_in_whole_granules():
    driven = GranulePolicy("exact-fit", floor_bytes=100, granule_bytes=PAGE, cost=COST)
    assert driven.finish_forward(5000, 20000, False, 0.0, 0.0) == 8192
    assert driven.finish_forward(0, 20000, False, 0.0, 0.0) == 4096


def test_with_a_granule_of_one_byte_everything_is_exact():
    driven = GranulePolicy("exact-fit", floor_bytes=101, granule_bytes=1, cost=COST)
    assert driven.finish_forward(5001, 20003, False, 0.0, 0.0) == 5001
    assert driven.finish_forward(7, 5001, False, 0.0, 0.0) == 101
    assert driven.grow_target(20003, 101, 0.0) == 20003


def test_a_target_that_would_free_no_whole_granule_becomes_none():
    _, driven = spied(answer=8191)  # 8191 -> 8192, where 8192 are seen
    assert driven.finish_forward(1, 8100, False, 0.0, 0.0) is None
    assert driven.idle(8100, 0.0) is None


def test_an_answer_at_or_above_the_capacity_becomes_none():
    for answer in (8192, 10**6):
        _, driven = spied(answer=answer)
        assert driven.finish_forward(1, 8192, False, 0.0, 0.0) is None


def test_an_answer_below_the_floor_is_raised_to_it():
    _, driven = spied(floor=8192, answer=0)
    assert driven.finish_forward(1, 20000, False, 0.0, 0.0) == 8192


def test_a_scratch_that_was_emptied_is_not_observed_but_resets():
    spy, driven = spied(floor=4096)
    assert driven.finish_forward(0, 0, False, 0.0, 0.0) is None
    assert (spy.seen, spy.resets) == ([], 1)


def test_idle_sees_the_capacity_rounded_and_gives_whole_granules():
    spy, driven = spied(answer=4000)
    assert driven.idle(9000, 7.5) == 4096
    assert spy.seen == [(12288, 7.5)]


def test_a_growth_is_exact_unless_the_policy_grows_ahead():
    spy, driven = spied(floor=100)
    assert driven.grow_target(5000, 100, 3.0) == 5000
    assert spy.seen == [(8192, 4096, 3.0)]
    spy.answer = 9000  # ahead of the 8192 it was shown -> 12288
    assert driven.grow_target(5000, 100, 3.0) == 12288


def test_a_growth_reaches_the_floor():
    _, driven = spied(floor=10000)
    assert driven.grow_target(5000, 0, 0.0) == 10000


def test_a_deadline_that_is_no_number_counts_as_never():
    spy, driven = spied()
    spy.due = nan
    assert driven.deadline() == inf
    spy.due = 3.5
    assert driven.deadline() == 3.5


def test_a_spec_a_factory_and_an_instance_are_all_policies():
    made = [
        GranulePolicy(policy, floor_bytes=100, granule_bytes=PAGE, cost=COST).policy
        for policy in ("three-window", lambda floor, cost: make("three-window", floor, cost), ThreeWindowPolicy(4096))
    ]
    assert [(policy.name, policy.floor_bytes) for policy in made] == [("three-window", 4096)] * 3


def test_a_factory_is_given_floor_and_cost():
    given_ = []
    GranulePolicy(lambda *args: given_.append(args) or Spy(args[0]), floor_bytes=1, granule_bytes=PAGE, cost=COST)
    assert given_ == [(4096, COST)]


def test_an_instance_with_another_floor_is_refused_with_both_values():
    with pytest.raises(ValueError, match=r"floor_bytes is 100; it must be 4096, the floor 100 rounded up .* 4096"):
        GranulePolicy(ThreeWindowPolicy(100), floor_bytes=100, granule_bytes=PAGE, cost=COST)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="floor_bytes must not be negative, got -1"):
        GranulePolicy("grow-only", floor_bytes=-1, granule_bytes=1, cost=COST)
    with pytest.raises(ValueError, match="granule_bytes must be at least 1, got 0"):
        GranulePolicy("grow-only", floor_bytes=0, granule_bytes=0, cost=COST)
    with pytest.raises(PolicySpecError, match="no policy 'grow'"):
        GranulePolicy("grow", floor_bytes=0, granule_bytes=1, cost=COST)


@given(
    st.sampled_from(names()),
    st.integers(0, 50_000),
    st.sampled_from([1, 256, 4096, 2 << 20]),
    st.lists(st.integers(0, 1 << 23), max_size=30),
)
@settings(deadline=None)
def test_whatever_the_granule_a_shrink_fits_the_forward_and_the_floor_and_frees_a_granule(
    name, floor, granule, demands
):
    driven = GranulePolicy(name, floor_bytes=floor, granule_bytes=granule, cost=COST)
    capacity = floor
    for demand in demands:
        grew = demand > capacity
        if grew:
            capacity = driven.grow_target(demand, capacity, 0.0)
            assert capacity >= demand
        target = driven.finish_forward(demand, capacity, grew, 0.0, 0.0)
        if target is not None:
            assert max(floor, demand) <= target < capacity
            assert -(-capacity // granule) * granule - target >= granule
            capacity = target
