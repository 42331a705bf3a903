"""What a forward and a request cost, side by side with the plain way. `make bench` runs these."""

from __future__ import annotations

import pytest
import torch

from reclaim import EagerWorkspaceReclaimer, TraceRecorder, WorkspaceManager

MIB = 1 << 20
REQUESTS = (((128, 256), torch.float32), ((64, 64), torch.bfloat16), ((1000,), torch.int64))
ROUNDS = {"rounds": 200, "iterations": 1000, "warmup_rounds": 5}
HUNDRED = range(100)  # requests a call of the benchmark, so that its own loop weighs little beside them


@pytest.fixture
def workspace():
    workspace = WorkspaceManager("cpu")
    workspace.reserve(((8 * MIB,), torch.uint8))
    return workspace


class Empty:
    """The least that a context manager written in Python can be."""

    def __enter__(self):
        return None

    def __exit__(self, exc_type, exc, tb):
        return None


@pytest.mark.benchmark(group="an empty forward")
class TestForward:
    def test_a_context_manager_that_does_nothing(self, benchmark):
        context = Empty()

        def forward():
            with context:
                pass

        benchmark.pedantic(forward, **ROUNDS)

    def test_the_reclaimer(self, benchmark, workspace):
        reclaimer = EagerWorkspaceReclaimer(workspace)

        def forward():
            with reclaimer.forward():
                pass

        benchmark.pedantic(forward, **ROUNDS)

    def test_the_reclaimer_with_a_recorder(self, benchmark, workspace, tmp_path):
        with TraceRecorder(tmp_path / "run.jsonl") as recorder:
            reclaimer = EagerWorkspaceReclaimer(workspace, recorder=recorder)

            def forward():
                with reclaimer.forward():
                    pass

            benchmark.pedantic(forward, **ROUNDS)


@pytest.mark.benchmark(group="three views")
class TestRequests:
    def test_slicing_viewing_and_reshaping(self, benchmark):
        storage = torch.empty(MIB, dtype=torch.uint8)
        cuts = []
        offset = 0
        for shape, dtype in REQUESTS:
            nbytes = torch.Size(shape).numel() * dtype.itemsize
            cuts.append((offset, offset + nbytes, dtype, shape))
            offset += -(-nbytes // 256) * 256

        def carve():
            return [storage[begin:end].view(dtype).reshape(shape) for begin, end, dtype, shape in cuts]

        def requests():
            for _ in HUNDRED:
                carve()

        with torch.inference_mode():
            benchmark.pedantic(requests, rounds=200, warmup_rounds=2)

    def test_get_simultaneous(self, benchmark, workspace):
        def requests():
            for _ in HUNDRED:
                get_simultaneous(*REQUESTS)

        get_simultaneous = workspace.get_simultaneous
        with torch.inference_mode():
            benchmark.pedantic(requests, rounds=1000, warmup_rounds=5)

    def test_get_with_a_plan(self, benchmark, workspace):
        plan = workspace.plan(*REQUESTS)
        get = workspace.get

        def requests():
            for _ in HUNDRED:
                get(plan)

        with torch.inference_mode():
            benchmark.pedantic(requests, rounds=1000, warmup_rounds=5)
