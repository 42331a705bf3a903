"""Writing files so that a reader never sees half of one. Standard library only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["replace_file"]


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write beside `path` and rename over it at the end; on any exception `path` is left as it was."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
