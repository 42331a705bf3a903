from __future__ import annotations

import re

import pytest
import torch

from reclaim import DemandTrace, WorkspaceManager
from reclaim.cli import main
from reclaim.cli.demo.model import ModelConfig, Transformer


def test_the_demo_in_small(tmp_path, capsys):
    folder = tmp_path / "out"
    code = main(["demo", "--output-dir", str(folder), "--forwards", "60", "--intermediate", "64"])
    out = capsys.readouterr().out
    assert code == 0
    assert "outputs of both runs identical: yes" in out
    assert "replays repeat the recorded capacities exactly: yes" in out
    assert re.search(r"warm-up 256 tokens set the floor to [\d.]+ KiB", out)
    for word in ("grow-only", "three-window", "clairvoyant", "peak resident", "mean resident", "p50", "p99"):
        assert word in out
    assert (folder / "reserved.png").stat().st_size > 1000
    plain, reclaimed = (DemandTrace.load(folder / f"{name}.jsonl") for name in ("grow-only", "reclaimed"))
    assert (plain.demand_bytes == reclaimed.demand_bytes).all()
    assert reclaimed.capacity_bytes[-1] < plain.capacity_bytes[-1] == reclaimed.demand_bytes.max()
    # The last measurement of each: what grow-only still holds and the other gave back.
    last = [run.reserved_bytes[run.reserved_bytes >= 0][-1] for run in (plain, reclaimed)]
    assert last[1] < last[0]


def test_a_wrong_output_fails_the_demo(tmp_path, capsys, monkeypatch):
    calls = iter(range(1000))
    forward = Transformer.__call__
    monkeypatch.setattr(Transformer, "__call__", lambda self, x: forward(self, x) + next(calls))
    assert main(["demo", "--output-dir", str(tmp_path), "--forwards", "3", "--intermediate", "8"]) == 1
    assert "outputs of both runs identical: NO" in capsys.readouterr().out


def test_the_models_scratch_is_as_large_as_promised():
    workspace = WorkspaceManager("cpu")
    model = Transformer(ModelConfig(layers=1), workspace)
    model(torch.zeros(256, 64))
    floor = workspace.stats().capacity_bytes
    model(torch.zeros(8192, 64))
    assert workspace.stats().capacity_bytes >= 256 << 20
    assert workspace.stats().capacity_bytes >= 4 * floor


@pytest.mark.parametrize("tokens", [1, 127, 128, 300])
def test_the_models_output_does_not_depend_on_what_scratch_held(tokens):
    config = ModelConfig(intermediate=32)
    x = torch.randn(tokens, 64, generator=torch.Generator().manual_seed(5))
    outputs = []
    for garbage in (0, 255):
        workspace = WorkspaceManager("cpu")
        (everything,) = workspace.get_simultaneous(((64 << 20,), torch.uint8))
        everything.fill_(garbage)
        del everything
        outputs.append(Transformer(config, workspace)(x))
    assert torch.equal(*outputs)


def test_the_model_is_the_textbook_one():
    """Against the same layer written out plainly."""
    config = ModelConfig(layers=1, intermediate=16, block=4)
    model = Transformer(config, WorkspaceManager("cpu"))
    layer = model._layers[0]
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(5))
    expected = x.clone()
    blocks = expected.view(2, 4, 64)
    query, key, value = (blocks @ layer.qkv).view(2, 4, 3, 2, 32).permute(2, 0, 3, 1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    expected = expected + mixed.transpose(1, 2).reshape(8, 64) @ layer.out
    weights, chosen = torch.topk(torch.softmax(expected @ layer.router, -1), 2)
    moe = torch.zeros_like(expected)
    for token in range(8):
        for weight, expert in zip(weights[token], chosen[token], strict=True):
            gate, up = (expected[token] @ layer.gate_up[expert]).chunk(2)
            moe[token] += weight * (torch.nn.functional.silu(gate) * up) @ layer.down[expert]
    torch.testing.assert_close(model(x), expected + moe)
