from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from math import inf, nan

import numpy as np
import pytest

from reclaim import DemandTrace, TraceExistsError, TraceFormatError, TraceRecorder, WorkspaceStateError
from reclaim.traces import TraceWarning


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def load(path):
    return DemandTrace.load(path)


def load_torn(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return DemandTrace.load(path)


def test_what_is_appended_is_loaded(path):
    with TraceRecorder(path, floor_bytes=64, device="cpu") as recorder:
        recorder.append(100.0, 0.5, 2**31)
        recorder.append(101.0, 0.25, 2**32 + 1, 5 * 2**40, 7, "grew")
        recorder.append(103.5, 0.0, 0, None, 8)
    trace = load(path)
    assert trace.time_s.tolist() == [0.0, 1.0, 3.5]
    assert trace.duration_s.tolist() == [0.5, 0.25, 0.0]
    assert trace.demand_bytes.tolist() == [2**31, 2**32 + 1, 0]
    assert trace.capacity_bytes.tolist() == [-1, 5 * 2**40, -1]
    assert trace.reserved_bytes.tolist() == [-1, 7, 8]
    assert trace.event == (None, "grew", None)
    assert (trace.floor_bytes, trace.meta["device"], trace.meta["clock"]) == (64, "cpu", "monotonic")


def test_the_first_time_becomes_zero_and_the_header_keeps_it(path):
    with TraceRecorder(path) as recorder:
        recorder.append(12.25, 0.5, 1)
        recorder.append(12.75, 0.5, 1)
    trace = load(path)
    assert trace.time_s.tolist() == [0.0, 0.5]
    assert trace.meta["origin_ns"] == 12_250_000_000
    assert abs(trace.meta["wall_time_s"] - time.time()) < 3600


def test_a_clock_that_starts_below_zero_is_one_too(path):
    with TraceRecorder(path) as recorder:
        recorder.append(-2.0, 0.5, 1)
        recorder.append(-1.5, 0.5, 1)
    assert load(path).time_s.tolist() == [0.0, 0.5]


def test_a_jump_of_the_wall_clock_does_not_matter(path, monkeypatch):
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with TraceRecorder(path) as recorder:
        for index in range(5):
            recorder.append(50.0 + index, 0.5, index)
            now[0] -= 3600
    trace = load(path)
    assert trace.time_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert trace.duration_s.tolist() == [0.5] * 5
    assert trace.meta["wall_time_s"] == 1_700_000_000.0  # the moment of the first forward, once


def test_an_existing_file_is_refused_and_left_alone(path):
    path.write_text("precious")
    with pytest.raises(TraceExistsError, match=r"run\.jsonl exists: choose another name, or pass overwrite=True"):
        TraceRecorder(path)
    assert path.read_text() == "precious"
    with pytest.raises(FileExistsError):
        TraceRecorder(path)


def test_an_existing_file_is_overwritten_when_asked(path):
    path.write_text("old" * 1000)
    with TraceRecorder(path, overwrite=True) as recorder:
        recorder.append(0.0, 1.0, 5)
    assert load(path).demand_bytes.tolist() == [5]


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.npz", "run", "run.json"])
def test_only_plain_json_lines_can_be_recorded(tmp_path, name):
    with pytest.raises(TraceFormatError, match=r"a recording is plain \.jsonl"):
        TraceRecorder(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        TraceRecorder(tmp_path / "nowhere" / "run.jsonl")


def test_a_recording_of_nothing_is_an_empty_trace(path):
    with TraceRecorder(path, floor_bytes=9):
        pass
    assert len(load(path)) == 0
    assert load(path).floor_bytes == 9


def test_what_is_described_later_stands_in_the_header_unless_said_before(path):
    with TraceRecorder(path, device="mine") as recorder:
        recorder.describe(floor_bytes=64, device="theirs")
        recorder.append(0.0, 1.0, 1)
        recorder.describe(source="too late")
    assert load(path).meta["floor_bytes"] == 64
    assert load(path).meta["device"] == "mine"
    assert "source" not in load(path).meta


def test_appending_after_the_end_is_refused(path):
    recorder = TraceRecorder(path)
    recorder.append(0.0, 1.0, 1)
    assert not recorder.closed
    recorder.close()
    assert recorder.closed
    with pytest.raises(WorkspaceStateError, match=r"run\.jsonl is closed"):
        recorder.append(1.0, 1.0, 1)
    recorder.close()
    assert len(load(path)) == 1


def test_appending_after_the_end_of_an_empty_recording_is_refused(path):
    recorder = TraceRecorder(path)
    recorder.close()
    with pytest.raises(WorkspaceStateError, match="closed"):
        recorder.append(1.0, 1.0, 1)


def test_the_end_of_the_with_block_closes_also_after_an_exception(path):
    def fail():
        with TraceRecorder(path) as recorder:
            recorder.append(0.0, 1.0, 1)
            recorder.append(0.1, 1.0, 2)
            raise RuntimeError("engine died")

    with pytest.raises(RuntimeError, match="engine died"):
        fail()
    assert load(path).demand_bytes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("time_s", "duration_s", "demand"),
    [
        (0.5, -1e-9, 1),
        (0.5, nan, 1),
        (0.5, 0.1, -1),
        (-0.1, 0.1, 1),
        (nan, 0.1, 1),
        (inf, 0.1, 1),
        (0.5, inf, 1),
        (0.5, 0.1, -(2**70)),
    ],
)
def test_a_time_or_size_that_is_none_is_refused_and_the_rest_goes_on(path, time_s, duration_s, demand):
    with TraceRecorder(path) as recorder:
        recorder.append(0.0, 0.1, 1)
        with pytest.raises(ValueError, match="cannot record"):
            recorder.append(time_s, duration_s, demand)
        recorder.append(1.0, 0.1, 2)
    assert load(path).demand_bytes.tolist() == [1, 2]


@pytest.mark.parametrize("column", ["capacity_bytes", "reserved_bytes"])
def test_a_negative_capacity_or_reserve_is_refused(path, column):
    with TraceRecorder(path) as recorder:
        recorder.append(0.0, 0.1, 1)
        with pytest.raises(ValueError, match="cannot record"):
            recorder.append(0.5, 0.1, 1, **{column: -1})
    assert len(load(path)) == 1


def test_a_time_before_the_last_is_refused_since_no_trace_could_hold_it(path):
    with TraceRecorder(path) as recorder:
        recorder.append(10.0, 0.1, 1)
        recorder.append(12.0, 0.1, 2)
        with pytest.raises(ValueError, match="cannot record time_s=11"):
            recorder.append(11.0, 0.1, 3)
        recorder.append(13.0, 0.1, 4)
    assert load(path).demand_bytes.tolist() == [1, 2, 4]


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_first_time_that_is_none_does_not_spoil_the_recording(path, bad):
    with TraceRecorder(path) as recorder:
        with pytest.raises(ValueError, match="cannot record"):
            recorder.append(bad, 0.1, 1)
        recorder.append(5.0, 0.1, 2)
    assert load(path).demand_bytes.tolist() == [2]


@pytest.mark.parametrize("demand", [1.5, True, "12"])
def test_a_demand_that_is_no_integer_never_reaches_the_file(path, demand):
    with TraceRecorder(path) as recorder:
        recorder.append(0.0, 0.1, 1)
        with pytest.raises((ValueError, TypeError)):
            recorder.append(0.5, 0.1, demand)
        recorder.append(1.0, 0.1, 2)
    assert load(path).demand_bytes.tolist() == [1, 2]


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64])
def test_integers_and_times_of_numpy_are_recorded(path, kind):
    with TraceRecorder(path) as recorder:
        recorder.append(np.float64(1.0), np.float64(0.5), kind(2**31 - 1), kind(2**31 - 1))
    assert load(path).demand_bytes.tolist() == load(path).capacity_bytes.tolist() == [2**31 - 1]


