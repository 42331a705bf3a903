"""What a recording says of a forward besides its numbers; README.md has the table.

An event is one word, or several joined by commas, the last of which tells how the forward was treated.
"""

from __future__ import annotations

__all__ = [
    "ABORTED",
    "GREW",
    "REARMED",
    "SHRANK",
    "UNRECLAIMABLE",
    "by",
    "disabled",
    "forgets",
    "grown",
    "is_disabled",
    "join",
    "passed",
    "skipped",
    "unseen",
]

GREW = "grew"
SHRANK = "shrank"
ABORTED = "aborted"
REARMED = "rearmed"
UNRECLAIMABLE = "pass:unreclaimable"

_DISABLED = "disabled:"


def by(name: str) -> str:
    """The plan that set the demand; commas in its name would read as further events."""
    return f"by:{name.replace(',', ';')}"


def passed(reason: str) -> str:
    """The forward passed through, unseen by the policy: graph, dummy, capture or warmup."""
    return f"pass:{reason}"


def skipped(reason: str) -> str:
    """A shrink was due and not carried out: pinned, locked or out-of-memory."""
    return f"skipped:{reason}"


def disabled(reason: str) -> str:
    """Reclaiming was off, for one of the reasons that `EagerWorkspaceReclaimer.disabled_reason` gives."""
    return f"{_DISABLED}{reason}"


def join(first: str, second: str | None) -> str:
    """Both events, in this order."""
    return first if second is None else f"{first},{second}"


def grown(event: str | None) -> bool:
    """Whether the scratch grew in such a forward and did not shrink at its end."""
    return _last(event) == GREW


def unseen(event: str | None) -> bool:
    """Whether the policy knows nothing of such a forward, and its state stays."""
    last = _last(event)
    return last.startswith("pass:") and last != UNRECLAIMABLE


def forgets(event: str | None) -> bool:
    """Whether the policy was reset by such a forward, and did not observe it."""
    last = _last(event)
    return last in (ABORTED, UNRECLAIMABLE) or last.startswith(_DISABLED)


def is_disabled(event: str | None) -> bool:
    """Whether reclaiming was off in such a forward."""
    return _last(event).startswith(_DISABLED)


def _last(event: str | None) -> str:
    return event.rpartition(",")[2] if event else ""
