from __future__ import annotations

from dataclasses import FrozenInstanceError
from math import inf, nan

import pytest

from reclaim import CostModel


def test_holding_costs_the_share_of_the_device_over_time():
    # 250 of 1000 bytes for 8 s: a quarter of the device for 8 s = 2 device-seconds
    assert CostModel(1000, 0.5, 0.25).hold_s(250 * 8.0) == 2.0


def test_a_growth_costs_its_own_time_and_that_of_every_byte():
    # 0.5 s + 0.001 s/B * 2000 B = 2.5 s
    assert CostModel(1000, 0.5, 0.25, s_per_byte=0.001).growth_s(2000) == 2.5
    assert CostModel(1000, 0.5, 0.25).growth_s(2000) == 0.5


def test_a_round_trip_is_priced_in_byte_seconds():
    # (0.5 s + 0.25 s) * 1000 B
    assert CostModel(1000, 0.5, 0.25).round_trip_byte_s == 750.0


def test_free_resizes_are_allowed():
    cost = CostModel(1, 0.0, 0.0)
    assert (cost.growth_s(2**60), cost.round_trip_byte_s) == (0.0, 0.0)


@pytest.mark.parametrize("total", [0, -1])
def test_a_device_without_memory_is_refused(total):
    with pytest.raises(ValueError, match=f"total_bytes must be positive, got {total}"):
        CostModel(total, 1.0, 1.0)


@pytest.mark.parametrize("field", ["grow_s", "shrink_s", "s_per_byte"])
@pytest.mark.parametrize("value", [-1e-9, nan, inf, -inf])
def test_a_time_that_is_none_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"{field} must be finite and not negative, got {value}"):
        CostModel(**{"total_bytes": 1000, "grow_s": 1.0, "shrink_s": 1.0, field: value})


def test_prices_are_values():
    assert CostModel(1000, 1.0, 1.0) == CostModel(1000, 1.0, 1.0, 0.0)
    assert len({CostModel(1000, 1.0, 1.0), CostModel(1000, 1.0, 1.0)}) == 1
    with pytest.raises(FrozenInstanceError):
        CostModel(1000, 1.0, 1.0).grow_s = 2.0
