from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reclaim.runtime.layout import ALIGNMENT, lay_out

DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.complex64, torch.float8_e4m3fn]
shapes = st.lists(st.integers(0, 40), max_size=4).map(tuple)


def test_parts_follow_each_other_at_multiples_of_256():
    # 3 x 5 floats: 60 B -> 256. 1000 bytes -> 1024. One int64: 8 B -> 256. Together 256 + 1024 + 256 = 1536.
    parts, nbytes = lay_out([((3, 5), torch.float32), ((1000,), torch.uint8), ((), torch.int64)])
    assert [(part.offset, part.nbytes) for part in parts] == [(0, 60), (256, 1000), (1280, 8)]
    assert nbytes == 1536


@given(st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=6))
def test_the_demand_is_the_end_of_the_last_part_rounded_up(requests):
    parts, nbytes = lay_out(requests)
    end = 0
    for part, (shape, dtype) in zip(parts, requests, strict=True):
        assert part.offset % ALIGNMENT == 0
        assert part.offset >= end
        assert part.nbytes == torch.Size(shape).numel() * dtype.itemsize
        end = part.offset + part.nbytes
    assert nbytes == -(-end // 256) * 256


def test_sizes_beyond_32_bits_are_exact_also_from_numpy_integers():
    # 147456 * 32768 = 4,831,838,208, which is 536,870,912 modulo 2^32
    (part,), nbytes = lay_out([((np.int32(147456), np.int32(32768)), torch.uint8)])
    assert part.nbytes == nbytes == 4_831_838_208
    assert part.shape == (147456, 32768)


def test_lists_are_shapes_too():
    assert lay_out([([2, 3], torch.uint8)]) == lay_out([((2, 3), torch.uint8)])


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (((-1,), torch.uint8), ValueError, r"request 1: shape \(-1,\) has a negative size"),
        (((1 << 40, 1 << 40), torch.uint8), ValueError, r"request 1: .* ends beyond 2\^63"),
        (((2.0,), torch.uint8), TypeError, "float"),
        (((2,), "uint8"), TypeError, "request 1: expected"),
    ],
)
def test_impossible_requests_are_refused_by_name(request_, error, message):
    with pytest.raises(error, match=message):
        lay_out([((1,), torch.uint8), request_])
