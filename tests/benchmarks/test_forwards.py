"""A forward of 1 and of 64 layers, each of which asks for three views: ours against measuring with resize_(0)."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, WorkspaceManager
from reclaim.policy import ThreeWindowPolicy

REQUESTS = (((128, 256), torch.float32), ((64, 64), torch.bfloat16), ((1000,), torch.int64))
CAPACITY = 1 << 20


def lay_out_once():
    cuts, offset = [], 0
    for shape, dtype in REQUESTS:
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        cuts.append((offset, offset + nbytes, dtype, shape))
        offset += -(-nbytes // 256) * 256
    return cuts, offset


class ResizeReclaimer:
    """The plain way: demand is the numel of a tensor that each forward begins by resizing to zero."""

    def __init__(self) -> None:
        self.workspace = torch.empty(CAPACITY, dtype=torch.uint8)
        self.policy = ThreeWindowPolicy(CAPACITY)
        self.cuts, self.needed = lay_out_once()

    @contextmanager
    def forward(self):
        capacity = self.workspace.untyped_storage().nbytes()
        self.workspace.resize_(0)
        try:
            yield
        finally:
            self.policy.finish_forward(self.workspace.numel(), capacity, grew=False)
            self.workspace.resize_(capacity)

    def layer(self):
        if self.workspace.numel() < self.needed:
            self.workspace.resize_(self.needed)
        return [self.workspace[begin:end].view(dtype).reshape(shape) for begin, end, dtype, shape in self.cuts]


@pytest.mark.parametrize("layers", [1, 64])
class TestForward:
    @pytest.mark.benchmark(group="forwards")
    def test_resize_to_zero_and_carve(self, benchmark, layers):
        benchmark.group = f"a forward of {layers} layers"
        plain = ResizeReclaimer()

        def forward():
            with plain.forward():
                for _ in range(layers):
                    plain.layer()

        with torch.inference_mode(False), torch.no_grad():
            benchmark.pedantic(forward, rounds=100, iterations=max(1, 200 // layers), warmup_rounds=3)

    @pytest.mark.benchmark(group="forwards")
    def test_reclaimer_and_plan(self, benchmark, layers):
        benchmark.group = f"a forward of {layers} layers"
        workspace = WorkspaceManager("cpu")
        workspace.reserve(((CAPACITY,), torch.uint8))
        reclaimer = EagerWorkspaceReclaimer(workspace)
        plan, get = workspace.plan(*REQUESTS), workspace.get

        def forward():
            with reclaimer.forward():
                for _ in range(layers):
                    get(plan)

        with torch.no_grad():
            benchmark.pedantic(forward, rounds=100, iterations=max(1, 2000 // layers), warmup_rounds=3)
