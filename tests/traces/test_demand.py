from __future__ import annotations

import numpy as np
import pytest

from reclaim.traces.serving import Forwards, FusedMoE


def test_one_token_of_mixtral():
    # K = 4096, N/2 = 14336, N = 28672, 2 experts a token, 2 B an element.
    # first: max(1 * 2 * max(14336, 4096), 1 * 4096) = 28672 elements = 57,344 B
    # second: 1 * 2 * max(28672, 4096) = 57344 elements = 114,688 B; both are multiples of 256
    assert FusedMoE().bytes_for_tokens([1]).tolist() == [57_344 + 114_688]


def test_below_one_chunk_the_demand_grows_with_the_tokens():
    # 256 * 172,032 = 44,040,192; 8192 * 172,032 = 1,409,286,144
    assert FusedMoE().bytes_for_tokens([256, 8192]).tolist() == [44_040_192, 1_409_286_144]


def test_beyond_one_chunk_only_the_output_grows():
    # 65,536 tokens in chunks of 32,768, so 65,536 routed rows.
    # first: max(65536 * 14336, 65536 * 4096) = 939,524,096 elements; second: 65536 * 28672 = 1,879,048,192
    # 2^20 tokens: first: 2^20 * 4096 = 4,294,967,296 elements, more than 939,524,096; second as before
    one, two = FusedMoE().bytes_for_tokens([65_536, 2**20]).tolist()
    assert one == 2 * (939_524_096 + 1_879_048_192)
    assert two == 2 * (4_294_967_296 + 1_879_048_192)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_products_beyond_32_bits_do_not_wrap(dtype):
    # K = 32768, N/2 = 1, one expert, one row a chunk, 1 B an element.
    # first: 147456 * 32768 = 4,831,838,208 (536,870,912 modulo 2^32); second: 1 * 32768
    formula = FusedMoE(hidden=32768, intermediate=1, top_k=1, chunk_tokens=1, element_bytes=1)
    demand = formula.bytes_for_tokens(np.array([147456], dtype=dtype))
    assert demand.dtype == np.int64
    assert demand.tolist() == [4_831_838_208 + 32_768]


def test_each_part_is_rounded_up_to_256_bytes():
    # K = N/2 = 3, one expert, 1 B: first max(3, 3) = 3 -> 256; second max(6, 3) = 6 -> 256. For 100 tokens:
    # first 300 -> 512, second 600 -> 768
    formula = FusedMoE(hidden=3, intermediate=3, top_k=1, element_bytes=1)
    assert formula.bytes_for_tokens([1, 100]).tolist() == [512, 1280]


def test_no_tokens_ask_for_nothing():
    assert FusedMoE().bytes_for_tokens([0]).tolist() == [0]
    assert FusedMoE().bytes_for_tokens([]).tolist() == []


def test_the_demand_of_a_forward_is_that_of_its_new_tokens():
    zeros, ones = np.zeros(2), np.ones(2, np.int64)
    forwards = Forwards(zeros, zeros, np.array([3, 0]), np.array([4, 1]), ones, 1000 * ones)
    assert FusedMoE().bytes(forwards).tolist() == [7 * 172_032, 172_032]


def test_the_formula_describes_itself():
    assert FusedMoE(top_k=8).describe() == {
        "formula": "fused-moe",
        "hidden": 4096,
        "intermediate": 14336,
        "top_k": 8,
        "chunk_tokens": 32768,
        "element_bytes": 2,
    }
