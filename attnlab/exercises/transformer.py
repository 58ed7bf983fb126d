"""Checks of lesson 05: the decoder's rows, layer normalisation, a count, and a decoder layer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, run
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

# ---- what the decoder reads, and what it is to answer

Rows = tuple[list[int], list[int]]


def _rows(words: Sequence[int], start: int, end: int) -> Rows:
    return [start, *words], [*words, end]


_WORDS = ([16, 40, 42, 19], [25])


def _all_rows(function: Function) -> list[Rows]:
    answers = [run(function, {"words": words, "start": 10, "end": 11}) for words in _WORDS]
    for answer in answers:
        if answer.raised:
            raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    return [_two_lists(answer.value, answer.call) for answer in answers]


def _two_lists(value: object, call: str) -> Rows:
    if value is None:
        raise Mistake(f"{call} gave None: is the `return` missing?")
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Mistake(f"{call} gave {type_name(value)}; it should give two lists.")
    first, second = (
        part.tolist() if isinstance(part, Tensor | np.ndarray) else part for part in value
    )
    for part in (first, second):
        if not isinstance(part, tuple | list):
            raise Mistake(f"{call} gave {type_name(part)} in the place of a list of tokens.")
    return list(first), list(second)


def _other_rows(found: list[Rows], wanted: list[Rows]) -> str:
    words, got, right = next(
        one for one in zip(_WORDS, found, wanted, strict=True) if one[1] != one[2]
    )
    return (
        f"For the words {words}, start 10 and end 11 it gave {got[0]} and {got[1]}; it should give "
        f"{right[0]} and {right[1]}."
    )


check_decoder_rows = ObservedExercise(
    """Are these the inputs and targets of the decoder? `rows(words, start, end)`.

    `words` is a list of tokens. It returns two lists of equal length: `start` and the words, and
    the words and `end`.
    """,
    right=_rows,
    observe=_all_rows,
    mistakes={
        (lambda words, start, end: ([start, *words, end], [start, *words, end])): (
            "The decoder reads the word that it is to answer: it would only have to copy. The "
            "inputs stand one place later than the targets."
        ),
        (lambda words, start, end: ([*words, end], [*words, end])): (
            "The decoder reads the word that it is to answer: put `start` before the inputs."
        ),
        (lambda words, start, end: ([start, *words[:-1]], list(words))): (
            "The targets have no `end`: the model would never learn to stop."
        ),
        (lambda words, start, end: ([start, *words], list(words))): (
            "The targets have no `end`, so the two rows differ in length: each input has one "
            "target."
        ),
        (lambda words, start, end: ([start, *words, end], [*words, end, start])): (
            "`start` is a target: the model never has to write it."
        ),
        (lambda words, start, end: ([*words, end], [start, *words])): (
            "Inputs and targets are exchanged: the function should give (inputs, targets)."
        ),
        (lambda words, start, end: ([start, *words, end], [*words, end])): (
            "`end` is among the inputs: after `end` nothing is to be written, so it is never read."
        ),
    },
    explain=_other_rows,
    praise="At each place the decoder reads one token and answers the next.",
)


# ---- layer normalisation


def _normalised(x: Tensor, gain: Tensor, bias: Tensor, eps: float, axis: Any = -1) -> Tensor:
    centred = x - x.mean(axis, keepdim=True)
    return gain * centred / (centred.square().mean(axis, keepdim=True) + eps).sqrt() + bias


def _layer_norm_cases() -> Iterator[Arguments]:
    x, gain, bias = random_tensors((5, 7), (7,), (7,), seed=3)
    yield {"x": 3 * x + 1, "gain": gain, "bias": bias, "eps": 0.5}


check_layer_norm = Exercise(
    """Is each position normalised over its width? `layer_norm(x, gain, bias, eps)`.

    `x` is (n, dim), `gain` and `bias` (dim,). Called with n = 5, dim = 7 and a large `eps`, so that
    its place matters.
    """,
    right=_normalised,
    cases=_layer_norm_cases,
    axes="n dim",
    mistakes={
        (lambda x, gain, bias, eps: _normalised(x, gain, bias, eps, 0)): (
            "The mean runs over the positions: each position has its own mean, over its dim "
            "numbers."
        ),
        (lambda x, gain, bias, eps: _normalised(x, gain, bias, eps, (0, 1))): (
            "One mean for the whole tensor: each position has its own, `dim=-1, keepdim=True`."
        ),
        (lambda x, gain, bias, eps: gain * x / (x.square().mean(-1, True) + eps).sqrt() + bias): (
            "The mean is not subtracted: that is RMS normalisation, which later models use."
        ),
        (
            lambda x, gain, bias, eps: (
                gain * (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + eps).sqrt() + bias
            )
        ): (
            "The variance divides by dim − 1, as `std` and `var` do: divide by dim "
            "(`correction=0`)."
        ),
        (
            lambda x, gain, bias, eps: (
                gain * (x - x.mean(-1, True)) / (x.var(-1, correction=0, keepdim=True) + eps) + bias
            )
        ): ("It divides by the variance: take its square root."),
        (lambda x, gain, bias, eps: _normalised(x, torch.ones_like(gain), 0 * bias, eps)): (
            "The gain and the bias are missing: multiply by `gain` and add `bias`."
        ),
        (lambda x, gain, bias, eps: _normalised(x, gain**0, bias, eps)): "The gain is missing.",
        (lambda x, gain, bias, eps: _normalised(x, gain, 0 * bias, eps)): "The bias is missing.",
        (lambda x, gain, bias, eps: _normalised(x, gain, bias, 0.0)): (
            "`eps` is missing: a position whose numbers are all equal would give 0 / 0."
        ),
        (
            lambda x, gain, bias, eps: (
                gain * (x - x.mean(-1, True)) / (x.std(-1, correction=0, keepdim=True) + eps) + bias
            )
        ): ("`eps` is added to the root: it belongs under the root."),
    },
    praise="Each position has mean 0 and variance 1 before gain and bias.",
)


# ---- the parameters of a decoder layer

_DIM, _HIDDEN = 64, 256
_ATTENTION, _FEED_FORWARD = 4 * _DIM**2, 2 * _DIM * _HIDDEN + _HIDDEN + _DIM
_LAYER = 2 * _ATTENTION + _FEED_FORWARD + 3 * 2 * _DIM

check_decoder_parameters = NumberExercise(
    """Is it what a decoder layer of width 64 holds, with 256 hidden units and no biases in the
    attentions?""",
    right=_LAYER,
    unit="parameters",
    mistakes={
        _LAYER - _ATTENTION - 2 * _DIM: (
            "That is an encoder layer: cross-attention and its norm are missing."
        ),
        _LAYER - _ATTENTION: "Cross-attention has four matrices of its own.",
        _LAYER - 6 * _DIM: "The three norms are missing: each has a gain and a bias per dimension.",
        _LAYER - 3 * _DIM: "Each norm has a gain and a bias.",
        _LAYER - _HIDDEN - _DIM: "The two biases of the feed-forward network are missing.",
        _LAYER - 6 * _DIM - _HIDDEN - _DIM: "Those are the matrices; norms and biases are missing.",
        _LAYER - 2 * _DIM**2: "The output matrices of the two attentions are missing.",
        _LAYER + 2 * _ATTENTION: "The number of heads changes nothing: they share out the width.",
    },
)


# ---- a decoder layer


def _norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _attended(
    x: Tensor, source: Tensor, w: Tensor, allowed: Tensor, scale: float | None = None
) -> Tensor:
    q, k, v = x @ w[0], source @ w[1], source @ w[2]
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v @ w[3]


def _layer(
    x: Tensor, memory: Tensor, real: Tensor, own: Tensor, cross: Tensor, w1: Tensor, w2: Tensor, *,
    skips: tuple[int, int, int] = (1, 1, 1), past: Callable[[Tensor], Tensor] = torch.tril,
    norm: Callable[[Tensor], Tensor] = _norm, last: Callable[[Tensor], Tensor] = _norm,
    post: bool = False, padding: bool = True, scale: float | None = None,
    read: Callable[[Tensor, Tensor], Tensor] = lambda memory, x: memory,
    bend: Callable[[Tensor], Tensor] = torch.relu, crossed_first: bool = False,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps or leaves one out."""
    n = len(x)
    before, after = (lambda y: y, norm) if post else (norm, lambda y: y)
    visible = past(torch.ones(n, n)).bool()
    shown = real if padding else torch.ones_like(real)

    def attend_to_itself(x: Tensor) -> Tensor:
        y = before(x)
        return after(skips[0] * x + _attended(y, y, own, visible, scale))

    def attend_to_source(x: Tensor) -> Tensor:
        keys = read(memory, x)
        allowed = shown if keys is memory or len(keys) == len(memory) else visible
        return after(skips[1] * x + _attended(before(x), keys, cross, allowed, scale))

    steps = (attend_to_itself, attend_to_source)
    for step in steps[::-1] if crossed_first else steps:
        x = step(x)
    y = x if post else last(x)
    return after(skips[2] * x + bend(y @ w1) @ w2)


