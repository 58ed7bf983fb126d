"""The experiment `spans_read_apart`, small: equal questions, what is swapped, what the rows say."""

import pytest
import torch

from attnlab.experiments import spans_read_apart as experiment
from attnlab.experiments import stored
from attnlab.objectives.batches import UNSCORED
from attnlab.systems.metalm import MetaLM


def test_all_arms_are_asked_the_same_bytes_of_the_same_windows() -> None:
    asked = {arm: experiment.unseen(arm) for arm in experiment.OBJECTIVES}
    for other in asked.values():
        assert torch.equal(other.inputs, asked["causal"].inputs)
        assert torch.equal(other.targets, asked["causal"].targets)
    batch = experiment.text().batch("train", 16, seed=4)
    targets = [
        made().prepare(batch, torch.Generator().manual_seed(5)).targets
        for made in experiment.OBJECTIVES.values()
    ]
    assert all(torch.equal(each, targets[0]) for each in targets)
    assert torch.equal(asked["encoder"].kept["spans"], asked["causal"].kept["spans"])


def test_only_one_arm_has_an_encoder() -> None:
    models = {arm: experiment.GRID.build(arm, 1) for arm in experiment.READERS}
    assert [arm for arm, model in models.items() if isinstance(model, MetaLM)] == ["encoder"]


def test_places_by_hand() -> None:
    spans = torch.tensor([[0, 0, 1, 1, *[0] * 9, 3, 0]])
    found = experiment.part_of(spans)
    names = [next(name for name in found if found[name][0, place]) for place in range(15)]
    near, far, before = experiment.PLACES
    # The last byte of a span asks for the first one after it, of which 8 are near.
    assert names[:2] == [before] * 2
    assert names[3:13] == [near] * 8 + [far] * 2
    assert names[13:] == [near] * 2
    assert sum(part.sum() for part in found.values()) == 15


def test_swapped_spans_hold_other_bytes_and_ask_the_same() -> None:
    own, other = (experiment.unseen("encoder", swapped=swapped) for swapped in (False, True))
    inside = own.kept["spans"] > 0
    assert torch.equal(own.targets, other.targets)
    assert torch.equal(own.inputs[~inside], other.inputs[~inside])
    assert torch.equal(other.inputs[1][inside[1]], own.inputs[0][inside[1]])
    assert (own.targets != UNSCORED).any()


def test_what_the_docstring_tells_stands_in_the_rows() -> None:
    rows = stored("91_spans_read_apart.json", "spans_read_apart")

    def each(arm: str, what: str) -> torch.Tensor:
        return torch.tensor([rows[f"{arm}, {what}, seed {seed}"] for seed in range(3)])

    behind = each("encoder", "after a span") - each("causal", "after a span")
    assert behind.mean() == pytest.approx(0.124, abs=0.0006)
    assert behind.std() / 3**0.5 == pytest.approx(0.010, abs=0.0006)
    assert (behind > 0.1).all()
    alike = each("both sides", "after a span") - each("causal", "after a span")
    assert alike.mean() == pytest.approx(0.006, abs=0.0006)
    assert alike.std() / 3**0.5 == pytest.approx(0.018, abs=0.0006)
    for arm, cost in {"encoder": 0.27, "causal": 0.53}.items():
        found = each(arm, "after a span, swapped") - each(arm, "after a span")
        assert found.mean() == pytest.approx(cost, abs=0.006)
    for what in ("further on", "before any span", "without spans"):
        assert (each("encoder", what) - each("causal", what)).mean().abs() < 0.02
