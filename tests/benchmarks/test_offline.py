"""What the offline half costs on the longer bundled trace."""

from __future__ import annotations

import pytest

from reclaim import CostModel, plot_reserved, replay
from reclaim.analysis.plot import save_plot
from reclaim.policy import clairvoyant
from reclaim.traces import bundled

COST = CostModel(80 << 30, 1e-3, 1e-3)


@pytest.fixture(scope="module")
def trace():
    return bundled("azure-conv")


@pytest.mark.benchmark(group="26,709 forwards")
class TestOffline:
    def test_replay_three_window(self, benchmark, trace):
        benchmark.pedantic(lambda: replay(trace, "three-window", cost=COST), rounds=5)

    def test_clairvoyant(self, benchmark, trace):
        benchmark.pedantic(
            lambda: clairvoyant(
                trace.time_s, trace.duration_s, trace.demand_bytes, floor_bytes=trace.floor_bytes, cost=COST
            ),
            rounds=5,
        )

    def test_load(self, benchmark):
        benchmark.pedantic(lambda: bundled("azure-conv"), rounds=5)

    def test_plot(self, benchmark, trace, tmp_path):
        result = replay(trace, "three-window", cost=COST)
        benchmark.pedantic(lambda: save_plot(plot_reserved(result), tmp_path / "a.png"), rounds=3)