def test_the_file_is_a_trace_from_the_first_forward_on(path):
    recorder = TraceRecorder(path, floor_bytes=3)
    recorder.append(7.0, 0.1, 1)
    assert load(path).demand_bytes.tolist() == [1]
    recorder.close()


def test_a_recording_without_a_forward_yet_is_a_trace_too(path):
    recorder = TraceRecorder(path, floor_bytes=3)
    try:
        recorder.flush()
        assert len(load(path)) == 0
    finally:
        recorder.close()


def test_lines_are_handed_over_once_a_second_of_recorded_time(path):
    with TraceRecorder(path) as recorder:
        for index in range(11):
            recorder.append(index / 8, 0.1, index)
        # handed over at 0 s and at 1 s (the ninth); those at 1.125 and 1.25 s wait
        assert load(path).demand_bytes.tolist() == list(range(9))


def test_lines_are_handed_over_every_128_forwards_also_while_time_stands_still(path):
    with TraceRecorder(path) as recorder:
        for index in range(1000):
            recorder.append(0.0, 0.0, index)
            assert len(load(path)) > index - 128 if index % 50 == 0 else True
        assert len(load(path)) < 1000
    assert len(load(path)) == 1000


def test_flush_hands_over_everything(path):
    with TraceRecorder(path, flush_s=1e9) as recorder:
        for index in range(5):
            recorder.append(index, 0.1, index)
        recorder.flush()
        assert len(load(path)) == 5
        recorder.flush()


