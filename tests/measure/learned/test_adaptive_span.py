"""The rows of adaptive span: time and memory grow with the longest span, at most linearly."""

from attnlab.measure.benchmarks.learned import adaptive_span


def test_quick_rows() -> None:
    found = {row.figure: row for row in adaptive_span.rows(quick=True, threads=1)}
    assert found["longest span 32 / 32, n = 256"].measured == 1
    assert "longest span 128 / 32, n = 256" in found
    assert found["exponent of time in the longest span"].at_most == 1.1
    assert found["exponent of the largest tensor in the longest span"].met
    assert "all pairs / banded, longest span 64, n = 256" in found
