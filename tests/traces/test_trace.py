from __future__ import annotations

import numpy as np
import pytest

from reclaim import DemandTrace, TraceFormatError
from reclaim.traces import load

SIZES = [2**31 - 1, 2**31, 2**32 + 1, 5 * 2**40]


def trace_of(demands, **columns):
    return DemandTrace(time_s=np.arange(len(demands), dtype=float), demand_bytes=demands, **columns)


def test_columns_have_the_types_that_hold_them_exactly():
    trace = DemandTrace(
        time_s=[0, 1, 2, 3], duration_s=[1, 1, 1, 1], demand_bytes=SIZES, capacity_bytes=SIZES, reserved_bytes=SIZES
    )
    assert (trace.time_s.dtype, trace.duration_s.dtype) == (np.float64, np.float64)
    for column in (trace.demand_bytes, trace.capacity_bytes, trace.reserved_bytes):
        assert column.dtype == np.int64
        assert column.tolist() == SIZES


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.uint64])
def test_integers_of_any_width_are_sizes(dtype):
    top = min(np.iinfo(dtype).max, 2**63 - 1)
    assert trace_of(np.array([0, top], dtype=dtype)).demand_bytes.tolist() == [0, top]


def test_sums_over_demands_given_as_32_bit_integers_are_exact():
    # 3 * (2^31 - 1) = 6,442,450,941
    assert trace_of(np.full(3, 2**31 - 1, dtype=np.int32)).demand_bytes.sum() == 6_442_450_941


def test_the_trace_keeps_its_own_copy():
    demands, times = np.array([1, 2]), np.array([0.0, 1.0])
    trace = DemandTrace(time_s=times, demand_bytes=demands)
    demands[:] = times[:] = 99
    assert trace.demand_bytes.tolist() == [1, 2]
    assert trace.time_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("demands", [[1.5], [float("nan")], [True], ["12"], [None], [2**64], [[1]]])
def test_a_demand_that_is_no_integer_is_refused_by_name(demands):
    with pytest.raises(TraceFormatError, match="demand_bytes must"):
        DemandTrace(time_s=[0.0], demand_bytes=demands)


@pytest.mark.parametrize("demands", [[5, -1], np.array([5, 2**63], dtype=np.uint64)])
def test_a_demand_out_of_range_is_refused_with_its_place(demands):
    with pytest.raises(TraceFormatError, match=rf"demand_bytes\[1\] = {demands[1]} is no size in bytes"):
        trace_of(demands)


@pytest.mark.parametrize("column", ["capacity_bytes", "reserved_bytes"])
def test_minus_one_means_not_sampled_and_less_is_refused(column):
    assert getattr(trace_of([1, 2], **{column: [-1, 5]}), column).tolist() == [-1, 5]
    with pytest.raises(TraceFormatError, match=rf"{column}\[0\] = -2"):
        trace_of([1, 2], **{column: [-2, 5]})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e-9])
@pytest.mark.parametrize("column", ["time_s", "duration_s"])
def test_a_time_that_is_none_is_refused_with_its_place(column, bad):
    columns = {"time_s": [0.0, 1.0], "duration_s": [1.0, 1.0], "demand_bytes": [1, 1]}
    columns[column] = [0.0, bad]
    with pytest.raises(TraceFormatError, match=rf"{column}\[1\] = {bad} must be finite and not negative"):
        DemandTrace(**columns)


@pytest.mark.parametrize("times", [["0"], [True], [None], [[0.0]], [1j]])
def test_times_that_are_no_numbers_are_refused(times):
    with pytest.raises(TraceFormatError, match="time_s must be a one-dimensional array of seconds"):
        DemandTrace(time_s=times, demand_bytes=[1])


def test_times_out_of_order_are_named_with_both_places():
    with pytest.raises(TraceFormatError, match=r"time_s\[2\] = 0\.5 is before time_s\[1\] = 1\.0"):
        DemandTrace(time_s=[0, 1, 0.5], demand_bytes=[1, 1, 1])


