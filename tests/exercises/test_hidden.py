"""A teacher's hidden test: the same check on other numbers, or on other sizes if it draws none."""

import pytest
import torch

from attnlab import exercises
from attnlab.exercises.attempt import Drawing, redrawn
from attnlab.exercises.exercise import FunctionExercise

EXERCISES = [getattr(exercises, name) for name in exercises.__all__ if name != "Verdict"]
WITHOUT_OTHERS = {
    "check_byte_ids", "check_copied", "check_entropy", "check_exponent", "check_far_use",
    "check_follow", "check_graph_mask", "check_induction_keys", "check_laplacian",
    "check_soft_mask", "check_subtree_mask", "check_tree_depths",
}  # fmt: skip
"""Exercises on a text, a graph or a tree that was chosen for what can go wrong on it."""


def sizes_of(check, drawing=None):
    """The shapes and whole numbers that a function is called with."""
    seen = []

    def watched(*given):
        seen.append([tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in given])
        return check.right(*given)

    (redrawn(check, drawing) if drawing else check)(watched)
    return seen


@pytest.mark.parametrize(
    "check",
    [check for check in EXERCISES if isinstance(check, FunctionExercise)],
    ids=lambda check: check.__name__,
)
def test_a_hidden_test_has_other_numbers_or_other_sizes(check):
    drawing = Drawing(seed=7, times=2)
    try:
        sizes_of(check, drawing)
    except (RuntimeError, ValueError, IndexError):  # it does not allow larger sizes: other numbers
        sizes_of(check, drawing := Drawing(seed=7))
    assert bool(drawing.used) == (check.__name__ not in WITHOUT_OTHERS)


def test_who_knows_the_sizes_by_heart_fails() -> None:
    check = exercises.check_window_mask
    known = {tuple(given): check.right(*given) for given in sizes_of(check)}

    def by_heart(n, window):
        return known.get((n, window), torch.ones(n, n).bool())

    assert check(by_heart)
    assert not redrawn(check, Drawing(seed=7, times=2))(by_heart)
    assert redrawn(check, Drawing(seed=7, times=2))(check.right)
