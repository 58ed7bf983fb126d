"""Lesson 79's checks: the tiles that a causal program visits, and the sums of the backward pass."""

import torch

from attnlab.core.patterns import causal
from attnlab.exercises import check_output_dots, check_tiles_of_a_program
from tests.exercises.frame import answers_to


def visited(program, rows, columns, n):
    """By looking at the mask: the tiles that hold an allowed pair."""
    mine = causal().dense(n)[program * rows : (program + 1) * rows]
    return sum(bool(tile.any()) for tile in mine.split(columns, dim=1))


def delta(d_out, out):
    """The diagonal of all products of rows."""
    return torch.diagonal(d_out @ out.mT)


TestAnswers = answers_to([(check_tiles_of_a_program, visited), (check_output_dots, delta)])
