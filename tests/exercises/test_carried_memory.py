"""Lesson 30's checks: how far a memory reaches, its update, what a mean tells, and a reader."""

import torch

from attnlab.exercises import carried_memory, check_most_used, check_next_memory
from attnlab.mechanisms.memory.compressive_transformer import CompressiveTransformer
from attnlab.mechanisms.memory.compressive_transformer.compression import CompressiveOptions
from tests.exercises.frame import answers_to


def next_memory(memory, segment, M):
    kept = list(memory.detach()) + list(segment.detach())
    return torch.stack(kept[len(kept) - min(M, len(kept)) :]) if M else memory[:0].detach()


def read(x, Wq, Wk, Wv, c, M, k, s):
    """Token by token: lists of [place, weight so far]."""
    short, memory, segment, out = [], [], [], []
    for place, token in enumerate(x):
        if len(segment) == c:
            memory, segment = memory + segment, []
            if len(memory) > M:
                used_most = sorted(memory[:c], key=lambda entry: -entry[1])[: c // s]
                short, memory = (short + sorted(used_most))[-k:], memory[c:]
        segment.append([place, 0.0])
        there = short + memory + segment
        seen = x[[at for at, _ in there]]
        weights = torch.softmax((seen @ Wk) @ (token @ Wq) / Wk.shape[1] ** 0.5, 0)
        for entry, weight in zip(there[: len(short) + len(memory)], weights.tolist(), strict=False):
            entry[1] += weight
        out.append(weights @ (seen @ Wv))
    return torch.stack(out)


RIGHT = [(check_next_memory, next_memory), (check_most_used, read)]
TestAnswers = answers_to(RIGHT)


def test_what_is_kept_is_what_the_library_keeps():
    options = CompressiveOptions(segment=4, memory=8, compressed=3, rate=2, compression="most_used")
    layer = CompressiveTransformer(7, 1, options=options).double()
    layer.distance.weight.data.zero_()  # scores by contents alone
    matrices = [getattr(layer.heads, name).weight.T for name in ("query", "key", "value")]
    x = torch.randn(26, 7, generator=torch.Generator().manual_seed(0)).double()
    mine = layer.heads.output(carried_memory._read(x, *matrices, 4, 8, 3, 2))
    torch.testing.assert_close(mine, layer(x[None])[0])
