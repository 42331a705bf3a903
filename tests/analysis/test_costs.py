from __future__ import annotations

import json
import os
import re

import pytest

from reclaim import CostModel, DemandTrace, InputError
from reclaim.analysis.costs import choose_cost, describe_cost, format_cost, read_cost

FIELDS = {"total_bytes": 80 << 30, "grow_s": 0.002, "shrink_s": 0.001}


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "cost.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


def trace(**meta):
    return DemandTrace(time_s=[0], demand_bytes=[1], meta=meta)


def test_a_cost_file_has_the_fields_of_the_model(written):
    assert read_cost(written(FIELDS)) == CostModel(80 << 30, 0.002, 0.001)
    assert read_cost(written({**FIELDS, "s_per_byte": 1e-12})) == CostModel(80 << 30, 0.002, 0.001, 1e-12)


def test_what_is_described_is_read_back(written):
    cost = CostModel(2**60 + 1, 0.1, 1 / 3, 1e-12)
    assert read_cost(written(describe_cost(cost))) == cost


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"\xff\xfe", ""),
        ({**FIELDS, "grow": 1}, "grow"),
        ({**FIELDS, "total_bytes": 0}, "total_bytes must be positive, got 0"),
        ({**FIELDS, "total_bytes": "80 GiB"}, "total_bytes"),
        ({**FIELDS, "total_bytes": 1.5}, "total_bytes"),
        ({**FIELDS, "grow_s": -1}, "grow_s must be finite and not negative"),
        ({**FIELDS, "shrink_s": None}, "shrink_s"),
        ({"total_bytes": 1, "grow_s": 1}, "shrink_s"),
        (b'{"total_bytes":1,"grow_s":NaN,"shrink_s":1}', "malformed"),
    ],
)
def test_a_file_that_is_no_cost_is_refused_with_its_name_and_the_field(written, content, word):
    path = written(content)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{re.escape(word)}"):
        read_cost(path)


def test_a_missing_cost_file_is_an_os_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        choose_cost(trace(), tmp_path / "nothing.json")


def test_a_named_file_comes_before_the_trace(written):
    path = written(FIELDS)
    assert choose_cost(trace(total_bytes=5), path) == (CostModel(80 << 30, 0.002, 0.001), str(path))
    assert choose_cost(None, str(path)) == (CostModel(80 << 30, 0.002, 0.001), str(path))


def test_without_a_file_the_trace_names_the_memory_and_a_resize_takes_a_millisecond():
    cost, source = choose_cost(trace(total_bytes=5))
    assert cost == CostModel(5, 1e-3, 1e-3)
    assert source == "memory from the trace, resize times assumed"


@pytest.mark.parametrize("given", [None, trace()])
def test_without_either_the_memory_is_that_of_this_machine(given):
    cost, source = choose_cost(given)
    assert cost == CostModel(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 1e-3, 1e-3)
    assert source == "memory of this machine, resize times assumed"


def test_prices_are_written_as_one_line():
    assert format_cost(CostModel(80 << 30, 0.0025, 1e-3)) == "80 GiB, grow 2.5 ms, shrink 1 ms"
