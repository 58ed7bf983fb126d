"""The experiment `sixteen_words`, small: what each arm reads, and where digits stand."""

import contextlib

import numpy as np
import pytest
import torch

from attnlab.experiments import sixteen_words as experiment
from attnlab.experiments.sixteen_words import (
    PLACES,
    build,
    maps_of,
    positions_shuffled,
    right,
    right_enlarged,
    unseen,
)
from attnlab.systems.patches import from_patches, into_patches


def shown(model, images: torch.Tensor) -> torch.Tensor:
    return model.seen(into_patches(images, model.patch))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def test_the_body_reads_the_image_itself_unless_it_is_mixed(images) -> None:
    for arm in experiment.GRID.arms:
        model = build(arm, 1)
        seen = shown(model, images)
        if "mixed" not in arm:
            assert torch.equal(seen, images)
            continue
        assert not torch.equal(seen, images)
        assert torch.equal(seen.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
        together = [
            {tuple(patch.tolist()) for patch in into_patches(each, 4)[0].sort(-1).values}
            for each in (images[:1], seen[:1])
        ]
        assert (together[0] == together[1]) == ("patches mixed" in arm)
        assert torch.equal(shown(build(arm, 1), images), seen)
        assert not torch.equal(shown(build(arm, 2), images), seen)


def test_arms_differ_in_one_thing() -> None:
    state = {arm: build(arm, 0).state_dict() for arm in experiment.GRID.arms}
    plain = state["16 words"]
    for arm, body in (("mean of patches", "body.vit."), ("trained on the grid", "body.")):
        for name, value in plain.items():
            assert torch.equal(state[arm][name.replace("body.", body, 1)], value)
    for name, value in plain.items():
        assert torch.equal(state["no positions"][name], value) != (name == "body.positions")
    placeless = build("no positions", 0)
    assert not placeless.body.positions.any()
    assert not placeless.body.positions.requires_grad
    sizes = {
        arm: sum(p.numel() for p in build(arm, 0).parameters() if p.requires_grad)
        for arm in ("16 words", "convolution")
    }
    assert sizes["convolution"] == pytest.approx(sizes["16 words"], rel=0.15)


def test_mixed_arms_begin_with_other_weights_of_the_same_shapes() -> None:
    for plain, mixed in (("16 words", ""), ("convolution", "convolution, ")):
        weights = dict(build(plain, 0).named_parameters())
        drawn = {name for name, value in weights.items() if value.unique().numel() > 1}
        for order in ("patches mixed", "pixels mixed"):
            others = dict(build(f"{mixed}{order}", 0).named_parameters())
            assert {n: v.shape for n, v in weights.items()} == {
                n: v.shape for n, v in others.items()
            }
            assert {n for n, v in weights.items() if not torch.equal(v, others[n])} == drawn


def test_the_mean_of_patches_does_not_read_the_class_token(images) -> None:
    model = build("mean of patches", 0).eval()
    vit = model.body.vit
    states = vit.encode(images)
    wanted = torch.nn.functional.linear(states[:, 1:].mean(1), *vit.body.output.parameters())
    torch.testing.assert_close(model.body(images), wanted)


def test_a_convolution_without_steps_knows_every_shift() -> None:
    image = torch.zeros(1, 1, 32, 32)
    image[..., 14:16, 14:16] = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))
    bodies = {
        name: build(f"convolution{name}, trained on the grid", 0).body
        for name in ("", " without steps")
    }

    def changes(body, shift: int) -> float:
        with torch.no_grad():
            return float((body(image.roll((shift, shift), (2, 3))) - body(image)).abs().max())

    assert changes(bodies[""], 4) < 1e-5
    assert changes(bodies[""], 1) > 1e-4
    assert changes(bodies[" without steps"], 1) < 1e-5
    sizes = [[p.shape for p in body.parameters()] for body in bodies.values()]
    assert sizes[0] == sizes[1]


def test_digits_stand_where_the_score_says() -> None:
    draw = np.random.default_rng(0)
    found = {name: {*map(tuple, draws(draw, 2000).tolist())} for name, draws in PLACES.items()}
    everywhere = {(row, column) for row in range(9) for column in range(9)}
    on_grid = {(row, column) for row in (0, 4, 8) for column in (0, 4, 8)}
    assert found["any place"] == everywhere
    assert found["on the grid"] == on_grid
    assert found["between"] == {p for p in everywhere if p[0] % 4 and p[1] % 4}
    patches, digits = unseen("on the grid", 4)
    assert patches.shape == (4 * 355, 16, 16)
    assert digits.shape == (4 * 355,)
    blank = (patches == 0).all(-1)
    assert blank.sum(1).min() >= 12  # a digit on the grid covers four patches
    again = from_patches(unseen("on the grid", 2)[0], (8, 8), 2)
    assert torch.equal(again, from_patches(patches, (4, 4), 4))


def test_scores_leave_the_model_as_it_was() -> None:
    model = build("16 words", 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    state = torch.get_rng_state()
    plain, shuffled = right_enlarged(model), right_enlarged(model, shuffled=True)
    assert 0 <= plain <= 100
    assert 0 <= shuffled <= 100
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_positions_are_in_another_order_for_a_while() -> None:
    model = build("16 words", 3)
    positions = model.body.positions.detach().clone()
    orders = []
    for seed in (0, 1):
        with positions_shuffled(model, seed):
            orders.append(model.body.positions.detach().clone())
        assert torch.equal(model.body.positions, positions)
    with contextlib.suppress(ZeroDivisionError), positions_shuffled(model):
        raise ZeroDivisionError
    assert torch.equal(model.body.positions, positions)
    for order in orders:
        assert torch.equal(order[0], positions[0])
        assert not torch.equal(order[1:], positions[1:])
        assert {*map(tuple, order.tolist())} == {*map(tuple, positions.tolist())}
    assert not torch.equal(*orders)


def test_the_control_of_enlarged_digits_shuffles_positions_before_they_are_resized() -> None:
    model, seen = build("16 words", 3), []
    model.body.register_forward_pre_hook(
        lambda body, images: seen.append((body.positions.detach().clone(), images[0].shape[-1]))
    )
    right_enlarged(model)
    right_enlarged(model, shuffled=True)
    with positions_shuffled(model):
        mixed = model.body.positions.detach().clone()
    for (positions, side), wanted in zip(seen, (model.body.positions, mixed), strict=True):
        assert torch.equal(positions, wanted)
        assert side == 24


def test_each_unseen_digit_is_asked_about_four_times_at_places_drawn_anew() -> None:
    patches, digits = unseen("any place", 4)
    by_copy = patches.unflatten(0, (4, 355))
    assert torch.equal(*digits.view(4, 355)[:2])
    ink = by_copy.flatten(2).sort().values
    assert all(torch.equal(ink[0], copy) for copy in ink)
    assert not any(torch.equal(by_copy[0], copy) for copy in by_copy[1:])


def test_maps_are_of_the_class_token_of_every_layer() -> None:
    model = build("64 words", 0)
    maps = maps_of(model, unseen("any place", 2)[0][:5])
    assert maps.shape == (3, 5, 4, 8, 8)
    torch.testing.assert_close(maps.sum((-1, -2)), torch.ones(3, 5, 4))


def test_a_guess_is_right_for_a_tenth() -> None:
    assert right(build("16 words", 0), "any place") < 25
