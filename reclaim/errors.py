"""The exceptions that reclaim raises.

    ReclaimError
    ├── OverlappingForwardError   (RuntimeError)           a forward is already active on this scratch
    ├── WorkspaceStateError       (RuntimeError)           the call is not allowed in the present state
    ├── WorkspaceLockedError      (AssertionError)         a locked workspace would have to grow
    ├── WorkspaceOutOfMemoryError (torch.OutOfMemoryError) a growth failed; defined in reclaim.runtime.errors
    ├── TraceExistsError          (FileExistsError)        a recording would overwrite a file
    └── InputError                (ValueError)             something given cannot be used
        ├── TraceFormatError                               a file or an array is no valid trace
        └── PolicySpecError                                no such policy, or a bad parameter

Every one says what happened, with which values, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "InputError",
    "OverlappingForwardError",
    "PolicySpecError",
    "ReclaimError",
    "TraceExistsError",
    "TraceFormatError",
    "WorkspaceLockedError",
    "WorkspaceStateError",
]


class ReclaimError(Exception):
    """Base of every exception that reclaim raises on purpose."""


class OverlappingForwardError(ReclaimError, RuntimeError):
    """A forward was entered on a scratch that already has an active one."""


class WorkspaceStateError(ReclaimError, RuntimeError):
    """The call is not allowed in the present state, for example a release inside a forward."""


class WorkspaceLockedError(ReclaimError, AssertionError):
    """A locked workspace would have had to grow. An AssertionError too, as vLLM's callers expect."""


class InputError(ReclaimError, ValueError):
    """Something that was given cannot be used: a file, a name, a value."""


class TraceFormatError(InputError):
    """A file or an array is no valid trace; the message names the file, the line and the field."""


class TraceExistsError(ReclaimError, FileExistsError):
    """A recording would overwrite an existing file."""


class PolicySpecError(InputError):
    """A policy spec names no policy, or a parameter the policy does not take."""
