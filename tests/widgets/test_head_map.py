"""HeadMap: places, distances and maps of heads, and what is said of them."""

import dataclasses
import math
import re
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.head_map import HeadMap
from attnlab_widgets.head_map.example import example, weights
from attnlab_widgets.head_map.picture import placed
from attnlab_widgets.head_map.study import MASKED
from attnlab_widgets.marks import shape

from attnlab.lens.head_distances import Plane, head_distances
from attnlab.lens.head_kinds import find_heads
from attnlab.models.tiny import TinyTransformer
from tests.widgets.stored import assert_fresh, write

N = 7
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()[None, None]


def planted() -> dict[str, torch.Tensor]:
    """(2, 3, n, n) of two layers: to itself, to the previous token, evenly; then the first, thrice,
    of which two differ a little."""
    same, before = torch.eye(N), torch.eye(N).roll(1, 0)
    before[0], before[0, 0] = 0, 1
    even = torch.ones(N, N).tril()
    even = even / even.sum(-1, keepdim=True)
    first = torch.zeros(N, N)
    first[:, 0] = 1
    mixed = [0.9 * first + 0.1 * even, 0.8 * first + 0.2 * even]
    maps = [torch.stack([same, before, even]), torch.stack([first, *mixed])]
    return {f"layer {at}": each.expand(2, -1, -1, -1) for at, each in enumerate(maps)}


def view(**given: Any) -> HeadMap:
    return HeadMap(planted(), [*"abcdefg"], **{"mask": CAUSAL} | given)


def test_the_nearest_head_is_the_one_that_attends_most_alike() -> None:
    one = view(layer=1, head=0)
    assert one.nearest() == [(1, 1), (1, 2), (0, 2)]
    one.near = 1
    assert one.nearest() == [(1, 1)]
    found = head_distances(planted())
    assert one.found.divergence == pytest.approx(found.divergence, abs=1e-4)
    assert one.found.divergence.max() <= math.log(2) + 1e-6
    assert one.found.plane.stress == pytest.approx(found.plane().stress)


def test_the_map_is_that_of_the_head_within_a_step_of_its_byte() -> None:
    one = view()
    for at, (layer, head) in enumerate(one.found.heads):
        own = planted()[f"layer {layer}"][0, head].numpy()
        assert np.abs(one.found.weights[at] - own).max() < 1 / 254, "half a step of the root"
        masked = one.found.codes[at] == MASKED
        assert (masked == ~CAUSAL[0, 0].numpy()).all()


def test_the_opening_is_the_most_important_head_or_the_sharpest() -> None:
    assert (view().layer, view().head) in [(0, 0), (0, 1), (1, 0)]
    given = view(importance=[0, 0.5, 1, 2, 0, 3])
    assert (given.layer, given.head) == (1, 2)
    assert "number 1 by importance" in given.description()
    given.head = 1
    assert "number 5 by importance" in given.description()
    before = view(layer=0, head=1)
    assert before.query == 1, "the first that attends to another token"
    assert view(layer=1).head == 0


def test_it_says_kinds_neighbours_and_where_the_query_goes() -> None:
    one = view(layer=0, head=1, query=3, kinds={place: "odd" if place == (0, 1) else "even"
                                                for place in view().found.heads})  # fmt: skip
    near = one.found.nearest(1)
    assert one.description().startswith(
        "6 heads of 2 layers: 5 “even”, 1 “odd”. Head 1 of layer 0, “odd”, attends most like head "
    )
    assert f"({one.found.divergence[1, near[0]]:.2f}" not in one.description(), "named in words"
    assert f"divergence {one.found.divergence[1, near[0]]:.2f} of at most 0.69" in one.description()
    assert "“d” (3) attends most to “c” (2), 1.00." in one.description()
    assert re.search(r"Stress 0\.\d\d: the plane shows", one.description())


def test_kinds_are_those_of_find_heads() -> None:
    seen = {name: each.repeat(5, 1, 1, 1) for name, each in planted().items()}
    tokens = [*"abcdefg"]
    one = HeadMap(seen, tokens, mask=CAUSAL)
    kinds = find_heads(seen, [tokens] * 10, mask=CAUSAL).kinds
    assert one.found.kinds == [kinds[place] for place in one.found.heads]
    assert one.found.kinds[:2] == ["same token", "previous token"]


def test_a_model_of_attnlab_and_padding() -> None:
    torch.manual_seed(0)
    model = TinyTransformer(13, dim=12, layers=2, heads=3, max_len=32)
    tokens = torch.arange(11)[None]
    sizes = {"first": torch.tensor([1.0, 2, 0]), "second": torch.tensor([0.5, 7, 3])}
    one = HeadMap.of(model, tokens, importance=sizes)
    assert one.tokens == [str(i) for i in range(11)]
    assert one.at == 4
    assert (one.found.codes[0] == MASKED).sum() == 55, "later tokens"
    real = torch.ones(2, N, dtype=torch.bool)
    real[0, 4:] = False
    short = HeadMap(planted(), [*"abcdefg"], padding=real)
    assert short.tokens == [*"abcd"]
    assert HeadMap(planted(), [[*"abcdefg"], [*"hijklmn"]], batch=1).tokens == [*"hijklmn"]


