"""WhoIsChosen: what it says is what lens.choices finds; wrong values are refused."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.who_is_chosen import WAYS, WhoIsChosen

from attnlab.lens import choices
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

BYTES = ("_queries", "_keys", "_axes", "_rotations")
N, D = 11, 6


def vectors(seed: int = 0, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    made = np.random.default_rng(seed)
    return made.normal(size=(N, d)) * 1.6, made.normal(size=(N, d))


def widgets() -> list[WhoIsChosen]:
    q, k = vectors()
    odd = vectors(5, 3)[0]
    dragged = WhoIsChosen(q, k, block=3, top=4)
    dragged.moved = {"2": [0.7, -1.1], 10: [-0.3, 0.25]}
    return [
        WhoIsChosen(rounds=3, turn=31.0),
        WhoIsChosen(q, k, causal=True, buckets=6, rounds=4, clusters=3, block=2, top=3, query=9),
        WhoIsChosen(q, causal=True, buckets=2, rounds=1, clusters=1, block=N, top=N),
        WhoIsChosen(odd, turn=117.5, clusters=5, block=4, top=2, seed=3),
        dragged,
    ]


def floats(data: bytes) -> list[float]:
    return [float(x) for x in np.frombuffer(data, "<f4")]


def case(one: WhoIsChosen) -> dict[str, Any]:
    names = ("causal", "top", "buckets", "rounds", "turn", "clusters", "block", "query", "moved")
    found = {way: one.choice(way) for way in WAYS}
    return {
        **{name: getattr(one, name) for name in (*names, "order", "tokens")},
        **{name: floats(getattr(one, name)) for name in BYTES},
        "_starts": one._starts,
        "_most_buckets": one._most_buckets,
        "weights": one.weights().flatten().tolist(),
        "found": {
            way: {
                "chosen": choice.chosen.flatten().int().tolist(),
                "pairs": choice.pairs,
                "recall": one.recall(way),
                "queryGroups": _listed(choice.query_groups),
                "keyGroups": _listed(choice.key_groups),
            }
            for way, choice in found.items()
        },
    }  # fmt: skip


def _listed(groups: torch.Tensor | None) -> list[int] | None:
    return None if groups is None else groups.tolist()


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("chosen.json", cases(), NEAR_FLOAT32)


def test_what_is_chosen_is_what_the_lens_chooses() -> None:
    q, k = (torch.from_numpy(x.astype("float32")).double() for x in vectors())
    one = WhoIsChosen(q, k, causal=True, buckets=4, rounds=3, clusters=3, block=2, top=3)
    allowed = choices.allowed_pairs(N, causal=True)
    weights = choices.full_weights(q, k, allowed)
    torch.testing.assert_close(one.weights(), weights)
    starts = torch.tensor(one._starts[:3])
    wanted = {
        "weight": choices.by_weight(weights, allowed, top=3),
        "hashing": choices.by_hashing(q, k, allowed, one.rotations()),
        "clustering": choices.by_clustering(q, k, allowed, starts, width=4),
        "sorting": choices.by_sorting(q, k, allowed, block=2, causal=True),
    }
    for way, choice in wanted.items():
        assert torch.equal(one.choice(way).chosen, choice.chosen), way
        assert one.recall(way) == pytest.approx(choices.recall(weights, choice.chosen, top=3))
    assert one.rotations().shape == (3, D, 2)


def test_a_drag_moves_the_query_in_the_plane_only() -> None:
    q, k = vectors()
    one = WhoIsChosen(q, k)
    before, keys = one.vectors()
    one.moved = {4: [0.5, -2.0]}
    after, same = one.vectors()
    axes = one._read(one._axes)
    torch.testing.assert_close(axes.mT @ axes, torch.eye(2).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close((after - before) @ axes, _at(4, [0.5, -2.0]), rtol=0, atol=1e-5)
    torch.testing.assert_close(after[4], before[4] + axes @ torch.tensor([0.5, -2.0]).double())
    assert torch.equal(keys, same)


def _at(row: int, values: list[float]) -> torch.Tensor:
    found = torch.zeros(N, 2, dtype=torch.float64)
    found[row] = torch.tensor(values)
    return found


@pytest.mark.parametrize("d", [2, 3, 6])
def test_turning_the_matrix_is_turning_the_vectors_back(d: int) -> None:
    q, _ = vectors(2, d)
    one = WhoIsChosen(q, buckets=6, rounds=2)
    straight = one.rotations()
    one.turn = 90.0
    pairs = d // 2
    turned = one.rotations()
    torch.testing.assert_close(turned[:, 0 : 2 * pairs : 2], -straight[:, 1 : 2 * pairs : 2])
    torch.testing.assert_close(turned[:, 1 : 2 * pairs : 2], straight[:, 0 : 2 * pairs : 2])
    torch.testing.assert_close(turned[:, 2 * pairs :], straight[:, 2 * pairs :])
    one.turn = 360.0
    torch.testing.assert_close(one.rotations(), straight)


def test_more_rounds_find_no_less_and_exact_top_k_finds_all() -> None:
    one = WhoIsChosen(*vectors())
    found = []
    for rounds in range(1, 9):
        one.rounds = rounds
        found.append((one.recall("hashing"), one.choice("hashing").pairs))
    assert found == sorted(found)
    assert found[-1] > found[0]
    assert one.recall("weight") == pytest.approx(1)
    assert one.choice("weight").pairs == N * N


def test_the_sentence_has_the_numbers() -> None:
    one = WhoIsChosen(*vectors(), [*"attentively"])
    for way, title in WAYS.items():
        said = f"{title} {100 * one.recall(way):.0f} % with {one.choice(way).pairs} pairs"
        assert said in one.description()
    assert "each query's 8 heaviest keys, each way finds" in one.description()
    assert repr(one) == f"WhoIsChosen: {one.description()}"
    assert one.tokens == [*"attentively"]
    one.top = 1
    assert "each query's heaviest key, each way finds" in one.description()


def test_tokens_are_shown_as_they_are_read() -> None:
    """The page writes them as text, so that nothing is escaped."""
    q, k = vectors()
    one = WhoIsChosen(q, k, ["<", "&", "a b", *range(3, len(q))])
    assert one.tokens[:4] == ["<", "&", "a␣b", "3"]


def test_the_picture_shows_what_was_chosen_and_what_was_missed() -> None:
    one = WhoIsChosen(*vectors(), causal=True)
    maps = [part for kind, part in one.still().parts if kind == "map"]
    hatches = [part for kind, part in one.still().parts if kind == "hatch"]
    assert len(maps) == len(hatches) == len(WAYS)
    heavy = one.choice("weight").chosen
    for part, way in zip(maps, WAYS, strict=True):
        blank, lost = len(part["palette"]) - 2, len(part["palette"]) - 1
        levels = torch.from_numpy(part["levels"])
        assert torch.equal(levels < blank, one.choice(way).chosen)
        assert torch.equal(levels == lost, heavy & ~one.choice(way).chosen)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"keys": [[1, 2]]}, "belong to `queries`"),
        ({"tokens": ["a"]}, "belong to `queries`"),
        ({"queries": [[1.0, 2.0]]}, "2 to 64 vectors"),
        ({"queries": np.ones((65, 2))}, "2 to 64 vectors"),
        ({"queries": np.ones((3, 257))}, "2 to 64 vectors"),
        ({"queries": np.ones((3, 2)), "keys": np.ones((4, 2))}, "as the queries"),
        ({"queries": np.ones((3, 2)), "tokens": ["a", "b"]}, "name 3 tokens"),
        ({"queries": np.full((3, 2), np.nan)}, "`queries`"),
        ({"buckets": 7}, "even number"),
        ({"buckets": 18}, "even number"),
        ({"rounds": 0}, "`rounds` should be 1 to 8"),
        ({"rounds": 9}, "`rounds` should be 1 to 8"),
        ({"top": 33}, "`top` should be 1 to 32"),
        ({"clusters": 0}, "`clusters` should be 1 to 16"),
        ({"block": 0}, "`block` should be 1 to 32"),
        ({"query": 32}, "`query` should be 0 to 31"),
        ({"order": "size"}, "order"),
        ({"turn": math.inf}, "`turn` should be a finite number"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError, traitlets.TraitError), match=re.escape(words)):
        WhoIsChosen(**arguments)


@pytest.mark.parametrize("moved", [{"32": [0, 1]}, {1: [0, 1, 2]}, {1: "far"}])
def test_drags_that_do_not_fit_are_refused(moved: dict[Any, Any]) -> None:
    with pytest.raises(traitlets.TraitError, match="`moved`"):
        WhoIsChosen().moved = moved


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="weight, hashing, clustering, sorting"):
        WhoIsChosen().choice("guessing")


if __name__ == "__main__":
    write("chosen.json", cases())
