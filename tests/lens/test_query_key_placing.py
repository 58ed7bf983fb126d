"""A typed text is placed where its tokens lie on the maps; a bad one gets a sentence."""

import numpy as np
import pytest
import torch

from attnlab import pretrained
from attnlab.lens.query_key.collect import collect
from attnlab.lens.query_key.maps import project
from attnlab.lens.query_key.placing import LONGEST, placer


@pytest.fixture(scope="module")
def shipped():
    """The shipped language model, its task, and maps of one text."""
    model, task = pretrained.load("documentation")
    ids = task.encode("for x in range(3): print(x), and for y in range(5): print(y)")
    points = collect(model, [ids[None]], task.tokens)
    return model, task, ids, project(points, "pca")


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_text_that_is_on_the_map_is_placed_where_it_is(shipped, method):
    model, task, ids, maps = shipped
    if method != "pca":
        maps = project(maps.points, method, heads=[(1, 2), (2, 0)])
    placed = placer(model, maps, task.encode, task.tokens)(task.decode(ids))
    assert tuple(placed) == tuple(maps)
    for which, one in placed.items():
        assert np.allclose(one.all, maps[which].all, atol=1e-2)
        assert one.faithfulness is None
    assert placed.points[0].query_tokens.texts == tuple(task.tokens(ids))


def test_another_text_is_placed_with_its_own_tokens_and_weights(shipped):
    model, task, _, maps = shipped
    place = placer(model, maps, task.encode, task.tokens)
    placed = place("while True: pass")
    ids = task.encode("while True: pass")
    assert placed.points[0].query_tokens.texts == tuple(task.tokens(ids))
    own = collect(model, [ids[None]])
    for x, y in zip(placed.points, own, strict=True):
        assert np.array_equal(x.strongest, y.strongest)
    assert placed[0, 0].queries.shape == (len(ids), 2)


@pytest.mark.parametrize(
    "encode",
    [
        lambda ids: ids.tolist(),
        lambda ids: ids[None],
        lambda ids: {"tokens": ids[None], "padding": torch.ones(1, len(ids), dtype=torch.bool)},
        lambda ids: {"tokens": ids.tolist()},
    ],
)
def test_ids_come_as_list_tensor_or_keyword_arguments(shipped, encode):
    model, task, ids, maps = shipped
    placed = placer(model, maps, lambda _: encode(ids), task.tokens)("a text")
    assert np.allclose(placed[0, 0].all, maps[0, 0].all, atol=1e-2)


def test_only_the_layers_that_were_mapped(shipped):
    model, task, ids, _ = shipped
    name = collect(model, [ids[None]])[1].name
    maps = project(collect(model, [ids[None]], task.tokens, only=name), "pca")
    text = task.decode(ids)
    placed = placer(model, maps, task.encode, task.tokens, only=name)(text)
    assert np.allclose(placed[0, 1].all, maps[0, 1].all, atol=1e-2)
    with pytest.raises(ValueError, match="another model"):
        placer(model, maps, task.encode, task.tokens)(text)


BAD = {
    "no text": (None, 3, "a text is placed, got int"),
    "empty": (None, "  \n", "the text is empty"),
    "no tokens": (lambda text: [], "a", "has no tokens"),
    "too long": (lambda text: [1] * (LONGEST + 1), "a", "513 tokens, more than 512; shorten it"),
    "two sequences": (lambda text: [[1, 2], [3, 4]], "a", r"\(n\) or \(1, n\), got .*\(2, 2\)"),
    "a text again": (lambda text: text, "a", "should return ids, .* got str"),
    "ids of another model": (lambda text: [10**6], "a", "1000000|cannot read this text"),
    "longer than the model": (lambda text: [1] * 300, "a", "300"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_texts_get_a_sentence(shipped, name):
    model, task, _, maps = shipped
    encode, text, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        placer(model, maps, encode or task.encode, task.tokens)(text)


def test_what_a_model_raises_is_explained(shipped):
    _, task, _, maps = shipped

    class Short(torch.nn.Module):
        def forward(self, ids):
            return torch.zeros(3)[ids]

    with pytest.raises(ValueError, match=r"cannot read this text of 1 tokens \(index 7 is out"):
        placer(Short(), maps, lambda text: [7], task.tokens)("a")


def test_what_no_placer_can_be_made_of(shipped):
    model, task, _, maps = shipped
    with pytest.raises(TypeError, match="`maps` are what `project` returns, got Points"):
        placer(model, maps.points, task.encode, task.tokens)
    with pytest.raises(TypeError, match="`encode` should be a function, got str"):
        placer(model, maps, "a", task.tokens)
    with pytest.raises(TypeError, match="`read` should be a function, got NoneType"):
        placer(model, maps, task.encode, None)
