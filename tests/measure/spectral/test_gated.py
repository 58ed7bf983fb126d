"""Every row comes."""

import math

from attnlab.measure.topics.spectral import gated


def test_quick_rows() -> None:
    found = {row.figure: row for row in gated.rows(quick=True, threads=1)}
    for title, forms in (
        ("H3", ["Fourier transforms"]),
        ("GSS", ["Fourier transforms"]),
        ("RetNet", ["all weights at once", "token by token"]),
    ):
        for size in ("n = 256, forward", "n = 128, forward and backward"):
            assert all(f"{title}: {form} / chunked, {size}" in found for form in forms)
        assert found[f"{title}: bytes of the state after 256 tokens / after 64"].measured == 1
        assert f"{title}: one token after 256 tokens / after 64" in found
        assert found[f"{title}: exponent of time, n = 256 … 512"].at_most == 1.1
        assert found[f"{title}: exponent of largest tensor, n = 256 … 512"].met
        absent = found[f"{title}: another package / chunked"]
        assert absent.measured is None
        assert "package" in absent.note
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)
