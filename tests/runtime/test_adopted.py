"""An engine's own tensor, grown by its layers with resize_."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from reclaim import DemandTrace, EagerWorkspaceReclaimer, TensorScratch, TraceRecorder, WorkspaceOutOfMemoryError

KIB, MIB = 1 << 10, 1 << 20


class Metadata:
    """As TensorRT-LLM's: layers grow `workspace` when it is too small."""

    def __init__(self, nbytes: int, dtype: torch.dtype = torch.int8) -> None:
        self.workspace = torch.empty(nbytes // dtype.itemsize, dtype=dtype)
        self.may_shrink = True
        self.is_cuda_graph = False

    def layer(self, nbytes: int) -> None:
        elements = nbytes // self.workspace.element_size()
        if self.workspace.numel() < elements:
            self.workspace.resize_(elements)
        self.workspace[:elements].fill_(1)

    def capacity(self) -> int:
        return self.workspace.untyped_storage().nbytes()


def run(reclaimer, metadata, *forwards):
    for sizes in forwards:
        with reclaimer.forward():
            for size in sizes if isinstance(sizes, tuple) else (sizes,):
                metadata.layer(size)


def adopt(metadata, **options):
    flags = {key: options.pop(key) for key in ("reclaimable", "graph") if key in options}
    return EagerWorkspaceReclaimer(TensorScratch(metadata, "workspace", **flags), **options)


def test_the_peers_table_holds():
    metadata = Metadata(4096)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 16384)
    address = metadata.workspace.data_ptr()
    run(reclaimer, metadata, (8192, 4096))
    assert metadata.workspace.data_ptr() == address
    run(reclaimer, metadata, 8192)
    assert (metadata.capacity(), metadata.workspace.numel()) == (16384, 16384)
    run(reclaimer, metadata, (4096, 8192))  # the third underfilled one
    assert metadata.capacity() == metadata.workspace.numel() == 8192
    run(reclaimer, metadata, 2048, 2048, 2048)
    assert metadata.capacity() == 4096  # the floor


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float32])
def test_dtype_and_device_stay(dtype):
    metadata = Metadata(KIB, dtype)
    run(adopt(metadata), metadata, 64 * KIB, KIB, KIB, KIB)
    assert (metadata.workspace.dtype, metadata.workspace.device.type, metadata.capacity()) == (dtype, "cpu", KIB)


def test_demand_is_the_largest_layer_and_is_always_measured_with_a_recorder(tmp_path):
    metadata = Metadata(64 * KIB)
    with TraceRecorder(tmp_path / "run.jsonl") as recorder:
        run(adopt(metadata, recorder=recorder), metadata, (16 * KIB, 48 * KIB, 8 * KIB), (), 128 * KIB)
    trace = DemandTrace.load(recorder.path)
    assert trace.demand_bytes.tolist() == [48 * KIB, 0, 128 * KIB]
    assert trace.capacity_bytes.tolist() == [64 * KIB, 64 * KIB, 128 * KIB]


def test_at_the_floor_without_a_recorder_nothing_is_reset():
    metadata = Metadata(64 * KIB)
    reclaimer = adopt(metadata)
    with reclaimer.forward():
        assert metadata.workspace.numel() == 64 * KIB


@pytest.mark.parametrize("ends", ["plainly", "with an exception", "without a request"])
def test_numel_is_the_capacity_between_forwards(ends):
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * KIB)
    try:
        with reclaimer.forward():
            assert metadata.workspace.numel() == 0
            if ends != "without a request":
                metadata.layer(2 * KIB)
            if ends == "with an exception":
                raise LookupError
    except LookupError:
        pass
    assert metadata.workspace.numel() == metadata.capacity() == 64 * KIB


def test_a_large_shrink_goes_back_to_the_system():
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * MIB, KIB, KIB, KIB)
    stats = reclaimer.stats().slots[0]
    assert stats.claimed_bytes == 64 * MIB - KIB
    # All whole pages of it; malloc's header keeps the first and the last from being counted exactly.
    assert stats.returned_bytes >= 64 * MIB - 3 * 4096


def test_what_malloc_would_keep_goes_back_too():
    code = """
import torch
from reclaim import EagerWorkspaceReclaimer, TensorScratch

class Owner:
    workspace = None

owner = Owner()
owner.workspace = torch.empty(1024, dtype=torch.int8)
reclaimer = EagerWorkspaceReclaimer(TensorScratch(owner, "workspace"))
for nbytes in (32 << 20, 1024, 1024, 1024):
    with reclaimer.forward():
        if owner.workspace.numel() < nbytes:
            owner.workspace.resize_(nbytes).fill_(1)
print(reclaimer.stats().returned_bytes)
"""
    # Everything from malloc's own heap, and none of it given back by malloc itself.
    environment = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= (32 << 20) - 3 * 4096


