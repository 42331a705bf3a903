from __future__ import annotations

import gzip
import json
import os
import re
import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import DemandTrace, TraceFormatError
from reclaim.traces import TraceWarning, load

HEADER = '{"schema":"reclaim.trace/1","floor_bytes":64}'
FIRST = '{"time_s":0.0,"demand_bytes":100,"duration_s":0.5}'
SECOND = '{"time_s":1.0,"demand_bytes":200,"duration_s":0.5}'
SIZES = [2**31 - 1, 2**31, 2**32 + 1, 5 * 2**40, 2**63 - 1, 0]


@pytest.fixture
def written(tmp_path):
    """written(*lines): a file of these lines, or of these bytes."""

    def write(*lines, end="\n", name="t.jsonl"):
        content = lines[0] if isinstance(lines[0], bytes) else ("\n".join(lines) + end).encode()
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def line(**fields):
    return json.dumps({"time_s": 1.0, "demand_bytes": 1, **fields})


def same(one, other):
    for name in ("time_s", "duration_s", "demand_bytes", "capacity_bytes", "reserved_bytes"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or (mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist()), name
    assert one.event == other.event
    assert one.meta == other.meta


def refused(path, at, *words):
    """load(path) names file, line and every one of the words."""
    with pytest.raises(TraceFormatError, match="^" + re.escape(f"{path}:{at}: ")) as caught:
        load(path)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_a_trace_comes_back_exactly(tmp_path, ending):
    trace = DemandTrace(
        time_s=[0.0, 0.1, 1 / 3, 1e-9 + 1, 2.5e6, 2.5e6],
        duration_s=[1e-9, 0.1, 0.0, 7.0, 1 / 7, 3e8],
        demand_bytes=SIZES,
        capacity_bytes=[-1, *SIZES[1:]],
        reserved_bytes=[*SIZES[:-1], -1],
        event=["grew", None, "pass:graph", "grew,aborted", "größer \u2192 \U0001f600", None],
        meta={"floor_bytes": 2**40, "device": "cpu", "anything": {"nested": [1, 2.5, None, "x"]}},
    )
    trace.save(tmp_path / f"t.{ending}")
    same(load(tmp_path / f"t.{ending}"), trace)


def test_32_bit_columns_come_back_exactly(tmp_path):
    trace = DemandTrace(time_s=np.arange(3, dtype=np.int32), demand_bytes=np.array([0, 7, 2**31 - 1], dtype=np.int32))
    trace.save(tmp_path / "t.jsonl")
    same(load(tmp_path / "t.jsonl"), trace)


def test_an_empty_trace_comes_back(tmp_path):
    trace = DemandTrace(time_s=[], demand_bytes=[], meta={"source": "nobody"})
    trace.save(tmp_path / "t.jsonl")
    same(load(tmp_path / "t.jsonl"), trace)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e9), st.floats(0, 1e9), st.integers(0, 2**63 - 1), st.sampled_from([None, "grew", "shrank"])
        ),
        max_size=8,
    )
)
@settings(deadline=None)
def test_every_trace_comes_back_exactly(tmp_path_factory, rows):
    rows.sort(key=lambda row: row[0])
    times, durations, demands, events = zip(*rows, strict=True) if rows else ([], [], [], [])
    trace = DemandTrace(
        time_s=times, duration_s=durations, demand_bytes=np.array(demands, dtype=np.int64), event=events
    )
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    trace.save(path)
    same(load(path), trace)


