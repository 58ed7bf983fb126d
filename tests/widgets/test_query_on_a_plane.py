"""QueryOnAPlane: its numbers are torch's, its sentence is true, and wrong values are refused."""

import re
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.query_on_a_plane import PRESETS, SCALE, QueryOnAPlane
from attnlab_widgets.words import listed, two

from attnlab.mechanisms.dense.full import naive
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

KEYS = [[1.0, 0.5], [-2.0, 1.5], [0.25, -3.0]]
VALUES = [[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]]


def widgets() -> list[QueryOnAPlane]:
    """The presets, and what they leave out: masks, ties, one key, none, large and small scales."""
    torch.manual_seed(3)
    own = [
        QueryOnAPlane(KEYS, VALUES, query=[0.5, 0.25], masked=[1]),
        QueryOnAPlane(KEYS, VALUES, query=[-0.5, -0.25], scale=0.5, masked=[0, 2]),
        QueryOnAPlane(KEYS, query=[1, 1], masked=[0, 1, 2]),
        QueryOnAPlane(KEYS, query=[0, 0], masked=[2], names=["the", "cat", "sat"]),
        QueryOnAPlane([[1, 0], [1, 2], [1, -2]], query=[2, 0]),
        QueryOnAPlane([[-1, 0], [-2, 1]], query=[2, 0]),
        QueryOnAPlane([[3.0, 1.0]]),
        QueryOnAPlane([[90, 0], [89, 1]], query=[9, 0], scale=2),
    ]
    drawn = [
        QueryOnAPlane(torch.randn(n, 2), torch.randn(n, 2), query=torch.randn(2), scale=scale)
        for n, scale in ((5, 12.0), (8, 0.3), (2, 99.0))
    ]
    return [QueryOnAPlane(preset=name) for name in PRESETS] + own + drawn


def case(plane: QueryOnAPlane) -> dict[str, Any]:
    return {
        "keys": plane.key_vectors,
        "values": plane.value_vectors,
        **{name: getattr(plane, name) for name in ("query", "scale", "masked", "names")},
        "scores": plane.scores().tolist(),
        "weights": plane.weights().tolist(),
        "output": plane.output().tolist(),
        "said": plane.description(),
    }


@pytest.mark.parametrize("plane", widgets(), ids=str)
def test_the_numbers_are_those_of_torch(plane: QueryOnAPlane) -> None:
    k, v, q = (torch.tensor(x, dtype=torch.float64)[None, None]
               for x in (plane.key_vectors, plane.value_vectors, [plane.query]))  # fmt: skip
    allowed = torch.tensor([[j not in plane.masked for j in range(k.shape[2])]])
    scores = plane.scale * (q @ k.mT)
    torch.testing.assert_close(plane.scores(), scores[0, 0, 0])
    if allowed.any():
        wanted = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        torch.testing.assert_close(plane.weights(), wanted[0, 0, 0])
        torch.testing.assert_close(plane.output(), (wanted @ v)[0, 0, 0])
    if plane.scale == SCALE:
        torch.testing.assert_close(plane.output(), naive(q, k, v, mask=allowed)[0, 0, 0])


def test_the_page_s_arithmetic_is_tested_against_this() -> None:
    assert_fresh("plane.json", [case(plane) for plane in widgets()], NEAR_FLOAT32)


@pytest.mark.parametrize("plane", widgets()[-3:], ids=str)
def test_the_sentence_names_the_key_with_the_largest_weight(plane: QueryOnAPlane) -> None:
    best = int(plane.weights().argmax())
    start = f"The query gives key {plane.names[best]} {two(plane.weights()[best].item())}, because"
    assert plane.description().startswith(start)


def test_the_sentence_says_what_a_preset_is_about() -> None:
    said = {name: QueryOnAPlane(preset=name).description() for name in PRESETS}
    assert "Keys a and b have the same score" in said["two equal keys"]
    longer = "Key a points more in the direction of the query, but b is longer"
    assert longer in said["a long key wins"]
    assert said["a zero query"].endswith("each of the 4 keys gets 0.25.")
    assert "key a 1.00" in said["a large scale chooses"]


def test_twice_the_lead_is_the_square_of_the_ratio() -> None:
    """The sentence's e^lead is the ratio of the two largest weights."""
    plane = QueryOnAPlane(KEYS, query=[1, 0], scale=1)
    first, second = plane.weights().sort(descending=True).values[:2].tolist()
    ratio = re.search(r"e\^0\.75 = (\S+) times", plane.description())
    assert ratio
    assert ratio[1] == f"{first / second:.2f}"


def test_numbers_are_rounded_as_on_the_page() -> None:
    assert [two(x) for x in (0.125, -0.125, -0.001, 2.675, -3)] == [
        *("0.13", "−0.13", "0.00", "2.67", "−3.00"),
    ]
    assert [listed(list(x)) for x in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


def test_what_is_set_is_seen() -> None:
    plane = QueryOnAPlane(KEYS, VALUES)
    assert plane.query == [0.5, 0.25]
    plane.query, plane.scale, plane.masked = [1, 2], 2, [2, 0, 2]
    assert plane.masked == [0, 2]
    assert plane.weights().tolist() == [0, 1, 0]
    assert plane.output().tolist() == VALUES[1]
    plane.key_vectors = torch.tensor(KEYS) * 2
    assert plane.scores().tolist() == [8, 4, -23]
    plane.shows = "winners"


def test_a_preset_replaces_everything_at_once() -> None:
    """As the page sets it: fewer keys, values and names in one message."""
    plane = QueryOnAPlane(KEYS, VALUES, names=["x", "y", "z"])
    state = next(dict(one) for one in plane._presets if one["name"] == "a zero query")
    del state["name"], state["try"]
    plane.set_state(state)
    assert (len(plane.key_vectors), plane.names) == (4, ["a", "b", "c", "d"])
    assert plane._presets[0]["names"] == ["x", "y", "z"]


SET = [
    ("key_vectors", KEYS[:2], "`key_vectors` should hold 3 points"),
    ("value_vectors", [[1, 2, 3]] * 3, "points of the plane"),
    ("query", None, "an array of numbers, got NoneType"),
    ("query", [1], "`query` should be two coordinates"),
    ("query", [1, float("nan")], "NaN or infinite"),
    ("query", [1, 101], "beyond ±100"),
    ("scale", 0, "above 0 and at most 100, got 0"),
    ("scale", 1000, "above 0 and at most 100"),
    ("masked", [3], "keys 0 … 2, got"),
    ("masked", [0.5], "a masked key should be a whole number"),
    ("names", ["a", "a", "b"], "3 different names"),
    ("shows", "all", "'shows' trait"),
]


@pytest.mark.parametrize(("name", "wrong", "words"), SET)
def test_what_cannot_be_set_is_said(name: str, wrong: Any, words: str) -> None:
    plane = QueryOnAPlane(KEYS, VALUES)
    before = getattr(plane, name)
    with pytest.raises(traitlets.TraitError, match=words):
        setattr(plane, name, wrong)
    assert getattr(plane, name) == before


if __name__ == "__main__":
    write("plane.json", [case(plane) for plane in widgets()])
