"""Lesson 02's checks: the bytes of a cache, grouped-query attention that decodes with one."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlab.exercises import check_grouped_layer
from tests.exercises.frame import answers_to

Parts = tuple[Tensor, ...]


def by_heads(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, h: int, g: int,
    keys: Tensor, values: Tensor,
) -> Parts:  # fmt: skip
    """One head after the other, with slices."""
    n, d = len(x), wq.shape[-1] // h
    cached = []
    for w, old in ((wk, keys), (wv, values)):
        new = torch.stack([(x @ w)[:, c * d : (c + 1) * d] for c in range(g)])
        cached.append(torch.cat([old, new], 1))
    k, v = cached
    heads = []
    for a in range(h):
        c = a * g // h
        scores = (x @ wq)[:, a * d : (a + 1) * d] @ k[c].T / d**0.5
        later = torch.ones_like(scores).triu(k.shape[1] - n + 1).bool()
        heads.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ v[c])
    return torch.cat(heads, -1) @ wo, k, v


def by_sdpa(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, h: int, g: int,
    keys: Tensor, values: Tensor,
) -> Parts:  # fmt: skip
    q, k, v = ((x @ w).view(len(x), -1, 5).transpose(0, 1) for w in (wq, wk, wv))
    k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    mask = torch.ones(len(x), k.shape[1]).tril(keys.shape[1]).bool()
    out = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(x), -1) @ wo, k, v


RIGHT = [(check_grouped_layer, by_heads), (check_grouped_layer, by_sdpa)]

TestAnswers = answers_to(RIGHT)
