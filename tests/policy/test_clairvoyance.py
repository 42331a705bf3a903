from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import DemandTrace, replay
from reclaim.policy import CostModel, clairvoyant, names
from reclaim.policy.optimum.segments import least_cost_segments


def priced(total_bytes=100, resize_s=0.5):
    return CostModel(total_bytes, resize_s, resize_s)


def slots_of(times, durations, demands):
    """(need, width) of each forward and of each gap; a forward ends at the latest when the next one starts."""
    slots = []
    for index, (start, duration, demand) in enumerate(zip(times, durations, demands, strict=True)):
        following = times[index + 1] if index + 1 < len(times) else start + duration
        busy = min(duration, following - start)
        slots.append((demand, busy))
        if following > start + busy:
            slots.append((0, following - start - busy))
    return slots


def least_of_all_schedules(slots, floor, grow, shrink):
    """The cheapest way to give every slot one of the levels that occur, all of them tried; in byte-seconds."""
    levels = sorted({floor} | {need for need, _ in slots if need > floor})

    @cache
    def rest(index, held):
        if index == len(slots):
            return 0
        need, width = slots[index]
        return min(
            level * width + (grow if level > held else shrink if level < held else 0) + rest(index + 1, level)
            for level in levels
            if level >= need
        )

    return rest(0, floor)


def every_schedule(slots, floor, change):
    """The same by brute force, without remembering anything: for the smallest instances."""
    levels = {floor} | {need for need, _ in slots if need > floor}

    def rest(index, held):
        if index == len(slots):
            return 0
        need, width = slots[index]
        return min(
            level * width + change * (level != held) + rest(index + 1, level) for level in levels if level >= need
        )

    return rest(0, floor)


def random_instance(rng, most):
    count = rng.randint(0, most)
    time, times = 0, []
    for _ in range(count):
        times.append(time)
        time += rng.choice([0, 0, 1, 2, 5])
    durations = [rng.choice([0, 1, 2, 3]) for _ in range(count)]
    demands = [rng.choice([0, 1, 2, 3, 5, 9]) for _ in range(count)]
    return times, durations, demands, rng.choice([0, 0, 1, 3, 10]), rng.choice([0, 1, 2, 5, 20])


def recomputed_s(schedule, times, durations, floor, cost):
    """What the schedule costs, added up change by change."""
    moments, levels = schedule.time_s.tolist(), schedule.capacity_bytes.tolist()
    assert moments == sorted(moments)
    assert moments[0] == times[0]
    until = [*moments[1:], times[-1] + durations[-1]]
    hold = sum(level * (end - start) for level, start, end in zip(levels, moments, until, strict=True))
    steps = [after - before for before, after in zip([floor, *levels], levels, strict=False)]
    assert hold == pytest.approx(schedule.hold_byte_s)
    assert (schedule.grows, schedule.shrinks) == (sum(s > 0 for s in steps), sum(s < 0 for s in steps))
    return hold / cost.total_bytes + schedule.grows * cost.grow_s + schedule.shrinks * cost.shrink_s


def check_feasible(schedule, times, durations, demands, floor):
    moments, levels = schedule.time_s, schedule.capacity_bytes
    assert (levels >= floor).all()
    for index, (start, duration, demand) in enumerate(zip(times, durations, demands, strict=True)):
        following = times[index + 1] if index + 1 < len(times) else start + duration
        end = min(start + duration, following)
        inside = levels[(moments > start) & (moments < end)]
        assert (inside >= demand).all()
        at_start = [floor, *levels[moments <= start].tolist()][-1]
        if end > start:
            assert at_start >= demand
        else:  # a forward of no width: the schedule passes through its demand at that moment
            before = [floor, *levels[moments < start].tolist()][-1]
            assert max([before, *levels[moments == start].tolist()]) >= demand


# Three forwards, 0-1 and 5-6 need 100 B, the one from 1 to 5 needs 20 B; floor 10 B, device 100 B.
EDGE = ([0.0, 1.0, 5.0], [1.0, 4.0, 1.0], [100, 20, 100])


