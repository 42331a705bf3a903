"""The offline optimum: the least any policy could have cost, knowing the whole trace beforehand."""

from reclaim.policy.optimum.clairvoyance import Schedule, clairvoyant

__all__ = ["Schedule", "clairvoyant"]
