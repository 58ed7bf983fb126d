"""Checks of lesson 15: what sorting costs, Sinkhorn's normalisation, and a layer that sorts."""

import torch
from torch import Tensor

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, Verdict, returns_verdict

_LENGTH_MISTAKEN: dict[float, str] = {
    128: "That is the number of blocks, n / B = 2 B; the length is B times as large.",
    4096: "That is B²: a query attends to two blocks, 2 B keys, and not to one.",
    64: "That is the length of a block; n / B = 2 B has to be solved for n.",
}


def check_sorting_length(n: object) -> Verdict:
    """Is it the length from which on sorting costs more than attention, for blocks of 64?"""
    return check_number(n, 8192, unit="tokens", mistakes=_LENGTH_MISTAKEN)


# ---- the normalisation


def _normalised(scores: Tensor, iterations: int) -> Tensor:
    for _ in range(iterations):
        scores = scores - scores.logsumexp(-1, keepdim=True)
        scores = scores - scores.logsumexp(-2, keepdim=True)
    return scores.exp()


def _columns_first(scores: Tensor, iterations: int) -> Tensor:
    return _normalised(scores.mT, iterations).mT


_NORMALISED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Columns are divided before rows: begin with the rows, and end with the columns.",
        _columns_first,
    ),
    (
        "Rows alone are divided by their sums; after them the columns are, in each iteration.",
        lambda scores, iterations: scores.softmax(-1),
    ),
    (
        "Columns alone are divided by their sums; the rows come first in each iteration.",
        lambda scores, iterations: scores.softmax(-2),
    ),
    (
        "The result is still in logarithms: give its exponential.",
        lambda scores, iterations: _normalised(scores, iterations).log(),
    ),
    (
        "That is one iteration only.",
        lambda scores, iterations: _normalised(scores, 1),
    ),
)


@returns_verdict
def check_sinkhorn(function: Function) -> str:
    """Is it Sinkhorn's normalisation? `sinkhorn(scores, iterations) -> (blocks, blocks)`.

    Called with 7 blocks and 3 iterations, and with scores of several thousand.
    """
    (scores,) = random_tensors((7, 7))
    given: Arguments = {"scores": 2 * scores, "iterations": 3}
    known = _NORMALISED_MISTAKEN
    require(function, given, _normalised, shape="blocks blocks", known_mistakes=known)
    large: Arguments = {"scores": 3000 * scores, "iterations": 3}
    require(
        function, large, _normalised, shape="blocks blocks",
        explain=lambda: "The exponential of large scores overflows: stay in logarithms.",
    )  # fmt: skip
    check_arguments_and_dtype(function, given)
    return "Columns sum to one after each iteration, rows after many."


# ---- the layer


def _in_blocks(x: Tensor, block: int) -> Tensor:
    return x.unflatten(0, (-1, block))


def _sorted_blocks(x: Tensor, sort: Tensor, block: int) -> Tensor:
    return torch.einsum("ij,jtd->itd", sort, _in_blocks(x, block))


def _joined(
    q: Tensor, k: Tensor, v: Tensor, sort: Tensor, block: int,
    *, scale: bool = True, values: bool = True, own: bool = True,
) -> Tensor:  # fmt: skip
    keys, mixed = _sorted_blocks(k, sort, block), _sorted_blocks(v, sort, block)
    mixed = mixed if values else _in_blocks(v, block)
    if own:
        keys = torch.cat([keys, _in_blocks(k, block)], dim=1)
        mixed = torch.cat([mixed, _in_blocks(v, block)], dim=1)
    scores = _in_blocks(q, block) @ keys.mT * (q.shape[-1] ** -0.5 if scale else 1)
    return (scores.softmax(-1) @ mixed).flatten(0, 1)


_LAYER_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "S is transposed: row i says what is brought to block i, Σⱼ Sᵢⱼ Kⱼ.",
        lambda q, k, v, sort, block: _joined(q, k, v, sort.mT, block),
    ),
    (
        "The values are not sorted: a sorted key needs the value that was mixed with it.",
        lambda q, k, v, sort, block: _joined(q, k, v, sort, block, values=False),
    ),
    (
        "The own block is missing: one softmax runs over the sorted and the own block.",
        lambda q, k, v, sort, block: _joined(q, k, v, sort, block, own=False),
    ),
    (
        "The scores are not divided by √d.",
        lambda q, k, v, sort, block: _joined(q, k, v, sort, block, scale=False),
    ),
    (
        "Those are two softmaxes, added up: put both blocks of keys into one softmax.",
        lambda q, k, v, sort, block: (
            _joined(q, k, v, sort, block, own=False)
            + _joined(q, k, v, torch.eye(len(sort), dtype=q.dtype), block, own=False)
        ),
    ),
)


@returns_verdict
def check_sorted_attention(function: Function) -> str:
    """Is it attention to a sorted block and the own? `attend(q, k, v, sort, block) -> (n, e)`.

    `q` and `k` are (n, d), `v` (n, e), `sort` (blocks, blocks). Called with n = 15 in blocks of 3.
    """
    q, k, v, scores = random_tensors((15, 7), (15, 7), (15, 2), (5, 5))
    given: Arguments = {"q": q, "k": k, "v": v, "sort": _normalised(scores, 3), "block": 3}
    require(function, given, _joined, shape="n e", known_mistakes=_LAYER_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Keys and values are brought to the block together, and the own block stays."
