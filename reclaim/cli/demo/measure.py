"""One measured run of the demo's model, grow-only or reclaimed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from reclaim.cli.demo.model import ModelConfig, Transformer
from reclaim.runtime.manager import WorkspaceManager
from reclaim.runtime.reclaimer import EagerWorkspaceReclaimer
from reclaim.runtime.stats import ReclaimerStats
from reclaim.traces import DemandTrace, TraceRecorder

__all__ = ["MeasuredRun", "run_model"]


@dataclass(frozen=True)
class MeasuredRun:
    """What one run did.

    trace: the recording, with reserved bytes as the kernel counted them.
    outputs: a digest of each forward's output.
    latency_s: the duration of each forward.
    """

    policy: str
    trace: DemandTrace
    stats: ReclaimerStats
    outputs: tuple[bytes, ...]
    latency_s: tuple[float, ...]

    @property
    def peak_reserved_bytes(self) -> int:
        """The most that was seen resident."""
        assert self.trace.reserved_bytes is not None
        return int(self.trace.reserved_bytes.max())

    @property
    def mean_reserved_bytes(self) -> float:
        """Resident bytes over time, each sample held until the next."""
        times, sizes = self.trace.reserved_steps()
        lasted = np.diff(np.append(times, self.trace.end_s[-1]))
        return float(np.average(sizes, weights=lasted)) if lasted.sum() > 0 else float(sizes[-1])

    def latency_percentile_s(self, percent: float) -> float:
        """A percentile of the forwards' durations."""
        return float(np.percentile(self.latency_s, percent))


def run_model(
    tokens: Sequence[int],
    *,
    policy: str,
    recording: Path,
    config: ModelConfig,
    warmup_tokens: int,
    advance: Callable[[], object],
) -> MeasuredRun:
    """Warm up, then run one forward for each entry of `tokens` under a policy, recording to `recording`.

    advance: called after each forward.
    """
    # The same inputs in every run, and more of them than any forward takes.
    inputs = torch.randn(max(*tokens, warmup_tokens), config.hidden, generator=torch.Generator().manual_seed(1))
    # Elsewhere first, so that no run pays for what torch sets up at its first large product.
    Transformer(config, WorkspaceManager("cpu"))(inputs)
    workspace = WorkspaceManager("cpu")
    model = Transformer(config, workspace)
    model(inputs[:warmup_tokens])
    outputs, latencies = [], []
    with TraceRecorder(recording, overwrite=True, source="reclaim demo") as recorder:
        reclaimer = EagerWorkspaceReclaimer(workspace, policy, recorder=recorder)
        for count in tokens:
            started = perf_counter()
            with reclaimer.forward():
                output = model(inputs[:count])
            latencies.append(perf_counter() - started)
            outputs.append(hashlib.blake2b(output.numpy().tobytes()).digest())
            advance()
        stats = reclaimer.stats()
    workspace.release(force=True)
    return MeasuredRun(policy, DemandTrace.load(recording), stats, tuple(outputs), tuple(latencies))
