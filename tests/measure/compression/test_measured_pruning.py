"""What is removed is counted beside what it saves; a mask of zeros has the same products."""

import pytest
import torch

from attnlab.measure.benchmarks import compression
from attnlab.measure.benchmarks.compression import levels, pruning
from attnlab.measure.count import count
from attnlab.measure.report import Row


@pytest.fixture(scope="module")
def quick() -> dict[str, Row]:
    before = torch.get_num_threads()
    found = list(compression.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    assert len({row.figure for row in found}) == len(found)
    return {row.figure: row for row in found}


def test_every_row_comes(quick: dict[str, Row]) -> None:
    for what in ("heads", "hidden units", "heads and hidden units"):
        found = quick[f"half of the {what} removed: speed-up / ratio of FLOPs"].measured
        assert found is not None
        assert found > 0
    assert "90% of the weights zero: time / the whole model's" in quick
    assert "importance of all heads of digits, 20 examples" in quick
    assert quick["documentation: making integers of all matrices"].at_most == levels.SECONDS


def test_a_removed_half_saves_what_the_sizes_say_and_a_mask_nothing() -> None:
    """Per token and layer: 8 d² of attention's projections and 16 d² of the feed-forward layer,
    and 4 n d of the maps."""
    x = torch.zeros(2, 16, dtype=torch.int64)
    flops = {
        name: count(torch.no_grad()(model), x).flops for name, model in pruning.models().items()
    }
    d, per_token = pruning.DIM, pruning.LAYERS * 2 * 16
    heads, hidden = (8 * d + 4 * 16) * d * per_token / 2, 16 * d * d * per_token / 2
    assert flops["whole"] - flops["heads"] == heads
    assert flops["whole"] - flops["hidden"] == hidden
    assert flops["whole"] - flops["both"] == heads + hidden
    assert flops["masked"] == flops["whole"]


def test_nine_tenths_of_the_matrices_are_zero() -> None:
    made = pruning.models()["masked"]
    zero = total = 0
    for module in made.modules():
        if isinstance(module, torch.nn.Linear):
            zero, total = zero + int((module.weight == 0).sum()), total + module.weight.numel()
    assert zero / total == pytest.approx(0.9, abs=1e-4)
