"""Checks of lesson 20: a row of logits from two short ones, and a mixture of logits."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import Suspect, demand, made, mannerly
from attnlab.exercises.verdict import Function, diagnosed

# ---- Factorized Dense


def _factorized(a: Tensor, b: Tensor) -> Tensor:
    return (b[:, :, None] * a[:, None, :]).flatten(1)


_FACTORIZED_MISTAKEN: tuple[Suspect, ...] = (
    (
        "The two have changed their roles: A is tiled (A₀ A₁ … A₀ A₁ …), and B repeated "
        "(B₀ B₀ … B₁ B₁ …).",
        lambda a, b: (a[:, :, None] * b[:, None, :]).flatten(1),
    ),
    (
        "Both are tiled. Then row i repeats itself with the least common multiple of a and b, and "
        "some products never occur. B must stand still while A runs through: repeat it.",
        lambda a, b: a.repeat(1, b.shape[1]) * b.repeat(1, a.shape[1]),
    ),
    (
        "Both are repeated: entry j needs A[j mod a], which runs through A again and again: "
        "tile A.",
        lambda a, b: a.repeat_interleave(b.shape[1], 1) * b.repeat_interleave(a.shape[1], 1),
    ),
    (
        "The two are added: an entry is the product of a tiled and a repeated number.",
        lambda a, b: (b[:, :, None] + a[:, None, :]).flatten(1),
    ),
    (
        "Those are A and B side by side, a + b numbers: a · b products are asked for.",
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
        "It returns the softmax already: logits are asked for.",
        lambda a, b: _factorized(a, b).softmax(-1),
    ),
    (
        "The products are all there, but not joined to one row: flatten the last two axes.",
        lambda a, b: b[:, :, None] * a[:, None, :],
    ),
)


@diagnosed
def check_factorized(function: Function) -> str:
    """Is it Factorized Dense? `factorized(A (n, a), B (n, b)) -> logits (n, a·b)`.

    Entry (i, j) is A[i, j mod a] · B[i, ⌊j / a⌋]. Called with n = 5, a = 3, b = 7, then with other
    sizes.
    """
    for n, a, b in ((5, 3, 7), (3, 5, 2), (2, 3, 3)):
        rows = made((n, a), (n, b))
        given = {"A": rows[0], "B": rows[1]}
        demand(function, given, _factorized, shape="n a·b", suspects=_FACTORIZED_MISTAKEN)
    mannerly(function, given)
    return "A is tiled, B is repeated: a + b numbers write a · b logits."


# ---- mixtures


def _mixed(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return (alpha[0] * first + alpha[1] * second).softmax(-1)


def _logits(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return alpha[0] * first + alpha[1] * second


_MIXED_MISTAKEN: tuple[Suspect, ...] = (
    (
        "It mixes two maps: each set of logits has had its own softmax. The logits are mixed "
        "first, and one softmax comes last.",
        lambda s, x, y: s.softmax(0)[0] * x.softmax(-1) + s.softmax(0)[1] * y.softmax(-1),
    ),
    (
        "The logits are added, not mixed: α is missing, so the numbers have no say.",
        lambda s, x, y: (x + y).softmax(-1),
    ),
    (
        "The numbers serve as α as they are: they may be negative and sum to anything. Their "
        "softmax sums to one.",
        lambda s, x, y: (s[0] * x + s[1] * y).softmax(-1),
    ),
    (
        "α is changed about: its first entry belongs to the first logits.",
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


@diagnosed
def check_mixture(function: Function) -> str:
    """Is it a mixture? `mixture(numbers (2,), first (n, m), second (n, m)) -> weights (n, m)`.

    The softmax of the two numbers mixes the logits; one softmax over the keys follows. Called with
    n = 5, m = 7 and with n = m = 5.
    """
    for n, m in ((5, 7), (5, 5)):
        numbers, first, second = made((2,), (n, m), (n, m), seed=n * m)
        given = {"numbers": numbers, "first": first, "second": second}
        demand(function, given, _mixed, shape="n m", suspects=_MIXED_MISTAKEN)
    mannerly(function, given)
    return "The logits are mixed in shares that sum to one, and one softmax makes the map."
