"""Lesson 17's checks: a few fetched keys, a gate, the size of an index, a memory in segments."""

import pytest
import torch

from attnlab.exercises import check_fetch, check_gated, check_index_ratio, check_read, memories


def fetch(q, keys, values, k):
    at = (keys @ q).argsort(descending=True)[:k]
    return torch.softmax(keys[at] @ q, 0) @ values[at]


def gated(near, far, b):
    g = 1 / (1 + torch.exp(-b.view(-1, 1, 1)))
    return near + g * (far - near)


def read(q, k, v, g, segment, memory, neighbours):
    """With lists that are carried from segment to segment."""
    out, keys, values = [], k[:0], v[:0]
    for qs, ks, vs in zip(q.split(segment), k.split(segment), v.split(segment), strict=True):
        scores = (qs @ ks.T).masked_fill(torch.ones(len(qs), len(ks)).triu(1).bool(), -torch.inf)
        part = (1 - g) * scores.softmax(-1) @ vs
        if len(keys):
            best, at = (qs @ keys.T).topk(min(neighbours, len(keys)))
            part = part + g * (best.softmax(-1)[:, None] @ values[at])[:, 0]
        out.append(part)
        keys, values = torch.cat([keys, ks])[-memory:], torch.cat([values, vs])[-memory:]
    return torch.cat(out)


RIGHT = [(check_fetch, fetch), (check_gated, gated), (check_read, read)]
TABLES = [
    (check_fetch, memories._FETCH_MISTAKEN),
    (check_gated, memories._GATED_MISTAKEN),
    (check_read, memories._READ_MISTAKEN),
]


@pytest.mark.parametrize(("check", "function"), RIGHT)
def test_right_answers(check, function):
    assert check(function).right, check(function).message


@pytest.mark.parametrize(
    ("check", "sentence", "mistake"), [(c, *m) for c, table in TABLES for m in table]
)
def test_each_mistake_is_named(check, sentence, mistake):
    found = check(mistake)
    assert not found.right
    assert sentence in found.message


def test_the_size_of_an_index():
    assert check_index_ratio(24).right
    assert check_index_ratio(2 * 12).right
    for wrong, sentence in memories._INDEX_MISTAKEN.items():
        found = check_index_ratio(wrong)
        assert not found.right
        assert sentence[1:] in found.message
