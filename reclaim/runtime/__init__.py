"""The engine's side: scratch, plans, the workspace manager and the reclaimer that wraps forwards."""

import logging

# A library says nothing unless asked to: without this, Python prints warnings of unconfigured loggers.
logging.getLogger("reclaim").addHandler(logging.NullHandler())
