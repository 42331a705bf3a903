"""The process's own workspace manager, for engines whose layers find it by function, as vLLM's do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from reclaim.errors import WorkspaceStateError
from reclaim.runtime.manager import WorkspaceManager

__all__ = [
    "current_workspace_manager",
    "init_workspace_manager",
    "is_workspace_manager_initialized",
    "lock_workspace",
    "reset_workspace_manager",
    "unlock_workspace",
]

logger = logging.getLogger("reclaim")

_manager: WorkspaceManager | None = None


class _NotInitialisedError(WorkspaceStateError, AssertionError):
    """As an AssertionError too, which vLLM raises here."""


def init_workspace_manager(
    device: torch.device | str,
    num_ubatches: int | None = None,
    num_lanes: int = 1,
    alloc_context: Callable[[], AbstractContextManager[object]] = nullcontext,
    **options: object,
) -> None:
    """Make the process's manager; the arguments are those of `WorkspaceManager`. A second call warns and replaces."""
    global _manager
    if _manager is not None:
        logger.warning(
            "the workspace manager was already initialised on %s; it is replaced by one on %s", _manager.device, device
        )
    _manager = WorkspaceManager(device, num_ubatches, num_lanes, alloc_context, **options)  # type: ignore[arg-type]


def current_workspace_manager() -> WorkspaceManager:
    """The process's manager. Raises WorkspaceStateError, which is an AssertionError too, before it is made."""
    if _manager is None:
        raise _NotInitialisedError("there is no workspace manager yet: call init_workspace_manager(device) first")
    return _manager


def is_workspace_manager_initialized() -> bool:
    """Whether `init_workspace_manager` was called."""
    return _manager is not None


def reset_workspace_manager() -> None:
    """Forget the process's manager; its memory goes back with the last view."""
    global _manager
    _manager = None


def lock_workspace() -> None:
    """`WorkspaceManager.lock` of the process's manager."""
    current_workspace_manager().lock()


def unlock_workspace() -> None:
    """`WorkspaceManager.unlock` of the process's manager."""
    current_workspace_manager().unlock()