def test_a_full_disk_is_an_os_error_and_leaves_what_fitted(path):
    def fill(recorder):
        for index in range(1000):
            recorder.append(float(index), 0.5, index)

    recorder = TraceRecorder(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            fill(recorder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # there is room again, but nothing may follow a line that was cut
    size = path.stat().st_size
    with contextlib.suppress(OSError, ValueError, WorkspaceStateError):
        recorder.append(2000.0, 0.5, 2000)
        recorder.flush()
    with contextlib.suppress(OSError, ValueError):
        recorder.close()
    assert recorder.closed
    assert path.stat().st_size == size
    trace = load_torn(path)
    assert len(trace) > 30
    assert trace.demand_bytes.tolist() == list(range(len(trace)))


def test_a_header_that_cannot_be_written_is_refused_before_there_is_a_file(path):
    with pytest.raises(TraceFormatError, match=r"run\.jsonl"):
        TraceRecorder(path, device=object())
    assert not path.exists()


def test_a_forgotten_recorder_writes_the_rest(path):
    recorder = TraceRecorder(path)
    for index in range(5):
        recorder.append(index / 100, 0.0, index)
    del recorder
    gc.collect()
    assert len(load(path)) == 5


SCRIPT = """
import os, sys, time
from reclaim.traces import TraceRecorder
recorder = TraceRecorder(sys.argv[1], floor_bytes=64)
for index in range(int(sys.argv[2])):
    recorder.append(1000 + index / 1000, 0.0005, index)
print("recorded", flush=True)
"""


def test_the_end_of_the_interpreter_loses_nothing(path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, path, "777"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert load(path).demand_bytes.tolist() == list(range(777))


def test_an_exception_that_ends_the_interpreter_loses_nothing(path):
    code = SCRIPT + "raise RuntimeError('engine died')"
    done = subprocess.run([sys.executable, "-c", code, path, "777"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert load(path).demand_bytes.tolist() == list(range(777))


def test_the_end_of_the_interpreter_before_the_first_forward_leaves_an_empty_trace(path):
    subprocess.run([sys.executable, "-c", SCRIPT, path, "0"], capture_output=True, text=True, check=True)
    assert len(load(path)) == 0
    assert load(path).floor_bytes == 64


def test_a_forked_child_writes_nothing(path):
    code = SCRIPT + "os.fork() and os.wait()\n"
    subprocess.run([sys.executable, "-c", code, path, "50"], capture_output=True, text=True, check=True)
    assert load(path).demand_bytes.tolist() == list(range(50))


def test_a_killed_process_leaves_all_but_the_last_second(path):
    code = SCRIPT + "time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, path, "3500"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "recorded\n"
        process.kill()
    trace = load_torn(path)
    # 3500 forwards a millisecond apart; at most 1,000 of them lie in the second that was not handed over
    assert 2500 <= len(trace) <= 3500
    assert trace.demand_bytes.tolist() == list(range(len(trace)))
    assert trace.floor_bytes == 64


def test_a_process_killed_while_it_writes_leaves_a_prefix(path):
    code = SCRIPT.replace("print(", "    index or print(")
    with subprocess.Popen([sys.executable, "-c", code, path, "10000000"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "recorded\n"
        for _ in range(1000):
            if path.stat().st_size > 200_000:
                break
            time.sleep(0.01)
        process.kill()
    trace = load_torn(path)
    assert len(trace) > 100
    assert trace.demand_bytes.tolist() == list(range(len(trace)))


def test_a_recording_cut_at_any_byte_is_a_prefix(path, tmp_path):
    with TraceRecorder(path) as recorder:
        for index in range(4):
            recorder.append(index, 0.1, 10 + index, 100, event="shrank" if index else None)
    content = path.read_bytes()
    for end in range(content.index(b"\n"), len(content) + 1):
        (tmp_path / "cut.jsonl").write_bytes(content[:end])
        trace = load_torn(tmp_path / "cut.jsonl")
        assert trace.demand_bytes.tolist() == [10, 11, 12, 13][: len(trace)]
        assert len(trace) >= content[:end].count(b"\n") - 1


def test_every_line_is_json_of_its_own(path):
    with TraceRecorder(path) as recorder:
        recorder.append(0.0, 0.5, 7)
        recorder.append(1.0, 0.5, 8, event='quote " and \n line')
    header, *forwards = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["schema"] == "reclaim.trace/1"
    assert forwards[0] == {"time_s": 0.0, "demand_bytes": 7, "duration_s": 0.5}
    assert load(path).event == (None, 'quote " and \n line')
