"""A small transformer whose layers work in shared scratch: real arithmetic, random weights.

Each layer has block-local attention and a mixture of experts. Both ask the workspace for what they need and leave
nothing there that the next layer could use, as the attention and MoE kernels of an inference engine do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from reclaim.runtime.manager import WorkspaceManager
from reclaim.runtime.plan import WorkspacePlan

__all__ = ["ModelConfig", "Transformer"]


@dataclass(frozen=True)
class ModelConfig:
    """The defaults ask for 272 MiB of scratch at 8,192 tokens."""

    layers: int = 2
    hidden: int = 64
    heads: int = 2
    block: int = 128  # tokens that attend to one another
    experts: int = 4
    top_k: int = 2
    intermediate: int = 1408
    seed: int = 0


class Transformer:
    """Maps (tokens, hidden) float32 to the same shape; every temporary of size lives in the workspace."""

    def __init__(self, config: ModelConfig, workspace: WorkspaceManager) -> None:
        random = torch.Generator().manual_seed(config.seed)

        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=random) / math.sqrt(shape[-2])

        hidden, intermediate = config.hidden, config.intermediate
        self.config = config
        self._workspace = workspace
        self._attention_plans: dict[int, WorkspacePlan] = {}  # by number of blocks
        self._expert_plans: dict[int, WorkspacePlan] = {}  # by number of tokens
        self._layers = [
            _Layer(
                qkv=weight(hidden, 3 * hidden),
                out=weight(hidden, hidden),
                router=weight(hidden, config.experts),
                gate_up=weight(config.experts, hidden, 2 * intermediate),
                down=weight(config.experts, intermediate, hidden),
            )
            for _ in range(config.layers)
        ]

    @torch.inference_mode()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """One forward over `x`, (tokens, hidden); returns a new tensor."""
        x = x.clone()
        for layer in self._layers:
            self._attention(layer, x)
            self._experts(layer, x)
        return x

    def _attention(self, layer: _Layer, x: torch.Tensor) -> None:
        """Add attention(x) to x, each block of tokens by itself."""
        config = self.config
        tokens, hidden = x.shape
        blocks = -(-tokens // config.block)
        rows, width = blocks * config.block, hidden // config.heads
        plan = _cached(
            self._attention_plans,
            blocks,
            lambda: self._workspace.plan(
                ((rows, 3 * hidden), torch.float32),
                ((blocks, config.heads, config.block, config.block), torch.float32),
                ((blocks, config.heads, config.block, width), torch.float32),
            ),
        )
        qkv, scores, mixed = self._workspace.get(plan)
        torch.matmul(x, layer.qkv, out=qkv[:tokens])
        qkv[tokens:].zero_()  # the last block is padded, and scratch holds whatever was there before
        query, key, value = qkv.view(blocks, config.block, 3, config.heads, width).permute(2, 0, 3, 1, 4)
        torch.matmul(query, key.transpose(-1, -2), out=scores)
        scores.mul_(1 / math.sqrt(width))
        torch.softmax(scores, dim=-1, out=scores)
        torch.matmul(scores, value, out=mixed)
        x.add_(mixed.transpose(1, 2).reshape(rows, hidden)[:tokens] @ layer.out)

    def _experts(self, layer: _Layer, x: torch.Tensor) -> None:
        """Add the weighted sum of each token's top_k experts to x."""
        config = self.config
        tokens, hidden = x.shape
        routed = tokens * config.top_k
        plan = _cached(
            self._expert_plans,
            tokens,
            lambda: self._workspace.plan(
                ((routed, hidden), torch.float32),
                ((routed, 2 * config.intermediate), torch.float32),
                ((routed, config.intermediate), torch.float32),
                ((routed, hidden), torch.float32),
            ),
        )
        sorted_x, gate_up, activated, output = self._workspace.get(plan)
        weights, chosen = torch.topk(torch.softmax(x @ layer.router, dim=-1), config.top_k)
        order = torch.argsort(chosen.flatten(), stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=config.experts).tolist()
        token = order // config.top_k
        torch.index_select(x, 0, token, out=sorted_x)
        begin = 0
        for expert, count in enumerate(counts):
            rows = slice(begin, begin + count)
            torch.matmul(sorted_x[rows], layer.gate_up[expert], out=gate_up[rows])
            gate, up = gate_up[rows].chunk(2, dim=-1)
            torch.sigmoid(gate, out=activated[rows])
            activated[rows].mul_(gate).mul_(up)
            torch.matmul(activated[rows], layer.down[expert], out=output[rows])
            begin += count
        output.mul_(weights.flatten()[order].unsqueeze(-1))
        x.index_add_(0, token, output)


@dataclass(frozen=True)
class _Layer:
    qkv: torch.Tensor
    out: torch.Tensor
    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


def _cached(plans: dict[int, WorkspacePlan], key: int, make: Callable[[], WorkspacePlan]) -> WorkspacePlan:
    plan = plans.get(key)
    if plan is None:
        plan = plans[key] = make()
    return plan
