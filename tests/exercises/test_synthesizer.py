"""Lesson 20's checks: a table's length, Factorized Dense, a mixture of logits, a Dense layer."""

import torch

from attnlab.exercises import check_dense_layer, check_factorized, check_mixture
from attnlab.mechanisms.lowrank.synthesizer import Synthesizer, SynthesizerOptions
from tests.exercises.frame import answers_to


def by_loops(a, b):
    n, wide = a.shape[0], a.shape[1] * b.shape[1]
    out = torch.empty(n, wide, dtype=a.dtype)
    for i in range(n):
        for j in range(wide):
            out[i, j] = a[i, j % a.shape[1]] * b[i, j // a.shape[1]]
    return out


def tile_and_repeat(a, b):
    return a.repeat(1, b.shape[1]) * b.repeat_interleave(a.shape[1], dim=1)


def mixture(numbers, first, second):
    alpha = numbers.exp() / numbers.exp().sum()
    return torch.softmax(alpha[0] * first + alpha[1] * second, dim=1)


def dense_layer(x, w1, b1, w2, b2, wv, wo):
    """One head at a time, and a token at a time."""
    n, d, heads = len(x), w2.shape[1], []
    for h in range(len(w2)):
        own = slice(h * d, (h + 1) * d)
        logits = (x @ w1[:, own] + b1[own]).clamp(min=0) @ w2[h] + b2[h]
        values = x @ wv[:, own]
        heads.append(
            torch.stack([logits[i, : i + 1].softmax(0) @ values[: i + 1] for i in range(n)])
        )
    return torch.cat(heads, dim=1) @ wo


def by_the_library(x, w1, b1, w2, b2, wv, wo):
    layer = Synthesizer(
        len(wo),
        len(w2),
        causal=True,
        options=SynthesizerOptions(variant="dense", max_len=w2.shape[-1]),
    ).to(x.dtype)
    dense, heads = layer.synthesize[0], layer.heads
    given = {
        dense.hidden.linear.weight: w1.mT,
        dense.hidden.linear.bias: b1,
        dense.second.weight: w2.mT,
        dense.second.bias: b2,
        heads.value.weight: wv.mT,
        heads.output.weight: wo.mT,
    }
    with torch.no_grad():
        for parameter, value in given.items():
            parameter.copy_(value)
        return layer(x[None])[0]


TestAnswers = answers_to(
    [
        (check_factorized, by_loops),
        (check_factorized, tile_and_repeat),
        (check_mixture, mixture),
        (check_dense_layer, dense_layer),
        (check_dense_layer, by_the_library),
    ]
)
