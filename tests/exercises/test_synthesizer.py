"""Lesson 20's checks: a table's length, Factorized Dense, a mixture of logits, a Dense layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlab.exercises import (
    check_dense_layer,
    check_factorized,
    check_mixture,
)
from attnlab.mechanisms.lowrank.synthesizer import Synthesis, Synthesizer


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
        len(wo), len(w2), causal=True, options=Synthesis(variant="dense", max_len=w2.shape[-1])
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


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (check_factorized, by_loops),
        (check_factorized, tile_and_repeat),
        (check_mixture, mixture),
        (check_dense_layer, dense_layer),
        (check_dense_layer, by_the_library),
    ],
)
def test_right_solutions_are_right(check: Callable[..., Any], right: Callable[..., Any]) -> None:
    assert check(right).right, check(right).message


def mixed_logits(s, x, y):
    return torch.einsum("s,snm->nm", s.softmax(0), torch.stack((x, y)))


def by_their_sum(s, x, y):
    return (s[0] / s.sum() * x + s[1] / s.sum() * y).softmax(-1)


WRONG_FACTORIZED = {
    "roles": ("A and B are exchanged", lambda a, b: tile_and_repeat(b, a)),
    "tiled": ("both are tiled", lambda a, b: a.repeat(1, b.shape[1]) * b.repeat(1, a.shape[1])),
    "repeated": (
        "both are repeated",
        lambda a, b: a.repeat_interleave(b.shape[1], 1) * b.repeat_interleave(a.shape[1], 1),
    ),
    "added": (
        "are added",
        lambda a, b: a.repeat(1, b.shape[1]) + b.repeat_interleave(a.shape[1], 1),
    ),
    "side by side": ("side by side", lambda a, b: torch.cat((a, b), 1)),
    "one": ("only A is tiled", lambda a, b: a.repeat(1, b.shape[1])),
    "other": ("only B is repeated", lambda a, b: b.repeat_interleave(a.shape[1], 1)),
    "softmax": ("It returns the softmax", lambda a, b: tile_and_repeat(a, b).softmax(-1)),
    "not joined": ("flatten", lambda a, b: torch.einsum("na,nb->nba", a, b)),
    "nothing": ("None", lambda a, b: None),
}
WRONG_MIXTURE = {
    "maps": (
        "mixes two maps",
        lambda s, x, y: (s.softmax(0) @ torch.stack((x, y)).softmax(-1).flatten(1)).view_as(x),
    ),
    "sum": ("α is missing", lambda s, x, y: (x + y).softmax(-1)),
    "raw": ("used as α directly", lambda s, x, y: (s[0] * x + s[1] * y).softmax(-1)),
    "flipped": ("α is exchanged", lambda s, x, y: mixture(s.flip(0), x, y)),
    "logits": ("mixed logits", mixed_logits),
    "queries": ("columns sum to one", lambda s, x, y: mixed_logits(s, x, y).softmax(0)),
    "share": ("divided by their sum", by_their_sum),
    "nothing": ("None", lambda s, x, y: None),
}

HEADS, WIDTH = 3, 2


def to_heads(flat):
    return flat.view(len(flat), HEADS, WIDTH).permute(1, 0, 2)


def reshaped(flat):
    return flat.reshape(HEADS, len(flat), WIDTH)


def masked(logits):
    n = logits.shape[-1]
    return (logits + torch.full((n, n), -torch.inf).triu(1)).softmax(-1)


def layer(
    x, w1, b1, w2, b2, wv, wo, *,
    split=(to_heads, to_heads), relu=torch.relu, weights=masked, last=False, joined=True, out=True,
):  # fmt: skip
    n = len(x)
    logits = split[0](relu(x @ w1 + b1)) @ w2 + b2[:, None]
    logits = logits[..., -n:] if last else logits[..., :n]
    found = weights(logits) @ split[1](x @ wv)
    flat = found.permute(1, 0, 2).reshape(n, -1) if joined else found.reshape(n, -1)
    return flat @ wo if out else flat


def wrong_layer(**changes):
    return lambda *given: layer(*given, **changes)


WRONG_LAYER = {
    "all keys": ("attends to later positions", wrong_layer(weights=lambda s: s.softmax(-1))),
    "late mask": ("no longer sum to one", wrong_layer(weights=lambda s: s.softmax(-1).tril())),
    "queries": (
        "runs over the queries",
        wrong_layer(
            weights=lambda s: (s + torch.full(s.shape[-2:], -torch.inf).triu(1)).softmax(-2)
        ),
    ),
    "scaled": ("divided by √d", wrong_layer(weights=lambda s: masked(s / WIDTH**0.5))),
    "no relu": ("the relu is missing", wrong_layer(relu=lambda y: y)),
    "no b1": ("b₁", lambda x, w1, b1, *rest: layer(x, w1, torch.zeros_like(b1), *rest)),
    "no b2": (
        "b₂",
        lambda x, w1, b1, w2, b2, *rest: layer(x, w1, b1, w2, torch.zeros_like(b2), *rest),
    ),
    "last": ("keep the first n", wrong_layer(last=True)),
    "scrambled": ("does not exchange axes", wrong_layer(split=(reshaped, reshaped))),
    "scrambled rows": ("does not exchange axes", wrong_layer(split=(reshaped, to_heads))),
    "scrambled values": ("does not exchange axes", wrong_layer(split=(to_heads, reshaped))),
    "joined": ("without a transpose", wrong_layer(joined=False)),
    "no W_O": ("W_O is missing", wrong_layer(out=False)),
    "nothing": ("None", lambda *given: None),
}


@pytest.mark.parametrize("name", WRONG_LAYER)
def test_wrong_layers_are_named(name, refuses):
    words, wrong = WRONG_LAYER[name]
    refuses(check_dense_layer(wrong), words)


@pytest.mark.parametrize("name", WRONG_FACTORIZED)
def test_wrong_factorized_logits_are_named(name, refuses):
    words, wrong = WRONG_FACTORIZED[name]
    refuses(check_factorized(wrong), words)


@pytest.mark.parametrize("name", WRONG_MIXTURE)
def test_wrong_mixtures_are_named(name, refuses):
    words, wrong = WRONG_MIXTURE[name]
    refuses(check_mixture(wrong), words)


def test_mistakes_are_distinguished(tells_apart):
    tells_apart(check_factorized, WRONG_FACTORIZED)
    tells_apart(check_mixture, WRONG_MIXTURE)
    tells_apart(check_dense_layer, WRONG_LAYER)
