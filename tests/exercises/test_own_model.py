"""Lesson 63's checks: weights from points, and the strongest keys of torch's own layer."""

import math
from collections.abc import Callable

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


TestAnswers = answers_to(RIGHT)