def test_equal_times_are_in_order():
    assert len(DemandTrace(time_s=[1, 1, 1], demand_bytes=[1, 2, 3])) == 3


@pytest.mark.parametrize("column", ["duration_s", "demand_bytes", "capacity_bytes", "reserved_bytes", "event"])
def test_columns_of_different_lengths_are_refused(column):
    columns = {"demand_bytes": [1, 1], column: ["grew"] if column == "event" else [1]}
    with pytest.raises(TraceFormatError, match=f"{column} has 1 entries, time_s has 2"):
        DemandTrace(time_s=[0, 1], **columns)


def test_missing_durations_last_to_the_next_start_or_the_median_gap():
    # gaps 1, 2, 1, 5: median 1.5. min(1, 1.5), min(2, 1.5), min(1, 1.5), min(5, 1.5), and the last the median
    trace = DemandTrace(time_s=[0, 1, 3, 4, 9], demand_bytes=[1] * 5)
    assert trace.duration_s.tolist() == [1.0, 1.5, 1.0, 1.5, 1.5]


@pytest.mark.parametrize("times", [[], [3.0]])
def test_without_gaps_missing_durations_are_zero(times):
    assert DemandTrace(time_s=times, demand_bytes=[1] * len(times)).duration_s.tolist() == [0.0] * len(times)


def test_a_forward_ends_at_the_latest_when_the_next_one_starts():
    trace = DemandTrace(time_s=[0, 1, 5], duration_s=[3, 2, 2], demand_bytes=[1, 1, 1])
    assert trace.end_s.tolist() == [1.0, 3.0, 7.0]
    assert trace.duration_s.tolist() == [3.0, 2.0, 2.0]


def test_the_summary_names_the_figures_of_the_trace():
    # 100 forwards of 1 .. 100 B, each 0.5 s, one a second: 99.5 s from the first start to the last end.
    # Percentiles are demands that occurred: the 50th of 0 .. 99 is 49.5, upwards 51; the 99th 98.01, upwards 100.
    summary = trace_of(range(1, 101), duration_s=[0.5] * 100).summary(floor_bytes=70)
    assert (summary.forwards, summary.span_s, summary.busy_s) == (100, 99.5, 50.0)
    assert (summary.min_bytes, summary.median_bytes, summary.p99_bytes, summary.max_bytes) == (1, 51, 100, 100)
    assert (summary.floor_bytes, summary.covered, summary.headroom_bytes) == (70, 0.7, 30)


def test_a_floor_that_covers_most_forwards_leaves_the_headroom_of_the_largest():
    # 30 of 100 forwards need 180 MiB over a floor of 100: it covers 70 %, and 80 MiB are missing
    summary = trace_of([100 << 20] * 70 + [180 << 20] * 30, meta={"floor_bytes": 100 << 20}).summary()
    assert (summary.covered, summary.max_bytes, summary.headroom_bytes) == (0.7, 180 << 20, 80 << 20)


def test_the_recorded_floor_is_the_one_of_the_summary_unless_another_is_given():
    trace = trace_of([10, 20], meta={"floor_bytes": 15})
    assert trace.floor_bytes == trace.summary().floor_bytes == 15
    assert trace.summary(floor_bytes=0).covered == 0.0


def test_a_summary_without_a_floor_says_nothing_about_it():
    summary = trace_of([10]).summary()
    assert (summary.floor_bytes, summary.covered, summary.headroom_bytes) == (None, None, None)


def test_an_empty_trace_has_a_summary():
    summary = trace_of([]).summary(floor_bytes=5)
    assert (summary.forwards, summary.span_s, summary.busy_s, summary.max_bytes, summary.covered) == (0, 0, 0, 0, None)


def test_overlaps_are_not_counted_twice_as_busy():
    # the first is cut at 1 s: 1 + 2
    assert DemandTrace(time_s=[0, 1], duration_s=[9, 2], demand_bytes=[1, 1]).summary().busy_s == 3.0


