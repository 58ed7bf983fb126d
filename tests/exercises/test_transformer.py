"""The checks of lesson 05 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import check_decoder_layer, check_decoder_rows, check_layer_norm
from tests.exercises.frame import answers_to

# ---- the decoder's rows

ROWS_WRONG = {
    "other": ("it should give", lambda w, s, e: ([s], [e])),
    "one list": ("it should give two lists", lambda w, s, e: w),
    "numbers": ("in the place of a list", lambda w, s, e: (1, 2)),
}
TestDecoderRows = answers_to(
    [
        (check_decoder_rows, lambda w, s, e: ([s, *w], [*w, e])),
        (check_decoder_rows, lambda w, s, e: [[s, *w], [*w, e]]),
        (check_decoder_rows, lambda w, s, e: (torch.tensor([s, *w]), torch.tensor([*w, e]))),
        (check_decoder_rows, lambda w, s, e: ([s, *w], w.append(e) or w)),
    ],
    [(check_decoder_rows, ROWS_WRONG)],
)


# ---- layer normalisation


def by_torch(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


def by_loops(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    rows = [(row - row.mean()) / (row.var(correction=0) + eps) ** 0.5 for row in x]
    return torch.stack(rows) * gain + bias


def norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return gain * x / (x.square().mean(-1, keepdim=True) + eps) ** 0.5 + bias


TestLayerNorm = answers_to(
    [(check_layer_norm, solution) for solution in [by_torch, by_loops, norm]],
)


# ---- a decoder layer


def normal(x: Tensor) -> Tensor:
    return (x - x.mean(-1, True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


def by_sdpa(x, memory, real, own, cross, w1, w2):
    def attend(y, source, w, **mask):
        parts = (part[None] for part in (y @ w[0], source @ w[1], source @ w[2]))
        return F.scaled_dot_product_attention(*parts, **mask)[0] @ w[3]

    x = x + attend(normal(x), normal(x), own, is_causal=True)
    x = x + attend(normal(x), memory, cross, attn_mask=real[None])
    return x + (normal(x) @ w1).relu() @ w2


def query_by_query(
    x, memory, real, own, cross, w1, w2, *,
    past=lambda i, n: range(i + 1), keep=(1, 1, 1), norm=normal, third=normal, post=None,
    keys=lambda memory, x: memory, mask=True, scale=11**-0.5, relu=torch.relu, order=(0, 1),
):  # fmt: skip
    """Each query by itself, each part of which may be changed."""
    first, after = (lambda y: y, post) if post else (norm, lambda y: y)

    def attend(y, source, w, places):
        rows = []
        for i, row in enumerate(y):
            chosen = source[list(places(i))]
            weights = (chosen @ w[1] @ (row @ w[0]) * scale).softmax(0)
            rows.append(weights @ chosen @ w[2] @ w[3])
        return torch.stack(rows)

    def to_itself(x):
        y = first(x)
        return after(keep[0] * x + attend(y, y, own, lambda i: past(i, len(x))))

    def to_memory(x):
        source = keys(memory, x)
        shown = [j for j in range(len(memory)) if real[j] or not mask]
        places = (lambda i: shown) if len(source) == len(memory) else lambda i: range(i + 1)
        return after(keep[1] * x + attend(first(x), source, cross, places))

    for each in order:
        x = (to_itself, to_memory)[each](x)
    return after(keep[2] * x + relu((x if post else third(x)) @ w1) @ w2)


TestDecoderLayer = answers_to(
    [(check_decoder_layer, solution) for solution in [by_sdpa, query_by_query]],
)


def test_a_position_that_may_not_attend_to_itself_is_named(refuses: Callable) -> None:
    def strictly_past(x, memory, real, own, cross, w1, w2):
        y = normal(x)
        scores = y @ own[0] @ (y @ own[1]).T / 11**0.5
        scores = scores.masked_fill(~torch.ones(5, 5).tril(-1).bool(), -torch.inf)
        x = x + scores.softmax(-1) @ y @ own[2] @ own[3]
        scores = normal(x) @ cross[0] @ (memory @ cross[1]).T / 11**0.5
        x = x + scores.masked_fill(~real, -torch.inf).softmax(-1) @ memory @ cross[2] @ cross[3]
        return x + torch.relu(normal(x) @ w1) @ w2

    refuses(check_decoder_layer(strictly_past), "may not attend to itself")
