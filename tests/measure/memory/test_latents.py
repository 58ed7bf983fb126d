"""The rows of attention through latents."""

from attnlab.measure.benchmarks.memory import latents


def test_quick_rows() -> None:
    found = {row.figure: row for row in latents.rows(quick=True, threads=1)}
    assert len(found) == 14
    for name in latents.LAYERS:
        assert found[f"{name}: exponent of counted FLOPs"].met
        crossing = found[f"{name}: faster than full attention from, forward"]
        assert crossing.note
    certain = [row for name, row in found.items() if "exponent of time" not in name]
    assert all(row.measured is None or row.measured > 0 for row in certain)
