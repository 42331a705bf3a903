from __future__ import annotations

import json
import re
import zipfile

import numpy as np
import pytest

from reclaim import DemandTrace, TraceFormatError
from reclaim.traces import load

SIZES = [2**31 - 1, 2**31, 2**32 + 1, 5 * 2**40, 2**63 - 1, 0]


def arrays(**changed):
    """A valid archive's arrays; None leaves one out."""
    header = json.dumps({"schema": "reclaim.trace/1", "floor_bytes": 64}).encode()
    whole = {
        "header": np.frombuffer(header, np.uint8),
        "time_s": np.array([0.0, 1.0]),
        "duration_s": np.array([0.5, 0.5]),
        "demand_bytes": np.array([100, 200]),
        **changed,
    }
    return {name: array for name, array in whole.items() if array is not None}


@pytest.fixture
def archive(tmp_path):
    """archive(**changed): a file with these arrays."""

    def write(**changed):
        np.savez(tmp_path / "t.npz", **arrays(**changed))
        return tmp_path / "t.npz"

    return write


def refused(path, message):
    with pytest.raises(TraceFormatError, match=f"^{re.escape(str(path))}: .*{message}"):
        load(path)


def test_a_trace_comes_back_exactly(tmp_path):
    trace = DemandTrace(
        time_s=[0.0, 0.1, 1 / 3, 1e-9 + 1, 2.5e6, 2.5e6],
        duration_s=[1e-9, 0.1, 0.0, 7.0, 1 / 7, 3e8],
        demand_bytes=SIZES,
        capacity_bytes=[-1, *SIZES[1:]],
        reserved_bytes=[*SIZES[:-1], -1],
        event=["grew", None, "pass:graph", "grew,aborted", "größer \u2192 \U0001f600", None],
        meta={"floor_bytes": 2**40, "anything": {"nested": [1, 2.5, None, "x"]}},
    )
    trace.save(tmp_path / "t.npz")
    back = load(tmp_path / "t.npz")
    for name in ("time_s", "duration_s", "demand_bytes", "capacity_bytes", "reserved_bytes"):
        assert getattr(back, name).dtype == getattr(trace, name).dtype
        assert getattr(back, name).tolist() == getattr(trace, name).tolist()
    assert back.event == trace.event
    assert back.meta == trace.meta


@pytest.mark.parametrize("times", [[], [0.0, 1.0]])
def test_columns_that_are_not_there_stay_absent(tmp_path, times):
    DemandTrace(time_s=times, demand_bytes=[1] * len(times)).save(tmp_path / "t.npz")
    back = load(tmp_path / "t.npz")
    assert len(back) == len(times)
    assert (back.capacity_bytes, back.reserved_bytes, back.event, back.meta) == (None, None, None, {})


def test_32_bit_arrays_are_read_as_exact_64_bit_ones(archive):
    back = load(archive(demand_bytes=np.array([7, 2**31 - 1], dtype=np.int32), time_s=np.array([0, 1], np.int32)))
    assert back.demand_bytes.dtype == np.int64
    assert back.demand_bytes.tolist() == [7, 2**31 - 1]


def test_the_archive_holds_the_columns_by_name_and_the_header_as_json(tmp_path):
    DemandTrace(time_s=[0], demand_bytes=[7], meta={"device": "cpu"}).save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz", allow_pickle=False) as found:
        assert set(found.files) == {"header", "time_s", "duration_s", "demand_bytes"}
        assert json.loads(found["header"].tobytes()) == {"schema": "reclaim.trace/1", "device": "cpu"}


@pytest.mark.parametrize("name", ["header", "time_s", "duration_s", "demand_bytes"])
def test_an_archive_without_a_needed_array_is_refused_by_name(archive, name):
    refused(archive(**{name: None}), f"the archive has no array '{name}'")


@pytest.mark.parametrize("name", ["demand_bytes", "event", "header", "extra"])
def test_a_pickle_is_never_opened(tmp_path, archive, name):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    refused(archive(**{name: np.array([Bomb(), Bomb()], dtype=object)}), "damaged npz file")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"demand_bytes": np.array([1.0, 2.0])}, "demand_bytes must hold integers"),
        ({"demand_bytes": np.array([1, -1])}, r"demand_bytes\[1\] = -1"),
        ({"demand_bytes": np.array([1, 2**63], np.uint64)}, r"demand_bytes\[1\] = 9223372036854775808"),
        ({"demand_bytes": np.array([True, True])}, "demand_bytes must hold integers"),
        ({"demand_bytes": np.array([1])}, "demand_bytes has 1 entries, time_s has 2"),
        ({"demand_bytes": np.array(1)}, "demand_bytes must be one-dimensional"),
        ({"time_s": np.array([0.0, np.nan])}, r"time_s\[1\] = nan"),
        ({"time_s": np.array([1.0, 0.0])}, r"time_s\[1\] = 0.0 is before"),
        ({"duration_s": np.array([0.0, np.inf])}, r"duration_s\[1\] = inf"),
        ({"capacity_bytes": np.array([1])}, "capacity_bytes has 1 entries"),
        ({"event": np.array(["grew"])}, "event has 1 entries"),
        ({"event": np.array("grew")}, "event"),
        ({"header": np.frombuffer(b"not json", np.uint8)}, "header: not JSON"),
        ({"header": np.frombuffer(b'{"schema":"x"}', np.uint8)}, "header: schema is 'x'"),
        ({"header": np.frombuffer(b"[]", np.uint8)}, "header: no trace header"),
        ({"header": np.array([1.5, 2.5])}, "header: not JSON"),
    ],
)
def test_arrays_that_are_no_trace_are_refused_with_file_and_field(archive, changed, message):
    refused(archive(**changed), message)


def test_an_event_of_no_text_is_no_event(archive):
    assert load(archive(event=np.array(["", "grew"]))).event == (None, "grew")


@pytest.mark.parametrize("keep", [4, 30, 0.5, 0.99])
def test_a_truncated_archive_is_refused(tmp_path, keep):
    path = tmp_path / "t.npz"
    DemandTrace(time_s=np.arange(100.0), demand_bytes=np.arange(100)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    refused(path, "damaged npz file")


def test_an_archive_with_a_flipped_byte_is_refused(archive):
    path = archive()
    with zipfile.ZipFile(path) as file:
        offset = file.getinfo("demand_bytes.npy").header_offset
    content = bytearray(path.read_bytes())
    place = content.index(np.array([100, 200]).tobytes(), offset)
    content[place] ^= 1
    path.write_bytes(bytes(content))
    refused(path, "damaged npz file")


def test_any_other_zip_file_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(TraceFormatError, match=r"t\.zip"):
        load(tmp_path / "t.zip")