def test_a_slice_keeps_times_and_every_column():
    trace = trace_of(
        [1, 2, 3, 4],
        duration_s=[0.1, 0.2, 0.3, 0.4],
        capacity_bytes=[5, 6, 7, 8],
        reserved_bytes=[-1, 9, -1, 10],
        event=["grew", None, "shrank", None],
        meta={"floor_bytes": 1},
    )
    part = trace[1:3]
    assert part.time_s.tolist() == [1.0, 2.0]
    assert part.duration_s.tolist() == [0.2, 0.3]
    assert part.demand_bytes.tolist() == [2, 3]
    assert part.capacity_bytes.tolist() == [6, 7]
    assert part.reserved_bytes.tolist() == [9, -1]
    assert part.event == (None, "shrank")
    assert part.meta == {"floor_bytes": 1}


def test_a_slice_from_the_middle_does_not_know_where_the_run_began():
    trace = trace_of([1, 2, 3], meta={"start_bytes": 7, "floor_bytes": 1})
    assert trace[:2].meta == {"start_bytes": 7, "floor_bytes": 1}
    assert trace[1:].meta == {"floor_bytes": 1}
    assert trace.meta["start_bytes"] == 7


@pytest.mark.parametrize("index", [0, -1, (0, 1), [0]])
def test_only_slices_index_a_trace(index):
    with pytest.raises(TypeError, match="index a trace with a slice"):
        trace_of([1, 2])[index]


def test_no_event_at_all_is_none():
    assert trace_of([1, 2], event=[None, None]).event is None
    assert trace_of([1, 2], event=[None, "grew"]).event == (None, "grew")
    assert trace_of([1, 2], event=["grew", None])[1:].event is None


def test_the_meta_is_a_copy():
    meta = {"floor_bytes": 1}
    trace_of([1], meta=meta).meta["floor_bytes"] = 2
    assert meta == {"floor_bytes": 1}


def test_the_length_and_the_text_of_a_trace():
    assert len(trace_of([1, 2, 3])) == 3
    assert repr(trace_of([1, 2, 3])) == "<DemandTrace of 3 forwards>"


@pytest.mark.parametrize("name", ["a", "a.json", "a.csv", "a.jsonl.zip", "a.gz", ".npz.txt"])
def test_an_unknown_ending_is_refused_and_leaves_no_file(tmp_path, name):
    with pytest.raises(TraceFormatError, match=r"end the name of a trace in \.jsonl, \.jsonl\.gz or \.npz"):
        trace_of([1]).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_os_error_of_its_own(tmp_path):
    for read in (load, DemandTrace.load):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "nothing.jsonl")


def test_the_format_is_told_by_content_not_by_name(tmp_path):
    trace = trace_of(SIZES)
    for ending in ("jsonl", "jsonl.gz", "npz"):
        trace.save(tmp_path / f"a.{ending}")
        (tmp_path / f"a.{ending}").rename(tmp_path / "renamed.txt")
        for read in (load, DemandTrace.load):
            assert read(tmp_path / "renamed.txt").demand_bytes.tolist() == SIZES
            assert read(str(tmp_path / "renamed.txt")).demand_bytes.tolist() == SIZES


def test_measured_memory_counts_from_the_start_of_a_forward_that_grew():
    trace = DemandTrace(
        time_s=[0, 1, 2, 3],
        duration_s=[0.5] * 4,
        demand_bytes=[4, 4, 2, 8],
        reserved_bytes=[4, -1, 2, 8],
        event=["grew", None, "grew,shrank", "by:moe,grew"],
    )
    times, sizes = trace.reserved_steps()
    # the first and the last from their start; the third after its shrink, at 2.5
    assert (times.tolist(), sizes.tolist()) == ([0.0, 2.5, 3.0], [4, 2, 8])
    assert [part.tolist() for part in trace[1:2].reserved_steps()] == [[], []]
