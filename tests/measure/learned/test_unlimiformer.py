"""The rows of `learned/unlimiformer`, small."""

from attnlab.measure.benchmarks.learned import unlimiformer


def test_a_quick_run_has_every_figure():
    found = {row.figure: row for row in unlimiformer.rows(quick=True, threads=1)}
    stored = [row.measured for figure, row in found.items() if figure.endswith("1,024 states")]
    assert stored == [6, 12]  # L and 2 L
    steps = [figure for figure in found if figure.startswith("one token")]
    assert [figure.split(": ")[1] for figure in steps] == [
        "exact search / full", "approximate index / full"
    ]  # fmt: skip
    assert all(row.measured for row in found.values())
