from __future__ import annotations

import pytest

from reclaim.policy import ThreeWindowPolicy

FLOOR = 64


@pytest.fixture
def policy():
    return ThreeWindowPolicy(FLOOR)


def answers(policy, *forwards, capacity=1024):
    """Each forward is a demand at `capacity`, or (demand, capacity, grew)."""
    full = [forward if isinstance(forward, tuple) else (forward, capacity, False) for forward in forwards]
    return [policy.finish_forward(demand, cap, grew=grew) for demand, cap, grew in full]


def test_three_underfilled_forwards_after_a_growth_shrink_to_the_floor(policy):
    # the growth is no observation; the largest of 32, 16 and 8 lies below the floor of 64
    assert answers(policy, (1024, 1024, True), 32, 16, 8) == [None, None, None, 64]


def test_at_the_floor_there_is_never_an_answer(policy):
    assert answers(policy, 32, 16, 8, 0, 64, 1, 1, 1, capacity=64) == [None] * 8


def test_the_target_is_the_largest_of_the_three_not_the_last(policy):
    assert answers(policy, 256, 128, 32) == [None, None, 256]


def test_an_exact_fit_starts_the_count_again(policy):
    assert answers(policy, 32, 32, 1024, 32, 32, 32) == [None, None, None, None, None, 64]


def test_a_growth_starts_the_count_again(policy):
    # the growing forward itself left room (1536 of 2048), and still is no observation
    assert answers(policy, 512, 512, (1536, 2048, True)) == [None] * 3
    assert answers(policy, 256, 128, 32, capacity=2048) == [None, None, 256]


def test_being_at_the_floor_starts_the_count_again(policy):
    assert answers(policy, 32, 32, (32, 64, False), 32, 32, 32) == [None, None, None, None, None, 64]


def test_a_zero_demand_changes_nothing(policy):
    assert answers(policy, 32, 0) == [None, None]
    assert answers(policy, 32, 0, 0, 128) == [None, None, None, 128]


def test_the_window_tumbles(policy):
    # 512 belongs to the first window only: at 512 the next three are judged by themselves
    assert answers(policy, 512, 8, 8) == [None, None, 512]
    assert answers(policy, 8, 100, 8, capacity=512) == [None, None, 100]


def test_a_target_that_was_not_applied_is_no_obstacle(policy):
    assert answers(policy, 8, 8, 8, 8, 8, 8) == [None, None, 64, None, None, 64]


def test_one_byte_less_than_the_capacity_is_underfilled(policy):
    assert answers(policy, 1023, 1023, 1023) == [None, None, 1023]


def test_a_reset_forgets_count_and_maximum(policy):
    answers(policy, 900, 900)
    policy.reset()
    assert answers(policy, 100, 100, 100) == [None, None, 100]


@pytest.mark.parametrize("forwards", [1, 2, 5])
def test_the_length_of_the_window_can_be_chosen(forwards):
    policy = ThreeWindowPolicy(0, forwards=forwards)
    assert answers(policy, *[7] * forwards) == [None] * (forwards - 1) + [7]


@pytest.mark.parametrize("forwards", [0, -1])
def test_a_window_of_no_forwards_is_refused(forwards):
    with pytest.raises(ValueError, match=f"forwards must be at least 1, got {forwards}"):
        ThreeWindowPolicy(0, forwards=forwards)


def test_a_refused_forward_is_not_counted(policy):
    answers(policy, 32, 32)
    with pytest.raises(ValueError, match="required_bytes=2000"):
        policy.finish_forward(2000, 1024, grew=False)
    assert answers(policy, 32) == [64]