def test_the_same_trace_gives_the_same_file(tmp_path):
    trace = DemandTrace(time_s=[0, 1], demand_bytes=[1, 2])
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        trace.save(tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_the_file_is_a_header_and_one_object_a_forward(tmp_path):
    DemandTrace(
        time_s=[0, 1], duration_s=[0.5, 0.5], demand_bytes=[7, 8], capacity_bytes=[-1, 9], meta={"floor_bytes": 3}
    ).save(tmp_path / "t.jsonl")
    content = (tmp_path / "t.jsonl").read_text()
    assert content.endswith("\n")
    assert [json.loads(text) for text in content.splitlines()] == [
        {"schema": "reclaim.trace/1", "floor_bytes": 3},
        {"time_s": 0.0, "demand_bytes": 7, "duration_s": 0.5},
        {"time_s": 1.0, "demand_bytes": 8, "duration_s": 0.5, "capacity_bytes": 9},
    ]


def test_only_the_time_and_the_demand_of_a_forward_are_needed(written):
    # gaps 1 and 3, median 2; the durations that are given stay
    trace = load(
        written(
            HEADER,
            '{"time_s":0,"demand_bytes":1}',
            '{"time_s":1,"demand_bytes":2,"duration_s":0.25}',
            '{"time_s":4,"demand_bytes":3}',
        )
    )
    assert trace.duration_s.tolist() == [1.0, 0.25, 2.0]
    assert (trace.capacity_bytes, trace.reserved_bytes, trace.event) == (None, None, None)


def test_forwards_without_a_sample_are_minus_one(written):
    trace = load(written(HEADER, line(capacity_bytes=5), line(reserved_bytes=6), line(capacity_bytes=None)))
    assert trace.capacity_bytes.tolist() == [5, -1, -1]
    assert trace.reserved_bytes.tolist() == [-1, 6, -1]


def test_unknown_fields_of_a_forward_are_ignored_and_those_of_the_header_kept(written):
    trace = load(written('{"schema":"reclaim.trace/1","rank":[1,2]}', line(batch=4, demand_bytes=9)))
    assert trace.demand_bytes.tolist() == [9]
    assert trace.meta == {"rank": [1, 2]}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "-1", "1.5", "1.0", "true", '"12"', "null", "[1]"])
@pytest.mark.parametrize("at", [2, 3])
def test_a_demand_that_is_no_size_is_refused_with_line_and_field(written, value, at):
    bad = f'{{"time_s":1.0,"demand_bytes":{value}}}'
    refused(written(HEADER, *[FIRST, bad, SECOND][3 - at :]), at, "demand_bytes")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "-1e-9", "1e400", "true", '"12"', "null"])
def test_a_time_that_is_none_is_refused_with_line_and_field(written, value):
    refused(written(HEADER, FIRST, f'{{"demand_bytes":1,"time_s":{value}}}', SECOND), 3, "time_s")


@pytest.mark.parametrize("field", ["capacity_bytes", "reserved_bytes", "duration_s"])
@pytest.mark.parametrize("value", [-1, True, "12"])
def test_an_optional_field_is_checked_too(written, field, value):
    refused(written(HEADER, FIRST, line(**{field: value}), SECOND), 3, field)


def test_an_event_is_text(written):
    refused(written(HEADER, line(event=5)), 2, "event")


@pytest.mark.parametrize("field", ["time_s", "demand_bytes"])
def test_a_missing_field_is_named(written, field):
    fields = {"time_s": 1.0, "demand_bytes": 1}
    del fields[field]
    refused(written(HEADER, FIRST, json.dumps(fields)), 3, field)


def test_a_size_beyond_64_bits_is_refused(written):
    refused(written(HEADER, line(demand_bytes=2**63)), 2, "demand_bytes")
    refused(written(HEADER, line(demand_bytes=2**64 - 1)), 2, "demand_bytes")
    refused(written(HEADER, line(demand_bytes=10**30)), 2, "demand_bytes")


@pytest.mark.parametrize("bad", ["[1, 2]", "7", "{}", "{", '{"time_s":1.0,"demand_bytes":2', "x", FIRST + SECOND])
def test_a_bad_line_that_is_not_the_last_is_an_error(written, bad):
    refused(written(HEADER, FIRST, bad, SECOND), 3)


@pytest.mark.parametrize("bad", ["[1, 2]", '{"time_s":1.0,"demand_by', "x"])
def test_a_bad_last_line_that_has_its_line_end_is_an_error(written, bad):
    refused(written(HEADER, FIRST, bad), 3)


def test_an_empty_line_in_the_middle_is_an_error(written):
    refused(written(HEADER, FIRST, "", SECOND), 3, "empty line")


