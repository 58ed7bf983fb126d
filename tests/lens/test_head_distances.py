"""Distances between heads, by hand and on planted heads."""

import math

import numpy as np
import pytest
import torch

import attnlab
from attnlab.lens.head_distances import HeadDistances, head_distances
from attnlab.models.tiny import TinyTransformer

LN2 = math.log(2)


def weights(*heads, dtype=torch.float64):
    return torch.tensor(heads, dtype=dtype)[None]


FIRST = [[1.0, 0.0], [1.0, 0.0]]
OWN = [[1.0, 0.0], [0.0, 1.0]]
EVEN = [[0.5, 0.5], [0.5, 0.5]]


def test_divergences_by_hand():
    found = head_distances({"a": weights(FIRST, OWN), "b": weights(EVEN)})
    assert found.heads == [(0, 0), (0, 1), (1, 0)]
    assert found.queries == 2
    apart = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) - LN2 / 2  # JS((1, 0) | (½, ½))
    wanted = [[0, LN2 / 2, apart], [LN2 / 2, 0, apart], [apart, apart, 0]]
    np.testing.assert_allclose(found.divergence, wanted, atol=1e-15)
    assert found.nearest(1, 0) == [(0, 0), (0, 1)]


def test_it_is_at_most_ln_2_and_its_root_a_metric():
    made = torch.Generator().manual_seed(0)
    heads = (4 * torch.randn(2, 9, 7, 7, generator=made)).softmax(-1)
    found = head_distances({"a": heads}).divergence
    assert (found <= LN2).all()
    assert (found[~np.eye(9, dtype=bool)] > 0).all()
    np.testing.assert_array_equal(found, found.T)
    root = np.sqrt(found)
    assert (root[:, None, :] <= root[:, :, None] + root[None] + 1e-12).all()
    # The divergence itself breaks the triangle inequality.
    three = head_distances({"a": weights([[1.0, 0.0]], [[0.5, 0.5]], [[0.0, 1.0]])}).divergence
    assert three[0, 2] > three[0, 1] + three[1, 2]


def test_padding_and_empty_rows_do_not_count():
    made = torch.Generator().manual_seed(1)
    padding = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
    scores = torch.randn(2, 3, 4, 4, generator=made)
    there = scores.masked_fill(~padding[:, None, None], -torch.inf).softmax(-1)
    whole = head_distances({"a": there}, padding=padding)
    assert whole.queries == 5
    rows = [
        head_distances({"a": there[[row], :, :count, :count]}) for row, count in ((0, 3), (1, 2))
    ]
    mean = (3 * rows[0].divergence + 2 * rows[1].divergence) / 5
    np.testing.assert_allclose(whole.divergence, mean, atol=1e-14)
    emptied = there.clone()
    emptied[0, 1, 2] = 0  # one head attends to nothing in one row
    assert head_distances({"a": emptied}, padding=padding).queries == 4


def test_planted_kinds_lie_apart_in_the_plane():
    n, made = 12, torch.Generator().manual_seed(2)
    previous = torch.eye(n).roll(-1, 1)
    first = torch.zeros(n, n)
    first[:, 0] = 1
    even = torch.full((n, n), 1 / n)
    noise = torch.rand(2, 12, n, n, generator=made).softmax(-1)
    kinds = torch.stack([previous, first, even])[torch.arange(12) % 3]
    found = head_distances({"a": 0.9 * kinds + 0.1 * noise})
    points, stress = found.plane()
    assert points.shape == (12, 2)
    assert stress < 0.1
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    alike = np.arange(12)[:, None] % 3 == np.arange(12) % 3
    assert between[alike].max() < 0.3 * between[~alike].min()
    assert all(other % 3 == 4 % 3 for _, other in found.nearest(0, 4)[:3])
    again = found.plane()
    np.testing.assert_array_equal(points, again.points)


def test_points_of_a_plane_are_drawn_exactly():
    points = np.random.default_rng(0).normal(size=(6, 2))
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = HeadDistances([(0, h) for h in range(6)], apart**2, 1).plane()
    assert found.stress < 1e-6
    shown = np.linalg.norm(found.points[:, None] - found.points[None], axis=-1)
    np.testing.assert_allclose(shown, apart, atol=1e-6)
    same = HeadDistances([(0, 0), (0, 1)], np.zeros((2, 2)), 1).plane()
    assert same.stress == 0


def test_of_a_recorded_model():
    model = TinyTransformer(vocab=11, dim=16, heads=4, layers=2)
    with attnlab.watch(model) as seen:
        model(torch.randint(11, (3, 9)))
    found = head_distances(seen)
    assert found.heads == [(layer, head) for layer in range(2) for head in range(4)]
    assert found.queries == 27


def test_bad_calls():
    with pytest.raises(ValueError, match="the layers should have the same queries and keys"):
        head_distances({"a": torch.rand(1, 2, 3, 3), "b": torch.rand(1, 2, 4, 4)})
    with pytest.raises(ValueError, match=r"padding should be \(b, n\) = \(1, 3\), got \(1, 4\)"):
        head_distances({"a": torch.rand(1, 2, 3, 3)}, padding=torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="no query is left"):
        head_distances({"a": torch.zeros(1, 2, 3, 3)})
    with pytest.raises(ValueError, match="`weights` hold NaN"):
        head_distances({"a": torch.full((1, 2, 3, 3), float("nan"))})
    with pytest.raises(TypeError, match="the weights of 'a' should be floating-point numbers"):
        head_distances({"a": torch.ones(3, 3)})
    found = head_distances({"a": torch.rand(1, 2, 3, 3)})
    with pytest.raises(ValueError, match="there is no head 2 in layer 0"):
        found.nearest(0, 2)
