"""Lesson 18's checks: keys that are read, chosen blocks, what a block is worth, merged parts."""

import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_chosen_blocks,
    check_keys_read,
    check_merged_parts,
    check_nsa,
    check_worth,
)
from attnlab.exercises.chosen_blocks import _literal
from attnlab.mechanisms.learned import moba, nsa
from attnlab.mechanisms.learned.nsa.stretches import NSAOptions, worth
from tests.exercises.frame import answers_to


def chosen_blocks(q, k, block, count):
    """Query by query."""
    n = len(q)
    read = torch.zeros(n, n // block, dtype=torch.bool)
    for i in range(n):
        own = i // block
        products = [(q[i] @ k[b * block : (b + 1) * block].sum(0)).item() for b in range(own)]
        best = sorted(range(own), key=lambda b: -products[b])[: count - 1]
        read[i, [own, *best]] = True
    return read


def overlap(p, stretch, stride, block):
    """From the tokens that a stretch and a block share."""
    blocks = ((p.shape[1] - 1) * stride + stretch) // block
    out = torch.zeros(len(p), blocks).to(p)
    for j in range(blocks):
        for i in range(p.shape[1]):
            first, last = max(i * stride, j * block), min(i * stride + stretch, (j + 1) * block)
            out[:, j] += p[:, i] * max(0, last - first) / stride
    return out


def merged(outs, lses):
    return (lses.softmax(0)[..., None] * outs).sum(0)


def by_queries(q, k, v, gates, stretch, stride, block, count, window):
    """Query by query, with lists of keys."""
    n, d = q.shape
    rows = []
    for i in range(n):
        out = torch.zeros(v.shape[1]).to(v)
        begins = [s for s in range(0, n, stride) if s + stretch <= i + 1]
        worth = dict.fromkeys(range(i // block + 1), 0.0)
        if begins:
            means = [torch.stack([x[s : s + stretch].mean(0) for s in begins]) for x in (k, v)]
            share = (means[0] @ q[i] / d**0.5).softmax(0)
            out = out + gates[i, 0] * (share @ means[1])
            for s, p in zip(begins, share.tolist(), strict=True):
                for token in range(s, s + stretch):
                    worth[token // block] += p / stride
        always = {0, i // block, max(0, i // block - 1)}
        others = sorted(set(worth) - always, key=lambda j: -worth[j])
        chosen = [*always, *others[: count - len(always)]]
        tokens = [t for j in chosen for t in range(j * block, (j + 1) * block) if t <= i]
        near = list(range(max(0, i - window + 1), i + 1))
        for c, kept in ((1, tokens), (2, near)):
            out = out + gates[i, c] * ((k[kept] @ q[i] / d**0.5).softmax(0) @ v[kept])
        rows.append(out)
    return torch.stack(rows)


TestAnswers = answers_to(
    [
        (check_keys_read, 4095 + 16 * 64 + 512),
        (check_chosen_blocks, chosen_blocks),
        (check_worth, overlap),
        (check_merged_parts, merged),
        (check_nsa, by_queries),
    ]
)


def test_the_choice_is_that_of_the_page() -> None:
    torch.manual_seed(4)
    q, k = torch.randn(2, 1, 1, 15, 4).double()
    options = moba.MoBAOptions(block=3, chosen=3)
    found = moba.choose(q, k, torch.arange(15)[None], None, options)
    read = F.one_hot(found + 1, 6).any(-2)[0, 0, :, 1:]
    assert torch.equal(read, check_chosen_blocks.right(q[0, 0], k[0, 0], 3, 3))


def test_nsa_is_the_page() -> None:
    torch.manual_seed(5)
    q, k, v, gates = (torch.randn(1, 1, 40, d).double() for d in (4, 4, 2, 3))
    options = NSAOptions(stretch=8, stride=4, block=8, chosen=4, window=5)
    found = nsa.naive(q, k, v, gates, options=options)[0, 0]
    mine = check_nsa.right(q[0, 0], k[0, 0], v[0, 0], gates[0, 0].sigmoid(), 8, 4, 8, 4, 5)
    torch.testing.assert_close(found, mine)


def test_the_worth_is_that_of_the_page() -> None:
    p = torch.rand(3, 15).double()
    options = NSAOptions(stretch=8, stride=4, block=16)
    torch.testing.assert_close(worth(p[None, None], 4, options)[0, 0], overlap(p, 8, 4, 16))


def test_the_literal_equation_gives_what_the_page_says_of_it() -> None:
    """The numbers of the trap: with l = 32, s = 16, l' = 64 stretch 5 lies in block 1."""
    p = F.one_hot(torch.tensor([5]), 11).double()
    assert overlap(p, 32, 16, 64).tolist() == [[0, 2, 0]]
    assert check_worth.right(p, 32, 16, 64).tolist() == [[0, 2, 0]]
    assert _literal(p, 32, 16, 64).tolist() == [[0, 0, 2]]
