"""The README's code runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from reclaim.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_python_blocks_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    # 4,096 tokens: 64 MiB of floats and 32 KiB of indices. The floor for 16: 256 KiB and 256 B, on whole pages.
    returned = (64 << 20) + (32 << 10) - (256 << 10) - 4096
    out = capsys.readouterr().out
    assert f"{returned} bytes went back" in out
    assert "1048576 bytes are left" in out
    assert (tmp_path / "reserved.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "line", [line for block in blocks("sh") for line in block.splitlines() if line.startswith("reclaim ")]
)
def test_the_commands_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().err.count("\n") <= 1


def test_the_comparison_shown_is_the_one_printed(capsys):
    assert main(["compare", "azure-code"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (shown,) = blocks("text")
    assert [line.rstrip() for line in shown.splitlines()] == printed[-5:]


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_test_command_is_what_ci_runs():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert any("make test" in block for block in blocks("sh"))