def test_a_model_of_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config)
    mask = torch.ones(1, 9, dtype=torch.long)
    mask[0, 7:] = 0
    one = HeadMap.of(model, {"input_ids": torch.arange(9)[None], "attention_mask": mask})
    assert len(one.found.heads) == 6
    assert one.tokens == [str(i) for i in range(7)], "without the padding"


def test_points_keep_their_distances_in_the_field() -> None:
    points = np.array([[0.0, 0], [3, 4], [1, 0]])
    a, b, c = placed(points, 500, 200, 20)
    assert math.dist(a, b) / math.dist(a, c) == pytest.approx(5)
    assert max(y for _, y in (a, b, c)) <= 180
    assert placed(points[:1], 100, 60, 20) == [(50, 30)]
    assert shape(0, 0, 0, 5) is None
    assert [len(shape(kind, 0, 0, 5) or []) for kind in (1, 2, 3)] == [4, 4, 3]


def test_the_picture_hatches_what_is_masked() -> None:
    kinds = [kind for kind, _ in view().still().parts]
    assert "hatch" in kinds
    assert "hatch" not in [kind for kind, _ in view(mask=None).still().parts]
    lines = [sum(kind == "line" for kind, _ in view(near=near).still().parts) for near in (0, 3)]
    assert lines[1] - lines[0] == 3


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    far = head_distances({"a": planted()["layer 0"]})
    for make, words in (
        (lambda: HeadMap([1]), "seen should be what attnlab.watch recorded"),
        (lambda: HeadMap({"x": torch.ones(1, 2, 3, 5)}), "heads are compared in the attention of"),
        (lambda: HeadMap(planted(), [*"abc"]), "`tokens` has 3 labels for 7 tokens"),
        (lambda: HeadMap(planted(), [[*"abcdefg"]]), "or 2 lists for 2 texts, got 1"),
        (lambda: HeadMap(planted(), "abcdefg"), "`tokens` should be a list"),
        (lambda: view(batch=2), "`batch` should be 0 to 1, the texts that were read, got 2"),
        (lambda: view(distances=far), "`distances` are of 3 heads, and `seen` has 6"),
        (lambda: view(distances=3), "`distances` should be what head_distances found, got int"),
        (lambda: view(kinds={(0, 0): "a"}), "head 1 of layer 0 is not"),
        (lambda: view(kinds=dict.fromkeys(view().found.heads, 3)), "`kinds` should be texts"),
        (lambda: view(kinds=[1]), "`kinds` should be what find_heads found"),
        (lambda: view(importance=[1, 2]), "`importance` should be 6 numbers of at least 0"),
        (lambda: view(importance=[1, 2, 3, 4, 5, -6]), "numbers of at least 0"),
        (lambda: view(importance={"a": [1], "b": [2]}), "`importance` should hold [3, 3] numbers"),
        (lambda: view(layer=2), "`layer` should be 0 to 1 here, got 2"),
        (lambda: view(head=3), "`head` should be 0 to 2 here, got 3"),
        (lambda: view(query=7), "`query` should be 0 to 6 here, got 7"),
        (lambda: view(near=7), "`near` should be 0 to 6 here, got 7"),
        (lambda: view(colour="red"), "colour"),
        (lambda: HeadMap.of(3, "a"), "`model` should be an nn.Module, got 3"),
        (lambda: HeadMap.of(torch.nn.Linear(3, 3), torch.ones(1, 3)), "nothing to show"),
        (lambda: HeadMap({"x": torch.full((1, 401, 2, 2), 0.5)}), "401 heads with maps of 2"),
        (lambda: HeadMap({"x": torch.full((1, 300, 128, 128), 1 / 128)}), "128 tokens are too"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
            make()


def test_a_layer_with_fewer_heads_has_its_last_one_chosen() -> None:
    maps = planted()
    maps["layer 1"] = maps["layer 1"][:, :2]
    one = HeadMap(maps, layer=0, head=2)
    one.layer = 1
    assert (one.layer, one.head) == (1, 1)


# The page


def cases() -> list[dict[str, Any]]:
    """What Python says of a few recordings, heads and queries; the points are given, for another
    processor may turn the plane."""
    alone, empty = torch.eye(3)[None, None], torch.zeros(1, 2, 3, 3)
    empty[:, :, 1, 1] = 0.3
    shown = [example(), view(), view(importance=[0, 1, 2, 3, 4, 5]), HeadMap(weights(20, 2, 5)),
             HeadMap({"x": alone}), HeadMap({"x": empty})]  # fmt: skip
    found = []
    for number, one in enumerate(shown):
        points = np.array([[at % 3 - 1.5, at / 4] for at in range(len(one.found.heads))])
        one.found = dataclasses.replace(one.found, plane=Plane(points, 0.08 * number))
        last = len(one.found.heads) - 1, len(one.tokens) - 1
        found.append({
            "_told": one.found.told(), "data": b64encode(one.found.data()).decode(),
            "said": [_said(one, *each) for each in ((0, 0), last, (last[0] // 2, last[1] // 2))],
            "places": [list(map(float, each)) for each in placed(points, 430, 400, 34)],
        })  # fmt: skip
    return found


def _said(one: HeadMap, at: int, query: int) -> list[Any]:
    with one.hold_trait_notifications():
        one.layer, one.head = one.found.heads[at]
    one.query = query
    return [at, query, one.description(), one.found.nearest(at)]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("heads.json", cases(), near=1e-4)


if __name__ == "__main__":
    write("heads.json", cases())