def test_empty_lines_at_the_end_are_harmless(written):
    assert len(load(written(HEADER, FIRST, "", "  ", ""))) == 1


def test_bytes_that_are_no_text_are_refused_with_the_line(written):
    refused(written(f'{HEADER}\n{{"time_s":0,"demand_bytes":1,"event":"'.encode() + b'\xff"}\n'), 2)


def test_a_torn_last_line_is_dropped_with_a_warning(written):
    path = written(HEADER, FIRST, SECOND, '{"time_s":2.0,"demand_byt', end="")
    with pytest.warns(TraceWarning, match=re.escape(f"{path}:4: dropped a torn last line")):
        trace = load(path)
    assert trace.demand_bytes.tolist() == [100, 200]
    assert trace.meta == {"floor_bytes": 64}


def test_a_torn_last_line_after_empty_ones_is_named_by_its_own_number(written):
    path = written(HEADER, FIRST, "", "", '{"time_s":2.0,"demand_byt', end="")
    with pytest.warns(TraceWarning, match=re.escape(f"{path}:5: ")):
        load(path)


def test_a_file_cut_anywhere_after_the_header_keeps_every_whole_line(written):
    whole = f"{HEADER}\n{FIRST}\n{SECOND}\n".encode()
    for end in range(len(HEADER), len(whole) + 1):
        cut = whole[:end]
        whole_lines = sum(cut.startswith(whole[: len(f"{HEADER}\n{x}")]) for x in (FIRST, f"{FIRST}\n{SECOND}"))
        torn = cut.rpartition(b"\n")[2] not in (b"", HEADER.encode(), FIRST.encode(), SECOND.encode())
        path = written(cut)
        if torn:
            with pytest.warns(TraceWarning, match="torn last line"):
                trace = load(path)
        else:
            trace = load(path)
        assert trace.demand_bytes.tolist() == [100, 200][:whole_lines]


def test_a_torn_character_is_torn_too(written):
    cut = f'{HEADER}\n{FIRST}\n{{"time_s":1,"demand_bytes":2,"event":"\u2192'.encode()[:-1]
    with pytest.warns(TraceWarning):
        assert len(load(written(cut))) == 1


def test_a_last_line_without_a_line_end_that_is_whole_is_kept(written):
    assert load(written(HEADER, FIRST, SECOND, end="")).demand_bytes.tolist() == [100, 200]


def test_a_last_line_without_a_line_end_that_is_whole_but_wrong_is_an_error(written):
    # a cut never ends in a whole object, so that this one was not torn: -1 must not pass as an accident
    refused(written(HEADER, FIRST, '{"time_s":1.0,"demand_bytes":-1}', end=""), 3, "demand_bytes")


def test_times_out_of_order_are_named_with_the_line(written):
    refused(written(HEADER, FIRST, SECOND, line(time_s=0.5)), 4, "time_s", "0.5", "1.0")
    refused(written(HEADER, FIRST, SECOND, line(time_s=0.5), end=""), 4, "time_s")


def test_equal_times_are_in_order(written):
    assert len(load(written(HEADER, SECOND, SECOND))) == 2


def test_a_bom_in_front_is_no_part_of_the_header(written):
    path = written(b"\xef\xbb\xbf" + f"{HEADER}\n{FIRST}\n".encode())
    assert load(path).floor_bytes == 64
    assert load(written(gzip.compress(path.read_bytes()))).floor_bytes == 64


def test_windows_line_ends_are_line_ends(written):
    trace = load(written(f"{HEADER}\r\n{FIRST}\r\n{SECOND}\r\n\r\n".encode()))
    assert trace.demand_bytes.tolist() == [100, 200]
    assert load(written(f"{HEADER}\r\n{FIRST}\r\n{SECOND}".encode())).demand_bytes.tolist() == [100, 200]


def test_gzip_is_told_by_its_first_bytes_not_by_the_name(written):
    content = f"{HEADER}\n{FIRST}\n".encode()
    assert len(load(written(gzip.compress(content), name="packed.jsonl"))) == 1
    assert len(load(written(content, name="plain.jsonl.gz"))) == 1


