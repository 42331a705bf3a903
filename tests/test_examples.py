"""The examples run as they stand."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "notebooks" / "examples"


def test_the_sparse_indexer_allocates_nothing_once_it_has_reserved(capsys):
    example = runpy.run_path(str(EXAMPLES / "sparse_indexer.py"))
    # Three chunks of keys and scales, and the logits: 7 allocations a forward before, none after.
    assert example["main"](5) == (35, 0)
    assert "after   0 allocator calls" in capsys.readouterr().out
