"""Lesson 14's checks: rounds, queries without a key, one round of sorted chunks."""

import torch

from attnlab.exercises import check_sorted_round, check_without_key
from attnlab.mechanisms.learned import reformer
from tests.exercises.frame import answers_to


def in_chunks(q, v, buckets, chunk):
    order = buckets.argsort(stable=True)
    own = order.view(-1, chunk)
    keys = torch.cat([torch.cat([torch.full_like(own[:1], -1), own[:-1]]), own], 1)
    scores = q[own] @ (q / q.norm(dim=-1, keepdim=True))[keys].mT / q.shape[1] ** 0.5
    asking, asked = own[..., None], keys[:, None]
    pairs = (asked >= 0) & (asked < asking) & (buckets[asked] == buckets[asking])
    pairs = pairs | (asked == asking) & ~pairs.any(-1, keepdim=True)
    out = torch.empty_like(v)
    out[order] = (scores.masked_fill(~pairs, -torch.inf).softmax(-1) @ v[keys]).flatten(0, 1)
    return out


def by_loops(q, v, buckets, chunk):
    order, out = sorted(range(len(q)), key=lambda i: (int(buckets[i]), i)), v.clone()
    for first in range(0, len(q), chunk):
        for i in order[first : first + chunk]:
            near = order[max(first - chunk, 0) : first + chunk]
            found = [j for j in near if j < i and buckets[j] == buckets[i]] or [i]
            keys = q[found] / q[found].norm(dim=-1, keepdim=True)
            out[i] = (keys @ q[i] / q.shape[1] ** 0.5).softmax(0) @ v[found]
    return out


def under_a_mask(q, v, buckets, chunk):
    """The library's own form, on vectors that the given buckets are the hashes of."""
    places = reformer.Places.of(
        buckets[None, None, None], 8, None,
        reformer.ReformerOptions(chunk=chunk, causal_window="chunks"), causal=True,
    )  # fmt: skip
    pairs = places.attended(0)[0, 0]
    pairs = pairs | torch.diag(~pairs.any(-1))
    scores = q @ reformer.unit(q).mT / q.shape[1] ** 0.5
    return scores.masked_fill(~pairs, -torch.inf).softmax(-1) @ v


def counted(own, keys):
    return torch.tensor([all(key != mine for key in keys[: i + 1]) for i, mine in enumerate(own)])


RIGHT = [
    (check_without_key, counted),
    (check_sorted_round, in_chunks),
    (check_sorted_round, by_loops),
]
TestAnswers = answers_to(RIGHT, [(check_sorted_round, {"square": ("tensor of", under_a_mask)})])
