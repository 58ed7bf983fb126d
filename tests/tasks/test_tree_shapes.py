"""Shapes of random trees and the check of depths."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from attnlab.structures.tree import Tree
from attnlab.tasks.tree_shapes import check_depths, labelled, random_shape

COUNTS = some.sampled_from([(2,), (1, 2), (1, 2, 2), (2, 3, 5), (1, 7)])


@given(some.integers(1, 13), some.integers(1, 17), some.integers(0, 11), COUNTS, some.integers(0))
def test_a_shape_has_the_depth_and_keeps_the_bounds(depth, more, other, counts, seed):
    leaves, nodes = depth + more, depth + other
    shape = random_shape(depth, leaves, nodes, counts, Random(seed))
    assert shape == random_shape(depth, leaves, nodes, counts, Random(seed))
    tree = labelled(shape, [str(place) for place in range(len(shape))])
    assert tree.depth == depth
    assert len(tree.leaves()) <= leaves
    assert len(tree.nodes()) <= nodes
    assert {len(node.children) for node in tree.nodes()} <= set(counts)
    assert sorted(int(part.label) for part in tree.subtrees()) == list(range(len(shape)))
    assert all(below > place for place, children in enumerate(shape) for below in children)


def test_shapes_of_one_depth_are_of_all_sizes_and_forms():
    random = Random(0)
    trees = [labelled(random_shape(3, 8, 9, (1, 2, 2), random), ["x"] * 99) for _ in range(500)]
    assert {len(tree.leaves()) for tree in trees} == set(range(1, 9))
    assert len(set(trees)) > 80  # of the 170 that there are


def test_labels_stand_at_their_places():
    assert labelled([[1, 2], [], [3], []], "abcd") == Tree.of(["a", "b", ["c", "d"]])


def test_depths_that_cannot_be():
    check_depths(2, 2, 2, "leaves=3")
    with pytest.raises(
        ValueError, match=r"shallowest should be at most deepest, .*=3 and deepest=2"
    ):
        check_depths(3, 2, 5, "leaves=3")
    with pytest.raises(ValueError, match=r"deepest should be at most 5 with leaves=7, .*, got 6"):
        check_depths(3, 6, 5, "leaves=7")
