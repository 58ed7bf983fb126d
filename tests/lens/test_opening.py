"""Where a view opens: planted maps, of which one head has a story."""

import numpy as np
import pytest

from attnlab.lens.opening import sharpness, telling_query

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


def test_the_sharpest_head_is_the_one_that_points_at_another_token() -> None:
    own = np.eye(N)  # each token itself
    found = sharpness(np.stack([own, even(), pointing(4, 1, 0.6)]))
    assert found[0] == 0
    assert found.argmax() == 2


@pytest.mark.parametrize(("query", "key", "weight"), [(5, 2, 0.9), (6, 0, 0.6), (2, 0, 0.8)])
def test_the_query_with_the_strongest_pair_is_found(query: int, key: int, weight: float) -> None:
    weights = np.eye(N)  # the first query of a causal map has one key, and gives it 1
    weights[query] = pointing(query, key, weight)[query]
    assert telling_query(weights) == query


def test_a_query_that_attends_most_to_itself_tells_less() -> None:
    weights = np.eye(N)
    weights[5, [5, 2]] = 0.51, 0.49
    weights[4, [4, 2, 1]] = 0.2, 0.48, 0.32
    assert telling_query(weights) == 4
    weights[4] = np.eye(N)[4]
    assert telling_query(weights) == 5, "where all do, the one with the most left"


def test_queries_are_the_last_of_more_keys() -> None:
    cross = np.full((3, 5), 0.2)
    cross[0] = [0.1, 0, 0.8, 0.1, 0]  # key 2 is the query itself
    cross[2] = [0, 0.6, 0, 0, 0.4]  # key 4 is
    assert telling_query(cross) == 2
    longer = np.full((5, 3), 1 / 3)  # what is read is another text: no token is its own
    longer[1] = [0.1, 0.8, 0.1]
    assert telling_query(longer) == 1


def test_weights_that_are_subtracted_point_too() -> None:
    signed = np.stack([even(), even()])
    signed[1, 6] = 0
    signed[1, 6, [2, 3]] = [1.5, -0.5]
    assert sharpness(signed).argmax() == 1