def _decoder_layer_cases() -> Iterator[Arguments]:
    for marks in ("1101101", "1111111"):
        yield _layer_inputs(marks)


check_decoder_layer = Exercise(
    """Is it a decoder layer? `layer(x, memory, real, own, cross, W1, W2) -> (n, dim)`.

    `x` is (n, dim), `memory` (m, dim), `real` (m,) bool; `own` and `cross` are (4, dim, dim): the
    matrices of queries, keys, values and output; `W1` is (dim, hidden), `W2` (hidden, dim). One
    head, pre-norm without gain and bias, ReLU. Called with n = 5, m = 7, dim = 11, hidden = 13.
    """,
    right=_layer,
    cases=_decoder_layer_cases,
    axes="n dim",
    mistakes={
        but(past=lambda ones: ones): (
            "The causal mask is missing: a word attends to the words after it, which do not exist "
            "while the model writes."
        ),
        but(past=torch.triu): (
            "The causal mask is the wrong way round: position i attends to positions j ≤ i."
        ),
        but(past=lambda ones: ones.tril(-1)): (
            "A position may not attend to itself: the causal mask allows j ≤ i, not j < i."
        ),
        but(padding=False): (
            "The padding of the source is not masked: set its scores to −∞ in the cross-attention."
        ),
        but(read=lambda memory, x: _norm(x)): (
            "Cross-attention attends to the decoder's own tokens: its keys and values come from "
            "`memory`."
        ),
        but(read=lambda memory, x: _norm(memory)): (
            "`memory` is normalised again: the encoder has done that; only x is normalised here."
        ),
        but(skips=(0, 0, 0)): "The residual connections are missing: add each part to x.",
        but(skips=(0, 1, 1)): "The residual connection of the self-attention is missing.",
        but(skips=(1, 0, 1)): "The residual connection of the cross-attention is missing.",
        but(skips=(1, 1, 0)): "The residual connection of the feed-forward network is missing.",
        but(post=True): (
            "The sums are normalised, as in the paper of 2017 (post-norm). Here what a part reads "
            "is normalised, and the sum is not (pre-norm)."
        ),
        but(norm=lambda y: y, last=lambda y: y): (
            "The normalisation is missing: each part reads `norm(x)`."
        ),
        but(last=lambda y: y): "The feed-forward network reads x without normalisation.",
        but(scale=1.0): "The scores are not scaled: multiply them by 1/√dim.",
        but(bend=lambda y: y): "The ReLU is missing: two matrices in a row are one matrix.",
        but(crossed_first=True): "Self-attention comes first, then cross-attention.",
    },
    praise="Self-attention, cross-attention, feed-forward: each reads norm(x) and is added to x.",
)


def _layer_inputs(marks: str) -> dict[str, Any]:
    x, memory, own, cross, w1, w2 = random_tensors(
        (5, 11), (7, 11), (4, 11, 11), (4, 11, 11), (11, 13), (13, 11), seed=11
    )
    real = torch.tensor([mark == "1" for mark in marks])
    return {
        "x": 2 * x, "memory": 2 * memory + 1, "real": real,
        "own": own / 2, "cross": cross / 2, "W1": w1 / 2, "W2": w2,
    }  # fmt: skip