def test_shrinking_between_two_peaks_when_the_hold_costs_more():
    # A change is 0.5 s = 50 byte-seconds. Stay at 100: 6 * 100 + 1 * 50 = 650.
    # Down to 20 for 4 s: 100 + 80 + 100 = 280, and three changes 150: 430. 430 / 100 = 4.3 s.
    schedule = clairvoyant(*EDGE, floor_bytes=10, cost=priced(resize_s=0.5))
    assert schedule.cost_s == pytest.approx(4.3)
    assert schedule.exact
    assert schedule.time_s.tolist() == [0.0, 1.0, 5.0]
    assert schedule.capacity_bytes.tolist() == [100, 20, 100]
    assert (schedule.hold_byte_s, schedule.grows, schedule.shrinks) == (280.0, 2, 1)


def test_staying_up_between_two_peaks_when_changes_cost_more():
    # A change is 2 s = 200 byte-seconds. Stay: 600 + 200 = 800 -> 8 s. Down and up: 280 + 600 = 880.
    schedule = clairvoyant(*EDGE, floor_bytes=10, cost=priced(resize_s=2.0))
    assert schedule.cost_s == pytest.approx(8.0)
    assert schedule.capacity_bytes.tolist() == [100]
    assert (schedule.hold_byte_s, schedule.grows, schedule.shrinks) == (600.0, 1, 0)


def test_a_gap_is_spent_at_the_floor():
    # 100 B in 0-1 and 11-12, nothing between; floor 10. Stay: 1200 + 50 = 1250.
    # At the floor in the gap: 100 + 10 * 10 + 100 = 300, and three changes 150: 450 -> 4.5 s.
    schedule = clairvoyant([0, 11], [1, 1], [100, 100], floor_bytes=10, cost=priced())
    assert schedule.cost_s == pytest.approx(4.5)
    assert schedule.time_s.tolist() == [0.0, 1.0, 11.0]
    assert schedule.capacity_bytes.tolist() == [100, 10, 100]


def test_growing_ahead_of_a_peak_saves_a_change():
    # 0-2 needs 20 B, 2-3 needs 100 B; floor 0. One growth to 100 ahead: 300 + 50 = 350.
    # Two growths: 40 + 100 + 2 * 50 = 240. With a change at 200 instead: 500 against 540.
    cheap = clairvoyant([0, 2], [2, 1], [20, 100], floor_bytes=0, cost=priced(resize_s=0.5))
    assert (cheap.cost_s, cheap.capacity_bytes.tolist()) == (2.4, [20, 100])
    dear = clairvoyant([0, 2], [2, 1], [20, 100], floor_bytes=0, cost=priced(resize_s=2.0))
    assert (dear.cost_s, dear.capacity_bytes.tolist()) == (5.0, [100])


def test_at_or_below_the_floor_nothing_changes():
    # 10 B held for 7 s of a device of 100 B
    schedule = clairvoyant([0, 4], [2, 3], [3, 10], floor_bytes=10, cost=priced())
    assert schedule.cost_s == pytest.approx(0.7)
    assert (schedule.grows, schedule.shrinks) == (0, 0)
    assert set(schedule.capacity_bytes.tolist()) == {10}


def test_a_forward_cut_short_by_the_next_one_counts_only_until_then():
    # the first says 10 s and has 1 s: 100 * 1 + 50, then the floor 0 from 1 to 2, and the change down: 50 -> 2 s
    schedule = clairvoyant([0, 1], [10, 1], [100, 0], floor_bytes=0, cost=priced())
    assert schedule.cost_s == pytest.approx(2.0)
    assert schedule.hold_byte_s == 100.0


def test_a_forward_of_no_width_still_needs_its_capacity():
    # up for the moment and down again: two changes, 100 byte-seconds -> 1 s
    schedule = clairvoyant([0, 3, 3], [3, 0, 4], [0, 50, 0], floor_bytes=0, cost=priced())
    assert schedule.cost_s == pytest.approx(1.0)
    assert (schedule.grows, schedule.shrinks) == (1, 1)
    check_feasible(schedule, [0, 3, 3], [3, 0, 4], [0, 50, 0], 0)


def test_sizes_beyond_32_bits_are_exact():
    # 2^33 B for 1 s on a device of 2^34 B: half a second, and the growth
    schedule = clairvoyant([0], [1], np.array([2**33]), floor_bytes=0, cost=CostModel(2**34, 0.25, 0.25))
    assert schedule.cost_s == 0.75
    assert schedule.capacity_bytes.tolist() == [2**33]
    assert schedule.capacity_bytes.dtype == np.int64


