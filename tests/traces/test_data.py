from __future__ import annotations

import re
from pathlib import Path

import pytest

from reclaim import TraceFormatError
from reclaim.traces import bundled, bundled_path, load, load_requests
from reclaim.traces.serving import demand_trace

LOGS = Path(__file__).parents[3] / "shared" / "data" / "requests" / "azure_llm_2023"
README = Path(__file__).parents[2] / "traces" / "data" / "README.md"
MIB = 1 << 20
TRACES = {"azure-code": 21_830, "azure-conv": 26_709}  # forwards, as the README says


@pytest.fixture(scope="module", params=sorted(TRACES))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def trace(name):
    return bundled(name)


def test_the_bundled_traces_load(name, trace):
    assert len(trace) == TRACES[name]
    assert load(bundled_path(name)).demand_bytes.tolist() == trace.demand_bytes.tolist()
    assert (trace.demand_bytes > 0).all()
    assert (trace.duration_s > 0).all()


def test_the_header_says_source_licence_and_how_it_was_made(trace):
    assert "Azure LLM inference trace 2023" in trace.meta["source"]
    assert trace.meta["licence"] == "CC-BY-4.0"
    assert trace.meta["workload"]["demand"]["formula"] == "fused-moe"
    assert trace.meta["workload"]["scheduler"]["token_budget"] == 8192
    # one full decode batch of 256 tokens at 172,032 B: 42 MiB; a device of 80 GiB
    assert trace.floor_bytes == 256 * 172_032 == 42 * MIB
    assert trace.meta["total_bytes"] == 80 << 30


def test_no_forward_exceeds_the_token_budget(trace):
    assert trace.demand_bytes.max() == 8192 * 172_032
    assert (trace.demand_bytes % 172_032 == 0).all()


def test_every_bundled_file_is_one_that_is_named():
    files = {path.name.removesuffix(".jsonl.gz") for path in bundled_path("azure-code").parent.glob("*.jsonl.gz")}
    assert files == set(TRACES)


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(TraceFormatError, match="no bundled trace 'azure'; there are: azure-code, azure-conv"):
        bundled("azure")


def test_the_readme_gives_the_figures_of_each_trace(name, trace):
    row = next(line for line in README.read_text().splitlines() if line.startswith(f"| `{name}`"))
    forwards, span, demand = [cell.strip() for cell in row.split("|")[2:5]]
    summary = trace.summary()
    assert int(forwards.replace(",", "")) == summary.forwards
    assert int(span.removesuffix(" min")) == round(summary.span_s / 60)
    median, largest = re.fullmatch(r"([\d.]+) MiB, ([\d.]+) GiB", demand).groups()
    assert float(median) == pytest.approx(summary.median_bytes / MIB, abs=0.05)
    assert float(largest) == pytest.approx(summary.max_bytes / (1024 * MIB), abs=0.005)


def test_a_bundled_trace_is_what_its_log_gives_today(name, trace):
    path = LOGS / f"AzureLLMInferenceTrace_{name.removeprefix('azure-')}.csv"
    if not path.exists():
        pytest.skip(f"the published log {path.name} is not beside this checkout")
    made = demand_trace(load_requests(path), total_bytes=80 << 30)
    assert made.meta == trace.meta
    for column in ("time_s", "duration_s", "demand_bytes"):
        assert getattr(made, column).tolist() == getattr(trace, column).tolist()
