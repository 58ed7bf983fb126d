"""Ways through the layers beside the plain one, small."""

import pytest
import torch

from attnlab.measure.benchmarks.architecture import depths
from attnlab.measure.report import Row


@pytest.fixture(scope="module")
def quick() -> dict[str, Row]:
    before = torch.get_num_threads()
    found = list(depths.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_every_way_is_timed_beside_the_plain_one(quick: dict[str, Row]) -> None:
    for name in set(depths.WAYS) - {"plain"}:
        assert quick[f"{name}: time / plain's, 12 layers, n = 16"].measured is not None


def test_memory_is_counted_and_orders_the_ways(quick: dict[str, Row]) -> None:
    """Counts do not depend on the machine."""
    held = {
        name: quick[f"{name}: peak memory / plain's, 12 layers, n = 1,024"].measured
        for name in ("reversible", "checkpointed", "shared")
    }
    assert max(held["reversible"], held["checkpointed"]) < 0.5 < held["shared"]
    assert held["shared"] == pytest.approx(1, rel=0.05)
    assert quick["reversible: peak memory of 12 layers / of 3, n = 1,024"].met
    assert quick["plain: peak memory of 12 layers / of 3, n = 1,024"].measured > 2


def test_shared_parameters_are_a_twelfth(quick: dict[str, Row]) -> None:
    for name in ("shared", "universal"):
        found = quick[f"{name}: parameters / plain's, 12 layers"].measured
        assert found == pytest.approx(1 / 12)
