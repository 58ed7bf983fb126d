"""Every row comes."""

import math

from attnlab.measure.topics.spectral import s4d


def test_quick_rows() -> None:
    found = {row.figure: row for row in s4d.rows(quick=True, threads=1)}
    assert found["S4D: the kernel of 256 channels, n = 1,024"].met
    assert found["S4D: bytes of the state after 256 tokens / after 64"].measured == 1
    for form in ("chunked", "fft"):
        assert found[f"S4D, {form}: exponent of largest tensor, n = 256 … 512"].met
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)
