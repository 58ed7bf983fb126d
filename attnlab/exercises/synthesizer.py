"""Checks of lesson 20: the length of a table, Factorized Dense, a mixture, and a Dense layer."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise

# ---- the length at which a table is as large as two matrices

check_table_length = NumberExercise(
    "Is it the length at which 8 tables of L × L hold as many numbers as W_Q and W_K of 512?",
    right=math.sqrt(2 * 512**2 / 8),
    tolerance=2e-3,
    unit="positions",
    mistakes={
        64: "That sets eight tables equal to 8 · 512 numbers: W_Q and W_K have 2 · 512² together.",
        724: "The heads are missing: there are eight tables, one for each head.",
        181: "That counts one matrix. Both W_Q and W_K are left out.",
        2 * 512**2 / 8: "That is L². Take the square root.",
    },
)


# ---- Factorized Dense


def _factorized(a: Tensor, b: Tensor) -> Tensor:
    return (b[:, :, None] * a[:, None, :]).flatten(1)


def _factorized_cases() -> Iterator[Arguments]:
    for n, a, b in ((5, 3, 7), (3, 5, 2), (2, 3, 3)):
        rows = random_tensors((n, a), (n, b))
        yield {"A": rows[0], "B": rows[1]}


check_factorized = Exercise(
    """Is it Factorized Dense? `factorized(A (n, a), B (n, b)) -> logits (n, a·b)`.

    Entry (i, j) is A[i, j mod a] · B[i, ⌊j / a⌋]. Called with n = 5, a = 3, b = 7, then with other
    sizes.
    """,
    right=_factorized,
    cases=_factorized_cases,
    axes="n a·b",
    mistakes={
        (lambda a, b: (a[:, :, None] * b[:, None, :]).flatten(1)): (
            "A and B are exchanged: A is tiled (A₀ A₁ … A₀ A₁ …), and B repeated (B₀ B₀ … B₁ B₁ …)."
        ),
        (lambda a, b: a.repeat(1, b.shape[1]) * b.repeat(1, a.shape[1])): (
            "Both are tiled. Then row i repeats itself with the least common multiple of a and b, "
            "and some products never occur. Repeat each entry of B while A is tiled."
        ),
        (lambda a, b: a.repeat_interleave(b.shape[1], 1) * b.repeat_interleave(a.shape[1], 1)): (
            "Both are repeated: entry j needs A[j mod a], which goes through A again and again: "
            "tile A."
        ),
        (lambda a, b: (b[:, :, None] + a[:, None, :]).flatten(1)): (
            "The two are added: an entry is the product of a tiled and a repeated number."
        ),
        (lambda a, b: torch.cat((a, b), 1)): (
            "Those are A and B side by side, a + b numbers; there should be a · b products."
        ),
        (lambda a, b: a.repeat(1, b.shape[1])): (
            "Only A is tiled; each copy of it has still to be multiplied by its number from B."
        ),
        (lambda a, b: b.repeat_interleave(a.shape[1], 1)): (
            "Only B is repeated; each run of it has still to be multiplied by A."
        ),
        (lambda a, b: _factorized(a, b).softmax(-1)): (
            "It returns the softmax; it should return the logits."
        ),
        (lambda a, b: b[:, :, None] * a[:, None, :]): (
            "The products are right, but not joined to one row: flatten the last two axes."
        ),
    },
    praise="A is tiled, B is repeated: a + b numbers write a · b logits.",
)


# ---- mixtures


def _mixed(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return (alpha[0] * first + alpha[1] * second).softmax(-1)


def _logits(numbers: Tensor, first: Tensor, second: Tensor) -> Tensor:
    alpha = numbers.softmax(0)
    return alpha[0] * first + alpha[1] * second


def _mixture_cases() -> Iterator[Arguments]:
    for n, m in ((5, 7), (5, 5)):
        numbers, first, second = random_tensors((2,), (n, m), (n, m), seed=n * m)
        yield {"numbers": numbers, "first": first, "second": second}


check_mixture = Exercise(
    """Is it a mixture? `mixture(numbers (2,), first (n, m), second (n, m)) -> weights (n, m)`.

    The softmax of the two numbers mixes the logits; one softmax over the keys follows. Called with
    n = 5, m = 7 and with n = m = 5.
    """,
    right=_mixed,
    cases=_mixture_cases,
    axes="n m",
    mistakes={
        (lambda s, x, y: s.softmax(0)[0] * x.softmax(-1) + s.softmax(0)[1] * y.softmax(-1)): (
            "It mixes two maps: each set of logits has had its own softmax. The logits are mixed "
            "first, and one softmax comes last."
        ),
        (lambda s, x, y: (x + y).softmax(-1)): (
            "The logits are added, not mixed: α is missing, so the numbers have no effect."
        ),
        (lambda s, x, y: (s[0] * x + s[1] * y).softmax(-1)): (
            "The numbers are used as α directly: they may be negative, and their sum may be "
            "anything. Use their softmax."
        ),
        (lambda s, x, y: _mixed(s.flip(0), x, y)): (
            "α is exchanged: its first entry belongs to the first logits."
        ),
        _logits: "It returns the mixed logits: their softmax over the keys is still to come.",
        (lambda s, x, y: _logits(s, x, y).softmax(0)): (
            "The softmax runs over the queries, so that columns sum to one: it belongs over the "
            "keys, `dim=-1`."
        ),
        (lambda s, x, y: (s[0] / s.sum() * x + s[1] / s.sum() * y).softmax(-1)): (
            "The numbers are divided by their sum; α is their softmax: negative numbers are "
            "allowed."
        ),
    },
    praise="The logits are mixed with weights that sum to one, and one softmax follows.",
)


# ---- a layer

Step = Callable[[Tensor], Tensor]


def _heads(flat: Tensor, heads: int) -> Tensor:
    return flat.unflatten(-1, (heads, -1)).transpose(0, 1)


def _scrambled(flat: Tensor, heads: int) -> Tensor:
    return flat.reshape(heads, len(flat), -1)


def _causal(logits: Tensor) -> Tensor:
    future = torch.ones_like(logits).triu(1).bool()
    return logits.masked_fill(future, -torch.inf).softmax(-1)


def _late(logits: Tensor) -> Tensor:
    return logits.softmax(-1).tril()


def _merged(out: Tensor) -> Tensor:
    return out.transpose(0, 1).flatten(1)


def _layer(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, wv: Tensor, wo: Tensor
) -> Tensor:
    return _made(x, w1, b1, w2, b2, wv) @ wo


def _made(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, wv: Tensor, *,
    hidden: Step = torch.relu, weights: Step = _causal, merge: Step = _merged,
    split: tuple[Callable[[Tensor, int], Tensor], ...] = (_heads, _heads), first: int = 0,
) -> Tensor:  # fmt: skip
    """What comes before W_O; a known mistake replaces one of the steps."""
    rows = split[0](hidden(x @ w1 + b1), len(w2))
    logits = (rows @ w2 + b2[:, None])[..., first:][..., : len(x)]
    return merge(weights(logits) @ split[1](x @ wv, len(w2)))


_RESHAPED = (
    "`reshape` does not exchange axes: from (n, dim) to (heads, n, d) it mixes heads and "
    "positions. First (n, heads, d), then a transpose."
)


def _weights_of_a_layer(longest: int) -> Arguments:
    names = ("x", "W1", "b1", "W2", "b2", "Wv", "Wo")
    shapes = ((5, 6), (6, 6), (6,), (3, 2, longest), (3, longest), (6, 6), (6, 6))
    return dict(zip(names, random_tensors(*shapes, seed=longest), strict=True))


check_dense_layer = Exercise(
    """Is it a causal Dense layer? `dense_layer(x, W1, b1, W2, b2, Wv, Wo) -> (n, dim)`.

    `x` is (n, dim); `W1`, `Wv` and `Wo` are (dim, dim), `b1` (dim,), `W2` (heads, d, L) and `b2`
    (heads, L), with n ≤ L. Called with n = 5, 3 heads of d = 2, L = 7, and with n = L = 5.
    """,
    right=_layer,
    cases=lambda: map(_weights_of_a_layer, (7, 5)),
    axes="n dim",
    mistakes={
        (lambda *given: _made(*given[:-1], weights=lambda s: s.softmax(-1)) @ given[-1]): (
            "A query attends to later positions: set their logits to −∞ before the softmax."
        ),
        (lambda *given: _made(*given[:-1], weights=_late) @ given[-1]): (
            "The future is set to zero after the softmax, so that rows no longer sum to one: mask "
            "the logits, before the softmax."
        ),
        (
            lambda *given: (
                _made(
                    *given[:-1],
                    weights=lambda s: s.masked_fill(
                        torch.ones_like(s).triu(1).bool(), -torch.inf
                    ).softmax(-2),
                )
                @ given[-1]
            )
        ): ("The softmax runs over the queries; it belongs over the keys, `dim=-1`."),
        (
            lambda *given: (
                _made(
                    *given[:-1],
                    weights=lambda s: _causal(s / (len(given[1]) / len(given[3])) ** 0.5),
                )
                @ given[-1]
            )
        ): (
            "The logits are divided by √d. That belongs to a dot product of queries and keys; "
            "synthesized logits are used as they are."
        ),
        (lambda *given: _made(*given[:-1], hidden=lambda y: y) @ given[-1]): (
            "The relu is missing: without it, W₁ and W₂ are one linear layer."
        ),
        (lambda x, w1, b1, *rest: _layer(x, w1, 0 * b1, *rest)): "b₁ is missing.",
        (lambda x, w1, b1, w2, b2, wv, wo: _layer(x, w1, b1, w2, 0 * b2, wv, wo)): "b₂ is missing.",
        (lambda *given: _made(*given[:-1], first=given[3].shape[-1] - len(given[0])) @ given[-1]): (
            "The last columns of the logits are kept: column j belongs to position j, so keep the "
            "first n."
        ),
        (lambda *given: _made(*given[:-1], split=(_scrambled, _scrambled)) @ given[-1]): _RESHAPED,
        (lambda *given: _made(*given[:-1], split=(_scrambled, _heads)) @ given[-1]): _RESHAPED,
        (lambda *given: _made(*given[:-1], split=(_heads, _scrambled)) @ given[-1]): _RESHAPED,
        (
            lambda *given: (
                _made(*given[:-1], merge=lambda out: out.reshape(out.shape[1], -1)) @ given[-1]
            )
        ): (
            "The heads are joined without a transpose: from (heads, n, d) first to (n, heads, d), "
            "then flatten."
        ),
        (lambda *given: _made(*given[:-1])): (
            "W_O is missing: the joined heads are multiplied by it."
        ),
    },
    praise="Each token computes a row of logits per head; positions, not keys, are the columns.",
)
