from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import DemandTrace, PolicySpecError, replay
from reclaim.analysis.replay import choose_floor
from reclaim.policy import CostModel, ExactFitPolicy, ShrinkPolicy, ThreeWindowPolicy, names

COST = CostModel(total_bytes=100, grow_s=0.5, shrink_s=0.25)
MIB = 1 << 20

# Starts, durations and demands of one small run; it ends at 13 s. Floor 10.
#   0-1: 10    2-4: 50    5-6: 10    7-8: 10    9-10: 10    12-13: 10
TIMES = [0.0, 2.0, 5.0, 7.0, 9.0, 12.0]
DURATIONS = [1.0, 2.0, 1.0, 1.0, 1.0, 1.0]
DEMANDS = [10, 50, 10, 10, 10, 10]


def small(**columns):
    return DemandTrace(**{"time_s": TIMES, "duration_s": DURATIONS, "demand_bytes": DEMANDS, **columns})


def regular(demands, duration_s=1.0, **columns):
    """One forward a second."""
    times = np.arange(len(demands), dtype=float)
    durations = np.full(len(demands), duration_s)
    return DemandTrace(time_s=times, duration_s=durations, demand_bytes=np.array(demands, dtype=np.int64), **columns)


def run(trace, policy, floor=10, cost=COST, **options):
    return replay(trace, policy, cost=cost, floor_bytes=floor, **options)


def timeline(result):
    times, sizes = result.timeline()
    return list(zip(times.tolist(), sizes.tolist(), strict=True))


def test_grow_only_holds_the_largest_from_its_first_use_to_the_end():
    result = run(small(), "grow-only")
    # 10 B for 2 s and 50 B for 11 s: 20 + 550 = 570 byte-seconds. One growth: 0.5 s. 570 / 100 + 0.5 = 6.2 s.
    assert result.capacity_bytes.tolist() == [10, 50, 50, 50, 50, 50]
    assert result.hold_byte_s == 570.0
    assert (result.grows, result.shrinks, result.stall_s) == (1, 0, 0.5)
    assert result.cost_s == pytest.approx(6.2)
    assert result.mean_bytes == pytest.approx(570 / 13)
    assert result.peak_bytes == 50
    assert timeline(result) == [(0.0, 10), (2.0, 50), (13.0, 50)]


def test_three_window_shrinks_at_the_end_of_the_third_underfilled_forward():
    result = run(small(), "three-window")
    # the growing forward is no observation; 5-6, 7-8 and 9-10 are: to 10 at 10 s.
    # 10 * 2 + 50 * 8 + 10 * 3 = 450 byte-seconds; 4.5 + 0.5 + 0.25 = 5.25 s
    assert result.capacity_bytes.tolist() == [10, 50, 50, 50, 50, 10]
    assert result.hold_byte_s == 450.0
    assert (result.grows, result.shrinks, result.stall_s) == (1, 1, 0.5)
    assert result.cost_s == pytest.approx(5.25)
    assert result.mean_bytes == pytest.approx(450 / 13)
    assert timeline(result) == [(0.0, 10), (2.0, 50), (10.0, 10), (13.0, 10)]


def test_exact_fit_shrinks_at_the_end_of_every_larger_forward():
    result = run(small(demand_bytes=[10, 50, 30, 10, 0, 20]), "exact-fit")
    # 2-5: the 50 fits itself, and becomes 30 at 6 s and 10 at 8 s; 20 at 12 s; the last fits itself too.
    # 10 * 2 + 50 * 4 + 30 * 2 + 10 * 4 + 20 * 1 = 340
    assert result.capacity_bytes.tolist() == [10, 50, 50, 30, 10, 20]
    assert timeline(result) == [(0.0, 10), (2.0, 50), (6.0, 30), (8.0, 10), (12.0, 20), (13.0, 20)]
    assert result.hold_byte_s == 340.0
    assert (result.grows, result.shrinks, result.stall_s) == (2, 2, 1.0)
    assert result.cost_s == pytest.approx(3.4 + 1.0 + 0.5)


