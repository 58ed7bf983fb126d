"""Arrays, caches and outputs of other libraries as layers, and what layers are called."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnlab.lens.sources import layer_names
from attnlab.lens.sources.joined import Decoded, Weights, Windowed, Windows, decoded
from attnlab.lens.sources.layers import layers_of

LAYERS, HEADS, N, M = 2, 3, 7, 11
OWN, SOURCE = [f"t{at}" for at in range(N)], [f"s{at}" for at in range(M)]


def weights(*shape: int) -> torch.Tensor:
    return (2 * torch.randn(*shape)).softmax(dim=-1)


def maps(source: object) -> list[np.ndarray]:
    return [layer.maps for layer in layers_of(source)]


# Arrays


def test_one_map_and_one_layer() -> None:
    whole = weights(LAYERS, HEADS, N, M)
    for one in (whole[1, 2], whole[1, 2].numpy()):
        (found,) = maps(one)
        assert (found == whole[1, 2:3].numpy()).all()
    (found,) = maps(whole[1])
    assert (found == whole[1].numpy()).all()
    assert [x.shape for x in maps([whole[0, 0], whole[1]])] == [(1, N, M), (HEADS, N, M)]


# Generation


def steps(first: int, count: int) -> list[torch.Tensor]:
    """The maps of a prompt and of ``count`` single tokens after it."""
    rows = [weights(1, HEADS, first, first)]
    return rows + [weights(1, HEADS, 1, first + 1 + at) for at in range(count)]


def test_outputs_of_generate_are_one_map_a_layer() -> None:
    made = [steps(4, 3) for _ in range(LAYERS)]
    outputs = SimpleNamespace(attentions=tuple(zip(*made, strict=True)))
    found = maps(outputs)
    assert [x.shape for x in found] == [(HEADS, N, N)] * LAYERS
    for layer, rows in enumerate(made):
        assert (found[layer][:, :4, :4] == rows[0][0].numpy()).all()
        assert (found[layer][:, 5, :6] == rows[2][0, :, 0].numpy()).all()
        assert (found[layer][:, 5, 6:] == 0).all()
    layer = next(layers_of(outputs))
    assert layer.mask is not None
    assert not layer.mask[0, 0, 4, 5]
    assert layer.mask[0, 0, 5, 5]


def test_layers_that_share_their_module_stay_apart() -> None:
    calls = [Weights("layer", weights(1, HEADS, N, N)), Weights("layer#2", weights(1, HEADS, N, N))]
    assert decoded(calls) == calls
    cross = [Weights("cross", weights(1, HEADS, 1, M)), Weights("cross#2", weights(1, HEADS, 1, M))]
    assert decoded(cross) == cross
    grown = [Weights("own", weights(1, HEADS, 1, 1)), Weights("own#2", weights(1, HEADS, 1, 2))]
    assert [type(call) for call in decoded(grown + cross)] == [Decoded, Decoded]


def test_windows_with_padding() -> None:
    windows = Windows(3, 5, 2, 2)
    places = windows.places()
    assert places.shape == (6, 4)
    assert places[0].tolist() == [0, 1, 5, 6]
    assert places[2].tolist() == [4, -1, 9, -1]
    calls = Weights("block", weights(6, HEADS, 4, 4), torch.randn(6, HEADS, 4, 2))
    whole = Windowed.of(calls, windows)
    assert whole.shape == (1, HEADS, 15, 15)
    np.testing.assert_array_equal(whole.weights[0, :, 9, [4, 9]], calls.weights[2, :, 2, [0, 2]])
    np.testing.assert_array_equal(whole.values[0, :, 9], calls.values[2, :, 2])
    assert whole.mask[0, 0, 9, 4]
    assert not whole.mask[0, 0, 9, 3]
    assert Windowed.of(calls, Windows(4, 4, 4, 4)) is calls


# Names


NAMES = {
    "T5": (
        [
            "encoder.block.0.layer.0.SelfAttention",
            "encoder.block.1.layer.0.SelfAttention",
            "decoder.block.0.layer.0.SelfAttention",
            "decoder.block.0.layer.1.EncDecAttention",
            "decoder.block.1.layer.0.SelfAttention",
            "decoder.block.1.layer.1.EncDecAttention",
        ],
        ["encoder 0", "encoder 1", "decoder 0", "cross 0", "decoder 1", "cross 1"],
    ),
    "one block": (["decoder.block.3.layer.0.x", "decoder.block.3.layer.1.EncDecAttention"],
                  ["decoder 3", "cross 3"]),
    "CLIP": (
        [f"{x}_model.encoder.layers.{at}.self_attn" for x in ("vision", "text") for at in (0, 1)],
        ["vision 0", "vision 1", "text 0", "text 1"],
    ),
    "GPT-2 with cross-attention": (
        ["transformer.h.0.attn", "transformer.h.0.crossattention"], ["self 0", "cross 0"]
    ),
    "BERT": ([f"encoder.layer.{at}.attention.self" for at in range(3)], [None] * 3),
    "Swin": (
        [f"encoder.layers.{x}.blocks.{y}.attention" for x in (0, 1) for y in (0, 1)], [None] * 4
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_called_by_their_side(name: str) -> None:
    names, wanted = NAMES[name]
    assert layer_names.titles(names) == wanted
    together = [wanted[at] for at in layer_names.order(names)]
    first = [x and x.split()[0] for x in together]
    assert first == sorted(first, key=first.index), "each side in one run"


def test_only_is_a_pattern_that_fits() -> None:
    t5 = NAMES["T5"][0]
    assert layer_names.pattern_of(t5[2:], t5[:2]) == "decoder*"
    bart = [f"model.{name}" for name in t5]
    assert layer_names.pattern_of(bart[2:], bart[:2]) == "model.decoder*"
    assert layer_names.pattern_of([t5[0], t5[2]], [t5[3]]) is None
    assert layer_names.pattern_of(t5, []) is None


"""What others are made of, or what a function makes."""
