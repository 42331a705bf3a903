"""When to shrink: rules that decide, and the offline optimum they are measured against.

Nothing here allocates, reads a clock, does I/O or knows torch: a policy is told what happened and answers
with a capacity. The same objects decide inside `EagerWorkspaceReclaimer` and offline in `reclaim.replay`.
"""

if __name__ != "reclaim.policy":
    raise ImportError(f"this folder is the package reclaim.policy, not {__name__!r}: import reclaim.policy")

from reclaim.policy.base import ShrinkPolicy
from reclaim.policy.cost import CostModel
from reclaim.policy.exact_fit import ExactFitPolicy
from reclaim.policy.grow_only import GrowOnlyPolicy
from reclaim.policy.optimum import Schedule, clairvoyant
from reclaim.policy.registry import make, names, policy_class
from reclaim.policy.three_window import ThreeWindowPolicy

__all__ = [
    "CostModel",
    "ExactFitPolicy",
    "GrowOnlyPolicy",
    "Schedule",
    "ShrinkPolicy",
    "ThreeWindowPolicy",
    "clairvoyant",
    "make",
    "names",
    "policy_class",
]