def test_a_growth_stalls_by_its_new_size_too():
    # 0.5 s + 0.01 s/B * 50 B = 1 s
    result = run(small(), "grow-only", cost=CostModel(100, 0.5, 0.25, s_per_byte=0.01))
    assert result.stall_s == 1.0
    assert result.cost_s == pytest.approx(5.7 + 1.0)


def test_a_demand_of_the_whole_capacity_neither_grows_nor_shrinks():
    for name in names():
        result = run(regular([64] * 100), name, floor=64)
        assert (result.grows, result.shrinks) == (0, 0)


def test_one_large_input_before_many_small_ones():
    trace = regular([600 * MIB] + [8 * MIB] * 200)
    never = run(trace, "grow-only", floor=8 * MIB)
    assert never.capacity_bytes[-1] == 600 * MIB
    assert never.hold_byte_s == 600 * 201 * MIB
    # the growth, three underfilled forwards at 600, then 197 at 8
    three = run(trace, "three-window", floor=8 * MIB)
    assert three.capacity_bytes[-1] == 8 * MIB
    assert three.hold_byte_s == (600 * 4 + 8 * 197) * MIB
    assert (three.grows, three.shrinks) == (1, 1)
    assert (three.capacity_bytes >= trace.demand_bytes).all()


CLIMB = [3302, 3582, 3888, 4294, 4390, 4454, 4550, 4582, 4678, 4710]
CLIMB += [4806, 4870, 4902, 4966, 5030, 5062, 5094, 5702, 5734, 5798]


def test_a_climb_never_shrinks():
    result = run(regular([size * MIB for size in CLIMB]), "three-window", floor=3302 * MIB)
    assert (result.grows, result.shrinks) == (19, 0)
    assert result.capacity_bytes.tolist() == [size * MIB for size in CLIMB]
    assert result.peak_bytes == 5798 * MIB


def test_a_repeated_climb_never_shrinks_between_its_steps():
    # two forwards a step: the second is an exact fit and no underfilled one
    result = run(regular([size for size in CLIMB for _ in range(2)]), "three-window", floor=1)
    assert (result.grows, result.shrinks) == (20, 0)


def test_cyclic_demands_hold_their_largest_not_their_sum():
    cycle = [3, 5, 8, 11, 14, 17, 20, 24]
    result = run(regular(cycle * 4), "grow-only", floor=0)
    assert (result.peak_bytes, result.grows) == (24, 8)
    assert result.capacity_bytes[7:].tolist() == [24] * 25
    # with large ones among every three, three-window never finds a window without them
    alternating = run(regular([24, 3, 24, 5] * 20), "three-window", floor=0)
    assert (alternating.grows, alternating.shrinks) == (1, 0)


def test_missing_durations_last_to_the_next_start_or_the_median_gap():
    # gaps 1, 2, 1, median 1: the 50 of 1 s ends at 2 s, where exact-fit keeps it; the 10 of 3 s ends at 4 s
    trace = DemandTrace(time_s=[0, 1, 3, 4], demand_bytes=[10, 50, 10, 10])
    assert timeline(run(trace, "exact-fit")) == [(0.0, 10), (1.0, 50), (4.0, 10), (5.0, 10)]


def test_a_forward_ends_at_the_latest_when_the_next_one_starts():
    trace = DemandTrace(time_s=[0, 1, 2], duration_s=[5, 5, 1], demand_bytes=[50, 10, 10])
    result = run(trace, "exact-fit")
    assert timeline(result) == [(0.0, 10), (0.0, 50), (2.0, 10), (3.0, 10)]
    assert result.hold_byte_s == 50 * 2 + 10


def test_the_clock_begins_with_the_first_forward():
    result = run(small(time_s=[time + 1000 for time in TIMES]), "grow-only")
    assert result.hold_byte_s == 570.0
    assert result.mean_bytes == pytest.approx(570 / 13)


