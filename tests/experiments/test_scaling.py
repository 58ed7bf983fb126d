"""The experiment `scaling`: its budget is counted, its sizes are those of the models."""

import pytest

from attnlab import experiments
from attnlab.experiments.grid import parameters
from attnlab.experiments.scaling import (
    ARMS,
    BUDGET,
    BYTES,
    LATER,
    LAYERS,
    LENGTH,
    LONG_AWAY,
    SHAPES,
    STEPS,
    TOKENS,
    WIDTHS,
    build,
    flops_a_token,
    parameters_of,
    steps_of,
    text,
)
from attnlab.measure.count import count


@pytest.mark.parametrize(("layers", "width"), SHAPES)
def test_the_formula_counts_what_the_model_computes(layers: int, width: int) -> None:
    """Norms, rotations and the softmax are the rest."""
    model = build(f"budget, {layers} x {width}")
    inputs = text().batch("train", 1, seed=0).inputs
    counted = count(model, inputs, backward=True).flops / LENGTH
    assert 1 < counted / flops_a_token(layers, width) < 1.05


@pytest.mark.parametrize(("layers", "width"), SHAPES)
def test_every_shape_spends_the_budget(layers: int, width: int) -> None:
    spent = steps_of(layers, width) * TOKENS * flops_a_token(layers, width)
    assert spent == pytest.approx(BUDGET, rel=0.01)
    assert ARMS[f"budget, {layers} x {width}"].steps == steps_of(layers, width)


def test_parameters_are_those_of_the_layers() -> None:
    for width in (*WIDTHS, LONG_AWAY):
        model = build(f"width {width}, 200")
        assert model.config["layers"] == LAYERS
        table, norms, biases = BYTES * width, (2 * LAYERS + 1) * 2 * width, LAYERS * 5 * width
        assert parameters(model) == parameters_of(LAYERS, width) + table + norms + biases


def test_larger_models_and_longer_trainings_are_better_in_the_mean() -> None:
    rows = experiments.stored("72_scaling.json", "scaling")

    def mean(width: int, steps: int) -> float:
        return sum(rows[f"width {width}, {steps}, loss, seed {seed}"] for seed in (0, 1, 2)) / 3

    for steps in STEPS:
        assert mean(WIDTHS[-1], steps) < mean(WIDTHS[0], steps)
    for width in WIDTHS:
        assert mean(width, STEPS[0]) > mean(width, STEPS[1]) > mean(width, STEPS[2])
    for steps in LATER:
        assert mean(LONG_AWAY, steps) < mean(WIDTHS[-1], steps)
