"""reclaim policies: which there are, and what can be set."""

from __future__ import annotations

import inspect
from typing import Any

from reclaim.cli.common import JsonOption, print_json, print_table

__all__ = ["policies"]


def policies(json: JsonOption = False) -> None:
    """List the policies, their parameters and defaults."""
    from reclaim.policy import names, policy_class
    from reclaim.policy.registry import parameters

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "parameters": parameters(name),
            "rule": (inspect.getdoc(policy_class(name)) or "").partition("\n")[0],
        }
        for name in names()
    ]
    if json:
        print_json({"schema": "reclaim.policies/1", "policies": rows})
        return
    print_table(
        "",
        ("policy", "parameters", "rule"),
        [
            (row["name"], ", ".join(f"{key}={value}" for key, value in row["parameters"].items()) or "-", row["rule"])
            for row in rows
        ],
        left=3,
    )
