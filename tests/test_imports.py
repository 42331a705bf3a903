"""The arrows between packages, and what importing must not do."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest

import reclaim

ROOT = Path(__file__).parent.parent
FOLDERS = {"reclaim": ROOT / "reclaim", "reclaim.policy": ROOT / "policy", "reclaim.traces": ROOT / "traces"}

# What each package may import of ours, itself aside. The order is the direction of the arrows.
BASE = {"reclaim.errors", "reclaim.units", "reclaim.files"}
ANALYSIS = BASE | {"reclaim.policy", "reclaim.traces"}
RUNTIME = ANALYSIS | {"reclaim.analysis", "reclaim.buffers"}
ALLOWED = {
    "reclaim.errors": set(),
    "reclaim.units": set(),
    "reclaim.files": set(),
    "reclaim.policy": {"reclaim.errors", "reclaim.units"},
    "reclaim.traces": BASE,
    "reclaim.analysis": ANALYSIS,
    "reclaim.buffers": BASE,
    "reclaim.runtime": RUNTIME,
    "reclaim.cli": RUNTIME | {"reclaim.runtime", "reclaim"},
    "reclaim.__main__": {"reclaim.cli"},
    "reclaim": set(),
}
TORCH_FREE = (
    "reclaim.errors",
    "reclaim.units",
    "reclaim.files",
    "reclaim.policy",
    "reclaim.traces",
    "reclaim.analysis",
)


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "reclaim" and parts[0] in ("policy", "traces"):
                continue
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def group(module: str) -> str:
    return max((name for name in ALLOWED if module == name or module.startswith(name + ".")), key=len)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_one_way(module):
    mine = group(module)
    for name in imports(modules()[module]):
        if name.split(".")[0] == "reclaim":
            assert group(name) in ALLOWED[mine] | {mine}, f"{module} imports {name}"
        if name.split(".")[0] == "torch":
            assert mine not in TORCH_FREE, f"{module} imports torch"


@pytest.mark.parametrize(
    "name", ["reclaim.policy", "reclaim.traces", "reclaim.analysis.compare", "reclaim.analysis.plot"]
)
def test_offline_packages_load_neither_torch_nor_matplotlib(name):
    code = f"import sys, {name}; print([m for m in ('torch', 'matplotlib', 'typer') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_survives_any_order_of_imports():
    for seed in range(3):
        order = sorted(name for name in modules() if name != "reclaim.__main__")
        random.Random(seed).shuffle(order)
        code = (
            "import importlib, types, reclaim\n"
            f"for name in {order!r}: importlib.import_module(name)\n"
            "print([name for name in reclaim.__all__ if isinstance(getattr(reclaim, name), types.ModuleType)])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("[]\n", "")


def test_public_names_are_what_the_stub_says():
    stub = ast.parse((ROOT / "reclaim" / "__init__.pyi").read_text())
    declared = {
        (alias.asname, node.module) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    actual = {(name, module) for module, names in reclaim._NAMES.items() for name in names}
    assert declared == actual
    for name in reclaim.__all__:
        assert not isinstance(getattr(reclaim, name), types.ModuleType)
    assert set(reclaim.__all__) <= set(dir(reclaim))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'repaly'"):
        reclaim.repaly  # noqa: B018


@pytest.mark.parametrize("name", ["policy", "traces"])
def test_a_mapped_folder_imported_by_its_own_name_says_the_right_one(name):
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"import reclaim.{name}" in done.stderr.splitlines()[-1]
