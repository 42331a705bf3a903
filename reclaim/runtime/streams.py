"""Which stream of a device runs, and whether it is being captured. Asked on accelerators only, never on a CPU."""

from __future__ import annotations

import torch

__all__ = ["StreamWatch"]


class StreamWatch:
    """Host-side reads of the current stream of one device; but for `forget`, nothing here synchronises.

    A stream is told by its device and its number, since numbers repeat across devices.
    """

    def __init__(self, device: torch.device) -> None:
        self._index = device.index
        self._first: torch.Stream | None = None  # kept alive, so that no later stream can take its number
        self.settled: torch.Stream | None = None
        """The stream whose requests have nothing new to tell: the allocator knows of it, and it does not stray."""
        # What torch.accelerator.current_stream calls in the end, at a third of the time: every request asks it.
        self._current = getattr(torch._C, "_accelerator_getStream", torch.accelerator.current_stream)
        self._by_stream = hasattr(torch.Stream, "is_capturing")  # torch 2.13 and later
        self._by_cuda = not self._by_stream and device.type == "cuda"

    @property
    def sees_capture(self) -> bool:
        """Whether graph capture can be told on this device with this torch."""
        return self._by_stream or self._by_cuda

    def current(self) -> torch.Stream:
        """The stream on which the calling thread works on this device."""
        stream: torch.Stream = self._current(self._index)
        return stream

    def unsettled(self) -> bool:
        """Whether a request on the current stream must be looked at: a stream not settled, or captured."""
        stream = self._current(self._index)
        if stream != self.settled:
            return True
        return stream.is_capturing() if self._by_stream else self.capturing()

    def capturing(self, stream: torch.Stream | None = None) -> bool:
        """Whether the current stream, which may be passed, is being captured; False where that cannot be told."""
        if self._by_stream:
            return bool((stream or self.current()).is_capturing())  # type: ignore[attr-defined, unused-ignore]
        return self._by_cuda and torch.cuda.is_current_stream_capturing()

    def begin(self) -> bool:
        """Whether a forward may begin on the current stream: the first one to do so decides."""
        stream = self.current()
        if self._first is None:
            self._first = stream
            self.settled = None
        return not self.strays(stream)

    def strays(self, stream: torch.Stream) -> bool:
        """Whether a stream differs from that of the forwards; no stream does before the first forward."""
        first = self._first
        return first is not None and (stream.stream_id, stream.device_index) != (first.stream_id, first.device_index)

    def forget(self) -> None:
        """Wait for the device, and let the next forward decide which stream is right."""
        torch.accelerator.synchronize(self._index)
        self._first = self.settled = None
