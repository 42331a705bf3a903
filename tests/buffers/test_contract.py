"""What every buffer promises, tested on each of them."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from reclaim.buffers import choose_buffer

BUFFERS = [("cpu", "mmap"), ("cpu", "cache")]
MIB = 1 << 20


@pytest.fixture(params=BUFFERS, ids=lambda pair: "-".join(pair))
def buffer(request):
    device, kind = request.param
    return choose_buffer(torch.device(device), kind)


def test_a_new_buffer_holds_nothing(buffer):
    assert buffer.capacity_bytes == buffer.reserved_bytes == buffer.pinned_bytes == buffer.stale_bytes == 0


@pytest.mark.parametrize("nbytes", [0, 1, 256, 4095, 4096, 4097, 3 * MIB])
def test_a_tensor_has_exactly_the_size_asked_for_and_a_storage_of_its_own(buffer, nbytes):
    tensor = buffer.resize(nbytes)
    assert tensor.dtype == torch.uint8
    assert tensor.device == buffer.device
    assert tensor.shape == (nbytes,)
    assert tensor.untyped_storage().nbytes() == nbytes
    assert buffer.capacity_bytes == nbytes


def test_every_byte_can_be_written_and_read(buffer):
    tensor = buffer.resize(3 * MIB)
    tensor.copy_(torch.arange(3 * MIB) % 251)
    assert torch.equal(tensor, (torch.arange(3 * MIB) % 251).to(torch.uint8))


def test_a_shrink_returns_the_tail_to_the_system(buffer):
    tensor = buffer.resize(64 * MIB)
    tensor.fill_(1)
    full = buffer.system_bytes
    assert 0 <= buffer.reserved_bytes - 64 * MIB <= buffer.granule_bytes
    del tensor
    tensor = buffer.resize(8 * MIB)
    tensor.fill_(1)
    assert 0 <= buffer.reserved_bytes - 8 * MIB <= buffer.granule_bytes
    assert abs(full - buffer.system_bytes - 56 * MIB) <= buffer.granule_bytes
    del tensor
    buffer.resize(0)
    assert buffer.reserved_bytes == 0


def test_views_of_any_generation_pin_and_their_last_death_unpins(buffer):
    tensor = buffer.resize(4 * MIB)
    view = tensor[:10].view(torch.float16)
    del tensor
    assert buffer.pinned_bytes == 4 * MIB
    grown = buffer.resize(8 * MIB)
    del grown
    assert buffer.pinned_bytes + buffer.stale_bytes == 4 * MIB  # stale where the growth moved
    del view
    gc.collect()
    assert buffer.pinned_bytes == buffer.stale_bytes == 0


def test_reopening_covers_the_memory_that_living_views_use(buffer):
    tensor = buffer.resize(4 * MIB)
    view = tensor[100:200]
    view.fill_(7)
    del tensor
    again = buffer.reopen()
    assert again.data_ptr() + 100 == view.data_ptr()
    assert (again[100:200] == 7).all()


def test_an_abandoned_storage_lives_as_long_as_its_views(buffer):
    view = buffer.resize(4 * MIB)[:10]
    view.fill_(3)
    buffer.abandon()
    assert buffer.capacity_bytes == 0
    assert buffer.stale_bytes == 4 * MIB
    fresh = buffer.resize(4 * MIB)
    fresh.fill_(9)
    assert (view == 3).all()
    del view
    assert buffer.stale_bytes == 0


def test_a_refusal_leaves_it_empty_and_usable(buffer):
    buffer.resize(MIB)
    with pytest.raises(torch.OutOfMemoryError):
        buffer.resize(1 << 62)
    assert buffer.capacity_bytes == 0
    assert buffer.resize(MIB).numel() == MIB


def test_tensors_ignore_inference_mode_default_device_and_deterministic_fill(buffer):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.device("meta"), torch.inference_mode(False):
            tensor = buffer.resize(64 * MIB)
    finally:
        torch.use_deterministic_algorithms(before)
    assert tensor.device == buffer.device
    assert not tensor.is_inference()
    if buffer.device.type == "cpu":
        assert buffer.reserved_bytes <= buffer.granule_bytes  # nothing was filled


def test_it_works_in_another_thread(buffer):
    sizes = []
    thread = threading.Thread(target=lambda: sizes.append(buffer.resize(MIB).numel()))
    thread.start()
    thread.join()
    assert sizes == [MIB]


def test_an_unknown_kind_and_an_unserved_device_are_named():
    with pytest.raises(ValueError, match="no buffer 'mmpa'"):
        choose_buffer(torch.device("cpu"), "mmpa")
    with pytest.raises(ValueError, match="cuda"):
        choose_buffer(torch.device("cuda"))
