"""A sparse-attention indexer before and after it takes its scratch from a workspace.

The shapes are those of vLLM's sparse indexer: a prefill gathers fp8 keys and their scales, chunk by chunk, into buffers
of at most max_model_len * 40 rows; a decode fills logits of batch x max_model_len with -inf before it scores.
Run it: python notebooks/examples/sparse_indexer.py
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reclaim import EagerWorkspaceReclaimer, WorkspaceManager, format_bytes

MAX_MODEL_LEN, HEAD_DIM, BATCH = 2048, 128, 32
BOUND = MAX_MODEL_LEN * 40
CHUNKS = (4096, 1024, 2048)  # rows of each prefill chunk

CREATORS = {torch.ops.aten.empty.memory_format, torch.ops.aten.full.default}


class CountAllocations(TorchDispatchMode):
    """Counts the tensors that are made, and their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in CREATORS:
            self.calls += 1
            self.nbytes += out.numel() * out.element_size()
        return out


def before() -> None:
    """Every forward allocates."""
    for rows in CHUNKS:
        keys = torch.empty((rows, HEAD_DIM), dtype=torch.float8_e4m3fn)
        scales = torch.empty((rows, 4), dtype=torch.uint8)
        scales.fill_(keys.shape[1])
    logits = torch.full((BATCH, MAX_MODEL_LEN), float("-inf"))
    logits[:, 0] = 1.0


def after(workspace: WorkspaceManager) -> None:
    """Every forward takes views; each chunk a slice of the reserved ones."""
    keys, scales = workspace.get_simultaneous(((BOUND, HEAD_DIM), torch.float8_e4m3fn), ((BOUND, 4), torch.uint8))
    for rows in CHUNKS:
        scales[:rows].fill_(keys[:rows].shape[1])
    (logits,) = workspace.get_simultaneous(((BATCH, MAX_MODEL_LEN), torch.float32))
    logits.fill_(float("-inf"))
    logits[:, 0] = 1.0


@torch.inference_mode()
def main(forwards: int = 10) -> tuple[int, int]:
    """Print both versions; the allocator calls of each."""
    workspace = WorkspaceManager("cpu")
    # The profiling branch: reserve at the fixed bound, so that no later prefill can outgrow it.
    workspace.reserve(((BOUND, HEAD_DIM), torch.float8_e4m3fn), ((BOUND, 4), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(workspace)
    with CountAllocations() as plain:
        for _ in range(forwards):
            before()
    with CountAllocations() as ours:
        for _ in range(forwards):
            with reclaimer.forward():
                after(workspace)
    stats = workspace.stats()
    print(f"before  {plain.calls / forwards:.0f} allocator calls and {format_bytes(plain.nbytes / forwards)} a forward")
    held = f"{format_bytes(stats.capacity_bytes)} reserved once, {format_bytes(stats.reserved_bytes)} of it resident"
    print(f"after   {ours.calls / forwards:.0f} allocator calls a forward; {held}")
    return plain.calls, ours.calls


if __name__ == "__main__":
    main()
