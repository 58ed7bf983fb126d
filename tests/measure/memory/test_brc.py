"""Every row comes."""

import math

from attnlab.measure.benchmarks.memory import brc


def test_quick_rows() -> None:
    found = {row.figure: row.measured for row in brc.rows(quick=True, threads=1)}
    for name in ("forward", "forward and backward"):
        for cell in ("brc", "nbrc", "gru", "lstm"):
            assert f"{cell}: token by token / fused, n = 64, {name}" in found
        for cell in ("brc", "nbrc"):
            assert f"{cell}: fused / PyTorch's GRU, n = 64, {name}" in found
    assert all(math.isfinite(each) and each > 0 for each in found.values())
