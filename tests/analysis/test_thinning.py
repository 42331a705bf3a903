from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.analysis.thinning import thin


def test_what_is_short_stays_as_it_is():
    times, values = np.arange(40.0), np.arange(40)
    kept = thin(times, values, 10)
    assert kept[0].tolist() == times.tolist()
    assert kept[1].tolist() == values.tolist()


def test_each_column_keeps_its_first_lowest_highest_and_last_point():
    # one column of nine points: first 5 (0 s), lowest 1 (3 s), highest 9 (6 s), last 4 (8 s)
    values = np.array([5, 6, 4, 1, 5, 7, 9, 6, 4])
    times, kept = thin(np.arange(9.0), values, 1)
    assert times.tolist() == [0.0, 3.0, 6.0, 8.0]
    assert kept.tolist() == [5, 1, 9, 4]


def test_two_columns_are_halves_of_the_time_not_of_the_points():
    # span 10 s: the column of 0-5 s has the first eight points, that of 5-10 s the last
    times = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 10.0])
    kept, values = thin(times, np.array([3, 3, 8, 3, 0, 3, 3, 4, 7]), 2)
    assert kept.tolist() == [0.0, 0.2, 0.4, 0.7, 10.0]
    assert values.tolist() == [3, 8, 0, 4, 7]


def test_points_at_one_moment_keep_their_extremes():
    _, kept = thin(np.zeros(100), np.arange(100) % 37, 2)
    assert (kept[0], kept[-1], kept.min(), kept.max()) == (0, 99 % 37, 0, 36)


def test_every_spike_of_a_million_points_is_kept():
    values = np.full(1_000_000, 1000)
    spikes = np.arange(50) * 20_000 + np.arange(50) * 7
    values[spikes] = 2**40 + np.arange(50)
    values[spikes + 1] = np.arange(50)  # and as many dips
    times, kept = thin(np.arange(1_000_000.0), values, 2400)
    assert len(kept) <= 4 * 2400
    assert set(values[spikes].tolist()) <= set(kept.tolist())
    assert set(range(50)) <= set(kept.tolist())
    assert (values[times.astype(int)] == kept).all()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_scale_of_time_does_not_matter(scale):
    values = np.arange(1000) * 7919 % 1000
    one, _ = thin(np.arange(1000) * 1.0, values, 10)
    other, _ = thin(np.arange(1000) * scale, values, 10)
    assert other.tolist() == pytest.approx((one * scale).tolist())


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 2**62)), min_size=1, max_size=200),
    st.integers(1, 20),
)
@settings(deadline=None)
def test_what_is_kept_is_a_part_in_order_with_the_ends_and_the_extremes(points, columns):
    points.sort(key=lambda point: point[0])
    times = np.array([time for time, _ in points])
    values = np.array([value for _, value in points], dtype=np.int64)
    kept_times, kept = thin(times, values, columns)
    found = list(zip(kept_times.tolist(), kept.tolist(), strict=True))
    everything = iter(zip(times.tolist(), values.tolist(), strict=True))
    assert all(point in everything for point in found)  # in order, each taken once
    assert found[0] == (times[0], values[0])
    assert found[-1] == (times[-1], values[-1])
    assert (kept.min(), kept.max()) == (values.min(), values.max())
    assert len(kept) <= max(4 * columns, min(len(points), 4 * columns))
