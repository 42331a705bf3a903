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


def carving(device, inference):
    """A hundred requests, done the plain way: slice, view, reshape.

    inference: of storage made in inference mode, whose views are cheaper there, but which no other mode can write to.
    """
    with torch.inference_mode(inference):
        storage = torch.empty(MIB, dtype=torch.uint8, device=device)
    cuts = []
    offset = 0
    for shape, dtype in REQUESTS:
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        cuts.append((offset, offset + nbytes, dtype, shape))
        offset += -(-nbytes // 256) * 256

    def requests():
        for _ in HUNDRED:
            [storage[begin:end].view(dtype).reshape(shape) for begin, end, dtype, shape in cuts]

    return requests


def asking(workspace):
    """A hundred requests."""
    get_simultaneous = workspace.get_simultaneous

    def requests():
        for _ in HUNDRED:
            get_simultaneous(*REQUESTS)

    return requests


def getting(workspace):
    """A hundred requests, planned."""
    plan, get = workspace.plan(*REQUESTS), workspace.get

    def requests():
        for _ in HUNDRED:
            get(plan)

    return requests


@pytest.mark.benchmark(group="three views")
class TestRequests:
    @pytest.fixture(autouse=True)
    def as_in_engines(self):
        with torch.inference_mode():
            yield

    @pytest.mark.parametrize("inference", [False, True])
    def test_slicing_viewing_and_reshaping(self, benchmark, inference):
        benchmark.pedantic(carving("cpu", inference), rounds=200, warmup_rounds=2)

    def test_get_simultaneous(self, benchmark, workspace):
        benchmark.pedantic(asking(workspace), rounds=1000, warmup_rounds=5)

    def test_get_with_a_plan(self, benchmark, workspace):
        benchmark.pedantic(getting(workspace), rounds=1000, warmup_rounds=5)


@pytest.mark.benchmark(group="three views on a simulated accelerator")
class TestRequestsOnAnAccelerator:
    """Each request also reads the current stream, and whether it is captured."""

    @pytest.fixture(autouse=True)
    def as_in_engines(self, sim):
        with torch.inference_mode():
            yield

    @pytest.mark.parametrize("inference", [False, True])
    def test_slicing_viewing_and_reshaping(self, benchmark, inference):
        benchmark.pedantic(carving("sim", inference), rounds=200, warmup_rounds=2)

    def test_get_simultaneous(self, benchmark):
        benchmark.pedantic(asking(WorkspaceManager("sim")), rounds=1000, warmup_rounds=5)

    def test_get_with_a_plan(self, benchmark):
        benchmark.pedantic(getting(WorkspaceManager("sim")), rounds=1000, warmup_rounds=5)
