"""What a slot keeps for the life of its manager, by key: counters, semaphores, descriptors."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from reclaim.errors import WorkspaceLockedError, WorkspaceStateError
from reclaim.runtime.caller import caller

__all__ = ["PersistentStore"]


class PersistentStore:
    """One object for each key. Resizing the scratch never touches them."""

    __slots__ = ("_being_made", "_objects", "_where", "locked")

    def __init__(self, where: str) -> None:
        """`where`: the slot, for messages."""
        self.locked = False
        self._where = where
        self._objects: dict[Hashable, Any] = {}
        self._being_made: set[Hashable] = set()

    def get(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """The object of `key`, made by `factory` at the first request. A factory may ask for other keys.

        Raises WorkspaceLockedError for a new key while locked, WorkspaceStateError when a factory asks for its own.
        """
        try:
            return self._objects[key]
        except KeyError:
            pass
        if self.locked:
            raise WorkspaceLockedError(
                f"Workspace is locked but {key!r} was not allocated during warmup for {self._where}; asked for by "
                f"'{caller()}'. Ask for it once before lock(), or unlock() first."
            )
        if key in self._being_made:
            raise WorkspaceStateError(f"the factory of {key!r} in {self._where} asks for {key!r} itself")
        self._being_made.add(key)
        try:
            made = self._objects[key] = factory()
        finally:
            self._being_made.discard(key)
        return made

    def __len__(self) -> int:
        return len(self._objects)
