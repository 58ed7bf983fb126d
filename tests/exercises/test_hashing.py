"""Lesson 14's checks: rounds, the hash, one softmax over the union of rounds."""

import pytest
import torch

from attnlab.exercises import check_hash, check_lsh_attention, check_rounds
from attnlab.exercises.hashing import _BUCKETS_MISTAKEN, _ROUNDS_MISTAKEN, _UNION_MISTAKEN
from attnlab.mechanisms.learned.reformer import hash_buckets


def by_loops(q, v, buckets):
    out = torch.empty_like(v)
    for i in range(len(q)):
        found = [j for j in range(i) if any(one[i] == one[j] for one in buckets)]
        found = found or [i]
        keys = q[found] / q[found].norm(dim=-1, keepdim=True)
        out[i] = (keys @ q[i] / q.shape[1] ** 0.5).softmax(0) @ v[found]
    return out


def test_right_answers():
    assert check_rounds(7).right
    assert check_hash(lambda x, R: hash_buckets(x[None, None], R[None, None])[0, 0, 0]).right
    assert check_lsh_attention(by_loops).right


@pytest.mark.parametrize(("wrong", "sentence"), _ROUNDS_MISTAKEN.items())
def test_every_wrong_number_is_named(wrong, sentence):
    verdict = check_rounds(wrong)
    assert not verdict.right
    assert sentence[1:] in verdict.message


@pytest.mark.parametrize(
    ("check", "sentence", "wrong"),
    [
        pytest.param(check, *mistake, id=f"{check.__name__}-{i}")
        for check, mistakes in (
            (check_hash, _BUCKETS_MISTAKEN),
            (check_lsh_attention, _UNION_MISTAKEN),
        )
        for i, mistake in enumerate(mistakes)
    ],
)
def test_every_mistake_is_named(check, sentence, wrong):
    verdict = check(wrong)
    assert not verdict.right
    assert sentence[:40] in verdict.message
