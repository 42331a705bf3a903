"""Scratch for graph capture: the declared scopes, and the selection of their own workspace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reclaim.runtime.selection import select, selection

__all__ = ["capture_declared", "use_graph_workspace"]

_lock = threading.Lock()
_open_scopes = 0


@contextmanager
def use_graph_workspace() -> Iterator[None]:
    """Let requests inside go to a workspace that is only for graphs, one for each slot.

    Run the warm-up of the graphs' shapes, largest first, and their capture inside. What a capture was handed from it
    never moves and never shrinks, and no reclaimer serves it, until `WorkspaceManager.release(graph=True)` after the
    graphs are gone. While such a scope is open in any thread, scratch on accelerators is not shrunk: freeing memory
    there would break a capture. A thread started inside does not inherit the choice.
    """
    global _open_scopes
    with _lock:
        _open_scopes += 1
    try:
        with select(selection()._replace(graph=True)):
            yield
    finally:
        with _lock:
            _open_scopes -= 1


def capture_declared() -> bool:
    """Whether any thread of the process is inside `use_graph_workspace`."""
    return _open_scopes > 0
