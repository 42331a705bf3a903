"""Fixtures for any test that wants an accelerator: `sim`."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from tests.simdev.build import Unavailable
from tests.simdev.simulated import DEVICES, Simulated, load


@pytest.fixture(scope="session")
def loaded_sim() -> Simulated:
    try:
        return load()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def sim(loaded_sim: Simulated) -> Iterator[Simulated]:
    """Two idle simulated devices with empty caches; tests that need them are skipped where they cannot be."""
    _clear(loaded_sim)
    yield loaded_sim
    _clear(loaded_sim)


def _clear(simulated: Simulated) -> None:
    simulated.reset()
    if any(torch.accelerator.memory_allocated(device) for device in range(DEVICES)):
        gc.collect()  # a test that failed leaves tensors in cycles
        simulated.reset()
