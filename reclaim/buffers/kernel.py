"""What only the system can say or do about memory, and Python's mmap module does not offer."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

__all__ = ["allow_access", "resident_bytes", "resident_bytes_at", "trim_heap"]

_CHUNK_PAGES = 1 << 20  # bounds the vector that mincore fills to 1 MiB


def resident_bytes(mapping: mmap.mmap, nbytes: int) -> int:
    """Resident bytes among the first `nbytes` of a private anonymous mapping. About 1 ms for 256 MiB.

    mincore, not /proc/self/smaps: the kernel merges neighbouring anonymous mappings into one smaps entry.
    """
    if nbytes == 0:
        return 0
    anchor = ctypes.c_char.from_buffer(mapping)  # holds the mapping open while its address is in use
    return resident_bytes_at(ctypes.addressof(anchor), nbytes)


def resident_bytes_at(address: int, nbytes: int) -> int:
    """Resident bytes of the whole pages that hold [address, address + nbytes); none where nothing is mapped.

    On systems without mincore the size itself, since nothing better is known.
    """
    if _mincore is None:
        return nbytes
    page = mmap.PAGESIZE
    start = address - address % page
    pages = -(-(address + nbytes - start) // page) if nbytes else 0
    resident = 0
    vector = (ctypes.c_ubyte * max(1, min(pages, _CHUNK_PAGES)))()
    for first in range(0, pages, _CHUNK_PAGES):
        count = min(_CHUNK_PAGES, pages - first)
        if _mincore(start + first * page, count * page, vector) == 0:  # fails where the range is not all mapped
            resident += bytes(memoryview(vector)[:count]).count(1)
    return resident * page


def allow_access(mapping: mmap.mmap, nbytes: int) -> None:
    """Allow reading and writing the first `nbytes` of a mapping, a whole number of pages, and nothing above them.

    Raises OSError when the kernel refuses.
    """
    anchor = ctypes.c_char.from_buffer(mapping)
    address, size = ctypes.addressof(anchor), len(mapping)
    for start, length, access in (
        (address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE),
        (address + nbytes, size - nbytes, 0),
    ):
        if length and _mprotect(start, length, access) != 0:
            raise OSError(ctypes.get_errno(), "mprotect failed")


def trim_heap() -> None:
    """Let malloc give freed memory back to the system, where it can be told to.

    It keeps a large block that was carved from the top of its heap, up to 64 MiB, which no size of ours lowers.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


def _load(name: str, *arguments: Any) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:  # malloc_trim is glibc's own
        return None
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function


_mincore = _load("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_malloc_trim = _load("malloc_trim", ctypes.c_size_t)
_mprotect = _load("mprotect", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
