"""Lesson 63's checks: weights from points, and the strongest keys of torch's own layer."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_given_back, check_strongest
from tests.exercises.frame import answers_to


def given_back(q: Tensor, k: Tensor, scale: float, allowed: Tensor) -> Tensor:
    return (q @ k.mT * scale).masked_fill(~allowed, -math.inf).softmax(-1)


def by_torch(q: Tensor, k: Tensor, scale: float, allowed: Tensor) -> Tensor:
    eye = torch.eye(k.shape[1], dtype=q.dtype).expand(len(k), -1, -1)
    return F.scaled_dot_product_attention(q, k, eye, attn_mask=allowed, scale=scale)


def split(weight: Tensor, bias: Tensor, x: Tensor, heads: int) -> Tensor:
    return (x @ weight.T + bias).unflatten(-1, (3, heads, -1)).permute(1, 2, 0, 3)


def strongest(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    q, k, _ = split(weight, bias, x, heads)
    return (q @ k.mT).masked_fill(~allowed, -math.inf).argmax(-1)


def by_the_layer(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    layer = nn.MultiheadAttention(x.shape[1], heads, batch_first=True).to(x.dtype)
    layer.in_proj_weight.data, layer.in_proj_bias.data = weight, bias
    weights = layer(x[None], x[None], x[None], attn_mask=~allowed, average_attn_weights=False)[1]
    return weights[0].argmax(-1)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_given_back, given_back),
    (check_given_back, by_torch),
    (check_strongest, strongest),
    (check_strongest, by_the_layer),
    (check_strongest, lambda *given: strongest(*given).int()),
]


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return q @ k.mT * scale


GIVEN_BACK_WRONG: dict[str, tuple[str, Any]] = {
    "no mask": ("the mask is not used", lambda q, k, s, a: scores(q, k, s).softmax(-1)),
    "late": ("after the softmax", lambda q, k, s, a: scores(q, k, s).softmax(-1) * a),
    "zero": ("exp(0) = 1", lambda q, k, s, a: (scores(q, k, s) * a).softmax(-1)),
    "inverted": ("wrong way round", lambda q, k, s, a: given_back(q, k, s, ~a)),
    "queries": (
        "over the queries",
        lambda q, k, s, a: scores(q, k, s).masked_fill(~a, -math.inf).softmax(1),
    ),
    "no scale": ("`scale` is not used", lambda q, k, s, a: given_back(q, k, 1, a)),
    "divided": ("you divide by `scale`", lambda q, k, s, a: given_back(q, k, 1 / s, a)),
    "own scale": ("not in all", lambda q, k, s, a: given_back(q, k, q.shape[-1] ** -0.5, a)),
    "scores": ("softmax over the keys is missing", lambda q, k, s, a: (
        scores(q, k, s).masked_fill(~a, -math.inf)
    )),
    "transposed": ("axes", lambda q, k, s, a: given_back(q, k, s, a).mT),
    "None": ("`return`", lambda q, k, s, a: None),
    "in place": (
        "`q` changed in place", lambda q, k, s, a: given_back(q.mul_(s), k, 1, a),
    ),
}  # fmt: skip


def with_parts(first: int, second: int) -> Callable[..., Tensor]:
    def mistaken(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
        parts = split(w, b, x, heads)
        return (parts[first] @ parts[second].mT).masked_fill(~a, -math.inf).argmax(-1)

    return mistaken


def viewed(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
    q, k, _ = ((x @ w.T) + b).split(x.shape[1], dim=-1)
    q, k = (each.contiguous().view(heads, len(x), -1) for each in (q, k))
    return (q @ k.mT).masked_fill(~a, -math.inf).argmax(-1)


def interleaved(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
    q, k, _ = ((x @ w.T) + b).split(x.shape[1], dim=-1)
    q, k = (torch.stack([each[:, head::heads] for head in range(heads)]) for each in (q, k))
    return (q @ k.mT).masked_fill(~a, -math.inf).argmax(-1)


def headwise(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
    found = torch.stack(((x @ w.T) + b).chunk(heads, dim=-1))
    q, k, _ = found.chunk(3, dim=-1)
    return (q @ k.mT).masked_fill(~a, -math.inf).argmax(-1)


def over_queries(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
    q, k, _ = split(w, b, x, heads)
    return (q @ k.mT).masked_fill(~a, -math.inf).argmax(1)


def with_zeros(w: Tensor, b: Tensor, x: Tensor, heads: int, a: Tensor) -> Tensor:
    q, k, _ = split(w, b, x, heads)
    return (q @ k.mT).masked_fill(~a, 0).argmax(-1)


STRONGEST_WRONG: dict[str, tuple[str, Any]] = {
    "no bias": ("the bias is missing", lambda w, b, x, h, a: strongest(w, 0 * b, x, h, a)),
    "no mask": ("the mask is not used", lambda w, b, x, h, a: strongest(w, b, x, h, a | ~a)),
    "exchanged": ("queries and keys are exchanged", with_parts(1, 0)),
    "values": ("queries and values", with_parts(0, 2)),
    "interleaved": ("heads are interleaved", interleaved),
    "viewed": ("tokens and heads are mixed", viewed),
    "headwise": ("inside each head", headwise),
    "over queries": ("taken over the queries", over_queries),
    "zeros": ("can be the largest", with_zeros),
    "one head": ("only one head", lambda w, b, x, h, a: strongest(w, b, x, 1, a).repeat(h, 1)),
    "weights": (
        "wrong shape",
        lambda w, b, x, h, a: split(w, b, x, h)[0] @ split(w, b, x, h)[1].mT,
    ),
    "None": ("`return`", lambda w, b, x, h, a: None),
    "in place": (
        "`x` changed in place",
        lambda w, b, x, h, a: strongest(w, b, x.clone(), h, a) + x.mul_(2)[0, 0].long() * 0,
    ),
}

TABLES = [(check_given_back, GIVEN_BACK_WRONG), (check_strongest, STRONGEST_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)
