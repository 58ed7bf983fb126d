"""Lesson 24's checks: numbers for a hundred pairs, a state that fades, states that read blocks."""

import torch

from attnlab.exercises import check_block_states, check_fading
from tests.exercises.frame import answers_to


def fading(keys, values, queries, g):
    """Without a state: the weight of each pair is a power of g."""
    age = torch.arange(len(keys))[:, None] - torch.arange(len(keys))
    weights = (queries @ keys.T) * torch.where(age >= 0, g ** age.clamp(min=0), 0)
    return (weights @ values.double()).to(values.dtype)


def blocks(x, s, length, Wq, Wk, Wv, g):
    out = []
    for start in range(0, len(x), length):
        for i in range(start, start + length):
            seen = torch.cat([s, x[start : i + 1]])
            weights = (x[i] @ Wq @ (seen @ Wk).T / len(Wq) ** 0.5).softmax(0)
            out.append(weights @ seen @ Wv)
        seen = torch.cat([s, x[start : start + length]])
        read = (s @ Wq @ (seen @ Wk).T / len(Wq) ** 0.5).softmax(-1) @ seen @ Wv
        s = g * s + (1 - g) * read
    return torch.cat([torch.stack(out), s])


RIGHT = [(check_fading, fading), (check_block_states, blocks)]
TestAnswers = answers_to(RIGHT)
