from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reclaim import DemandTrace
from reclaim.cli import main

MIB = 1 << 20


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.jsonl"
    DemandTrace(
        time_s=[0.0, 1.0, 2.0, 3.0, 4.0],
        duration_s=[0.5] * 5,
        demand_bytes=[8 * MIB, MIB, MIB, MIB, 2 * MIB],
        meta={"floor_bytes": MIB, "total_bytes": 100 * MIB},
    ).save(path)
    return str(path)


def run(capsys, *arguments):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_replay_prints_numbers_with_units_in_the_keys(trace, capsys):
    code, out, err = run(capsys, "replay", trace, "--policy", "three-window", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["schema"] == "reclaim.replay/1"
    (result,) = document["results"]
    # 8 MiB until the third underfilled forward ends at 3.5 s, then 1 MiB for 0.5 s, then 2 MiB for 0.5 s.
    assert result["hold_byte_s"] == (8 * 3.5 + 1 * 0.5 + 2 * 0.5) * MIB
    assert (result["grows"], result["shrinks"], result["peak_bytes"]) == (2, 1, 8 * MIB)
    # hold / 100 MiB + 2 growths and 1 shrink of 1 ms
    assert result["cost_s"] == pytest.approx(29.5 / 100 + 0.003)
    assert result["stall_s"] == pytest.approx(0.002)


def test_replay_takes_several_traces_and_policies(trace, capsys):
    code, out, _ = run(capsys, "replay", trace, "azure-code", "-p", "grow-only", "-p", "exact-fit")
    assert code == 0
    assert len(out.strip().splitlines()) == 1 + 4


def test_compare_always_has_both_bounds(trace, capsys):
    code, out, _ = run(capsys, "compare", trace, "--policy", "exact-fit", "--json")
    document = json.loads(out)
    assert code == 0
    assert set(document) == {"schema", "trace", "floor_bytes", "cost", "clairvoyant_exact", "rows"}
    assert document["schema"] == "reclaim.compare/1"
    assert [row["policy"] for row in document["rows"]] == ["clairvoyant", "grow-only", "exact-fit"]
    assert all(row["cost_s"] >= document["rows"][0]["cost_s"] for row in document["rows"])
    assert set(document["rows"][0]) == {
        "policy", "cost_s", "ratio", "hold_byte_s", "mean_bytes", "peak_bytes", "stall_s", "grows", "shrinks",
    }  # fmt: skip


def test_compare_says_where_floor_and_prices_come_from(trace, tmp_path, capsys, monkeypatch):
    _, out, _ = run(capsys, "compare", trace)
    assert "floor 1 MiB (of the recorded run)" in out
    assert "100 MiB, grow 1 ms, shrink 1 ms (memory from the trace, resize times assumed)" in out
    prices = tmp_path / "prices.json"
    prices.write_text('{"total_bytes": 1048576, "grow_s": 0.5, "shrink_s": 0.25}')
    monkeypatch.setenv("RECLAIM_COST", str(prices))
    _, out, _ = run(capsys, "compare", trace, "--floor", "2MiB")
    assert "floor 2 MiB (as given)" in out
    assert f"1 MiB, grow 500 ms, shrink 250 ms ({prices})" in out
    assert "lower bound" in out


def test_plot_writes_a_picture(trace, tmp_path, capsys):
    for name, policy in (("a.png", []), ("b.svg", ["--policy", "three-window"])):
        output = tmp_path / name
        assert run(capsys, "plot", trace, "--output", str(output), *policy)[0] == 0
        assert output.stat().st_size > 1000


def test_workload_makes_a_trace_from_a_request_log(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,2\n2023-11-16 18:17:13.9799600,50,1\n"
    )
    output = tmp_path / "trace.jsonl"
    code, _, err = run(
        capsys, "workload", str(log), "--output", str(output), "--hidden", "256", "--intermediate", "128"
    )
    assert code == 0
    assert "3 forwards" in err
    # per routed token (2 a token): max(128, 256) + max(256, 256) elements of 2 B = 1,024 B
    assert DemandTrace.load(output).demand_bytes.tolist() == [204_800, 2_048, 102_400]
    assert run(capsys, "workload", str(log), "--output", str(output), "--seconds", "5")[0] == 0
    assert len(DemandTrace.load(output)) == 2


@pytest.mark.parametrize("columns", ["40", "80"])
def test_names_are_never_cut_on_a_narrow_terminal(trace, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("compare", "replay"):
        out = run(capsys, command, trace)[1]
        assert "three-window" in out
        assert "shrinks" in out


def test_a_trace_can_come_through_a_pipe(trace, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(Path(trace).read_bytes()))
    writer.start()
    code, out, _ = run(capsys, "replay", str(pipe), "--json")
    writer.join()
    assert (code, json.loads(out)["results"][0]["forwards"]) == (0, 5)


def test_a_dollar_in_a_title_is_no_formula(trace, tmp_path, capsys):
    assert run(capsys, "plot", trace, "-o", str(tmp_path / "a.png"), "--title", "$\\frac{a}$ 5 $")[0] == 0


def test_without_arguments_it_helps(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert "compare" in out


def test_policies_lists_every_name_with_its_parameters(capsys):
    code, out, _ = run(capsys, "policies", "--json")
    rows = {row["name"]: row for row in json.loads(out)["policies"]}
    assert code == 0
    assert set(rows) == {"grow-only", "exact-fit", "three-window"}
    assert rows["three-window"]["parameters"] == {"forwards": 3}
    assert "three-window" in run(capsys, "policies")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "azure-code", "-p", "three-windw"], "no policy 'three-windw', did you mean 'three-window'?"),
        (["replay", "azure-code", "-p", "three-window:forward=2"], "no parameter 'forward', did you mean 'forwards'?"),
        (["compare", "azure-code", "-p", "three-window:forwards=x"], "forwards=x should be int"),
        (["compare", "azure-code", "-p", "three-window:forwards=0"], "forwards must be at least 1, got 0"),
        (["compare", "nothing-like-it"], "no bundled trace 'nothing-like-it'; there are: azure-code, azure-conv"),
        (["compare", "nothing.jsonl"], "nothing.jsonl: No such file or directory"),
        (["compare", "azure-code", "--floor", "much"], "'much' is not a size"),
        (["compare", "azure-code", "--floor", "-1"], "negative"),
        (["compare", "azure-code", "--floor", "1e30"], "8 EiB"),
        (["plot", "azure-code", "-o", "nowhere/a.png"], "nowhere/a.png: No such file"),
        (["workload", "nothing.csv", "-o", "x.jsonl", "--device-memory", "0"], "--device-memory"),
        (["workload", "nothing.csv", "-o", "x.jsonl", "--device-memory", "-1"], "negative"),
        (["compare", "azure-code", "--cost", "nothing.json"], "nothing.json: No such file"),
        (["plot", "azure-code", "--output", "a.gif"], "end the name of a picture in .png, .svg, .pdf"),
        (["plot", "azure-code"], "--output"),
        (["replay"], "TRACE"),
        (["relpay"], "relpay"),
        (["workload", "nothing.csv", "-o", "x.jsonl"], "nothing.csv: No such file"),
        (["workload", "nothing.csv", "-o", "x.jsonl", "--token-budget", "8"], "max_sequences=256"),
        (["demo", "--policy", "nonsense"], "no policy 'nonsense'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("reclaim: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"time_s":1.0,"demand_bytes":-5}', "bad.jsonl:3: demand_bytes: Expected `int` >= 0"),
        ('{"time_s":1.0,"demand_bytes":NaN}', "bad.jsonl:3: "),
        ('{"time_s":1.0}', "bad.jsonl:3: "),
        ('{"time_s":0.5,"demand_bytes":1}', "bad.jsonl:3: time_s: 0.5 is before 1.0"),
    ],
)
def test_a_malformed_trace_names_file_line_and_field(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text(f'{{"schema":"reclaim.trace/1"}}\n{{"time_s":1.0,"demand_bytes":1}}\n{line}\n')
    code, out, err = run(capsys, "plot", "bad.jsonl", "--output", "x.png")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "x.png").exists()