def test_a_gzip_file_cut_anywhere_is_refused_by_name(written):
    whole = gzip.compress(f"{HEADER}\n{FIRST}\n".encode())
    for end in range(2, len(whole)):
        path = written(whole[:end], name="t.jsonl.gz")
        with pytest.raises(TraceFormatError, match=f"^{re.escape(str(path))}: damaged gzip file"):
            load(path)


def test_a_gzip_file_with_flipped_or_added_bytes_is_refused(written):
    whole = bytearray(gzip.compress(f"{HEADER}\n{FIRST}\n".encode()))
    with pytest.raises(TraceFormatError, match="damaged gzip file"):
        load(written(bytes(whole) + b"trailing"))
    whole[-5] ^= 1  # in the checksum
    with pytest.raises(TraceFormatError, match="damaged gzip file"):
        load(written(bytes(whole)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file; a trace begins with a header line"),
        (b"\n\n", "empty file"),
        (b"\xef\xbb\xbf", "empty file"),
        (f"{FIRST}\n{SECOND}\n".encode(), ":1: no trace header"),
        (b"[]\n", ":1: no trace header"),
        (b'"schema"\n', ":1: no trace header"),
        (b"time,demand\n0,1\n", ":1: the header is not JSON"),
        (b"\x00\x01\x02", ":1: the header is not JSON"),
        (b'{"schema":"\xff"}\n', ":1: the header is not JSON"),
        (HEADER.encode()[:20], ":1: the header is not JSON"),
    ],
)
def test_what_has_no_header_is_refused(written, content, message):
    path = written(content)
    with pytest.raises(TraceFormatError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize("schema", ['"reclaim.trace/2"', '"other"', "1", "null"])
def test_another_schema_is_refused_with_the_one_that_is_read(written, schema):
    refused(written(f'{{"schema":{schema}}}', FIRST), 1, "this version reads 'reclaim.trace/1'")


@pytest.mark.parametrize("field", ["floor_bytes", "start_bytes", "granule_bytes", "total_bytes"])
@pytest.mark.parametrize("value", ["-1", "1.5", "true", '"12"', "NaN"])
def test_a_size_in_the_header_is_checked(written, field, value):
    refused(written(f'{{"schema":"reclaim.trace/1","{field}":{value}}}', FIRST), 1)


@pytest.mark.parametrize("field", ["granule_bytes", "total_bytes"])
def test_what_is_divided_by_is_never_zero(written, field):
    refused(written(f'{{"schema":"reclaim.trace/1","{field}":0}}', FIRST), 1, field)


def test_what_the_meta_does_not_know_is_left_out_of_the_header(tmp_path):
    DemandTrace(time_s=[0], demand_bytes=[1], meta={"floor_bytes": None, "device": "cpu"}).save(tmp_path / "t.jsonl")
    assert load(tmp_path / "t.jsonl").meta == {"device": "cpu"}


def test_a_meta_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "t.jsonl"
    DemandTrace(time_s=[0], demand_bytes=[1]).save(path)
    before = path.read_bytes()
    with pytest.raises(TraceFormatError, match="header cannot hold"):
        DemandTrace(time_s=[0], demand_bytes=[2], meta={"source": object()}).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t.jsonl"]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.npz"])
@pytest.mark.parametrize("existed", [False, True])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, name, existed):
    rng = np.random.default_rng(0)
    trace = DemandTrace(time_s=np.arange(3000.0), demand_bytes=rng.integers(0, 2**60, 3000))
    small = DemandTrace(time_s=[0], demand_bytes=[1])
    path = tmp_path / name
    if existed:
        small.save(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            trace.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == [name] * existed
    if existed:
        same(load(path), small)


def test_a_request_log_is_no_trace_and_says_what_to_do(written):
    path = written(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    with pytest.raises(TraceFormatError, match=r"this is a request log, not a trace: .*'reclaim workload'"):
        load(path)
