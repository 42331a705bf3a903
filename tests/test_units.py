from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import format_bytes, parse_bytes
from reclaim.units import GIB, KIB, MIB, round_up


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (100 * MIB, "100 MiB"),
        (3_683_535_776, "3.43 GiB"),  # / 2^30 = 3.4306
        (5 * 2**40, "5 TiB"),
        (2**60, "1 EiB"),
        (3000 * 2**60, "3000 EiB"),  # there is no larger unit
        (MIB - 1, "1 MiB"),  # 1023.999 KiB rounds to 1024, which is the next unit
        (-2048, "-2 KiB"),
        (1.5, "1.5 B"),
    ],
)
def test_sizes_are_written_in_the_largest_unit_that_fits(nbytes, text):
    assert format_bytes(nbytes) == text


def test_an_exact_size_names_every_byte():
    assert format_bytes(3_683_535_776, exact=True) == "3683535776 B"


@given(st.integers(0, 2**63 - 1))
def test_an_exact_size_is_read_back_to_the_same_value(nbytes):
    assert parse_bytes(format_bytes(nbytes, exact=True)) == nbytes


@given(st.integers(0, 2**62))
@settings(deadline=None)
def test_a_short_size_is_read_back_within_its_two_decimals(nbytes):
    # Two decimals of a value in 1 .. 1023.99: off by at most half a hundredth of the unit, which is below 0.5 %.
    assert abs(parse_bytes(format_bytes(nbytes)) - nbytes) <= max(1, nbytes * 0.005)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("16376 MiB", 17_171_480_576),  # 16376 * 1048576
        ("16376 MB", 16_376_000_000),
        ("1 KB", 1000),
        ("1 kB", 1000),
        ("1 KiB", 1024),
        ("1.5GiB", 1_610_612_736),
        ("2TiB", 2_199_023_255_552),
        ("0.1 kB", 100),
        ("12", 12),
        ("12 B", 12),
        (" 64mib ", 67_108_864),
        ("1,024", 1024),
        ("1_024 B", 1024),
        ("1e3", 1000),
        ("0.6", 1),
        ("9007199254740993", 9_007_199_254_740_993),  # 2^53 + 1: a float would lose the 1
    ],
)
def test_sizes_are_read_exactly_and_binary_units_are_told_from_decimal_ones(text, nbytes):
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", " ", "MiB", "twelve", "1 QiB", "1 M iB", "1..5 MiB", "nan", "inf", "0x10", "1 2"])
def test_what_is_no_size_is_refused_with_the_units_named(text):
    with pytest.raises(ValueError, match=r"is not a size: write a number and one of B, KiB, MiB"):
        parse_bytes(text)


def test_the_text_at_fault_is_quoted():
    with pytest.raises(ValueError, match=r"^'12 parsecs'"):
        parse_bytes("12 parsecs")


@pytest.mark.parametrize(
    ("nbytes", "granule", "rounded"),
    [(0, 4096, 0), (1, 4096, 4096), (4096, 4096, 4096), (4097, 4096, 8192), (7, 1, 7), (2**60 + 1, 2, 2**60 + 2)],
)
def test_rounding_up_reaches_the_next_granule(nbytes, granule, rounded):
    assert round_up(nbytes, granule) == rounded


@given(st.integers(0, 2**62), st.integers(1, 2**32))
def test_rounding_up_is_the_least_multiple_not_below(nbytes, granule):
    rounded = round_up(nbytes, granule)
    assert rounded % granule == 0
    assert rounded - granule < nbytes <= rounded


def test_the_units_are_powers_of_1024():
    assert (KIB, MIB, GIB) == (1024, 1024**2, 1024**3)
    assert Fraction(parse_bytes("1 GiB"), parse_bytes("1 MiB")) == 1024
