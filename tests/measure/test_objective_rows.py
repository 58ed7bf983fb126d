"""What preparing a batch costs: every objective has its rows."""

import inspect

from attnlab import catalog
from attnlab.measure.benchmarks import objectives


def test_every_objective_that_needs_no_teacher_is_measured() -> None:
    """Those that ask for a source are given one; another name of the same has no rows."""
    found = {row.figure: row for row in objectives.rows(quick=True, threads=1)}
    cards = catalog.with_role("objective").values()
    made = {c.name for c in cards if "teacher" not in inspect.signature(c.build).parameters}
    assert {figure.split(":")[0] for figure in found} == made
    assert len(found) == 2 * len(made)
    assert {row.at_most for figure, row in found.items() if figure.startswith("cmlm")} == {
        0.1,
        None,
    }
    assert found["span_corruption: prepare 8 x 64"].at_most == objectives.SPANS
