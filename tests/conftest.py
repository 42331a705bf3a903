"""What several test files use."""

from __future__ import annotations

import pytest
import torch

from reclaim import WorkspaceManager
from tests.simdev.fixture import loaded_sim, sim

__all__ = ["loaded_sim", "sim"]


@pytest.fixture
def workspace() -> WorkspaceManager:
    return WorkspaceManager("cpu")


@pytest.fixture
def ask(workspace):
    """ask(nbytes): a layer's request for so many bytes, written to and dropped."""

    def request(nbytes: int) -> None:
        (view,) = workspace.get_simultaneous(((nbytes,), torch.uint8))
        view.fill_(1)

    return request
