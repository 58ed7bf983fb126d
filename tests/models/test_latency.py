"""Predicted latency: what is learned from some networks holds for others, and bounds a search."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr

from attnlab.measure.latency import latencies
from attnlab.models.counts import count
from attnlab.models.latency import features, fitted, rank_correlation, ranks
from attnlab.models.supernet import Evolution, Sizes, Space, evolved, network

SPACE = Space(dim=(8, 16), hidden=(8, 16, 64), heads=(2, 4), layers=(2, 3, 4), source=(1, 2))
OPTIONS: dict[str, Any] = {"kind": "encoder_decoder", "vocab": 7, "max_len": 16}


def flops(sizes: Sizes) -> float:
    return count(network(SPACE, sizes, **OPTIONS), 16)[-1].flops


def drawn(many: int, seed: int) -> list[Sizes]:
    random = Random(seed)
    found: dict[Sizes, None] = {}
    while len(found) < many:
        found[SPACE.draw(random)] = None
    return list(found)


@pytest.fixture(scope="module")
def predict() -> Callable[[Sizes], float]:
    """Learned from operations, which are no other time than they were yesterday."""
    return fitted(SPACE, {sizes: flops(sizes) / 1e9 for sizes in drawn(40, seed=0)})


def test_it_ranks_networks_that_it_was_not_shown(predict: Callable[[Sizes], float]) -> None:
    known = {*drawn(40, seed=0)}
    others = [sizes for sizes in drawn(40, seed=1) if sizes not in known]
    assert len(others) > 25
    taken = [flops(sizes) for sizes in others]
    assert rank_correlation([predict(sizes) for sizes in others], taken) > 0.95
    assert rank_correlation([features(sizes)[2] for sizes in others], taken) < 0.9


def test_a_search_keeps_below_the_predicted_latency(predict: Callable[[Sizes], float]) -> None:
    """And goes up to it, where larger networks are better."""
    limit = (predict(SPACE.largest) + min(predict(each) for each in drawn(40, seed=2))) / 2
    how = Evolution(parents=4, mutated=6, crossed=6, rounds=6)
    best = evolved(SPACE, lambda sizes: sum(sizes.hidden), cost=predict, limit=limit, evolution=how)
    assert 0.6 * limit < predict(best) <= limit
    assert best != SPACE.largest


def test_the_same_seed_learns_the_same() -> None:
    timed = {sizes: 1e-3 * (i + 1) for i, sizes in enumerate(drawn(6, seed=0))}
    one, two, other = (fitted(SPACE, timed, steps=5, seed=seed) for seed in (0, 0, 1))
    state = torch.get_rng_state()
    fitted(SPACE, timed, steps=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert one(SPACE.largest) == two(SPACE.largest) != other(SPACE.largest)


def test_features_are_means_over_the_layers() -> None:
    assert features(Sizes(8, (8, 64, 16), (2, 4, 4), (1, 2, 2))) == (8, 3, 88 / 3, 10 / 3, 5 / 3)


def test_every_network_is_timed() -> None:
    chosen = [Sizes(8, (8, 8), (2, 2)), SPACE.largest]
    tokens = torch.zeros(1, 16, dtype=torch.long)
    found = latencies(SPACE, chosen, {"tokens": tokens, "source": tokens}, rounds=3, **OPTIONS)
    assert [*found] == chosen
    assert all(0 < seconds < 10 for seconds in found.values())


def test_ranks_are_spearmans() -> None:
    one, other = [3.0, 1.0, 3.0, 7.0, 2.0], [0.1, 0.2, 0.3, 0.9, 0.2]
    assert ranks(one).tolist() == [2.5, 0, 2.5, 4, 1]
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_what_cannot_be_learned_from_is_refused() -> None:
    good = drawn(5, seed=0)
    with pytest.raises(ValueError, match="at least 4 timed networks to learn from, got 3"):
        fitted(SPACE, dict.fromkeys(good[:3], 1.0))
    with pytest.raises(ValueError, match="each time should be above 0 seconds, got 0"):
        fitted(SPACE, dict.fromkeys(good, 0.0))
    with pytest.raises(ValueError, match="timed networks should be of the space"):
        fitted(SPACE, dict.fromkeys([*good, Sizes(9, (8,), (2,))], 1.0))
    with pytest.raises(ValueError, match="sizes should be of the space"):
        fitted(SPACE, dict.fromkeys(good, 1.0), steps=1)(Sizes(9, (8,), (2,)))
