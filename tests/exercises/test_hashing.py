"""Lesson 14's checks: rounds, the hash, one softmax over the union of rounds."""

import torch

from attnlab.exercises import check_hash, check_lsh_attention, check_rounds
from attnlab.exercises.hashing import _BUCKETS_MISTAKEN, _ROUNDS_MISTAKEN, _UNION_MISTAKEN
from attnlab.mechanisms.learned.reformer import hash_buckets
from tests.exercises.frame import answers_to, named, numbers_of


def by_loops(q, v, buckets):
    out = torch.empty_like(v)
    for i in range(len(q)):
        found = [j for j in range(i) if any(one[i] == one[j] for one in buckets)]
        found = found or [i]
        keys = q[found] / q[found].norm(dim=-1, keepdim=True)
        out[i] = (keys @ q[i] / q.shape[1] ** 0.5).softmax(0) @ v[found]
    return out


def by_library(x, R):
    return hash_buckets(x[None, None], R[None, None])[0, 0, 0]


TestAnswers = answers_to(
    [(check_rounds, 7), (check_hash, by_library), (check_lsh_attention, by_loops)],
    [
        (check_rounds, numbers_of(_ROUNDS_MISTAKEN)),
        (check_hash, named(_BUCKETS_MISTAKEN)),
        (check_lsh_attention, named(_UNION_MISTAKEN)),
    ],
)
