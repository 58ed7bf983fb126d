"""Lesson 66: what is lost, the total correlation of two words, mask-predict."""

import math

from attnlab.exercises import check_mask_again, check_nats_lost, check_total_correlation
from tests.exercises.frame import answers_to


def correlation(p):
    """As a divergence from the product of the words."""
    return (p * (p / (p.sum(1, keepdim=True) * p.sum(0))).log()).sum()


def mask_again(tokens, logp, t, passes, mask):
    """By ranks."""
    count = max(1, len(tokens) * (passes - t) // passes)
    return tokens.masked_fill(logp.argsort().argsort() < count, mask)


TestAnswers = answers_to(
    [
        (check_total_correlation, correlation),
        (check_mask_again, mask_again),
        (check_nats_lost, 9 * math.log(2)),
    ]
)
