"""Which stream runs, and whether it is being captured. Asked on accelerators only, never on a CPU."""

from __future__ import annotations

import torch

__all__ = ["StreamWatch"]


class StreamWatch:
    """Host-side reads of the current stream of one accelerator; nothing here synchronises."""

    def __init__(self, device: torch.device) -> None:
        self._first: torch.Stream | None = None
        self._by_stream = hasattr(torch.Stream, "is_capturing")  # torch 2.13 and later
        self._by_cuda = not self._by_stream and device.type == "cuda"

    @property
    def sees_capture(self) -> bool:
        """Whether graph capture can be told on this device with this torch."""
        return self._by_stream or self._by_cuda

    def capturing(self) -> bool:
        """Whether the current stream is being captured; False where that cannot be told."""
        if self._by_stream:
            return bool(torch.accelerator.current_stream().is_capturing())  # type: ignore[attr-defined, unused-ignore]
        return self._by_cuda and torch.cuda.is_current_stream_capturing()

    def changed(self) -> bool:
        """Whether the current stream differs from the first one seen.

        Handles repeat across devices, so the device index counts too. The first stream is kept alive, so that no
        later one can take its handle.
        """
        stream = torch.accelerator.current_stream()
        if self._first is None:
            self._first = stream
        return (stream.device_index, stream.stream_id) != (self._first.device_index, self._first.stream_id)

    def forget(self) -> None:
        """Wait for the device, and take the next stream seen as the first."""
        torch.accelerator.synchronize()
        self._first = None
