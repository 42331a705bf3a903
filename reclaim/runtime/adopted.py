"""An engine's own workspace tensor, which its layers grow with resize_."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch

from reclaim.buffers.kernel import resident_bytes_at
from reclaim.buffers.memory import release_cached
from reclaim.runtime.errors import WorkspaceOutOfMemoryError
from reclaim.runtime.scratch import ScratchClient
from reclaim.runtime.streams import StreamWatch
from reclaim.units import format_bytes

__all__ = ["TensorScratch"]

logger = logging.getLogger("reclaim")

Flag = str | Callable[[Any], Any] | None


class TensorScratch:
    """Adopts a one-dimensional tensor that an engine keeps in an attribute, as TensorRT-LLM's metadata.workspace.

    Layers grow it: `if workspace.numel() < need: workspace.resize_(need)`. To measure a forward, its logical size is
    set to zero at the start, storage kept, so that the largest layer shows at the end; afterwards its numel is the
    capacity again. A shrink puts a new, smaller tensor of the same dtype and device into the attribute, after the old
    one is gone. The owner is held weakly; when it is collected, forwards pass through.

    A tensor that others hold is not replaced. One that the owner replaced or set to None is taken as it is, and said
    so once.
    """

    managed = False
    granule_bytes = 1
    address_stable = False
    locked = False

    def __init__(self, owner: object, attribute: str, *, reclaimable: Flag = None, graph: Flag = None) -> None:
        """Adopt `owner.attribute`.

        reclaimable, graph: the name of an attribute or method of the owner, or a callable taking the owner: whether the
            tensor may shrink now (None: always), and whether a forward belongs to a graph (None: never).
        Raises TypeError unless it is a one-dimensional contiguous tensor, and the owner can be referenced weakly.
        """
        tensor = getattr(owner, attribute)
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 1 or not tensor.is_contiguous():
            raise TypeError(f"{type(owner).__name__}.{attribute} must be a one-dimensional tensor, got {tensor!r:.80}")
        self.device = tensor.device
        self.streams = None if self.device.type == "cpu" else StreamWatch(self.device)
        self.captured_bytes = 0
        self.turn: list[None] = [None]
        self.required_bytes = 0
        self.required_by: str | None = None  # the layers do not say
        self.grew = False
        self.generation = 0
        self.reallocations = 0
        self.failed_growths = 0
        self.returned_bytes = 0
        self.grow_seconds = 0.0  # the layers' own, which nobody measures
        self._owner = weakref.ref(owner)
        self._attribute = attribute
        self._dtype = tensor.dtype
        self._reclaimable = reclaimable
        self._graph = graph
        self._floor_bytes = 0
        self._blocked_bytes = 0
        self._client: ScratchClient | None = None
        self._to_driver = True
        self._storage = weakref.ref(tensor.untyped_storage())  # what was there at the last look
        self._capacity_seen = self.capacity_bytes

    def __str__(self) -> str:
        return f"adopted {self._attribute}"

    @property
    def capacity_bytes(self) -> int:
        """See `Scratch`; 0 when the owner or its tensor is gone."""
        tensor = self._tensor()
        return 0 if tensor is None else tensor.untyped_storage().nbytes()

    @property
    def reserved_bytes(self) -> int:
        """On a CPU the resident bytes of its storage; elsewhere its size, which the caching allocator holds for it."""
        tensor = self._tensor()
        if tensor is None or tensor.device.type != "cpu":
            return self.capacity_bytes
        storage = tensor.untyped_storage()
        return resident_bytes_at(storage.data_ptr(), storage.nbytes())

    @property
    def stale_bytes(self) -> int:
        """See `Scratch`."""
        return self._blocked_bytes

    @property
    def reclaimable(self) -> bool:
        """See `Scratch`."""
        owner = self._owner()
        return owner is not None and (self._reclaimable is None or _read(owner, self._reclaimable))

    @property
    def in_graph(self) -> bool:
        """See `Scratch`."""
        owner = self._owner()
        return owner is not None and self._graph is not None and _read(owner, self._graph)

    def bind(self, floor_bytes: int, client: ScratchClient, *, to_driver: bool) -> int:
        """See `Scratch`. The layers own the growth, so a policy's grow_target is not asked."""
        if self._client is not None and self._client is not client:
            self._client.replaced()
        self._client = client
        self._to_driver = to_driver
        self._floor_bytes = floor_bytes
        return floor_bytes

    def begin_forward(self, *, measure: bool = True) -> None:
        """See `Scratch`."""
        self.required_bytes = 0
        self.grew = False
        tensor = self._look()
        self._capacity_seen = self.capacity_bytes
        if tensor is not None and (measure or self._capacity_seen > self._floor_bytes):
            _set_numel(tensor, 0)

    def end_capture(self) -> None:
        """See `Scratch`. Which layers took the address cannot be seen, so all of it counts as taken."""
        self.captured_bytes = self.capacity_bytes

    def end_forward(self) -> None:
        """See `Scratch`."""
        tensor = self._tensor()
        if tensor is None:
            return
        self.required_bytes = tensor.numel() * tensor.element_size()
        capacity = tensor.untyped_storage().nbytes()
        if capacity > self._capacity_seen:
            self.grew = True
            self.reallocations += 1
        if capacity < self._floor_bytes:
            _set_numel(tensor, self._floor_bytes // tensor.element_size())
        self._look()
        _set_numel(tensor, tensor.untyped_storage().nbytes() // tensor.element_size())

    def reallocate(self, nbytes: int) -> bool:
        """See `Scratch`."""
        owner, tensor = self._owner(), self._tensor()
        if owner is None or tensor is None:
            return False
        address, before = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        reserved = self._allocator_bytes(address, before)
        held = weakref.ref(tensor)
        storage = weakref.ref(tensor.untyped_storage())
        setattr(owner, self._attribute, None)
        del tensor
        if storage() is not None:
            setattr(owner, self._attribute, held() if held() is not None else self._over(storage()))
            self._blocked_bytes = before - nbytes
            return False
        if self._to_driver:
            release_cached(self.device)
        self.returned_bytes += max(0, reserved - self._allocator_bytes(address, before))
        self._blocked_bytes = 0
        try:
            self._put(owner, nbytes)
        except torch.OutOfMemoryError as error:
            self._put(owner, 0)
            raise WorkspaceOutOfMemoryError(
                f"{type(owner).__name__}.{self._attribute} could not get {format_bytes(nbytes)} on {self.device} after "
                f"{format_bytes(before)} were released, and is empty: {error}"
            ) from error
        return True

    def _tensor(self) -> torch.Tensor | None:
        tensor = getattr(self._owner(), self._attribute, None)
        return tensor if isinstance(tensor, torch.Tensor) else None

    def _look(self) -> torch.Tensor | None:
        """The tensor as it is now; another storage than last time is a new generation."""
        tensor = self._tensor()
        storage = None if tensor is None else tensor.untyped_storage()
        if tensor is None and self._owner() is not None and self._capacity_seen:
            logger.error("%s was set to None from outside; forwards pass through until it is a tensor", self._attribute)
        if storage is not self._storage():
            self.generation += 1
        if storage is not None:
            self._storage = weakref.ref(storage)
        return tensor

    def _put(self, owner: object, nbytes: int) -> None:
        elements = nbytes // self._dtype.itemsize
        with torch.inference_mode(False):
            tensor = torch.empty(elements, dtype=self._dtype, device=self.device)
        setattr(owner, self._attribute, tensor)
        self._storage = weakref.ref(tensor.untyped_storage())
        self.generation += 1

    def _over(self, storage: torch.UntypedStorage | None) -> torch.Tensor:
        assert storage is not None
        with torch.inference_mode(False):
            empty = torch.empty(0, dtype=self._dtype, device=self.device)
            return empty.set_(storage, 0, (storage.nbytes() // self._dtype.itemsize,))  # type: ignore[call-overload, no-any-return]

    def _allocator_bytes(self, address: int, nbytes: int) -> int:
        """What the system holds: of this storage on a CPU, of the whole allocator elsewhere."""
        if self.device.type == "cpu":
            return resident_bytes_at(address, nbytes)
        return int(torch.accelerator.memory_reserved(self.device.index))


def _read(owner: object, flag: str | Callable[[Any], Any]) -> bool:
    value = getattr(owner, flag) if isinstance(flag, str) else flag(owner)
    return bool(value() if isinstance(flag, str) and callable(value) else value)


def _set_numel(tensor: torch.Tensor, elements: int) -> None:
    # A tensor made in inference mode can only be resized there.
    with torch.inference_mode(tensor.is_inference()):
        tensor.resize_(elements)
