"""Where a view opens: planted maps, of which one head has a story."""

import numpy as np
import pytest

from attnlab.lens.opening import Opening, opening, sharpness, strongest_pair

N = 7


def even(causal: bool = True) -> np.ndarray:
    seen = np.tril(np.ones((N, N))) if causal else np.ones((N, N))
    return seen / seen.sum(-1, keepdims=True)


def pointing(query: int, key: int, weight: float) -> np.ndarray:
    """An even causal map, but one query gives this weight to a key."""
    found = even()
    found[query, : query + 1] = (1 - weight) / query
    found[query, key] = weight
    return found


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 2), (1, 1)])
def test_the_planted_head_and_its_pair_are_found(layer: int, head: int) -> None:
    layers = [np.stack([even()] * 3) for _ in range(2)]
    layers[layer][head] = pointing(5, 2, 0.9)
    assert opening(layers) == Opening(layer, head, 5, 2)


def test_what_is_the_same_in_every_head_is_no_story() -> None:
    own = np.eye(N)  # each token itself
    first = np.stack([own, pointing(4, 1, 0.6)])
    assert opening([first]) == Opening(0, 1, 4, 1)
    assert sharpness(first)[0] == 0
    # The first query of a causal map has one key, and gives it 1.
    one = even()
    assert strongest_pair(one) == (1, 0)
    assert opening([own[None]]) is None
    assert opening([]) is None


def test_queries_are_the_last_of_more_keys() -> None:
    cross = np.full((2, 3, 5), 0.2)
    cross[1, 0] = [0.1, 0, 0.8, 0.1, 0]  # key 2 is the query itself
    cross[1, 2] = [0, 0.5, 0, 0, 0.5]  # key 4 is
    assert strongest_pair(cross[1]) == (2, 1)
    assert opening([cross[1:]]) == Opening(0, 0, 2, 1)
    longer = np.full((1, 5, 3), 1 / 3)  # what is read is another text: no token is its own
    longer[0, 1] = [0.1, 0.8, 0.1]
    assert opening([longer]) == Opening(0, 0, 1, 1)


def test_weights_that_are_subtracted_point_too() -> None:
    signed = np.stack([even(), even()])
    signed[1, 6] = 0
    signed[1, 6, [2, 3]] = [1.5, -0.5]
    assert opening([signed]) == Opening(0, 1, 6, 2)
