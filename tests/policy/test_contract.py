"""What every policy promises, tested on each name of the registry."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.policy import CostModel, ShrinkPolicy, make, names, policy_class

COST = CostModel(total_bytes=1 << 30, grow_s=1e-3, shrink_s=1e-3)
FLOORS = st.sampled_from([0, 1, 64, 4096])
SIZES = st.integers(0, 2**12) | st.sampled_from([0, 1, 63, 64, 65, 4095, 4096, 4097, 2**60])
GAPS = st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e6, -5.0])
STEPS = st.lists(st.tuples(SIZES, GAPS), max_size=40)

pytestmark = pytest.mark.parametrize("name", names())


def new(name: str, floor_bytes: int) -> ShrinkPolicy:
    return make(name, floor_bytes, COST)


def check(answer: object, floor: int, capacity: int) -> None:
    if answer is not None:
        assert type(answer) is int
        assert floor <= answer < capacity


def drive(policy: ShrinkPolicy, steps: list[tuple[int, float]], *, idle: bool = True) -> list[int | None]:
    """Run a scratch that does what the policy says; every answer, checked."""
    capacity, now = policy.floor_bytes, 0.0
    answers: list[int | None] = []
    for demand, gap in steps:
        grew = demand > capacity
        if grew:
            target = policy.grow_target(demand, capacity, now=now)
            assert target >= demand
            capacity = max(target, policy.floor_bytes)
        answer = policy.finish_forward(demand, capacity, grew=grew, started=now, ended=now + abs(gap) / 2)
        check(answer, policy.floor_bytes, capacity)
        answers.append(answer)
        capacity = capacity if answer is None else answer
        now += gap
        if idle and policy.deadline() <= now:
            answer = policy.idle(capacity, now=now)
            check(answer, policy.floor_bytes, capacity)
            answers.append(answer)
            capacity = capacity if answer is None else answer
            assert policy.deadline() > now, "a due deadline is used up by idle"
    return answers


def test_the_name_is_the_one_it_is_found_by(name):
    assert policy_class(name).name == new(name, 0).name == name
    assert new(name, 4096).floor_bytes == 4096


@given(FLOORS, STEPS)
@settings(deadline=None, max_examples=60)
def test_answers_are_none_or_between_floor_and_capacity(name, floor, steps):
    drive(new(name, floor), steps)


@given(FLOORS, st.lists(st.tuples(SIZES, SIZES, st.booleans()), max_size=40))
@settings(deadline=None, max_examples=60)
def test_answers_hold_for_the_capacity_it_is_told_whatever_it_answered_before(name, floor, steps):
    policy = new(name, floor)
    for demand, slack, grew in steps:
        capacity = max(demand, floor) + slack
        check(policy.finish_forward(demand, capacity, grew=grew), floor, capacity)


def test_a_capacity_lowered_by_someone_else_bounds_the_answer(name):
    # 900 of 1024 is seen; then somebody else makes the scratch 512. No answer may be 900.
    policy = new(name, 64)
    for demand, capacity in [(900, 1024), (10, 512), (10, 512), (10, 512)]:
        check(policy.finish_forward(demand, capacity, grew=False), 64, capacity)


@given(FLOORS, STEPS)
@settings(deadline=None, max_examples=60)
def test_the_same_forwards_give_the_same_answers(name, floor, steps):
    assert drive(new(name, floor), steps) == drive(new(name, floor), steps)


@given(FLOORS, STEPS, STEPS)
@settings(deadline=None, max_examples=60)
def test_after_a_reset_nothing_seen_before_counts(name, floor, before, after):
    policy = new(name, floor)
    drive(policy, before, idle=False)
    policy.reset()
    assert drive(policy, after) == drive(new(name, floor), after)


def test_a_reset_before_anything_was_seen_is_harmless(name):
    policy = new(name, 0)
    policy.reset()
    policy.reset()
    assert policy.finish_forward(8, 8, grew=True) is None


@given(FLOORS, STEPS)
@settings(deadline=None, max_examples=60)
def test_a_demand_of_the_whole_capacity_never_shrinks(name, floor, steps):
    policy = new(name, floor)
    drive(policy, steps)
    for _ in range(5):
        assert policy.finish_forward(max(floor, 2**13), max(floor, 2**13), grew=False) is None


def test_at_the_floor_it_never_shrinks(name):
    policy = new(name, 4096)
    assert [policy.finish_forward(demand, 4096, grew=False) for demand in (0, 1, 4095, 4096) * 5] == [None] * 20


@pytest.mark.parametrize("floor", [0, 64])
def test_zero_demand_is_allowed_and_keeps_to_the_floor(name, floor):
    policy = new(name, floor)
    for _ in range(10):
        check(policy.finish_forward(0, 1024, grew=False), floor, 1024)


def test_floor_zero_and_capacity_zero_have_nothing_to_shrink(name):
    policy = new(name, 0)
    assert [policy.finish_forward(0, 0, grew=False) for _ in range(10)] == [None] * 10


def test_huge_sizes_are_exact(name):
    policy = new(name, 2**60 + 1)
    answers = [policy.finish_forward(2**60 + 3, 2**61 + 1, grew=False) for _ in range(10)]
    for answer in answers:
        check(answer, 2**60 + 1, 2**61 + 1)
        assert answer in (None, 2**60 + 3)


@given(FLOORS, st.lists(st.tuples(SIZES, st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), max_size=30))
@settings(deadline=None, max_examples=60)
def test_time_that_stands_still_or_runs_backwards_is_harmless(name, floor, steps):
    policy = new(name, floor)
    capacity = max(floor, 2**61)
    for demand, started, ended in steps:
        check(policy.finish_forward(demand, capacity, grew=False, started=started, ended=ended), floor, capacity)
        check(policy.finish_forward(demand, capacity, grew=False, started=ended, ended=ended), floor, capacity)
        check(policy.idle(capacity, now=started), floor, capacity)
        assert not isnan(policy.deadline())


@pytest.mark.parametrize(
    ("required", "capacity"),
    [(-1, 1024), (1025, 1024), (1, 63), (0, 0), (0, -1)],
    ids=["negative", "above capacity", "capacity below floor", "no capacity", "negative capacity"],
)
@pytest.mark.parametrize("grew", [False, True])
def test_impossible_forwards_are_refused_with_their_values(name, required, capacity, grew):
    with pytest.raises(ValueError, match=f"required_bytes={required}, capacity_bytes={capacity}, floor_bytes=64"):
        new(name, 64).finish_forward(required, capacity, grew=grew)


def test_a_negative_floor_is_refused(name):
    with pytest.raises(ValueError, match="floor_bytes must not be negative, got -1"):
        new(name, -1)


@given(SIZES, SIZES)
def test_a_growth_reaches_at_least_what_is_required(name, required, capacity):
    target = new(name, 0).grow_target(required, capacity, now=1.0)
    assert type(target) is int
    assert target >= required


def test_what_it_hears_about_the_outside_never_breaks_its_answers(name):
    policy = new(name, 64)
    for _ in range(10):
        policy.expect(2**40, 0.5)
        policy.price(0)
        policy.resized(grew=True, seconds=1.0, new_bytes=1024)
        policy.resized(grew=False, seconds=0.0, new_bytes=512)
        check(policy.finish_forward(8, 1024, grew=False), 64, 1024)


def test_two_instances_share_nothing(name):
    seen, fresh = new(name, 64), new(name, 64)
    for _ in range(2):
        seen.finish_forward(8, 1024, grew=False)
    assert fresh.finish_forward(8, 1024, grew=False) == new(name, 64).finish_forward(8, 1024, grew=False)
