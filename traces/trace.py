"""Demand by forward: the value that everything in this package reads or writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reclaim.errors import TraceFormatError
from reclaim.traces import events

__all__ = ["NOT_SAMPLED", "DemandTrace", "TraceSummary", "TraceWarning"]

_LONGEST_S = 1e12  # 30,000 years: beyond it the sums of a replay would lose whole forwards

NOT_SAMPLED = -1  # in capacity_bytes and reserved_bytes: nobody looked at this forward


class TraceWarning(UserWarning):
    """Something in a trace file was repaired or left out; the message says what and where."""


@dataclass(frozen=True)
class TraceSummary:
    """Figures of a trace; times in seconds, sizes in bytes.

    forwards: how many there are; span_s: from the first start to the last end; busy_s: time inside forwards.
    min/median/p99/max_bytes: demand over forwards.
    floor_bytes: the floor that the next two refer to (None: no floor known).
    covered: the share of forwards whose demand fits the floor.
    headroom_bytes: how far the largest demand lies above the floor.
    """

    forwards: int
    span_s: float
    busy_s: float
    min_bytes: int
    median_bytes: int
    p99_bytes: int
    max_bytes: int
    floor_bytes: int | None
    covered: float | None
    headroom_bytes: int | None


class DemandTrace:
    """The scratch demand of a run, one entry a forward, in order of time.

    time_s: float64, start of each forward in seconds from near 0; never decreases.
    duration_s: float64; where None, each forward lasts to the next start or the median gap, whichever is shorter.
    demand_bytes: int64, the largest request of the forward; 0 if it asked for nothing.
    capacity_bytes: int64 or None, the capacity held during the forward, -1 where not known.
    reserved_bytes: int64 or None, bytes taken from the system as measured at its end, -1 where not sampled.
    event: one text or None a forward, or None when there was none at all; see reclaim/traces/README.md.
    meta: what else is known: floor_bytes, granule_bytes, device, total_bytes, source, ...

    Raises TraceFormatError when lengths differ, a size is no integer or negative, or a time is not finite,
    negative or out of order.
    """

    __slots__ = ("capacity_bytes", "demand_bytes", "duration_s", "event", "meta", "reserved_bytes", "time_s")

    def __init__(
        self,
        *,
        time_s: ArrayLike,
        demand_bytes: ArrayLike,
        duration_s: ArrayLike | None = None,
        capacity_bytes: ArrayLike | None = None,
        reserved_bytes: ArrayLike | None = None,
        event: Iterable[str | None] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.time_s = _times("time_s", time_s)
        if (step := _first(np.diff(self.time_s) < 0)) is not None:
            raise TraceFormatError(
                f"time_s[{step + 1}] = {self.time_s[step + 1]} is before time_s[{step}] = {self.time_s[step]}"
            )
        self.duration_s = _guess_durations(self.time_s) if duration_s is None else _times("duration_s", duration_s)
        self.demand_bytes = _sizes("demand_bytes", demand_bytes, least=0)
        self.capacity_bytes = _optional_sizes("capacity_bytes", capacity_bytes)
        self.reserved_bytes = _optional_sizes("reserved_bytes", reserved_bytes)
        self.event: tuple[str | None, ...] | None = None if event is None else tuple(event)
        if self.event is not None and not any(self.event):
            self.event = None
        self.meta: dict[str, Any] = dict(meta or {})
        for name in ("duration_s", "demand_bytes", "capacity_bytes", "reserved_bytes", "event"):
            column: Sequence[Any] | None = getattr(self, name)
            if column is not None and len(column) != len(self.time_s):
                raise TraceFormatError(f"{name} has {len(column)} entries, time_s has {len(self.time_s)}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DemandTrace:
        """Read a file written by `save` or by a `TraceRecorder`. Raises TraceFormatError, OSError."""
        from reclaim.traces import formats

        return formats.read(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace: .jsonl, .jsonl.gz or .npz by the name. The file appears whole or not at all."""
        from reclaim.traces import formats

        formats.write(self, path)

    @property
    def end_s(self) -> NDArray[np.float64]:
        """The end of each forward: its start plus duration, at the latest the next start."""
        ends = self.time_s + self.duration_s
        ends[:-1] = np.minimum(ends[:-1], self.time_s[1:])
        return ends

    def reserved_steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The measured reserved bytes as steps: from times[i] on sizes[i].

        A forward is measured at its end. One that grew is taken to have held as much from its start on, since its
        pages are touched in it; one that shrank, or is only sampled, from its end on.
        """
        if self.reserved_bytes is None:
            return np.empty(0, dtype=np.float64), np.empty(0, dtype=np.int64)
        sampled = np.flatnonzero(self.reserved_bytes >= 0)
        ends = self.end_s
        times = [
            self.time_s[index] if self.event is not None and events.grown(self.event[index]) else ends[index]
            for index in sampled.tolist()
        ]
        return np.array(times, dtype=np.float64), self.reserved_bytes[sampled]

    @property
    def floor_bytes(self) -> int | None:
        """The floor of the recorded run, where known."""
        return self.meta.get("floor_bytes")

    def summary(self, *, floor_bytes: int | None = None) -> TraceSummary:
        """Figures of the trace, judged by `floor_bytes` or else by the recorded floor."""
        floor = self.floor_bytes if floor_bytes is None else floor_bytes
        demand = self.demand_bytes
        ends = self.end_s
        some = len(self) > 0
        return TraceSummary(
            forwards=len(self),
            span_s=float(ends[-1] - self.time_s[0]) if some else 0.0,
            busy_s=float((ends - self.time_s).sum()),
            min_bytes=int(demand.min()) if some else 0,
            median_bytes=_percentile(demand, 50),
            p99_bytes=_percentile(demand, 99),
            max_bytes=int(demand.max()) if some else 0,
            floor_bytes=floor,
            covered=None if floor is None or not some else float((demand <= floor).mean()),
            headroom_bytes=None if floor is None or not some else max(0, int(demand.max()) - floor),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    def __getitem__(self, part: slice) -> DemandTrace:
        """A stretch of the trace, with the times it had."""
        if not isinstance(part, slice):
            raise TypeError(f"index a trace with a slice, not {type(part).__name__}; its columns are arrays")
        # Where the run began says nothing about the middle of it.
        from_start = part.indices(len(self))[0] == 0
        meta = {key: value for key, value in self.meta.items() if from_start or key != "start_bytes"}
        return DemandTrace(
            time_s=self.time_s[part],
            duration_s=self.duration_s[part],
            demand_bytes=self.demand_bytes[part],
            capacity_bytes=None if self.capacity_bytes is None else self.capacity_bytes[part],
            reserved_bytes=None if self.reserved_bytes is None else self.reserved_bytes[part],
            event=None if self.event is None else self.event[part],
            meta=meta,
        )

    def __repr__(self) -> str:
        return f"<DemandTrace of {len(self)} forwards>"


def _first(wrong: NDArray[np.bool_]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _percentile(demand: NDArray[np.int64], percent: float) -> int:
    return int(np.percentile(demand, percent, method="higher")) if len(demand) else 0


def _times(name: str, values: ArrayLike) -> NDArray[np.float64]:
    given = np.asarray(values)
    if given.dtype == bool or given.ndim != 1 or (given.size and given.dtype.kind not in "iuf"):
        raise TraceFormatError(f"{name} must be a one-dimensional array of seconds, got {given.dtype} {given.shape}")
    times = given.astype(np.float64)
    if (wrong := _first(~((times >= 0) & (times < _LONGEST_S)))) is not None:  # also NaN
        raise TraceFormatError(f"{name}[{wrong}] = {times[wrong]} must be finite and not negative, and below 1e12 s")
    return times


def _sizes(name: str, values: ArrayLike, *, least: int) -> NDArray[np.int64]:
    given = np.asarray(values)
    if given.ndim != 1:
        raise TraceFormatError(f"{name} must be one-dimensional, got shape {given.shape}")
    if given.size and given.dtype.kind not in "iu":
        raise TraceFormatError(f"{name} must hold integers of bytes, got {given.dtype}")
    # Compare before the conversion: an unsigned value above 2^63 would wrap to a negative one.
    if (wrong := _first((given < least) | (given > np.iinfo(np.int64).max))) is not None:
        raise TraceFormatError(f"{name}[{wrong}] = {given[wrong]} is no size in bytes")
    return given.astype(np.int64)


def _optional_sizes(name: str, values: ArrayLike | None) -> NDArray[np.int64] | None:
    return None if values is None else _sizes(name, values, least=NOT_SAMPLED)


def _guess_durations(time_s: NDArray[np.float64]) -> NDArray[np.float64]:
    gaps = np.diff(time_s)
    median = float(np.median(gaps)) if len(gaps) else 0.0
    durations: NDArray[np.float64] = np.minimum(np.append(gaps, median), median)[: len(time_s)]
    return durations
