"""The checks of lesson 76: who holds which positions, and how much work that is."""

import torch

from attnlab.exercises import (
    check_devices_needed,
    check_microbatches,
    check_ring_work,
    check_zigzag,
)
from attnlab.parallel.layouts import counted_pairs, positions
from attnlab.parallel.plan import STATES, idle_share
from tests.exercises.frame import answers_to


def zigzag(n, P):
    return torch.stack(positions("zigzag", n, P))


def work(held):
    """Pair by pair."""
    P, m = held.shape
    counts = torch.zeros(P, P, dtype=torch.int64)
    for r in range(P):
        for s in range(P):
            for a in range(m):
                for b in range(m):
                    counts[r, s] += int(held[r, a] >= held[r - s, b])
    return counts


def test_numbers_are_those_of_the_formulas():
    needed = 70e9 * sum(STATES) / 80e9
    assert check_devices_needed.right - 1 < needed <= check_devices_needed.right
    most = int(check_microbatches.right)
    assert idle_share(16, most) <= 0.1 < idle_share(16, most - 1)


def test_work_is_what_the_library_counts():
    for layout in ("contiguous", "zigzag", "striped"):
        held = torch.stack(positions(layout, 24, 3))
        torch.testing.assert_close(work(held), counted_pairs(layout, 24, 3))


TestAnswers = answers_to([(check_zigzag, zigzag), (check_ring_work, work)], [])
