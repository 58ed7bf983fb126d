"""Every row comes."""

import math

from attnlab.measure.benchmarks.spectral import s4d


def test_quick_rows() -> None:
    found = {row.figure: row for row in s4d.rows(quick=True, threads=1)}
    assert found["S4D: the kernel of 256 channels, n = 1,024"].met
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)
