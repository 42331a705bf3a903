"""Policies by name, with parameters written as text."""

from __future__ import annotations

import difflib
import inspect
from typing import Any, get_type_hints

from reclaim.errors import PolicySpecError
from reclaim.policy.base import ShrinkPolicy
from reclaim.policy.cost import CostModel
from reclaim.policy.exact_fit import ExactFitPolicy
from reclaim.policy.grow_only import GrowOnlyPolicy
from reclaim.policy.three_window import ThreeWindowPolicy
from reclaim.units import parse_bytes

__all__ = ["make", "names", "parameters", "policy_class"]

_POLICIES: dict[str, type[ShrinkPolicy]] = {
    policy.name: policy
    for policy in (
        GrowOnlyPolicy,
        ExactFitPolicy,
        ThreeWindowPolicy,
    )
}


def names() -> tuple[str, ...]:
    """The names that `make` accepts."""
    return tuple(_POLICIES)


def policy_class(name: str) -> type[ShrinkPolicy]:
    """The class behind a name. Raises PolicySpecError, naming the closest one, when there is none."""
    try:
        return _POLICIES[name]
    except KeyError:
        raise PolicySpecError(f"no policy {name!r}{_suggestion(name, names())}") from None


def parameters(name: str) -> dict[str, Any]:
    """The parameters that a spec may set for a policy, with their defaults."""
    signature = inspect.signature(policy_class(name).__init__)
    return {
        key: parameter.default
        for key, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and key != "cost"
    }


def make(spec: str, floor_bytes: int, cost: CostModel | None = None) -> ShrinkPolicy:
    """A policy from a spec: `name`, or `name:key=value,key=value`.

    make("three-window:forwards=5", 64 * MIB). Parameters ending in `_bytes` take sizes such as 64MiB.
    cost: handed to the policies that weigh memory against time.

    Raises PolicySpecError for an unknown name or parameter, a value of the wrong type or out of range, a
    parameter given twice, or a missing cost; ValueError if floor_bytes is negative.
    """
    name, _, text = spec.partition(":")
    policy = policy_class(name)
    arguments = _parse_parameters(spec, name, text)
    if "cost" in inspect.signature(policy.__init__).parameters:
        if cost is None:
            raise PolicySpecError(
                f"policy {name!r} weighs memory against time and needs a cost: pass cost=CostModel(..)"
            )
        arguments["cost"] = cost
    if floor_bytes < 0:
        raise ValueError(f"floor_bytes must not be negative, got {floor_bytes}")
    try:
        return policy(floor_bytes, **arguments)
    except ValueError as error:
        raise PolicySpecError(f"policy {spec!r}: {error}") from None


def _parse_parameters(spec: str, name: str, text: str) -> dict[str, Any]:
    known = tuple(parameters(name))
    types = get_type_hints(policy_class(name).__init__)
    arguments: dict[str, Any] = {}
    for item in text.split(",") if text else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise PolicySpecError(f"policy {spec!r}: {item!r} is not key=value")
        if key not in known:
            raise PolicySpecError(f"policy {spec!r}: {name} has no parameter {key!r}{_suggestion(key, known)}")
        if key in arguments:
            raise PolicySpecError(f"policy {spec!r}: {key} is given twice")
        try:
            arguments[key] = parse_bytes(value) if key.endswith("_bytes") else types[key](value)
        except ValueError:
            raise PolicySpecError(
                f"policy {spec!r}: {key}={value} should be {getattr(types[key], '__name__', types[key])}"
            ) from None
    return arguments


def _suggestion(given: str, known: tuple[str, ...]) -> str:
    if not known:
        return "; it takes none"
    close = difflib.get_close_matches(given, known, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ";"
    return f"{hint} known: {', '.join(known)}"
