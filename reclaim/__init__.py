"""reclaim gives back the scratch memory of an inference engine's eager forwards.

Names are loaded when first used, so that `import reclaim.policy` and `import reclaim.traces` stay free of torch.
`__init__.pyi` says the same to type checkers.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

_NAMES = {
    "reclaim.analysis.compare": (
        "Comparison",
        "ComparisonRow",
        "compare",
    ),
    "reclaim.analysis.plot": ("plot_reserved",),
    "reclaim.analysis.replay": (
        "ReplayResult",
        "replay",
    ),
    "reclaim.buffers.base": ("Buffer",),
    "reclaim.errors": (
        "InputError",
        "OverlappingForwardError",
        "PolicySpecError",
        "ReclaimError",
        "TraceExistsError",
        "TraceFormatError",
        "WorkspaceLockedError",
        "WorkspaceStateError",
    ),
    "reclaim.policy": ("CostModel",),
    "reclaim.runtime.adopted": ("TensorScratch",),
    "reclaim.runtime.current": (
        "current_workspace_manager",
        "init_workspace_manager",
        "is_workspace_manager_initialized",
        "lock_workspace",
        "reset_workspace_manager",
        "unlock_workspace",
    ),
    "reclaim.runtime.hooks": ("attach",),
    "reclaim.runtime.errors": ("WorkspaceOutOfMemoryError",),
    "reclaim.runtime.graphs": ("use_graph_workspace",),
    "reclaim.runtime.manager": ("WorkspaceManager",),
    "reclaim.runtime.plan": ("WorkspacePlan",),
    "reclaim.runtime.reclaimer": ("EagerWorkspaceReclaimer",),
    "reclaim.runtime.scratch": ("Scratch",),
    "reclaim.runtime.selection": (
        "use_ubatch",
        "use_workspace_lane",
    ),
    "reclaim.runtime.stats": (
        "ReclaimerStats",
        "SlotReclaimStats",
        "SlotStats",
        "WorkspaceStats",
    ),
    "reclaim.traces": (
        "DemandTrace",
        "TraceRecorder",
    ),
    "reclaim.units": (
        "format_bytes",
        "parse_bytes",
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reclaim' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