@pytest.mark.parametrize("flag", ["may_shrink", lambda owner: owner.may_shrink])
def test_the_owner_says_whether_it_may_shrink_at_entry_and_exit(flag):
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata, reclaimable=flag)
    run(reclaimer, metadata, 64 * KIB, KIB, KIB)
    with reclaimer.forward():
        metadata.layer(KIB)
        metadata.may_shrink = False
    assert metadata.capacity() == 64 * KIB
    run(reclaimer, metadata, KIB)
    metadata.may_shrink = True
    run(reclaimer, metadata, KIB, KIB)
    assert metadata.capacity() == 64 * KIB  # the count began again
    run(reclaimer, metadata, KIB)
    assert metadata.capacity() == KIB


def test_graph_forwards_are_told_by_the_owner_and_leave_everything_alone():
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata, graph="is_cuda_graph")
    run(reclaimer, metadata, 64 * KIB, KIB, KIB)
    metadata.is_cuda_graph = True
    with reclaimer.forward():
        assert metadata.workspace.numel() == 64 * KIB
    metadata.is_cuda_graph = False
    run(reclaimer, metadata, KIB)
    assert metadata.capacity() == KIB
    assert reclaimer.stats().slots[0].passed == {"graph": 1}


def test_a_pinned_tensor_is_put_back_as_it_was():
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * KIB)
    same = metadata.workspace
    run(reclaimer, metadata, KIB, KIB, KIB)
    assert metadata.workspace is same
    view = metadata.workspace[:10]
    del same
    run(reclaimer, metadata, KIB, KIB, KIB)
    assert metadata.workspace.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    assert metadata.workspace.numel() == 64 * KIB
    assert reclaimer.stats().slots[0].skipped == {"pinned": 2}
    del view
    run(reclaimer, metadata, KIB, KIB, KIB)
    assert metadata.capacity() == KIB


def test_a_collected_owner_is_a_clear_state():
    metadata = Metadata(64 * KIB)
    reclaimer = adopt(metadata)
    with reclaimer.forward():
        del metadata
        gc.collect()
    with reclaimer.forward():
        pass
    stats = reclaimer.stats().slots[0]
    assert (stats.enabled, stats.capacity_bytes, stats.passed) == (True, 0, {"unreclaimable": 2})


def test_a_tensor_replaced_from_outside_is_taken_as_it_is():
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * KIB)
    generation = reclaimer._slots[0].scratch.generation
    metadata.workspace = torch.empty(32 * KIB, dtype=torch.int8)
    run(reclaimer, metadata, KIB, KIB, KIB)
    assert metadata.capacity() == KIB
    assert reclaimer._slots[0].scratch.generation > generation


def test_a_tensor_set_to_none_is_one_error_in_the_log_then_usable_again(caplog):
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * KIB)
    metadata.workspace = None
    for _ in range(3):
        with reclaimer.forward():
            pass
    assert caplog.text.count("set to None from outside") == 1
    metadata.workspace = torch.empty(512, dtype=torch.int8)  # below the floor: topped up
    run(reclaimer, metadata, 256)
    assert metadata.capacity() == KIB
    assert reclaimer.enabled


def test_a_failed_shrink_leaves_an_empty_tensor_that_layers_can_grow(monkeypatch, caplog):
    metadata = Metadata(KIB)
    reclaimer = adopt(metadata)
    run(reclaimer, metadata, 64 * KIB, KIB, KIB)
    empty = torch.empty

    def scarce(elements, **options):
        if elements:
            raise torch.OutOfMemoryError("none left")
        return empty(elements, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", scarce)
        run(reclaimer, metadata, KIB)
    assert metadata.capacity() == 0
    assert "none left" in caplog.text
    run(reclaimer, metadata, 2 * KIB)
    assert metadata.capacity() == 2 * KIB
    monkeypatch.setattr(torch, "empty", scarce)
    with pytest.raises(WorkspaceOutOfMemoryError, match="could not get 1 KiB"):
        reclaimer._slots[0].scratch.reallocate(KIB)


def test_tensors_of_inference_mode_are_adopted_too():
    with torch.inference_mode():
        metadata = Metadata(KIB)
        reclaimer = adopt(metadata)
        run(reclaimer, metadata, 64 * KIB, KIB, KIB)
        metadata.workspace[:4].fill_(2)
    with torch.inference_mode():
        run(reclaimer, metadata, KIB)
    assert metadata.capacity() == KIB


@pytest.mark.parametrize("value", [None, 3, torch.empty(2, 2)])
def test_what_is_no_flat_tensor_is_refused(value):
    with pytest.raises(TypeError, match=r"SimpleNamespace\.workspace must be a one-dimensional tensor"):
        TensorScratch(SimpleNamespace(workspace=value), "workspace")
