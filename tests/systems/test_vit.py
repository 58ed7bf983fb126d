"""ViT: patches, class token, positions; Transformers' values, printed counts, digits learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification

import attnlab
from attnlab.systems import vit
from attnlab.systems.patches import (
    as_convolution,
    as_matrix,
    from_patches,
    into_patches,
    resized_positions,
)
from attnlab.systems.vit import (
    PRINTED,
    SIZES,
    PatchClassifier,
    ViT,
    ViTOptions,
    build,
    from_transformers,
)
from attnlab.tasks.digits import Digits, images_of_split
from attnlab.tasks.digits import into_patches as of_digits
from attnlab.train import fit

SMALL = ViTOptions(image=12, patch=4, channels=3, dim=10, layers=2, heads=2, hidden=14, classes=7)
NEAR = {"atol": 1e-9, "rtol": 1e-7}


def images(b: int = 2, height: int = 12, width: int = 12, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.rand(b, channels, height, width, generator=generator, dtype=torch.float64)


def small(**changes: object) -> ViT:
    """Weights are enlarged, so that every part matters."""
    torch.manual_seed(3)
    model = ViT(replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(3).add_(0.1 * torch.randn_like(each))
    return model


def theirs(**changes: object) -> ViTForImageClassification:
    torch.manual_seed(5)
    config = ViTConfig(
        image_size=12, patch_size=4, hidden_size=10, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=14, num_labels=7, initializer_range=0.3, **changes,
    )  # fmt: skip
    model = ViTForImageClassification(config).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    return model


# ---- patches


def test_patches_are_in_reading_order_and_hold_row_column_channel():
    patches = into_patches(images(2, 6, 10), 2)
    assert patches.shape == (2, 15, 12)
    again = images(2, 6, 10)
    assert torch.equal(patches[1, 7].view(2, 2, 3), again[1, :, 2:4, 4:6].permute(1, 2, 0))
    assert torch.equal(from_patches(patches, (3, 5), 2), again)
    levels = np.arange(128).reshape(2, 8, 8) % 17
    brightness = torch.tensor(levels, dtype=torch.float32)[:, None] / 16
    assert torch.equal(into_patches(brightness, 2), torch.from_numpy(of_digits(levels, 2)))


def test_a_linear_map_of_patches_is_a_convolution_of_their_stride():
    x, weight = images(2, 6, 15), torch.randn(5, 27, dtype=torch.float64)
    by_convolution = F.conv2d(x, as_convolution(weight, 3), stride=3).flatten(2).mT
    torch.testing.assert_close(into_patches(x, 3) @ weight.T, by_convolution)
    assert torch.equal(as_matrix(as_convolution(weight, 3)), weight)
    wrong = F.conv2d(x, weight.view(5, 3, 3, 3), stride=3).flatten(2).mT  # (C, P, P) as they lie
    assert not torch.allclose(into_patches(x, 3) @ weight.T, wrong, atol=0.1)


# ---- the model


def test_the_answer_is_read_from_the_class_token_after_the_last_norm():
    model, x = small(), images()
    states = model.encode(x)
    assert states.shape == (2, 10, 10)
    torch.testing.assert_close(model(x), F.linear(states[:, 0], *model.body.output.parameters()))
    with attnlab.watch(model) as seen:
        model(x)
    assert [tuple(one.weights.shape) for one in seen] == [(2, 2, 10, 10)] * 2


def test_without_positions_a_shuffle_of_the_patches_changes_nothing():
    model, x = small(), images()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    shuffled = from_patches(into_patches(x, 4)[:, order], (3, 3), 4)
    assert (model(x) - model(shuffled)).abs().max() > 1e-3
    model.positions.data.zero_()
    torch.testing.assert_close(model(x), model(shuffled))


@pytest.mark.parametrize("size", [(12, 12), (20, 28), (8, 4)])
def test_values_and_gradients_are_those_of_transformers(size):
    model = theirs()
    ours, x = from_transformers(model), images(3, *size)
    expected = model(x * 2 - 1, interpolate_pos_encoding=size != (12, 12)).logits
    found = ours(x)
    torch.testing.assert_close(found, expected, **NEAR)
    for logits in (expected, found):
        (logits.log_softmax(-1) * torch.arange(7).sin()).sum().backward()
    assert len(list(ours.parameters())) == len(list(model.parameters()))
    kernel = model.vit.embeddings.patch_embeddings.projection.weight.grad
    torch.testing.assert_close(as_convolution(ours.body.embedding.weight.grad, 4), kernel, **NEAR)
    places = model.vit.embeddings.position_embeddings.grad[0]
    torch.testing.assert_close(ours.positions.grad, places, **NEAR)
    first = model.vit.embeddings.cls_token.grad[0, 0]
    torch.testing.assert_close(ours.class_token.grad, first, **NEAR)


def test_names_of_version_4_of_transformers_are_known_too():
    new = theirs()
    old = {_of_version_4(name): value for name, value in new.state_dict().items()}
    assert len(old.keys() & new.state_dict().keys()) == 8  # the ends, which kept their names
    made = from_transformers(new)
    for name, value in made.state_dict().items():
        assert torch.equal(value, vit._theirs(name, old))


def _of_version_4(name: str) -> str:
    for new, former in {
        "vit.layers.": "vit.encoder.layer.", "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key", "mlp.fc2": "output.dense",
        "attention.v_proj": "attention.attention.value", "mlp.fc1": "intermediate.dense",
        "attention.o_proj": "attention.output.dense",
    }.items():  # fmt: skip
        name = name.replace(new, former)
    return name


def test_another_epsilon_is_taken_over():
    model, x = theirs(layer_norm_eps=0.1), images()
    torch.testing.assert_close(from_transformers(model)(x), model(x * 2 - 1).logits, **NEAR)


def test_positions_are_resized_as_a_grid_without_the_class_token():
    rows = torch.arange(4.0)[:, None].expand(4, 5)
    grid = torch.stack((rows, torch.full_like(rows, 7)), -1).flatten(0, 1)
    positions = torch.cat((torch.full((1, 2), 100.0), grid))
    resized = resized_positions(positions, (4, 5), (8, 15))
    assert torch.equal(resized[0], positions[0])
    new = resized[1:].unflatten(0, (8, 15))
    torch.testing.assert_close(new[..., 1], torch.full((8, 15), 7.0))  # the 100 is no neighbour
    torch.testing.assert_close(new[..., 0], new[:, :1, 0].expand(8, 15))  # along columns: alike
    assert (new[1:, 0, 0] > new[:-1, 0, 0]).all()
    torch.testing.assert_close(new[:, 0, 0] + new[:, 0, 0].flip(0), torch.full((8,), 3.0))
    assert resized_positions(positions, (4, 5), (4, 5)) is positions


# ---- sizes


COUNTED = {
    "B/32": 88_224_232,
    "B/16": 86_567_656,
    "L/32": 306_535_400,
    "L/16": 304_326_632,
    "H/14": 632_045_800,
}
"""Of the released models with 1,000 classes and images of 224 pixels."""


@pytest.mark.parametrize("size", SIZES)
def test_the_printed_sizes_have_the_printed_numbers(size):
    with torch.device("meta"):
        model = build(size)
    found = sum(each.numel() for each in model.parameters())
    assert found == COUNTED[size]
    assert found == pytest.approx(PRINTED[size[0]], rel=0.03)
    assert model(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1000)


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (lambda x: x[..., :-1], ValueError, "patch=4 should divide .* got 12 × 11"),
        (lambda x: x[:, :1], ValueError, r"shape \(b, channels=3, height, width\), got \(2, 1, 12"),
        (lambda x: x[0], ValueError, r"for one image: images\[None\]"),
        (lambda x: x.permute(0, 2, 3, 1), ValueError, "channels stand before rows and columns"),
        (lambda x: (x * 255).to(torch.uint8), TypeError, "got torch.uint8; .* images / 255"),
        (lambda x: x * 255, ValueError, "brightness from 0 to 1, got values from .* to 25"),
        (lambda x: x * 2 - 1, ValueError, "brightness from 0 to 1, got values from -0.9"),
        (lambda x: x / 0, ValueError, "got values from"),
        (lambda x: x * torch.nan, ValueError, "got values from nan to nan"),
        (lambda x: x[..., :0], ValueError, "images should have pixels"),
        (lambda x: x.numpy(), TypeError, "images should be a tensor, got a ndarray"),
        (lambda x: x.to(torch.complex64), TypeError, "images should be float"),
    ],
)
def test_images_that_do_not_fit(change, error, sentence):
    with pytest.raises(error, match=sentence):
        small()(change(images()))


def test_what_else_is_refused():
    with pytest.raises(ValueError, match=r"patch=5 should divide .*, got 12 × 12"):
        replace(SMALL, patch=5)
    with pytest.raises(ValueError, match="did you mean 'B/16'"):
        build("B-16")
    with pytest.raises(TypeError, match=r"options should be ViTOptions, such as SIZES\['B/16'\]"):
        ViT({"dim": 3})
    with pytest.raises(TypeError, match="takes a ViTForImageClassification"):
        from_transformers(small())
    with pytest.raises(ValueError, match="hidden_act should be 'gelu', got 'relu'"):
        from_transformers(theirs(hidden_act="relu"))
    with pytest.raises(ValueError, match="10 in all, got 9"):
        resized_positions(torch.randn(9, 2), (3, 3), (2, 2))
    with pytest.raises(ValueError, match="2 × 3 = 6 rows"):
        from_patches(torch.randn(1, 5, 12), (2, 3), 2)
    with pytest.raises(ValueError, match="multiple of patch² = 4 columns, got 7"):
        as_convolution(torch.randn(5, 7), 2)


def test_an_empty_batch_and_other_dtypes_are_welcome():
    model = small()
    assert model(images()[:0]).shape == (0, 7)
    torch.testing.assert_close(model(images().float()), model(images()), atol=1e-4, rtol=1e-4)


# ---- digits


def test_patches_of_a_task_are_the_images():
    model = small(channels=1, image=8, patch=2, classes=10)
    levels = torch.from_numpy(images_of_split("validation")[0][:5])
    batch = into_patches(levels[:, None].double() / 16, 2)
    read = PatchClassifier(model)
    torch.testing.assert_close(read(batch), model(levels[:, None].double() / 16))
    with pytest.raises(ValueError, match="an image has no padding"):
        read(batch, torch.ones(5, 16, dtype=torch.bool))


def test_it_learns_digits_from_its_class_token():
    torch.manual_seed(0)
    task = Digits(unit="patches", patch=2)
    options = ViTOptions(
        image=8, patch=2, channels=1, dim=32, layers=1, heads=2, hidden=64, classes=10
    )
    model = PatchClassifier(ViT(options))
    unseen = task.batch("validation", 355, seed=0)

    def right() -> float:
        with torch.no_grad():
            return float((model.eval()(unseen.inputs).argmax(-1) == unseen.targets).float().mean())

    before = right()
    fit(model, task, steps=240, batch_size=64, learning_rate=5e-3, seed=0, progress=False)
    assert before < 0.3
    assert right() > 0.7