def test_32_bit_demands_do_not_wrap():
    schedule = clairvoyant(
        [0, 1], [1, 1], np.array([2**31 - 1, 5], np.int32), floor_bytes=2**31 - 8, cost=CostModel(2**31, 0.0, 0.0)
    )
    # (2^31 - 1) + (2^31 - 8) byte-seconds
    assert schedule.hold_byte_s == 2**32 - 9


def test_an_empty_trace_costs_nothing():
    schedule = clairvoyant([], [], [], floor_bytes=10, cost=priced())
    assert (schedule.cost_s, schedule.hold_byte_s, schedule.grows, schedule.shrinks) == (0.0, 0.0, 0, 0)
    assert schedule.exact
    assert len(schedule.time_s) == len(schedule.capacity_bytes) == 0


def test_the_least_cost_is_that_of_brute_force_on_tiny_instances():
    rng = random.Random(1)
    for _ in range(1500):
        times, durations, demands, floor, change = random_instance(rng, 3)
        schedule = clairvoyant(times, durations, demands, floor_bytes=floor, cost=CostModel(1, change, change))
        assert schedule.cost_s == every_schedule(slots_of(times, durations, demands), floor, change)


def test_the_least_cost_is_that_of_an_exhaustive_search_and_its_schedule_is_feasible_and_costs_as_much():
    rng = random.Random(2)
    for _ in range(3000):
        times, durations, demands, floor, change = instance = random_instance(rng, 9)
        cost = CostModel(1, change, change)
        schedule = clairvoyant(times, durations, demands, floor_bytes=floor, cost=cost)
        best = least_of_all_schedules(slots_of(times, durations, demands), floor, change, change)
        assert schedule.exact
        assert schedule.cost_s == best, instance
        if times:
            assert recomputed_s(schedule, times, durations, floor, cost) == best, instance
            check_feasible(schedule, times, durations, demands, floor)


def test_a_long_trace_with_few_levels_agrees_with_a_dynamic_programme():
    rng = random.Random(3)
    count, levels = 4000, [0, 1, 2, 3, 5, 8, 13, 21]
    demands = [levels[min(7, int(rng.expovariate(0.7)))] for _ in range(count)]
    widths = [rng.choice([0, 1, 1, 2, 7]) for _ in range(count)]
    for change in (1, 30, 1000):
        best = [0] + [change] * 7  # least cost so far, holding each level
        for demand, width in zip(demands, widths, strict=True):
            least = min(best) + change
            best = [
                min(value, least) + level * width if level >= demand else 10**12
                for level, value in zip(levels, best, strict=True)
            ]
        assert least_cost_segments(demands, widths, change)[0] == min(best)


