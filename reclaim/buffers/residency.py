"""How much of a mapping is in memory, asked of the kernel."""

from __future__ import annotations

import ctypes
import mmap

__all__ = ["resident_bytes"]

_CHUNK_PAGES = 1 << 20  # bounds the vector that mincore fills to 1 MiB


def resident_bytes(mapping: mmap.mmap, nbytes: int) -> int:
    """Resident bytes among the first `nbytes` of a private anonymous mapping. About 1 ms for 256 MiB.

    mincore, not /proc/self/smaps: the kernel merges neighbouring anonymous mappings into one smaps entry.
    """
    if nbytes == 0:
        return 0
    page = mmap.PAGESIZE
    anchor = ctypes.c_char.from_buffer(mapping)  # holds the mapping open while its address is in use
    address = ctypes.addressof(anchor)
    pages = -(-nbytes // page)
    resident = 0
    vector = (ctypes.c_ubyte * min(pages, _CHUNK_PAGES))()
    for first in range(0, pages, _CHUNK_PAGES):
        count = min(_CHUNK_PAGES, pages - first)
        if _mincore(address + first * page, count * page, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
        resident += bytes(memoryview(vector)[:count]).count(1)
    return resident * page


def _load_mincore() -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    function = ctypes.CDLL(None, use_errno=True).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


_mincore = _load_mincore()
