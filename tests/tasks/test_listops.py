"""ListOps: values by an evaluator of its own, equal classes, bounds on shallow guesses."""

from random import Random
from statistics import median

import numpy as np
import pytest
import torch

from attnlab.tasks.listops import OPERATORS, ListOps, arguments_with, value_of
from tests.tasks.bracketed import depth, leaves, rows
from tests.tasks.shallow import bag_of_tokens, majority_by

BRACKETS = ListOps(form="brackets")


def value(tree) -> int:
    """The value of an expression, by Python's own functions."""
    if isinstance(tree, str):
        return int(tree)
    operator, *arguments = tree[0], *map(value, tree[1:])
    known = {"MAX": max, "MIN": min, "MED": lambda v: int(median(v)), "SM": lambda v: sum(v) % 10}
    return known[operator](arguments)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_class_is_the_value(split):
    batch = BRACKETS.batch(split, 499, seed=3)
    trees = rows(BRACKETS, batch)
    assert [value(tree) for tree in trees] == batch.targets.tolist()
    assert {node for tree in trees for node in operators(tree)} == set(OPERATORS)


def operators(tree) -> list[str]:
    return [] if isinstance(tree, str) else [tree[0], *(o for t in tree[1:] for o in operators(t))]


def test_the_sizes_are_as_asked():
    task = ListOps(
        form="brackets", shallowest=3, deepest=5, arguments=3, leaves=13, operators=("SM", "MED")
    )
    trees = rows(task, task.batch("train", 307, seed=1))
    counts = np.bincount([depth(tree) for tree in trees])
    assert (counts[:3] == 0).all()
    assert len(counts) == 6
    assert counts[3:].min() > 60
    assert 11 <= max(len(leaves(tree)) for tree in trees) <= 13
    assert {o for tree in trees for o in operators(tree)} == {"SM", "MED"}

    def widest(tree) -> int:
        return 0 if isinstance(tree, str) else max(len(tree) - 1, *map(widest, tree[1:]))

    assert {widest(tree) for tree in trees} <= {2, 3}


def test_other_depths_leave_positions_and_tokens_as_they_are():
    shallow, deep = ListOps(deepest=2), ListOps(shallowest=5, deepest=7)
    assert (shallow.length, shallow.vocab) == (deep.length, deep.vocab) == (48, 15)
    assert not torch.equal(shallow.batch("train", 5, 0).inputs, deep.batch("train", 5, 0).inputs)


def test_forms_hold_the_same_trees():
    for split in ("train", "validation"):
        tree, words, brackets = (
            ListOps(form=form).batch(split, 53, seed=5) for form in ("tree", "words", "brackets")
        )
        assert torch.equal(tree.targets, words.targets)
        assert torch.equal(tree.targets, brackets.targets)
        for row, real, shown in zip(words.inputs, words.padding, tree.inputs, strict=True):
            assert torch.equal(row[real], shown[: real.sum()])


@pytest.mark.parametrize("operator", OPERATORS)
def test_arguments_give_the_value(operator):
    random = Random(0)
    for wanted in range(10):
        for count in (2, 3, 4, 5, 7):
            found = [arguments_with(operator, wanted, count, random) for _ in range(30)]
            assert all(len(digits) == count and set(digits) <= set(range(10)) for digits in found)
            assert {value([operator, *map(str, digits)]) for digits in found} == {wanted}
            assert {value_of(operator, digits) for digits in found} == {wanted}
            assert len({tuple(digits) for digits in found}) > 1 or operator in ("MAX", "MIN", "MED")


def test_classes_are_equal_in_number_at_every_root_and_depth():
    batch = BRACKETS.batch("train", 4001, seed=0)
    trees = rows(BRACKETS, batch)
    assert np.bincount(batch.targets.numpy(), minlength=10).max() < 0.12 * 4001
    for feature in (lambda tree: tree[0], depth, lambda tree: len(leaves(tree)) // 8):
        assert majority_by(map(feature, trees), batch.targets.tolist()) < 0.135


def test_counts_of_tokens_do_not_give_the_value():
    """Where all is one flat list they say much, and low digits make a low value likely."""
    assert 0.2 < bag_of_tokens(ListOps()) < 0.4
    assert bag_of_tokens(ListOps(form="words")) < 0.35


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"form": "trees"}, ValueError, "no form 'trees'; did you mean 'tree'"),
        ({"shallowest": 5}, ValueError, "shallowest should be at most deepest"),
        ({"deepest": 17}, ValueError, "deepest should be at most 16 with leaves=32"),
        ({"arguments": 1}, ValueError, "arguments should be at least 2, got 1"),
        ({"operators": ("MAX", "SUM")}, ValueError, "no operator 'SUM'"),
        ({"operators": ()}, ValueError, "operators should name one operator or more"),
        ({"operators": ("SM", "SM")}, ValueError, r"each once, got \('SM', 'SM'\)"),
        ({"operators": "MAX"}, TypeError, "operators"),
    ],
)
def test_options_that_make_no_task(options, error, sentence):
    with pytest.raises(error, match=sentence):
        ListOps(**options)
