"""What the mmap buffer promises beyond the contract."""

from __future__ import annotations

import mmap
import os

import pytest
import torch

from reclaim.buffers.kernel import resident_bytes
from reclaim.buffers.mmap import MmapBuffer

MIB = 1 << 20


def process_resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_the_address_is_stable_over_growth_and_shrink():
    buffer = MmapBuffer()
    addresses = [buffer.resize(size).data_ptr() for size in (MIB, 64 * MIB, 2 * MIB, 128 * MIB)]
    assert len(set(addresses)) == 1
    assert addresses[0] % 256 == 0
    assert buffer.address_stable


def test_address_space_takes_no_memory():
    before = process_resident_bytes()
    buffer = MmapBuffer(max_bytes=os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE)
    buffer.resize(1024 * MIB)
    assert buffer.reserved_bytes == 0
    assert process_resident_bytes() - before < 16 * MIB


def test_a_shrink_is_visible_in_the_process():
    buffer = MmapBuffer()
    buffer.resize(256 * MIB).fill_(1)
    full = process_resident_bytes()
    buffer.resize(16 * MIB)
    # 240 MiB went back; the rest of the process may move by a few MiB meanwhile.
    assert full - process_resident_bytes() > 220 * MIB


def test_the_kept_part_keeps_its_content_and_the_tail_comes_back_zeroed():
    buffer = MmapBuffer()
    buffer.resize(8 * MIB).fill_(5)
    kept = buffer.resize(2 * MIB)
    assert (kept == 5).all()
    del kept
    grown = buffer.resize(8 * MIB)
    assert (grown[: 2 * MIB] == 5).all()
    assert (grown[2 * MIB :] == 0).all()


def test_a_shrink_within_a_page_keeps_the_page():
    buffer = MmapBuffer()
    buffer.resize(3 * mmap.PAGESIZE).fill_(1)
    buffer.resize(mmap.PAGESIZE + 256)
    assert buffer.reserved_bytes == 2 * mmap.PAGESIZE


def test_outgrowing_max_bytes_moves_and_says_so():
    buffer = MmapBuffer(max_bytes=4 * MIB)
    view = buffer.resize(4 * MIB)[:256]
    view.fill_(7)
    grown = buffer.resize(16 * MIB)
    grown.fill_(1)
    assert not buffer.address_stable
    assert (view == 7).all()  # the old mapping lives on for its view
    assert buffer.stale_bytes == 4 * MIB
    assert buffer.reserved_bytes == 16 * MIB + 4 * MIB
    del view
    assert buffer.stale_bytes == 0
    assert buffer.reserved_bytes == 16 * MIB


def test_max_bytes_must_be_positive():
    with pytest.raises(ValueError, match="max_bytes"):
        MmapBuffer(max_bytes=0)


def test_residency_counts_pages_written():
    mapping = mmap.mmap(-1, 16 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert resident_bytes(mapping, len(mapping)) == 0
    for page in (0, 3, 15):
        mapping[page * mmap.PAGESIZE] = 1
    assert resident_bytes(mapping, len(mapping)) == 3 * mmap.PAGESIZE
    assert resident_bytes(mapping, mmap.PAGESIZE + 1) == mmap.PAGESIZE
    assert resident_bytes(mapping, 0) == 0


def test_a_tensor_outlives_its_buffer():
    tensor = MmapBuffer().resize(MIB)
    tensor.fill_(4)
    assert int(tensor.to(torch.int64).sum()) == 4 * MIB