def test_an_empty_trace_costs_nothing():
    result = run(DemandTrace(time_s=[], demand_bytes=[]), "three-window")
    assert (result.cost_s, result.hold_byte_s, result.grows, result.shrinks) == (0.0, 0.0, 0, 0)
    assert (result.mean_bytes, result.peak_bytes, len(result.capacity_bytes)) == (10.0, 10, 0)
    assert set(timeline(result)) == {(0.0, 10)}


def test_a_trace_of_no_time_has_the_capacity_as_its_mean():
    result = run(DemandTrace(time_s=[3], duration_s=[0], demand_bytes=[50]), "grow-only")
    assert (result.hold_byte_s, result.mean_bytes, result.cost_s) == (0.0, 50.0, 0.5)


def test_sizes_beyond_32_bits_are_exact():
    sizes = [2**31 - 1, 2**31, 2**32 + 1, 5 * 2**40, 2**60]
    result = run(regular(sizes), "grow-only", floor=0)
    assert result.capacity_bytes.dtype == np.int64
    assert result.capacity_bytes.tolist() == sizes
    assert result.timeline()[1].tolist() == [0, *sizes, 2**60]
    assert result.peak_bytes == 2**60


def test_the_granule_rounds_what_the_policy_sees_but_not_what_is_grown():
    # Floor 10 (seen as 16). 20 grows to exactly 20 (32); 18 of 20 is an exact fit (32 of 32); 10 of 20 (16 of 32)
    # becomes 16, a whole granule; 12 of 16 fits.
    result = run(regular([20, 18, 10, 12]), "exact-fit", granule_bytes=16)
    assert result.capacity_bytes.tolist() == [20, 20, 20, 16]
    assert (result.grows, result.shrinks) == (1, 1)


def test_the_granule_of_the_trace_is_the_default():
    trace = regular([20, 18, 10, 12], meta={"granule_bytes": 16})
    assert run(trace, "exact-fit").capacity_bytes.tolist() == [20, 20, 20, 16]
    assert run(trace, "exact-fit", granule_bytes=1).capacity_bytes.tolist() == [20, 20, 18, 12]


def test_the_floor_is_that_of_the_trace_else_the_median_positive_demand():
    recorded = regular([10, 50], meta={"floor_bytes": 30})
    assert choose_floor(recorded) == (30, "of the recorded run")
    assert replay(recorded, "grow-only", cost=COST).floor_bytes == 30
    unknown = regular([0, 0, 0, 10, 20, 90])
    assert choose_floor(unknown) == (20, "median positive demand")
    assert replay(unknown, "grow-only", cost=COST).floor_bytes == 20
    assert choose_floor(regular([0, 0])) == choose_floor(regular([])) == (0, "median positive demand")


def test_a_run_that_began_above_its_floor_begins_there_and_pays_for_it():
    trace = regular([10, 10, 10, 10], meta={"floor_bytes": 10, "start_bytes": 40})
    result = replay(trace, "three-window", cost=COST)
    # at 40 for three forwards, then 10
    assert result.capacity_bytes.tolist() == [40, 40, 40, 10]
    assert (result.grows, result.shrinks, result.hold_byte_s) == (1, 1, 130.0)


def test_where_a_run_began_says_nothing_about_another_floor():
    trace = regular([10, 10], meta={"floor_bytes": 10, "start_bytes": 40})
    assert run(trace, "grow-only", floor=20).capacity_bytes.tolist() == [20, 20]


def test_a_start_below_the_floor_is_the_floor():
    trace = regular([5, 5], meta={"floor_bytes": 10, "start_bytes": 3})
    result = replay(trace, "grow-only", cost=COST)
    assert (result.capacity_bytes.tolist(), result.grows) == ([10, 10], 0)


def events(*parts):
    """A peak of 50, then one underfilled forward of 10 for each event, then one more without."""
    return regular([50] + [10] * len(parts) + [10], event=[None, *parts, None])


