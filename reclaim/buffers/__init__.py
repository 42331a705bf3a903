"""Where scratch bytes come from, and how they go back to the system. One buffer a file."""

from reclaim.buffers.base import Buffer
from reclaim.buffers.select import choose_buffer

__all__ = ["Buffer", "choose_buffer"]
