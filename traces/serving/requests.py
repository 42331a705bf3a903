"""A log of requests: when each arrived and how many tokens went in and came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reclaim.errors import TraceFormatError

__all__ = ["Requests"]


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in order of arrival.

    arrival_s: float64, seconds from near 0, never decreasing.
    prompt_tokens, output_tokens: int64, at least 1 and 0.
    block_hashes: for each request the ids of its prompt's prefix blocks, where the log has them.
    meta: source and licence.

    Raises TraceFormatError on columns of different lengths, arrivals out of order, or impossible counts.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    block_hashes: tuple[tuple[int, ...], ...] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(self.arrival_s), len(self.prompt_tokens), len(self.output_tokens)}
        if self.block_hashes is not None:
            lengths.add(len(self.block_hashes))
        if len(lengths) > 1:
            raise TraceFormatError(f"the columns of a request log must have one length, got {sorted(lengths)}")
        if not (np.isfinite(self.arrival_s).all() and (np.diff(self.arrival_s, prepend=0.0) >= 0).all()):
            raise TraceFormatError("arrival_s must be finite, not negative and never decrease")
        if (self.prompt_tokens < 1).any() or (self.output_tokens < 0).any():
            raise TraceFormatError("every request needs at least 1 prompt token and 0 output tokens")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def between(self, start_s: float, end_s: float) -> Requests:
        """The requests that arrived in [start_s, end_s), with the times counted from start_s."""
        first, last = np.searchsorted(self.arrival_s, (start_s, end_s)).tolist()
        part = slice(first, last)
        return Requests(
            arrival_s=self.arrival_s[part] - start_s,
            prompt_tokens=self.prompt_tokens[part],
            output_tokens=self.output_tokens[part],
            block_hashes=None if self.block_hashes is None else self.block_hashes[part],
            meta=self.meta,
        )