@pytest.mark.parametrize("passed", ["pass:graph", "pass:dummy", "pass:capture", "pass:warmup", "grew,pass:graph"])
def test_a_forward_that_the_policy_did_not_see_leaves_its_window(passed):
    # underfilled, underfilled, unseen, unseen, underfilled: shrinks at the end of the fifth
    result = run(events(None, None, passed, passed, None), "three-window")
    assert result.capacity_bytes.tolist() == [50, 50, 50, 50, 50, 50, 10]


@pytest.mark.parametrize(
    "reset",
    [
        "aborted",
        "pass:unreclaimable",
        "disabled:stream",
        "disabled:error",
        "disabled:capture",
        "grew,aborted",
        "rearmed,aborted",
    ],
)
def test_a_forward_that_made_the_policy_forget_starts_its_window_again(reset):
    # underfilled twice, forgotten, underfilled three times
    result = run(events(None, None, reset, None, None, None), "three-window")
    assert result.capacity_bytes.tolist() == [50, 50, 50, 50, 50, 50, 50, 10]


@pytest.mark.parametrize(
    "seen", ["shrank", "skipped:pinned", "skipped:locked", "skipped:out-of-memory", "rearmed", "rearmed,shrank", ""]
)
def test_every_other_forward_is_seen(seen):
    result = run(events(None, None, seen), "three-window")
    assert result.capacity_bytes.tolist() == [50, 50, 50, 50, 10]


def test_a_forward_that_was_not_seen_still_grows():
    result = run(regular([10, 50, 10], event=[None, "pass:graph", None]), "grow-only")
    assert (result.capacity_bytes.tolist(), result.grows) == ([10, 50, 50], 1)


class DropWhenIdle(ShrinkPolicy):
    """To the floor once `after_s` have passed since the end of a forward, or since its start."""

    name = "drop-when-idle"

    def __init__(self, floor_bytes, *, after_s=2.0, since="ended"):
        super().__init__(floor_bytes)
        self.after_s, self.since = after_s, since
        self.due = inf
        self.asked = []

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        self.due = (ended if self.since == "ended" else started) + self.after_s

    def deadline(self):
        return self.due

    def idle(self, capacity_bytes, *, now):
        self.asked.append((now, capacity_bytes))
        self.due = inf
        return self.floor_bytes if capacity_bytes > self.floor_bytes else None


def test_an_idle_policy_shrinks_in_the_gap_at_its_deadline():
    # 0-1 needs 50; due at 3 s; the next starts at 5 s. 50 * 3 + 10 * 3 = 180
    trace = DemandTrace(time_s=[0, 5], duration_s=[1, 1], demand_bytes=[50, 10])
    policy = DropWhenIdle(10)
    result = run(trace, policy)
    assert policy.asked == [(3.0, 50)]
    assert timeline(result) == [(0.0, 10), (0.0, 50), (3.0, 10), (6.0, 10)]
    assert result.capacity_bytes.tolist() == [50, 10]
    assert result.hold_byte_s == 180.0
    assert (result.grows, result.shrinks) == (1, 1)


@pytest.mark.parametrize("after", [4.0, 100.0])
def test_a_deadline_at_or_after_the_next_start_does_not_come(after):
    trace = DemandTrace(time_s=[0, 5], duration_s=[1, 1], demand_bytes=[50, 10])
    policy = DropWhenIdle(10, after_s=after)
    assert run(trace, policy).shrinks == 0
    assert policy.asked == []


def test_after_the_last_forward_nobody_is_asked():
    policy = DropWhenIdle(10, after_s=0.0)
    assert run(DemandTrace(time_s=[0], duration_s=[1], demand_bytes=[50]), policy).shrinks == 0
    assert policy.asked == []


