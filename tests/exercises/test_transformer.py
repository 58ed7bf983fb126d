"""The checks of lesson 05 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import (
    check_decoder_layer,
    check_decoder_rows,
    check_layer_norm,
)
from tests.exercises.frame import answers_to

# ---- the decoder's rows

ROWS_WRONG = {
    "not shifted": ("only have to copy", lambda w, s, e: ([s, *w, e], [s, *w, e])),
    "no start": ("put `start` before", lambda w, s, e: ([*w, e], [*w, e])),
    "one short": ("never learn to stop", lambda w, s, e: ([s, *w[:-1]], w)),
    "no end": ("differ in length", lambda w, s, e: ([s, *w], w)),
    "start answered": ("`start` is a target", lambda w, s, e: ([s, *w, e], [*w, e, s])),
    "exchanged": ("are exchanged", lambda w, s, e: ([*w, e], [s, *w])),
    "end read": ("`end` is among the inputs", lambda w, s, e: ([s, *w, e], [*w, e])),
    "other": ("it should give", lambda w, s, e: ([s], [e])),
    "one list": ("it should give two lists", lambda w, s, e: w),
    "numbers": ("in the place of a list", lambda w, s, e: (1, 2)),
    "None": ("`return`", lambda *given: None),
    "raises": ("raised ZeroDivisionError", lambda *given: 1 / 0),
}


@pytest.mark.parametrize(
    "solution",
    [
        lambda w, s, e: ([s, *w], [*w, e]),
        lambda w, s, e: [[s, *w], [*w, e]],
        lambda w, s, e: (torch.tensor([s, *w]), torch.tensor([*w, e])),
        lambda w, s, e: ([s, *w], w.append(e) or w),
    ],
)
def test_rows_written_differently_are_right(solution: Callable[..., object]) -> None:
    verdict = check_decoder_rows(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), ROWS_WRONG.values(), ids=ROWS_WRONG)
def test_row_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_decoder_rows(solution), words)


def test_row_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_decoder_rows, ROWS_WRONG)


# ---- layer normalisation


def by_torch(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


def by_loops(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    rows = [(row - row.mean()) / (row.var(correction=0) + eps) ** 0.5 for row in x]
    return torch.stack(rows) * gain + bias


def norm(x, gain, bias, eps, *, mean=True, correction=0, power=0.5, over=-1):
    x = x - x.mean(over, keepdim=True) if mean else x
    square = x.square().mean(over, keepdim=True) * (7 / (7 - correction))
    return gain * x / (square + eps) ** power + bias


def changed(**options: object) -> Callable[..., Tensor]:
    return lambda *given: norm(*given, **options)


NORM_WRONG = {
    "positions": ("runs over the positions", changed(over=0)),
    "all": ("One mean for the whole tensor", changed(over=(0, 1))),
    "rms": ("RMS normalisation", changed(mean=False)),
    "sample": ("divides by dim − 1", changed(correction=1)),
    "variance": ("divides by the variance", changed(power=1)),
    "bare": ("gain and the bias are missing", lambda x, g, b, e: norm(x, 1, 0, e)),
    "no gain": ("The gain is missing", lambda x, g, b, e: norm(x, 1, b, e)),
    "no bias": ("The bias is missing", lambda x, g, b, e: norm(x, g, 0, e)),
    "no eps": ("`eps` is missing", lambda x, g, b, e: norm(x, g, b, 0)),
    "eps outside": (
        "belongs under the root",
        lambda x, g, b, e: g * (x - x.mean(-1, True)) / (x.std(-1, False, keepdim=True) + e) + b,
    ),
    "other": ("the numbers are not", lambda x, g, b, e: 3 * norm(x, g, b, e)),
    "None": ("`return`", lambda *given: None),
}


TestLayerNorm = answers_to(
    [(check_layer_norm, solution) for solution in [by_torch, by_loops, norm]],
    [(check_layer_norm, NORM_WRONG)],
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


def wrong(**options: object) -> Callable[..., Tensor]:
    return lambda *given: query_by_query(*given, **options)


LAYER_WRONG = {
    "sees the future": ("The causal mask is missing", wrong(past=lambda i, n: range(n))),
    "reversed": ("wrong way round", wrong(past=lambda i, n: range(i, n))),
    "padding": ("padding of the source", wrong(mask=False)),
    "own tokens": ("keys and values come from `memory`", wrong(keys=lambda memory, x: normal(x))),
    "normalised twice": ("normalised again", wrong(keys=lambda memory, x: normal(memory))),
    "no skips": ("residual connections are missing", wrong(keep=(0, 0, 0))),
    "first skip": ("connection of the self-attention", wrong(keep=(0, 1, 1))),
    "second skip": ("connection of the cross-attention", wrong(keep=(1, 0, 1))),
    "third skip": ("connection of the feed-forward", wrong(keep=(1, 1, 0))),
    "post-norm": ("(post-norm)", wrong(post=normal)),
    "no norm": ("normalisation is missing", wrong(norm=lambda y: y, third=lambda y: y)),
    "raw third": ("reads x without normalisation", wrong(third=lambda y: y)),
    "no scale": ("are not scaled", wrong(scale=1)),
    "no relu": ("two matrices in a row", wrong(relu=lambda y: y)),
    "order": ("Self-attention comes first", wrong(order=(1, 0))),
    "other": ("the numbers are not", lambda *given: 3 * by_sdpa(*given)),
    "None": ("`return`", lambda *given: None),
}


TestDecoderLayer = answers_to(
    [(check_decoder_layer, solution) for solution in [by_sdpa, query_by_query]],
    [(check_decoder_layer, LAYER_WRONG)],
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
