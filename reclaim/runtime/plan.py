"""A request worked out once, with its views kept until the scratch changes."""

from __future__ import annotations

import threading
from weakref import WeakSet

import torch

from reclaim.runtime.layout import Part

__all__ = ["PlanRegister", "WorkspacePlan"]


class WorkspacePlan:
    """What `WorkspaceManager.plan` returns and `WorkspaceManager.get` takes.

    Keep it as long as the shapes stay the same, for example one for each token bucket. Its views are those of the
    scratch's current generation; a resize drops them, so that a plan never holds old memory, and the next `get`
    cuts new ones.
    """

    __slots__ = ("__weakref__", "name", "parts", "register", "required_bytes", "views")

    def __init__(self, parts: tuple[Part, ...], required_bytes: int, register: PlanRegister, name: str) -> None:
        self.name = name
        self.parts = parts
        self.required_bytes = required_bytes
        self.register = register
        self.views: dict[object, tuple[torch.Tensor, ...]] = {}  # by slot; what is missing is to be cut
        register.add(self)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{part.dtype}{list(part.shape)}" for part in self.parts)
        return f"<WorkspacePlan {self.name!r} of {self.required_bytes} bytes: {shapes}>"


class PlanRegister:
    """The plans of one manager, held weakly, so that a resize in one thread can drop the views of all of them."""

    def __init__(self) -> None:
        self._plans: WeakSet[WorkspacePlan] = WeakSet()
        self._lock = threading.Lock()

    def add(self, plan: WorkspacePlan) -> None:
        """Register a plan."""
        with self._lock:
            self._plans.add(plan)

    def drop_views(self, slot: object) -> None:
        """Forget every plan's views of one slot."""
        with self._lock:
            for plan in self._plans:
                plan.views.pop(slot, None)
