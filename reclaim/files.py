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
    """Write beside `path` and rename over it at the end; on any exception `path` is left as it was.

    A link is followed, and what is no regular file, such as a device, is written to directly. OSErrors name `path`.
    """
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as file:
                yield file
            return
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with open(temporary, "xb") as file:
                yield file
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
