"""The experiments of lesson 81, small: what is rounded, what is cut, and what a file takes."""

import copy

import pytest
import torch

from attnlab.compression.quantized import QuantizedWeight
from attnlab.experiments import fewer_bits, prune_quantize_distil
from attnlab.experiments.fewer_bits import TASK, Form, dense, right
from attnlab.experiments.prune_quantize_distil import FORMS, file_bytes, forms, of_numbers, smaller
from attnlab.models.tiny import TinyTransformer

IMAGES = TASK.batch("validation", 5, seed=0).inputs


def model() -> TinyTransformer:
    return fewer_bits.DENSE.build("dense").eval()


def test_a_form_says_what_it_rounds() -> None:
    assert str(Form(3)) == "3 bits per tensor"
    assert str(Form(2, "channel", inputs=True)) == "2 bits per channel, inputs too"
    for form in (Form(3, "channel"), Form(4, inputs=True)):
        made = form.rounded(model())
        parts = [part for part in made.modules() if isinstance(part, QuantizedWeight)]
        assert len(parts) == 20  # 6 in each of 3 layers, what reads a patch, the output
        assert {part.levels for part in parts} == {form.levels}
        assert {part.activations for part in parts} == {"dynamic" if form.inputs else "none"}


def test_the_arms_train_on_from_the_dense_model_of_their_seed() -> None:
    """No update: the model with rounding gives what the dense one gives when it is rounded."""
    start = dense(1, 1)
    for arm in ("without rounding, rate 0.004", "with rounding, 2 bits per tensor, rate 0.004"):
        made = fewer_bits.AGAIN.build(arm, 1)
        fewer_bits._more(made, TASK, 1, seed=1, batch_size=2, learning_rate=1e-12)
        expected = Form(2).rounded(start) if arm.startswith("with ") else start
        with torch.no_grad():
            torch.testing.assert_close(made.eval()(IMAGES), expected.eval()(IMAGES))


def test_every_form_that_was_trained_has_its_control() -> None:
    arms = fewer_bits.AGAIN.arms
    for rate in fewer_bits.RATES:
        assert fewer_bits.without_rounding(rate) in arms
        assert all(fewer_bits.with_rounding(form, rate) in arms for form in fewer_bits.TRAINED)
    assert len(arms) == len(fewer_bits.RATES) * (1 + len(fewer_bits.TRAINED))
    assert {one.steps for one in arms.values()} == {None}


def test_a_model_that_guesses_one_class_is_right_in_a_tenth() -> None:
    made = model()
    with torch.no_grad():
        made.output.weight.zero_()
        made.output.bias.copy_(torch.arange(10.0))
    assert right(made) == pytest.approx(10, abs=1.5)


def test_what_is_cut_is_cut() -> None:
    whole = model()
    weights = sum(layer.weight.numel() for layer in linear(whole))
    masked = smaller(whole, "mask")
    left = sum(int((layer.weight != 0).sum()) for layer in linear(masked))
    assert left == pytest.approx(0.4 * weights, abs=1)
    half = smaller(whole, "units")
    assert [block.attention.heads.heads for block in half.encoder.blocks] == [2, 2, 2]
    assert [block.feed_forward.expand.out_features for block in half.encoder.blocks] == [32] * 3
    both = smaller(whole, "mask and rounding")
    for layer, plain in zip(linear(both), linear(masked), strict=True):
        assert (layer.weight[plain.weight == 0] == 0).all()
        assert layer.weight[0].unique().numel() <= 15
    with torch.no_grad():
        torch.testing.assert_close(of_numbers(both.eval())(IMAGES), both(IMAGES))


def linear(made: torch.nn.Module) -> list[torch.nn.Linear]:
    return [part for part in made.modules() if isinstance(part, torch.nn.Linear)]


def test_a_smaller_form_has_a_smaller_file() -> None:
    masked = smaller(model(), "mask")
    sizes = {name: file_bytes(made) for name, made in forms(masked, "mask")}
    assert list(sizes) == list(FORMS)
    numbers = {name: whole - header for name, (whole, header) in sizes.items()}
    assert numbers["32 bits"] > 1.5 * numbers["8 bits"] > 1.5 * numbers["4 bits"]
    assert numbers["k-means, 8 bits"] > 1.5 * numbers["k-means, 4 bits"]
    whole = copy.deepcopy(model())
    assert file_bytes(whole)[0] > 4 * sum(p.numel() for p in whole.parameters())


def test_every_arm_has_as_many_updates() -> None:
    grid = prune_quantize_distil.ARMS
    assert {one.steps or grid.steps for one in grid.arms.values()} == {1800}
    assert fewer_bits.UPDATES + prune_quantize_distil.MORE == prune_quantize_distil.ALL
    assert len(prune_quantize_distil.OTHERS.arms) == 2 * len(prune_quantize_distil.TUNED)
