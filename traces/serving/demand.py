"""Bytes of scratch that a forward asks for, by kernel. One formula a class, each with its source.

Every part that a kernel holds is rounded up to 256 bytes, as the workspace manager does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reclaim.errors import InputError
from reclaim.traces.serving.scheduler import Forwards

__all__ = ["FusedMoE"]

_ALIGNMENT = 256


@dataclass(frozen=True)
class FusedMoE:
    """The two buffers of a fused mixture-of-experts layer.

    With M new tokens, run in chunks of at most chunk_tokens, K = hidden, N = 2 * intermediate (gate and up):

        first  = max(M_chunk * top_k * max(N / 2, K), M * K) elements   (activations and the output)
        second = M_chunk * top_k * max(N, K) elements                    (the gate-and-up product)

    Source: the workspace shapes of vLLM's fused MoE with Triton experts (workspace13 and workspace2).
    The defaults are Mixtral 8x7B in bf16 on one device.
    """

    hidden: int = 4096
    intermediate: int = 14336
    top_k: int = 2
    chunk_tokens: int = 32768
    element_bytes: int = 2

    def bytes(self, forwards: Forwards) -> NDArray[np.int64]:
        """The demand of each forward, int64."""
        return self.bytes_for_tokens(forwards.tokens)

    def bytes_for_tokens(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """The demand for each number of new tokens, int64. No tokens ask for nothing.

        Raises InputError beyond 2^61 bytes.
        """
        count = np.asarray(tokens, dtype=np.int64)  # int32 products would wrap from 2 GiB on
        widest = self.top_k * max(2 * self.intermediate, self.hidden) * self.element_bytes
        if int(count.max(initial=0)) * widest >= 2**61:  # in Python's integers, which do not wrap
            raise InputError(f"{self} asks for more than 2^61 bytes in one forward")
        routed = np.minimum(count, self.chunk_tokens) * self.top_k
        first = np.maximum(routed * max(self.intermediate, self.hidden), count * self.hidden)
        second = routed * max(2 * self.intermediate, self.hidden)
        return _aligned(first * self.element_bytes) + _aligned(second * self.element_bytes)

    def describe(self) -> dict[str, Any]:
        """The formula and its numbers, for the header of a trace."""
        return {"formula": "fused-moe", **asdict(self)}


def _aligned(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