@pytest.mark.parametrize("shape", ["rising", "falling", "sawtooth", "equal"])
def test_long_monotone_stretches_agree_with_the_quadratic_recurrence(shape):
    count = 200
    heights = {
        "rising": list(range(count)),
        "falling": list(range(count, 0, -1)),
        "sawtooth": [index % 17 + index // 20 for index in range(count)],
        "equal": [5] * count,
    }[shape]
    widths = [1 + index % 3 for index in range(count)]
    least = [0] * (count + 1)
    for end in range(1, count + 1):
        top = width = 0
        options = []
        for begin in range(end - 1, -1, -1):
            top, width = max(top, heights[begin]), width + widths[begin]
            options.append(least[begin] + (0 if begin == 0 and top == 0 else 40) + top * width)
        least[end] = min(options)
    assert least_cost_segments(heights, widths, 40)[0] == least[count]


@given(
    st.lists(st.tuples(st.fractions(0, 5, max_denominator=7), st.fractions(0, 3, max_denominator=7)), max_size=9),
    st.fractions(0, 5, max_denominator=7),
)
@settings(deadline=None)
def test_fractions_give_the_exact_least_cost(slots, change):
    heights, widths = [height for height, _ in slots], [width for _, width in slots]
    least, segments = least_cost_segments(heights, widths, change)
    assert least == least_of_all_schedules(tuple(slots), Fraction(0), change, change)
    # the segments cover the slots, are as high as their highest slot, and cost what was said
    starts = [start for start, _ in segments]
    assert starts == sorted(set(starts))
    assert starts[:1] == [0] * bool(slots)
    paid = Fraction(0)
    for (start, level), end in zip(segments, [*starts, len(slots)][1:], strict=True):
        assert level == max(heights[start:end])
        paid += level * sum(widths[start:end]) + (0 if start == 0 and level == 0 else change)
    assert paid == least


def traces(most=25):
    step = st.tuples(st.sampled_from([0.0, 0.1, 1.0, 7.3]), st.sampled_from([0.0, 0.3, 2.0]), st.integers(0, 1000))
    return st.lists(step, max_size=most).map(
        lambda steps: DemandTrace(
            time_s=np.cumsum([gap for gap, _, _ in steps]),
            duration_s=[duration for _, duration, _ in steps],
            demand_bytes=np.array([demand for _, _, demand in steps], dtype=np.int64),
        )
    )


def bound(trace, floor, cost):
    return clairvoyant(trace.time_s, trace.duration_s, trace.demand_bytes, floor_bytes=floor, cost=cost)


@pytest.mark.parametrize("name", names())
@given(trace=traces(), floor=st.integers(0, 600), change=st.sampled_from([0.0, 0.01, 0.5, 20.0]))
@settings(deadline=None, max_examples=60)
def test_no_policy_is_cheaper_than_the_optimum(name, trace, floor, change):
    cost = CostModel(1000, change, change)
    least = bound(trace, floor, cost)
    assert least.exact
    assert replay(trace, name, cost=cost, floor_bytes=floor).cost_s >= least.cost_s * (1 - 1e-9)


@pytest.mark.parametrize("name", names())
@given(
    trace=traces(), grow=st.sampled_from([0.0, 0.1, 3.0]), shrink=st.sampled_from([0.0, 0.2]), per=st.floats(0, 0.01)
)
@settings(deadline=None, max_examples=60)
def test_with_unequal_prices_no_policy_is_below_the_bound(name, trace, grow, shrink, per):
    cost = CostModel(1000, grow, shrink, per)
    least = bound(trace, 100, cost)
    assert replay(trace, name, cost=cost, floor_bytes=100).cost_s >= least.cost_s * (1 - 1e-9)


@pytest.mark.parametrize(
    ("grow", "shrink", "per", "exact"),
    [(1, 1, 0, True), (2, 1, 0, False), (1, 2, 0, False), (1, 1, 1e-9, False), (0, 0, 0, True)],
)
def test_unequal_prices_are_said_to_give_no_exact_cost(grow, shrink, per, exact):
    assert clairvoyant(*EDGE, floor_bytes=10, cost=CostModel(100, grow, shrink, per)).exact is exact


def test_unequal_prices_give_the_least_cost_at_the_cheaper_of_the_two():
    # growth 2 s, shrink 0.5 s: bounded as if both were 0.5 s, which is the 4.3 s of above
    assert clairvoyant(*EDGE, floor_bytes=10, cost=CostModel(100, 2.0, 0.5)).cost_s == pytest.approx(4.3)


def test_the_bound_for_unequal_prices_never_exceeds_an_exhaustive_search():
    rng = random.Random(4)
    for _ in range(1000):
        times, durations, demands, floor, grow = random_instance(rng, 7)
        shrink = rng.choice([0, 1, 4, 30])
        schedule = clairvoyant(times, durations, demands, floor_bytes=floor, cost=CostModel(1, grow, shrink))
        best = least_of_all_schedules(slots_of(times, durations, demands), floor, grow, shrink)
        assert schedule.cost_s <= best
        assert schedule.cost_s == best or not schedule.exact


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 1], [1], [1, 1]), r"arrays of one length, got shapes \(2,\), \(1,\) and \(2,\)"),
        (([0, 1], [1, 1], [1]), "arrays of one length"),
        (([[0.0]], [[1.0]], [[1]]), "arrays of one length"),
        (([1, 0], [1, 1], [1, 1]), "must not decrease"),
        (([0, 1], [-1, 1], [1, 1]), "must not be negative"),
        (([0, 1], [1, 1], [1, -1]), "must not be negative"),
    ],
)
def test_impossible_arrays_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        clairvoyant(*arrays, floor_bytes=0, cost=priced())


def test_a_negative_floor_is_refused():
    with pytest.raises(ValueError, match="floor_bytes must not be negative, got -1"):
        clairvoyant([0], [1], [1], floor_bytes=-1, cost=priced())
