"""The experiment `choices`, small: what each arm learns, and stored rows."""

from typing import Any

import pytest
import torch

from attnlab.experiments import choices
from attnlab.experiments.choices import ARMS, HEADS, LAYERS, build, film, measured


def spans_of(arm: str, **more: float) -> list[float]:
    """The spans after three steps."""
    *_, (_, model) = film(arm, 0, (0, 3), **more)
    return [value for what, value, _ in measured(model) if what.startswith("span")]


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_measured_of_an_untrained_model(arm: str) -> None:
    found = {what: value for what, value, _ in measured(build(arm, 0))}
    wanted = {
        "full": [],
        "spans": ["span"],
        "spans from 0": ["span"],
        "alphas": ["alpha", "support"],
    }
    assert len(found) == 1 + len(wanted[arm]) * LAYERS * HEADS
    assert 5 < found["loss"] < 6  # ln 256 is 5.5
    if arm == "alphas":
        assert found["alpha of layer 2 head 3"] == pytest.approx(1.5)
        assert 0 < found["support of layer 2 head 3"] <= 100
    elif arm != "full":
        assert found["span of layer 3 head 1"] == {"spans": 16, "spans from 0": 0}[arm]


def test_a_high_price_shortens_spans() -> None:
    dear, free = spans_of("spans", price=100.0), spans_of("spans", price=0.0)
    assert max(dear) < 16
    assert sum(dear) < sum(free)
    assert min(spans_of("spans from 0", price=100.0)) == 0


def test_alphas_learn_faster_than_other_numbers() -> None:
    *_, (_, model) = film("alphas", 0, (0, 3))
    moved = [abs(value - 1.5) for what, value, _ in measured(model) if what.startswith("alpha")]
    assert 0.002 < max(moved) < 0.1


def test_support_is_a_share_of_the_keys_that_a_late_query_may_attend_to() -> None:
    few = torch.arange(1.0, choices.LENGTH + 1)  # all that are permitted
    few[: choices.LENGTH // 2] = 0  # short rows are left out
    notes: Any = {
        "alpha": [torch.tensor([1.25, 1.75])], "support": [torch.stack([few, few / 4])[None]]
    }  # fmt: skip
    found = {what: values.tolist() for what, values, _ in choices._of_layer(notes, 0)}
    assert found == {"alpha": [1.25, 1.75], "support": [100, 25]}
