"""Lesson 19's checks: a sink logit, a gate as a sink, one more than the sum, streaming."""

import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_logit_of_a_gate,
    check_off_by_one,
    check_stream,
    check_with_sink,
)
from attnlab.mechanisms.dense import sink
from tests.exercises.frame import answers_to


def with_sink(q, k, v, b):
    """By the identity: a softmax, times what is left beside the sink."""
    scores = q @ k.mT / q.shape[1] ** 0.5
    left = (scores.logsumexp(1, keepdim=True) - b).sigmoid()
    return left * F.scaled_dot_product_attention(q, k, v)


def logit_of_a_gate(scores, g):
    """From the shares: the sink has 1 − σ(g) of the row, so e^b is that part over the other."""
    return (-g).exp().mul(scores.exp().sum(1)).log()


def off_by_one(scores):
    """With a column of zeros."""
    return F.pad(scores, (1, 0)).softmax(1)[:, 1:]


def stream(q, k, v, sinks, window):
    """Query by query."""
    rows = []
    for i in range(len(q)):
        kept = sorted({*range(min(sinks, i + 1)), *range(max(0, i - window + 1), i + 1)})
        weights = (k[kept] @ q[i] / q.shape[1] ** 0.5).softmax(0)
        rows.append(weights @ v[kept])
    return torch.stack(rows)


TestAnswers = answers_to(
    [
        (check_with_sink, with_sink),
        (check_logit_of_a_gate, logit_of_a_gate),
        (check_off_by_one, off_by_one),
        (check_stream, stream),
    ]
)


def test_the_sink_is_that_of_the_page() -> None:
    q, k, v = (torch.randn(1, 1, n, d).double() for n, d in ((5, 3), (7, 3), (7, 2)))
    found = sink.naive(q, k, v, torch.tensor([0.7]).double())
    torch.testing.assert_close(
        found[0, 0], check_with_sink.right(q[0, 0], k[0, 0], v[0, 0], torch.tensor(0.7))
    )
