"""Compiling the simulated accelerator, once for each version of its sources and of torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

SOURCES = Path(__file__).parent / "src"
BUILT = Path(__file__).parents[2] / "build" / "simdev"
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
LIBRARIES = ("-lc10", "-ltorch_cpu")
COMPILERS = ("c++", "g++", "clang++")


class Unavailable(Exception):  # noqa: N818
    """This machine cannot have the simulated accelerator; the message says why."""


def build(folder: Path = BUILT) -> Path:
    """The shared library, compiled into `folder` unless it is there. Raises `Unavailable` where it cannot be."""
    compiler, headers = _compiler(), _headers()
    library = folder / f"simdev-{_fingerprint(compiler)}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            # Another process may be at it, too: what appears under the final name is always complete.
            os.replace(_compile(compiler, headers, Path(scratch)), library)
    return library


def _compiler() -> str:
    if sys.platform != "linux":
        raise Unavailable(f"the simulated accelerator is for Linux, not for {sys.platform}")
    wanted = os.environ.get("CXX")
    found = next(filter(None, map(shutil.which, (wanted,) if wanted else COMPILERS)), None)
    if found is None:
        raise Unavailable(f"no C++ compiler: {wanted or ', '.join(COMPILERS)} not found")
    return found


def _headers() -> list[str]:
    if not hasattr(torch.Stream, "is_capturing"):
        raise Unavailable(f"the simulated accelerator needs torch 2.13 or later, not {torch.__version__}")
    folders = list(include_paths())
    if not any((Path(folder) / "torch" / "library.h").exists() for folder in folders):
        raise Unavailable("no C++ headers: this torch came without them")
    return folders


def _fingerprint(compiler: str) -> str:
    text = hashlib.sha256(repr((torch.__version__, torch.__file__, compiler, FLAGS, LIBRARIES)).encode())
    for path in sorted(SOURCES.iterdir()):
        text.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return text.hexdigest()[:16]


def _compile(compiler: str, headers: list[str], scratch: Path) -> Path:
    # Nearly all the time goes into torch's headers. In one unit they are read once.
    unit, library = scratch / "all.cpp", scratch / "simdev.so"
    unit.write_text("".join(f'#include "{path.name}"\n' for path in sorted(SOURCES.glob("*.cpp"))))
    command = [
        compiler,
        *FLAGS,
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    command += ["-I", str(SOURCES)]
    for folder in headers:
        command += ["-isystem", folder]  # no warnings from torch's own
    command += [str(unit), "-o", str(library), *(f"-L{folder}" for folder in library_paths()), *LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    return library
