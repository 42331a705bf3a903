from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from reclaim import TraceFormatError
from reclaim.traces import load_requests

LOGS = Path(__file__).parents[3] / "shared" / "data" / "requests" / "azure_llm_2023"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
# Seven digits after the second, Windows line ends, and none after the last line: as in the published files.
LOG = (
    f"{HEADER}\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319601,3180,8\r\n"
    "2023-11-17 00:00:00.0000000,1,0"
)


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "log.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refused(path, at, *words):
    with pytest.raises(TraceFormatError, match="^" + re.escape(f"{path}:{at}: ")) as caught:
        load_requests(path)
    for word in words:
        assert word in str(caught.value)


def test_arrivals_count_from_the_first_to_the_seventh_digit(written):
    requests = load_requests(written(LOG))
    # 04.0319601 - 03.9799600 = 0.0520001 s. To midnight: 5 h 42 min 56.02004 s = 20,576.02004 s.
    assert requests.arrival_s.tolist() == [0.0, 0.0520001, 20576.02004]
    assert requests.prompt_tokens.tolist() == [4808, 3180, 1]
    assert requests.output_tokens.tolist() == [10, 8, 0]
    assert (requests.prompt_tokens.dtype, requests.output_tokens.dtype) == (np.int64, np.int64)
    assert len(requests) == 3


def test_the_first_moment_the_source_and_the_licence_are_kept(written):
    meta = load_requests(written(LOG)).meta
    # 2023-11-16 18:17:03 is 1,700,158,623 s after 1970
    assert meta["origin_ns"] == 1_700_158_623_979_960_000
    assert "Azure LLM inference trace 2023" in meta["source"]
    assert meta["licence"] == "CC-BY-4.0"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\r\n", "\n"),
        lambda text: text + "\r\n",
        lambda text: text + "\r\n\r\n",
        lambda text: "\ufeff" + text,
        lambda text: text.replace("4808", '"4808"'),
    ],
    ids=["unix", "final newline", "empty line", "bom", "quoted"],
)
def test_the_way_it_was_saved_does_not_matter(written, change):
    requests = load_requests(written(change(LOG)))
    assert requests.arrival_s.tolist() == [0.0, 0.0520001, 20576.02004]
    assert requests.prompt_tokens.tolist() == [4808, 3180, 1]


def test_fewer_digits_are_a_shorter_fraction(written):
    log = f"{HEADER}\n2023-11-16 18:17:03,1,1\n2023-11-16 18:17:03.5,1,1\n2023-11-16 18:17:04.25,1,1\n"
    assert load_requests(written(log)).arrival_s.tolist() == [0.0, 0.5, 1.25]


def test_a_log_of_no_requests_is_empty(written):
    assert len(load_requests(written(f"{HEADER}\r\n"))) == 0
    assert len(load_requests(written(HEADER))) == 0


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "18:17:03", "2023-13-01 00:00:00.0", "2023-11-16 18:17:03.x", "2023-11-16 18:17:03+02:00.5"],
)
def test_a_time_that_is_none_is_refused_with_line_and_column(written, text):
    refused(written(f"{HEADER}\n2023-11-16 00:00:00.0,1,1\n{text},1,1\n"), 3, "TIMESTAMP", repr(text))


def test_a_fraction_with_a_sign_is_no_time(written):
    refused(written(f"{HEADER}\n2023-11-16 18:17:03.-5,1,1\n"), 2, "TIMESTAMP")


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "nan", "1e3", " 5", "1_000", "true", "\u0663"])
def test_prompt_tokens_are_at_least_one_whole_token(written, text):
    refused(written(f"{HEADER}\n2023-11-16 00:00:00.0,1,1\n2023-11-16 00:00:00.0,{text},1\n"), 3, "ContextTokens")


@pytest.mark.parametrize("text", ["", "-1", "1.5", "nan", "x"])
def test_output_tokens_are_whole_tokens(written, text):
    refused(written(f"{HEADER}\n2023-11-16 00:00:00.0,1,{text}\n"), 2, "GeneratedTokens", repr(text))


@pytest.mark.parametrize("column", [0, 1], ids=["ContextTokens", "GeneratedTokens"])
def test_a_count_beyond_64_bits_is_refused_with_line_and_column(written, column):
    counts = ["1", "1"]
    counts[column] = "99999999999999999999"
    path = written(f"{HEADER}\n2023-11-16 00:00:00.0,{','.join(counts)}\n")
    refused(path, 2, ("ContextTokens", "GeneratedTokens")[column])


def test_bytes_that_are_no_text_are_a_format_error_that_names_the_file(written):
    path = written(HEADER.encode() + b"\n2023-11-16 00:00:00.0,1\xff,1\n")
    with pytest.raises(TraceFormatError, match=re.escape(str(path))):
        load_requests(path)


@pytest.mark.parametrize(("row", "count"), [("2023-11-16 00:00:00.0,1", 2), ("2023-11-16 00:00:00.0,1,1,1", 4)])
def test_a_row_of_another_length_is_refused_with_its_line(written, row, count):
    refused(written(f"{HEADER}\n2023-11-16 00:00:00.0,1,1\n{row}\n"), 3, f"expected 3 fields, got {count}")


def test_arrivals_out_of_order_are_refused_with_the_line(written):
    log = f"{HEADER}\n2023-11-16 00:00:01.0,1,1\n2023-11-16 00:00:01.0,1,1\n2023-11-16 00:00:00.9,1,1\n"
    refused(written(log), 4, "TIMESTAMP", "before the line above")


def test_further_columns_are_refused_in_the_header(written):
    refused(written(f"{HEADER},Model\n2023-11-16 00:00:01.0,1,1,x\n"), 1, HEADER.replace(",", ", "))


@pytest.mark.parametrize("content", ["", "time,demand\n0,1\n", '{"schema":"reclaim.trace/1"}\n', "TIMESTAMP\n"])
def test_what_is_no_request_log_is_refused_by_name(written, content):
    path = written(content)
    with pytest.raises(TraceFormatError, match=f"^{re.escape(str(path))}: no request log that is known"):
        load_requests(path)


def test_a_missing_file_is_an_os_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_requests(tmp_path / "nothing.csv")


@pytest.mark.parametrize(("name", "count", "prompt"), [("conv", 19_366, 374), ("code", 8_819, 4808)])
def test_the_published_logs_are_read_whole(name, count, prompt):
    path = LOGS / f"AzureLLMInferenceTrace_{name}.csv"
    if not path.exists():
        pytest.skip(f"the published log {path.name} is not beside this checkout")
    requests = load_requests(path)
    assert len(requests) == count
    assert requests.prompt_tokens[0] == prompt
    assert requests.arrival_s[0] == 0.0
    assert 3000 < requests.arrival_s[-1] < 3600
    assert (requests.prompt_tokens >= 1).all()
