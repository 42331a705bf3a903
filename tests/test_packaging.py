"""What a user installs is what the repository holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAPPED = {"policy/": "reclaim/policy/", "traces/": "reclaim/traces/"}


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout: there is no list of files to compare with")
    return [line for line in done.stdout.splitlines() if (ROOT / line).exists()]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel, by way of an sdist, from a clean copy of the tracked files."""
    source = tmp_path_factory.mktemp("source")
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target, follow_symlinks=False)
    output = tmp_path_factory.mktemp("dist")
    # No isolation: the build needs setuptools only, and must not need a network.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def expected() -> set[str]:
    files = set()
    for name in tracked():
        for folder, home in MAPPED.items():
            if name.startswith(folder):
                files.add(home + name.removeprefix(folder))
        if name.startswith("reclaim/") and name not in ("reclaim/policy", "reclaim/traces"):
            files.add(name)
    return files


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected()


def test_the_sdist_can_be_built_from(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"policy/base.py", "traces/trace.py", "LICENSE", "README.md", "pyproject.toml"} <= names


def test_the_wheel_works_beside_a_users_own_policy_module(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    home = tmp_path / "home"
    home.mkdir()
    (home / "policy.py").write_text("mine = True\n")
    (home / "traces.py").write_text("mine = True\n")
    code = (
        "import policy, traces, reclaim.policy, reclaim.traces, reclaim.cli\n"
        "assert policy.mine and traces.mine\n"
        "assert reclaim.policy.make('three-window', 0).forwards == 3\n"
        "assert len(reclaim.traces.bundled('azure-code')) > 1000\n"
        "print(reclaim.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(site / "reclaim" / "__init__.py")


def test_the_version_is_said_once_everywhere():
    import tomllib

    import reclaim

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == reclaim.__version__
    assert f"## {reclaim.__version__}" in (ROOT / "CHANGELOG.md").read_text()