def test_without_idle_nobody_is_asked():
    policy = DropWhenIdle(10)
    trace = DemandTrace(time_s=[0, 5], duration_s=[1, 1], demand_bytes=[50, 10])
    assert run(trace, policy, idle=False).capacity_bytes.tolist() == [50, 50]
    assert policy.asked == []


def test_a_deadline_inside_a_forward_comes_due_at_its_end():
    # Due 1 s after the start, while the forward still runs to 3 s: nobody may take its memory before.
    # 50 B for 3 s, 10 B from 3 s to 7 s.
    trace = DemandTrace(time_s=[0, 6], duration_s=[3, 1], demand_bytes=[50, 10])
    policy = DropWhenIdle(10, after_s=1.0, since="started")
    result = run(trace, policy)
    assert policy.asked == [(3.0, 50)]
    assert timeline(result) == [(0.0, 10), (0.0, 50), (3.0, 10), (7.0, 10)]
    assert result.hold_byte_s == 50 * 3 + 10 * 4


def test_between_forwards_that_touch_nobody_is_asked():
    # due at 1 s, inside the first forward; the second starts when it ends, so that there is no gap to shrink in
    trace = DemandTrace(time_s=[0, 2], duration_s=[2, 1], demand_bytes=[50, 50])
    policy = DropWhenIdle(10, after_s=1.0, since="started")
    result = run(trace, policy)
    assert policy.asked == []
    assert (result.grows, result.shrinks) == (1, 0)


class Planned(ShrinkPolicy):
    """Shrinks at the given times, in the given order."""

    name = "planned"

    def __init__(self, floor_bytes, *plan):
        super().__init__(floor_bytes)
        self.plan = list(plan)

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        return None

    def deadline(self):
        return self.plan[0][0] if self.plan else inf

    def idle(self, capacity_bytes, *, now):
        return self.plan.pop(0)[1]


def test_a_policy_may_shrink_twice_in_a_gap():
    # 0-1 needs 50; 30 from 2 s, 10 from 4 s; the next starts at 6 s
    trace = DemandTrace(time_s=[0, 6], duration_s=[1, 1], demand_bytes=[50, 10])
    result = run(trace, Planned(10, (2.0, 30), (4.0, 10)))
    assert timeline(result) == [(0.0, 10), (0.0, 50), (2.0, 30), (4.0, 10), (7.0, 10)]
    assert result.hold_byte_s == 50 * 2 + 30 * 2 + 10 * 3


def test_a_deadline_before_the_last_one_does_not_turn_the_clock_back():
    trace = DemandTrace(time_s=[0, 6], duration_s=[1, 1], demand_bytes=[50, 10])
    result = run(trace, Planned(10, (4.0, 30), (2.0, 10)))
    assert timeline(result) == [(0.0, 10), (0.0, 50), (4.0, 30), (4.0, 10), (7.0, 10)]
    assert result.hold_byte_s == 50 * 4 + 10 * 3


class Stubborn(ShrinkPolicy):
    """Never uses its deadline up."""

    name = "stubborn"

    def __init__(self, floor_bytes, due=0.0, answer=None):
        super().__init__(floor_bytes)
        self.due, self.answer, self.calls = due, answer, 0

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        return None

    def deadline(self):
        return self.due

    def idle(self, capacity_bytes, *, now):
        self.calls += 1
        assert self.calls < 1000, "it spins"
        return self.answer


@pytest.mark.parametrize("due", [-inf, 0.0])
@pytest.mark.parametrize("answer", [None, 10, 10**9])
def test_a_policy_that_never_uses_up_its_deadline_does_not_spin(due, answer):
    policy = Stubborn(10, due, answer)
    result = run(regular([50, 10, 10, 10], duration_s=0.5), policy)
    assert policy.calls <= 2 * 4
    assert result.shrinks == (1 if answer == 10 else 0)


def test_a_deadline_that_is_no_number_never_comes():
    policy = Stubborn(10, nan, 10)
    assert run(regular([50, 10], duration_s=0.5), policy).shrinks == 0
    assert policy.calls == 0


