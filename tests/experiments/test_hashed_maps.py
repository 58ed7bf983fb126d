"""The experiment `hashed_maps`: what is hashed, whose pairs count, and what is stored."""

import json

import pytest
import torch

from attnlab.experiments import ASSETS, hashed_maps, stored
from attnlab.experiments.grid import Trained
from attnlab.experiments.hashed_maps import KINDS, ROUNDS, SEEDS, Map, cosines, hashed, pairs

EVERY = stored("14_hashing.json", "hashed_maps")


def test_pairs_of_shared_vectors_leave_out_the_own_key() -> None:
    assert pairs(4, 2, itself=False).int().tolist() == [
        [0] * 4,
        [0] * 4,
        [1, 1, 0, 0],
        [1, 1, 1, 0],
    ]
    assert pairs(3, 1, itself=True).int().tolist() == [[0] * 3, [1, 1, 0], [1, 1, 1]]


def test_equal_vectors_are_found_and_opposite_ones_are_not() -> None:
    x = torch.randn(1, 7, generator=torch.Generator().manual_seed(0))
    one = Map(x.expand(5, 7), torch.cat([x, -x, -x, x, -x]), torch.full((5, 5), 0.2).tril())
    weight, computed, nothing = hashed(one, pairs(5, 0, itself=True), 3, 0)
    assert computed == pytest.approx(7 / 15)  # keys 0 and 3, of the queries from there on
    assert weight == pytest.approx(7 / 15)
    assert nothing == 0
    found = cosines([one], pairs(5, 3, itself=False))
    assert found["cosine of all pairs"] == pytest.approx((-1 / 7), abs=1e-6)
    assert found["weight of the heaviest key"] == pytest.approx(0.2)


def test_queries_without_a_key_are_counted() -> None:
    x = torch.randn(1, 7, generator=torch.Generator().manual_seed(0)).expand(4, 7)
    one = Map(x, torch.cat([-x[:2], x[:1], x[:1]]), torch.full((4, 4), 0.25).tril())
    assert hashed(one, pairs(4, 0, itself=True), 1, 0)[2] == pytest.approx(2 / 4)


def test_what_the_lesson_concludes_is_stored() -> None:
    """Every duplication model is trained to the end, and at two rounds both kinds are near."""
    rows = json.loads((ASSETS / "14_hashing.json").read_text())["experiments"]["hashed_maps"]
    assert len(rows) == 2 * len(KINDS) * len(SEEDS) * (5 + 3 * len(ROUNDS))
    for seed in SEEDS:
        of = {kind: f"duplication, {kind}; {{}}; seed {seed}" for kind in KINDS}
        assert all(EVERY[of[kind].format("right")] == 100 for kind in KINDS)
        two = [EVERY[of[kind].format("2 rounds: weight")] for kind in KINDS]
        assert abs(two[0] - two[1]) < 6
        assert min(two) > EVERY[f"documentation, shared; 2 rounds: weight; seed {seed}"] + 10


@pytest.mark.parametrize(("kind", "itself"), [("shared", False), ("separate", True)])
def test_a_shared_vector_leaves_out_its_own_key(
    kind: str, itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, int]] = []

    def counted(n: int, first: int, *, itself: bool) -> torch.Tensor:
        asked.append((itself, first))
        return pairs(n, first, itself=itself)

    monkeypatch.setattr(hashed_maps, "pairs", counted)
    name = f"duplication, {kind}"
    model, _ = hashed_maps.train(name, 0, steps=1)
    hashed_maps.GRID.score(Trained(model, hashed_maps.GRID.arms[name], name, 0, quick=True))
    assert asked == [(itself, 16)]
