"""Logic: truth by an evaluator of its own, and no class that a part gives away."""

from itertools import product

import numpy as np
import pytest
import torch

from attnlab.tasks.logic import OPERATORS, Logic
from tests.tasks.bracketed import depth, leaves, rows
from tests.tasks.shallow import bag_of_tokens, majority_by

VALUE = Logic(form="brackets")
ENTAILMENT = Logic(question="entailment", form="brackets", variables=3)


def true(formula, given: dict[str, bool]) -> bool:
    if isinstance(formula, str):
        return given[formula]
    operator, *parts = formula[0], *(true(part, given) for part in formula[1:])
    if operator == "not":
        (part,) = parts
        return not part
    left, right = parts
    return {
        "and": left and right,
        "or": left or right,
        "implies": right if left else True,
        "iff": left == right,
    }[operator]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_class_is_the_truth_value(split):
    batch = VALUE.batch(split, 401, seed=3)
    for tree, target in zip(rows(VALUE, batch), batch.targets.tolist(), strict=True):
        root, *given, formula = tree
        assert root == "given"
        assert [part[0] for part in given] == ["p", "q", "r", "s"]
        assert true(formula, {part[0]: part[2:] == "1" for part in given}) == bool(target)


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("variables", [2, 3, 6])
def test_the_class_is_the_entailment(split, variables):
    task = Logic(question="entailment", form="brackets", variables=variables)
    batch = task.batch(split, 101, seed=3)
    for tree, target in zip(rows(task, batch), batch.targets.tolist(), strict=True):
        root, first, second = tree
        assert root == "entails"
        values = [
            (true(first, given), true(second, given))
            for bits in product([False, True], repeat=variables)
            for given in [dict(zip("pqrstu", bits, strict=False))]
        ]
        assert all(b for a, b in values if a) == bool(target)
        assert all(len(set(column)) == 2 for column in zip(*values, strict=True))


def operators(tree) -> list[str]:
    return [] if isinstance(tree, str) else [tree[0], *(o for t in tree[1:] for o in operators(t))]


def test_the_sizes_are_as_asked():
    task = Logic(form="brackets", shallowest=2, deepest=5, leaves=7, variables=3)
    formulas = [tree[-1] for tree in rows(task, task.batch("train", 401, seed=1))]
    counts = np.bincount([depth(formula) for formula in formulas])
    assert (counts[:2] == 0).all()
    assert len(counts) == 6
    assert counts[2:].min() > 60
    assert max(len(leaves(formula)) for formula in formulas) == 7
    assert {leaf for formula in formulas for leaf in leaves(formula)} == {"p", "q", "r"}
    assert {operator for formula in formulas for operator in operators(formula)} == set(OPERATORS)


def test_other_depths_leave_positions_and_tokens_as_they_are():
    for question in ("value", "entailment"):
        shallow, deep = Logic(question, deepest=2), Logic(question, shallowest=5, deepest=7)
        assert (shallow.length, shallow.vocab) == (deep.length, deep.vocab)


def test_forms_hold_the_same_trees():
    for question in ("value", "entailment"):
        tree, words, brackets = (
            Logic(question, form).batch("train", 53, seed=5)
            for form in ("tree", "words", "brackets")
        )
        assert torch.equal(tree.targets, words.targets)
        assert torch.equal(tree.targets, brackets.targets)
        for row, real, shown in zip(words.inputs, words.padding, tree.inputs, strict=True):
            assert torch.equal(row[real], shown[: real.sum()])


def test_the_formula_alone_does_not_give_its_value():
    batch = VALUE.batch("train", 4001, seed=0)
    formulas, targets = [tree[-1] for tree in rows(VALUE, batch)], batch.targets.tolist()
    for feature in (lambda f: f[0], depth, lambda f: len(leaves(f))):
        assert majority_by(map(feature, formulas), targets) < 0.54


def test_neither_formula_alone_gives_the_entailment():
    batch = ENTAILMENT.batch("train", 4001, seed=0)
    trees, targets = rows(ENTAILMENT, batch), batch.targets.tolist()
    for side in (1, 2):
        assert majority_by((tree[side][0] for tree in trees), targets) < 0.54
        assert majority_by((depth(tree[side]) for tree in trees), targets) < 0.54
    assert majority_by(((tree[1][0], tree[2][0]) for tree in trees), targets) < 0.6


@pytest.mark.parametrize("question", ["value", "entailment"])
def test_counts_of_tokens_say_little(question):
    assert 0.44 < bag_of_tokens(Logic(question)) < 0.57


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"question": "values"}, "no question 'values'; did you mean 'value'"),
        ({"form": "trees"}, "no form 'trees'; did you mean 'tree'"),
        ({"shallowest": 5}, "shallowest should be at most deepest"),
        ({"deepest": 12}, "deepest should be at most 11 with leaves=12"),
        ({"variables": 7}, "variables should be at most 6"),
        ({"variables": 1}, "variables should be at least 2, got 1"),
    ],
)
def test_options_that_make_no_task(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Logic(**options)