class GrowsAhead(ShrinkPolicy):
    name = "grows-ahead"

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        return None

    def grow_target(self, required_bytes, capacity_bytes, *, now=0.0):
        return 2 * required_bytes


def test_a_policy_may_grow_ahead():
    result = run(regular([15, 20, 31]), GrowsAhead(10))
    assert result.capacity_bytes.tolist() == [30, 30, 62]
    assert result.grows == 2


class Listener(GrowsAhead):
    name = "listener"

    def __init__(self, floor_bytes):
        super().__init__(floor_bytes)
        self.heard = []

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        self.heard.append((required_bytes, capacity_bytes, grew, started, ended))
        return 10 if capacity_bytes > 10 else None

    def grow_target(self, required_bytes, capacity_bytes, *, now=0.0):
        self.heard.append((required_bytes, capacity_bytes, now))
        return required_bytes

    def resized(self, *, grew, seconds, new_bytes):
        self.heard.append((grew, seconds, new_bytes))


def test_a_policy_hears_the_forwards_their_times_and_what_resizes_cost():
    policy = Listener(10)
    run(regular([10, 50], duration_s=0.5), policy)
    assert policy.heard == [
        (10, 10, False, 0.0, 0.5),
        (50, 10, 1.0),
        (True, 0.5, 50),
        (50, 50, True, 1.0, 1.5),
        (False, 0.25, 10),
    ]


def test_a_spec_a_factory_and_an_instance_replay_alike():
    by_spec = run(small(), "three-window:forwards=2")
    by_factory = run(small(), lambda floor, cost: ThreeWindowPolicy(floor, forwards=2))
    by_instance = run(small(), ThreeWindowPolicy(10, forwards=2))
    assert timeline(by_spec) == timeline(by_factory) == timeline(by_instance)
    assert (by_spec.policy, by_factory.policy) == ("three-window:forwards=2", "three-window")


def test_bad_arguments_are_refused():
    with pytest.raises(PolicySpecError, match="no policy 'three-win', did you mean 'three-window'"):
        run(small(), "three-win")
    with pytest.raises(ValueError, match="floor_bytes must not be negative"):
        run(small(), "grow-only", floor=-1)
    with pytest.raises(ValueError, match="granule_bytes must be at least 1"):
        run(small(), "grow-only", granule_bytes=0)
    with pytest.raises(ValueError, match="the policy's floor_bytes is 11; it must be 10"):
        run(small(), ExactFitPolicy(11))


STEPS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([0.0, 0.25, 3.0]), st.integers(0, 300)), max_size=30
)


@given(STEPS, st.sampled_from(names()), st.integers(0, 200), st.sampled_from([1, 16]))
@settings(deadline=None)
def test_the_figures_of_a_replay_agree_with_its_timeline(steps, name, floor, granule):
    starts = np.cumsum([gap for gap, _, _ in steps])
    trace = DemandTrace(
        time_s=starts,
        duration_s=[duration for _, duration, _ in steps],
        demand_bytes=np.array([demand for _, _, demand in steps], dtype=np.int64),
    )
    result = run(trace, name, floor=floor, granule_bytes=granule)
    times, sizes = result.timeline()
    assert (result.capacity_bytes >= trace.demand_bytes).all()
    assert (sizes >= floor).all()
    assert (np.diff(times) >= 0).all()
    assert np.dot(sizes[:-1], np.diff(times)) == pytest.approx(result.hold_byte_s)
    assert result.peak_bytes == sizes.max()
    assert result.grows == (np.diff(sizes) > 0).sum()
    assert result.shrinks == (np.diff(sizes) < 0).sum()
    assert result.stall_s == result.grows * 0.5
    assert result.cost_s == pytest.approx(result.hold_byte_s / 100 + result.stall_s + result.shrinks * 0.25)
    assert result.peak_bytes == max([floor, *trace.demand_bytes.tolist()])
