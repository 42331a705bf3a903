"""The one error that needs torch; the others are in reclaim.errors."""

from __future__ import annotations

import torch

from reclaim.errors import ReclaimError

__all__ = ["WorkspaceOutOfMemoryError"]


class WorkspaceOutOfMemoryError(ReclaimError, torch.OutOfMemoryError):
    """A scratch could not grow. It is left empty and clean: a smaller request can be made at once."""
