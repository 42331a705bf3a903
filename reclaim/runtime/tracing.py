"""Where torch traces instead of running, scratch cannot be handed out."""

from __future__ import annotations

import torch

from reclaim.errors import WorkspaceStateError

__all__ = ["refuse_tracing"]


def refuse_tracing() -> None:
    """Raise WorkspaceStateError while torch.compile traces the caller.

    Without fullgraph, torch.compile takes that as a break of the graph and runs the request as it stands.
    """
    if torch.compiler.is_compiling():
        raise WorkspaceStateError(
            "scratch cannot be requested inside a compiled region: request it outside and pass the views in, or "
            "within a custom op that torch.compile does not look into"
        )
