"""The topic trees: its rows exist, and its trees are what they are called."""

from attnlab.measure.benchmarks import trees as topic


def test_the_topic_measures_what_it_names() -> None:
    found = list(topic.rows(quick=True, threads=1))
    assert len(found) == (2 + 4) * len(topic.SHAPES) + 3 + 1
    for row in found:
        assert row.measured is not None
        assert row.met is None  # small sizes are a look, not a figure


def test_the_shapes_of_trees() -> None:
    made = {shape: topic._batch(shape, 3, 16) for shape in topic.SHAPES}
    for batch in made.values():
        assert batch.is_leaf.sum(1).tolist() == [16, 16, 16]
        assert batch.nodes.shape[1] == 15
    assert made["balanced"].depth.max() == 4
    assert made["right-branching"].depth.max() == 15
    depths = made["random"].depth.amax(1).tolist()
    assert len(set(depths)) > 1


def test_nodes_are_added_above_the_same_leaves() -> None:
    flat, binary = topic._of_arity(16, 16), topic._of_arity(16, 2)
    doubled = topic._doubled(binary)
    assert [len(tree.nodes()) for tree in (flat, binary, doubled)] == [1, 15, 30]
    assert [len(tree.leaves()) for tree in (flat, binary, doubled)] == [16, 16, 16]
