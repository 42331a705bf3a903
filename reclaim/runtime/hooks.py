"""Wrap the forwards of a torch module without touching the code that calls it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from reclaim.runtime.reclaimer import EagerWorkspaceReclaimer

__all__ = ["AttachedReclaimer", "attach"]


class AttachedReclaimer:
    """What `attach` returns."""

    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hooks off again; a second call does nothing."""
        for handle in self._handles:
            handle.remove()
        self._handles = ()


class _Calls(threading.local):
    """For each running call of the module in this thread, whether its forward was begun."""

    def __init__(self) -> None:
        self.begun: list[bool] = []


def attach(module: torch.nn.Module, reclaimer: EagerWorkspaceReclaimer) -> AttachedReclaimer:
    """Make every call of `module` a forward of `reclaimer`, on the slot that is current then.

    The forward ends also when the module raises, and does not count then. Attach to the outermost module: one inside
    another on the same slot raises OverlappingForwardError. Leave both out of torch.compile: compile the modules
    inside, or call the compiled module within `reclaimer.forward()`.
    """
    calls = _Calls()

    def before(_module: torch.nn.Module, _args: Any) -> None:
        calls.begun.append(False)
        reclaimer.begin()
        calls.begun[-1] = True

    def after(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        # torch calls this with no output, while the exception is handled, when anything in the call raised; also when
        # `before` did, and then there is no forward to end.
        if calls.begun.pop():
            reclaimer.end(failed=output is None and sys.exc_info()[0] is not None)

    return AttachedReclaimer(
        module.register_forward_pre_hook(before, prepend=True), module.register_forward_hook(after, always_call=True)
    )
