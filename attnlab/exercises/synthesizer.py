"""Checks of lesson 20: a row of logits from two short ones, and a mixture of logits."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# ---- Factorized Dense


def _factorized(a: Tensor, b: Tensor) -> Tensor:
    return (b[:, :, None] * a[:, None, :]).flatten(1)


_FACTORIZED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "A and B are exchanged: A is tiled (A₀ A₁ … A₀ A₁ …), and B repeated (B₀ B₀ … B₁ B₁ …).",
        lambda a, b: (a[:, :, None] * b[:, None, :]).flatten(1),
    ),
    (
        "Both are tiled. Then row i repeats itself with the least common multiple of a and b, and "
        "some products never occur. Repeat each entry of B while A is tiled.",
        lambda a, b: a.repeat(1, b.shape[1]) * b.repeat(1, a.shape[1]),
    ),
    (
        "Both are repeated: entry j needs A[j mod a], which goes through A again and again: "
        "tile A.",
        lambda a, b: a.repeat_interleave(b.shape[1], 1) * b.repeat_interleave(a.shape[1], 1),
    ),
    (
        "The two are added: an entry is the product of a tiled and a repeated number.",
        lambda a, b: (b[:, :, None] + a[:, None, :]).flatten(1),
    ),
    (
        "Those are A and B side by side, a + b numbers; there should be a · b products.",
        lambda a, b: torch.cat((a, b), 1),
    ),
    (
        "Only A is tiled; each copy of it has still to be multiplied by its number from B.",
        lambda a, b: a.repeat(1, b.shape[1]),
    ),
    (
        "Only B is repeated; each run of it has still to be multiplied by A.",
        lambda a, b: b.repeat_interleave(a.shape[1], 1),
    ),
    (
        "It returns the softmax; it should return the logits.",
        lambda a, b: _factorized(a, b).softmax(-1),
    ),
    (
        "The products are right, but not joined to one row: flatten the last two axes.",
        lambda a, b: b[:, :, None] * a[:, None, :],
    ),
)


@returns_verdict
def check_factorized(function: Function) -> str:
    """Is it Factorized Dense? `factorized(A (n, a), B (n, b)) -> logits (n, a·b)`.

    Entry (i, j) is A[i, j mod a] · B[i, ⌊j / a⌋]. Called with n = 5, a = 3, b = 7, then with other
    sizes.
    """
    for n, a, b in ((5, 3, 7), (3, 5, 2), (2, 3, 3)):
        rows = random_tensors((n, a), (n, b))
        given = {"A": rows[0], "B": rows[1]}
        require(function, given, _factorized, shape="n a·b", known_mistakes=_FACTORIZED_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "A is tiled, B is repeated: a + b numbers write a · b logits."


# ---- mixtures


def _mixed(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return (alpha[0] * first + alpha[1] * second).softmax(-1)


def _logits(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return alpha[0] * first + alpha[1] * second


_MIXED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "It mixes two maps: each set of logits has had its own softmax. The logits are mixed "
        "first, and one softmax comes last.",
        lambda s, x, y: s.softmax(0)[0] * x.softmax(-1) + s.softmax(0)[1] * y.softmax(-1),
    ),
    (
        "The logits are added, not mixed: α is missing, so the numbers have no effect.",
        lambda s, x, y: (x + y).softmax(-1),
    ),
    (
        "The numbers are used as α directly: they may be negative, and their sum may be anything. "
        "Use their softmax.",
        lambda s, x, y: (s[0] * x + s[1] * y).softmax(-1),
    ),
    (
        "α is exchanged: its first entry belongs to the first logits.",
        lambda s, x, y: _mixed(s.flip(0), x, y),
    ),
    (
        "It returns the mixed logits: their softmax over the keys is still to come.",
        _logits,
    ),
    (
        "The softmax runs over the queries, so that columns sum to one: it belongs over the keys, "
        "`dim=-1`.",
        lambda s, x, y: _logits(s, x, y).softmax(0),
    ),
    (
        "The numbers are divided by their sum; α is their softmax: negative numbers are allowed.",
        lambda s, x, y: (s[0] / s.sum() * x + s[1] / s.sum() * y).softmax(-1),
    ),
)


@returns_verdict
def check_mixture(function: Function) -> str:
    """Is it a mixture? `mixture(numbers (2,), first (n, m), second (n, m)) -> weights (n, m)`.

    The softmax of the two numbers mixes the logits; one softmax over the keys follows. Called with
    n = 5, m = 7 and with n = m = 5.
    """
    for n, m in ((5, 7), (5, 5)):
        numbers, first, second = random_tensors((2,), (n, m), (n, m), seed=n * m)
        given = {"numbers": numbers, "first": first, "second": second}
        require(function, given, _mixed, shape="n m", known_mistakes=_MIXED_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "The logits are mixed with weights that sum to one, and one softmax follows."
