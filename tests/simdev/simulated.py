"""Two simulated accelerators, `sim:0` and `sim:1`, in this process, and what a test can do to them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tests.simdev.build import Unavailable, build

NAME = "sim"
DEVICES = 2


@dataclass(frozen=True)
class Counts:
    """What one device did since the last reset."""

    segments_allocated: int
    segments_freed: int
    frees_under_capture: int
    """Of `segments_freed`, those while a stream of any device was captured: on CUDA, each is an error."""
    empty_cache_calls: int
    """Calls of `torch.accelerator.empty_cache` with this device current. Each empties the caches of all devices."""
    host_waits: int
    """Waits for an event, a stream or the device, copies from and to the host, `item`, operators run on the CPU."""


class Simulated:
    """The hand on the devices. A stream is a `torch.Stream`, or the id of one of `device`; 0 is the default stream."""

    def step(self, stream: torch.Stream | int = 0, device: int = 0) -> bool:
        """Run the oldest piece of work. False if there is none, or if it waits for an event still to be reached."""
        return bool(torch.ops.simdev.step(*_place(stream, device)))

    def pending(self, stream: torch.Stream | int = 0, device: int = 0) -> int:
        """How many pieces of work have not run; events recorded and waited for are some of them."""
        return int(torch.ops.simdev.pending(*_place(stream, device)))

    def hang(self, stream: torch.Stream | int = 0, device: int = 0) -> None:
        """Put in work that never ends: until the next reset, waiting for it is an error."""
        torch.ops.simdev.hang(*_place(stream, device))

    def capture(self, on: bool, stream: torch.Stream | int = 0, device: int = 0) -> None:
        """Say whether a stream is being captured. Its work is queued and run as ever."""
        torch.ops.simdev.capture(*_place(stream, device), on)

    @contextmanager
    def capturing(self, stream: torch.Stream | int = 0, device: int = 0) -> Iterator[None]:
        """A stream is being captured inside."""
        self.capture(True, stream, device)
        try:
            yield
        finally:
            self.capture(False, stream, device)

    def set_limit(self, nbytes: int | None, device: int = 0) -> None:
        """Have so much memory in a device; None for the 64 GiB it starts with."""
        torch.ops.simdev.set_limit(nbytes, device)

    def counts(self, device: int = 0) -> Counts:
        """What this device did since the last reset."""
        return Counts(*torch.ops.simdev.counts(device))

    def reset(self) -> None:
        """Run what is pending and start over, with the default streams of device 0. Tensors stay as they are."""
        torch.ops.simdev.reset()


def load() -> Simulated:
    """Build the devices if need be, and make `sim` a device type of torch, until the process ends.

    From then on `torch.accelerator` means them. Raises `Unavailable` where that cannot be or would hide a real device.
    """
    known = getattr(torch, NAME, None)
    if known is not None:
        return known.simulated  # type: ignore[no-any-return]
    real = torch.accelerator.current_accelerator(check_available=True)
    if real is not None:
        raise Unavailable(f"torch.accelerator is {real.type} here, which the simulated one would hide")
    torch.ops.load_library(str(build()))
    torch.utils.rename_privateuse1_backend(NAME)
    module = _device_module()
    torch._register_device_module(NAME, module)
    return module.simulated  # type: ignore[no-any-return]


def _place(stream: torch.Stream | int, device: int) -> tuple[int, int]:
    return (stream, device) if isinstance(stream, int) else (stream.stream_id, stream.device_index)


def _device_module() -> types.ModuleType:
    """`torch.sim`: what torch looks for in the module of a device type."""
    module = types.ModuleType(f"torch.{NAME}")
    functions = {
        "is_available": lambda: True,
        "device_count": lambda: DEVICES,
        "current_device": torch.accelerator.current_device_index,
        # Asked by torch.manual_seed; random numbers for these devices come from the CPU's generator.
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda seed: None,
    }
    module.__dict__.update(functions, simulated=Simulated())
    return module
