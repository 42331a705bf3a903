"""Which slot the running code asks: its micro-batch, its lane, and whether it is for graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["FIRST", "Selection", "select", "selection", "use_ubatch", "use_workspace_lane"]


class Selection(NamedTuple):
    """What a ContextVar holds. A thread started inside a scope does not inherit it."""

    ubatch: int = 0
    lane: int = 0
    graph: bool = False


FIRST = Selection()
"""The selection of code that selected nothing; compared by identity."""

_selected: ContextVar[Selection] = ContextVar("reclaim_slot", default=FIRST)

selection = _selected.get
"""The present selection. Every request asks, so this is the C function itself."""


@contextmanager
def select(chosen: Selection) -> Iterator[None]:
    """Let requests inside go where `chosen` says."""
    token = _selected.set(chosen)
    try:
        yield
    finally:
        _selected.reset(token)


@contextmanager
def use_workspace_lane(lane: int) -> Iterator[None]:
    """Let requests inside go to the slots of this lane. Raises ValueError when it is negative.

    A thread started inside does not inherit the choice.
    """
    if lane < 0:
        raise ValueError(f"lane must be non-negative, got {lane}")
    with select(selection()._replace(lane=lane)):
        yield


@contextmanager
def use_ubatch(ubatch: int) -> Iterator[None]:
    """Let requests inside go to the slots of this micro-batch. Raises ValueError when it is negative.

    A thread started inside does not inherit the choice.
    """
    if ubatch < 0:
        raise ValueError(f"ubatch must be non-negative, got {ubatch}")
    with select(selection()._replace(ubatch=ubatch)):
        yield
