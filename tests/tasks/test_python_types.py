"""Types of real Python expressions: classes, marks, splits, bounds on shallow guesses."""

import numpy as np
import pytest
import torch

from attnlab.structures.tree import Tree
from attnlab.tasks.python_expressions import OPEN_ROOTS, TYPES, expressions, type_of
from attnlab.tasks.python_types import MARK, PythonTypes, marked
from tests.tasks.bracketed import depth, leaves, rows
from tests.tasks.shallow import bag_of_tokens, majority_by

WHOLE = PythonTypes(form="brackets")
PART = PythonTypes("part", "brackets")


def found(tree) -> tuple[list, object]:
    """The marked part, and the tree without the mark."""
    if isinstance(tree, str):
        return [], tree
    if tree[0] == MARK:
        return [tree[1]], tree[1]
    parts, children = zip(*map(found, tree[1:]), strict=True)
    return [part for each in parts for part in each], [tree[0], *children]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_class_is_the_type_of_the_whole(split):
    batch = WHOLE.batch(split, 307, seed=1)
    known = expressions()
    for tree, target in zip(rows(WHOLE, batch), batch.targets.tolist(), strict=True):
        assert known[Tree.of(tree)] == TYPES[target]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_class_is_the_type_of_the_marked_part(split):
    batch = PART.batch(split, 307, seed=1)
    for tree, target in zip(rows(PART, batch), batch.targets.tolist(), strict=True):
        (part,), whole = found(tree)
        assert Tree.of(whole) in expressions()
        assert part[0] in OPEN_ROOTS
        assert type_of(Tree.of(part)) == TYPES[target]


def test_where_a_mark_stands():
    tree = Tree.of(["a", ["b", "c", "d"], "e"])
    shown = [marked(tree, place).nested() for place in range(3)]
    assert shown[0] == ["?", ["a", ["b", "c", "d"], "e"]]
    assert shown[1] == ["a", ["?", ["b", "c", "d"]], "e"]
    assert shown[2] == ["a", ["b", ["?", "c"], "d"], "e"]


@pytest.mark.parametrize("question", ["whole", "part"])
def test_depths_and_leaves_are_as_asked(question):
    task = PythonTypes(question, "brackets", shallowest=3, deepest=4, leaves=7)
    trees = [found(tree)[1] for tree in rows(task, task.batch("train", 307, seed=1))]
    assert {depth(tree) for tree in trees} == {3, 4}
    assert max(len(leaves(tree)) for tree in trees) == 7
    other = PythonTypes(question, "brackets", shallowest=2, deepest=2, leaves=7)
    assert (task.length, task.vocab) == (other.length, other.vocab)


def test_how_many_expressions_there_are():
    task = PythonTypes(leaves=32, deepest=32)
    both = [task.expressions(split) for split in ("train", "validation")]
    assert sum(sum(counts.values()) for counts in both) == len(expressions())
    assert 0.1 < sum(both[1].values()) / len(expressions()) < 0.16
    assert all(min(counts.values()) >= 40 for counts in both)
    part = PythonTypes("part", leaves=32, deepest=32).expressions("train")
    assert sum(part.values()) > 1500
    with pytest.raises(ValueError, match="no split 'test'"):
        task.expressions("test")


def test_every_type_has_the_same_share_and_the_root_says_little():
    batch = WHOLE.batch("train", 6007, seed=0)
    targets = batch.targets.tolist()
    assert np.bincount(targets).max() < 0.2 * 6007
    roots = [tree[0] for tree in rows(WHOLE, batch)]
    assert majority_by(roots, targets) < 0.3


def test_a_part_cannot_be_guessed_without_its_mark():
    batch = PART.batch("train", 6007, seed=0)
    trees, targets = rows(PART, batch), batch.targets.tolist()
    assert np.bincount(targets).max() < 0.43 * 6007
    assert majority_by((found(tree)[0][0][0] for tree in trees), targets) < 0.45
    many = PythonTypes("part", "tree", leaves=8, deepest=4)
    for group in many._groups("train"):
        counts = np.bincount([target for _, target in group])
        assert len(set(counts[counts > 0])) == 1 < (counts > 0).sum()


def test_counts_of_tokens():
    """They give most types of whole expressions away; of parts, hardly more than the share."""
    assert 0.85 < bag_of_tokens(PythonTypes()) < 0.97
    assert 0.35 < bag_of_tokens(PythonTypes("part")) < 0.55


def test_forms_hold_the_same_trees():
    for question in ("whole", "part"):
        tree, words, brackets = (
            PythonTypes(question, form).batch("train", 53, seed=5)
            for form in ("tree", "words", "brackets")
        )
        assert torch.equal(tree.targets, words.targets)
        assert torch.equal(tree.targets, brackets.targets)
        for row, real, shown in zip(words.inputs, words.padding, tree.inputs, strict=True):
            assert torch.equal(row[real], shown[: real.sum()])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"question": "parts"}, "no question 'parts'; did you mean 'part'"),
        ({"form": "trees"}, "no form 'trees'; did you mean 'tree'"),
        ({"shallowest": 9}, "shallowest should be at most deepest"),
        ({"deepest": 17}, "deepest should be at most 16 with leaves=16"),
        ({"leaves": 33}, "leaves should be at most 32"),
        ({"shallowest": 8}, "no expression of the train split has the type"),
        ({"question": "part", "shallowest": 1, "deepest": 1}, "no expression of the train split"),
    ],
)
def test_options_that_make_no_task(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        PythonTypes(**options)