def test_a_torn_trace_is_used_with_a_warning(trace, capsys):
    with open(trace, "a") as file:
        file.write('{"time_s":5.0,"dem')
    code, out, err = run(capsys, "replay", trace, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["forwards"] == 5
    assert err == f"reclaim: warning: {trace}:7: dropped a torn last line\n"


def test_a_request_log_given_as_a_trace_is_refused_naming_workload(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    code, _, err = run(capsys, "replay", str(log))
    assert code == 2
    assert "reclaim workload" in err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["replay", "--help"], ["policies"], ["replay", "azure-code", "--json"], ["--version"]]
)
def test_light_commands_load_neither_torch_nor_matplotlib(arguments):
    code = (
        "import sys; from reclaim.cli import main; code = main(sys.argv[1:]);"
        "print([m for m in ('torch', 'matplotlib') if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from reclaim.cli import main; sys.exit(main(['policies']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "reclaim: the command needs typer and rich: pip install 'reclaim[cli]'\n"


def test_it_runs_as_a_module_and_every_command_has_help_with_an_example():
    done = subprocess.run([sys.executable, "-m", "reclaim", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("reclaim 0.")
    for command in ("replay", "compare", "plot", "workload", "policies", "demo"):
        help_text = subprocess.run(
            [sys.executable, "-m", "reclaim", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert "Usage" in help_text
        if command not in ("policies", "demo"):
            assert f"Example: reclaim {command}" in help_text
