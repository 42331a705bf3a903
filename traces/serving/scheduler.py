"""Continuous batching: which tokens an engine would have run together, and when."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reclaim.traces.serving.requests import Requests

__all__ = ["Forwards", "Scheduler", "StepTime"]


@dataclass(frozen=True)
class StepTime:
    """Seconds of one forward: base + decode * sequences decoding + prefill * prompt tokens + context * sum(context).

    The defaults fit Llama-2-70B on 8 H100 with tensor parallelism: least squares of the relative error over the 210
    prompt and decode times that splitwise-sim publishes for it (data/perf_model.csv, MIT; Patel et al., ISCA 2024).
    Median error 7 %; prompts of 8,192 tokens are a third slower than the line says, and context shows no effect.
    """

    base_s: float = 0.0291
    decode_s: float = 0.000328
    prefill_s: float = 0.0000626
    context_s: float = 0.0

    def seconds(self, decoding: int, prefill_tokens: int, context_tokens: int) -> float:
        """The duration of one forward."""
        return (
            self.base_s + self.decode_s * decoding + self.prefill_s * prefill_tokens + self.context_s * context_tokens
        )


@dataclass(frozen=True, eq=False)
class Forwards:
    """What ran in each forward, in order of time.

    time_s, duration_s: float64 seconds.
    decode_tokens: sequences that decoded one token each.
    prefill_tokens: new prompt tokens.
    sequences: all sequences in the forward.
    context_tokens: the sum over its sequences of the tokens that each attends to.
    """

    time_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    decode_tokens: NDArray[np.int64]
    prefill_tokens: NDArray[np.int64]
    sequences: NDArray[np.int64]
    context_tokens: NDArray[np.int64]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """New tokens of each forward: decoded and prompt."""
        return self.decode_tokens + self.prefill_tokens

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True)
class Scheduler:
    """One forward at a time, none while idle; the rules of vLLM's default scheduler without a cache limit.

    Each decoding sequence takes one token of the budget first; then prompts begun earlier go on; then waiting
    requests are admitted in order of arrival. With `chunked` a prompt takes what is left of the budget; otherwise it
    runs whole as soon as it fits what is left, and one that exceeds the whole budget runs alone. The forward that
    ends a prompt gives its first output token.

    token_budget: new tokens of one forward at most.
    max_sequences: sequences in flight at most; not above the token budget.
    Raises ValueError on limits that no engine could run with.
    """

    token_budget: int = 8192
    max_sequences: int = 256
    chunked: bool = True
    step_time: StepTime = field(default_factory=StepTime)

    def __post_init__(self) -> None:
        if not 1 <= self.max_sequences <= self.token_budget:
            raise ValueError(
                f"need 1 <= max_sequences <= token_budget, got max_sequences={self.max_sequences}, "
                f"token_budget={self.token_budget}"
            )

    def run(self, requests: Requests) -> Forwards:
        """The forwards in which these requests would have been served."""
        batch = _Batch(self, requests)
        rows: list[tuple[float, float, int, int, int, int]] = []
        free = 0.0
        while (now := batch.next_work(free)) is not None:
            decoding, prefill, sequences, context = batch.step(now)
            duration = self.step_time.seconds(decoding, prefill, context)
            rows.append((now, duration, decoding, prefill, sequences, context))
            free = now + duration
        columns = list(zip(*rows, strict=True)) or [()] * 6
        times = [np.array(column, dtype=np.float64) for column in columns[:2]]
        counts = [np.array(column, dtype=np.int64) for column in columns[2:]]
        return Forwards(times[0], times[1], *counts)


class _Batch:
    """The sequences in flight. A step costs as many operations as sequences that begin, prefill or end in it."""

    def __init__(self, limits: Scheduler, requests: Requests) -> None:
        self._limits = limits
        self._arrivals: list[float] = requests.arrival_s.tolist()
        self._prompts: list[int] = requests.prompt_tokens.tolist()
        self._outputs: list[int] = requests.output_tokens.tolist()
        self._next = 0  # first request not yet admitted
        self._prefilling: deque[tuple[int, int]] = deque()  # (request, prompt tokens done)
        self._decoding = 0
        self._decode_context = 0  # tokens that the decoding sequences attend to, together
        self._step = 0
        self._leaving: defaultdict[int, list[int]] = defaultdict(list)  # last step -> requests

    def next_work(self, now: float) -> float | None:
        """When the next forward can begin: now, at the next arrival, or never."""
        if self._decoding or self._prefilling:
            return now
        if self._next == len(self._arrivals):
            return None
        return max(now, self._arrivals[self._next])

    def step(self, now: float) -> tuple[int, int, int, int]:
        """Run one forward; (decoding, prompt tokens, sequences, context tokens)."""
        decoding = self._decoding
        self._decode_context += decoding
        context = self._decode_context
        chunks = self._choose_chunks(now, self._limits.token_budget - decoding)
        for request, done, size in chunks:
            context += done + size
            if done + size == self._prompts[request]:
                self._begin_decode(request)
            else:
                self._prefilling.append((request, done + size))
        for request in self._leaving.pop(self._step, ()):
            self._decoding -= 1
            self._decode_context -= self._prompts[request] + self._outputs[request] - 1
        self._step += 1
        return decoding, sum(size for _, _, size in chunks), decoding + len(chunks), context

    def _choose_chunks(self, now: float, budget: int) -> list[tuple[int, int, int]]:
        """(request, tokens done before, tokens now) of each prompt in this forward."""
        chunks = []
        while self._prefilling and budget > 0:
            request, done = self._prefilling.popleft()
            size = min(self._prompts[request] - done, budget)
            chunks.append((request, done, size))
            budget -= size
        in_flight = self._decoding + len(self._prefilling) + len(chunks)
        while (
            self._next < len(self._arrivals)
            and self._arrivals[self._next] <= now
            and in_flight < self._limits.max_sequences
            and budget > 0
        ):
            prompt = self._prompts[self._next]
            alone = self._decoding == 0 and not chunks
            if not self._limits.chunked and prompt > budget and not (alone and prompt > self._limits.token_budget):
                break
            size = min(prompt, budget) if self._limits.chunked else prompt
            chunks.append((self._next, 0, size))
            budget -= size
            in_flight += 1
            self._next += 1
        return chunks

    def _begin_decode(self, request: int) -> None:
        """The prompt is done and has given the first output token; the others take one forward each."""
        further = self._outputs[request] - 1
        if further > 0:
            self._decoding += 1
            self._decode_context += self._prompts[request]
            self._leaving[self._step + further].append(request)
