"""Checks of lesson 28: where decays overflow, products of a chunk that have decayed, a chunk of the
delta rule.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.parts import PartsExercise
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_loop

# ---- an overflow

check_overflow_tokens = NumberExercise(
    "Is it the first token at which e^(−g) is infinite in float32, with log a = −2 at every token?",
    right=45,
    tolerance=1e-9,
    unit="tokens",
    mistakes={
        44: "After 44 tokens it is e^88, about 1.7 · 10³⁸, which float32 still holds.",
        89: "Each token adds 2 to the exponent: e^(−g) = e^(2 t).",
        90: "Each token adds 2 to the exponent once: g = −2 t after t tokens.",
        355: "That is float64, which ends near e^709.8; float32 ends near e^88.7.",
        64: "The largest number is about 2^128: the exponent of e has to be 88.7, not 128.",
        19: "The largest number is 3.4 · 10³⁸; its natural logarithm is 88.7, not 38.",
        20: "The largest number is 3.4 · 10³⁸; its natural logarithm is 88.7, not 38.",
    },
)

# ---- products that have decayed


def _pairs(
    q: Tensor, k: Tensor, log_a: Tensor, *, own: bool = False, late: bool = False,
    raw: bool = False, turned: bool = False, factored: bool = False, open: bool = False,
    alone: bool = False,
) -> Tensor:  # fmt: skip
    """q_i · k_j e^(g_i - g_j) for j ≤ i; every keyword is a mistake."""
    g = log_a.cumsum(0)
    rows, columns = (g - log_a if late else g), (g - log_a if own else g)
    between = rows[:, None] - columns[None]
    if turned:
        between = -between
    if raw:
        between = torch.zeros_like(between)
    if alone:
        between = log_a[:, None].expand_as(between)
    if factored:
        return ((g.exp()[:, None] * q) @ ((-g).exp()[:, None] * k).mT).tril()
    past = torch.ones_like(between, dtype=torch.bool).tril()
    return q @ k.mT * (between if open else between.masked_fill(~past, -torch.inf)).exp()


def _pairs_cases() -> Iterator[Arguments]:
    q, k, raw = random_tensors((7, 3), (7, 3), (7,), seed=28)
    gentle = -raw.sigmoid()
    yield {"q": q, "k": k, "log_a": gentle}
    yield {"q": q, "k": k, "log_a": 400 * gentle - 400}


check_decayed_pairs = Exercise(
    """Are they the products of queries with keys that have decayed? `pairs(q, k, log_a)`.

    `q` and `k` are (c, d), `log_a` (c,) holds the log decays of the tokens, at most 0. It returns
    (c, c), with zeros where the key comes after the query. Called a second time with log decays
    between −800 and −400.
    """,
    right=_pairs,
    cases=_pairs_cases,
    axes="c c",
    mistakes={
        but(factored=True): (
            "e^(−g) is a number without bound: with strong decays it is infinite, and infinite "
            "times 0 is NaN. Subtract first: e^(g_i − g_j)."
        ),
        but(open=True): (
            "A query reads keys that come after it: set those exponents to −∞ before e to them."
        ),
        but(own=True): "A key is written after the decay of its own token: subtract g_j whole.",
        but(late=True): "The decay of the query's own token counts: the sum goes up to g_i.",
        but(raw=True): "The decays are missing.",
        but(
            turned=True
        ): "The sign is wrong: the product shrinks with the distance, e^(g_i − g_j).",
        but(
            alone=True
        ): "That is the decay of the query's token alone; it is the sum since the key.",
    },
    praise="No exponent is above 0, so nothing overflows, whatever the decays are.",
)

# ---- a chunk of the delta rule


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, b: Tensor, S: Tensor, *, own: bool = False,
    unstepped: bool = False, unsolved: bool = False, blind: bool = False, closed: bool = False,
    columns: bool = False, strict: bool = False, fresh: bool = False, plus: bool = False,
) -> Parts:  # fmt: skip
    """The writes of a chunk by a triangular solve; every keyword is a mistake."""
    L = b[:, None] * (k @ k.mT)
    L = b * (k @ k.mT) if columns else k @ k.mT if unstepped else L
    L = L.tril() if own else L.tril(-1)
    eye = torch.eye(len(k), dtype=k.dtype)
    right = b[:, None] * (v - (0 if blind else k @ S))
    wrote = right if unsolved else torch.linalg.solve(eye - L if plus else eye + L, right)
    scores = (q @ k.mT).tril(-1 if strict else 0)
    out = scores @ wrote + (0 if closed else q @ S)
    return out, k.mT @ wrote + (0 if fresh else S)


def _chunk_given(c: int) -> Arguments:
    q, k, v = random_tensors((c, 5), (c, 5), (c, 3), seed=29)
    b, S = random_tensors((c,), (5, 3), seed=30)
    k = k / k.norm(dim=-1, keepdim=True)
    return {"q": q, "k": k, "v": v, "b": b.sigmoid(), "S": S}


def _without_a_loop(function: Function, _given: Arguments) -> None:
    require_no_loop(function, _chunk_given(7), _chunk_given(97), over="tokens")


check_delta_chunk = PartsExercise(
    """Is a chunk of the delta rule computed at once? `chunk(q, k, v, b, S)`, without a loop.

    `q` and `k` are (c, d), `v` is (c, e), `b` (c,) holds the steps and `S` (d, e) is the state
    before the chunk. It returns the outputs (c, e) and the state after it. Called with c = 7,
    d = 5, e = 3.
    """,
    right=_chunk,
    cases=lambda: [_chunk_given(7)],
    axes={"outputs": "c e", "S": "d e"},
    mistakes={
        but(own=True): (
            "A token does not erase its own write: L holds what is strictly below the diagonal."
        ),
        but(unstepped=True): "The rows of L lack the step: L_ij = b_i k_i · k_j.",
        but(columns=True): "The step of the token that erases belongs to L, b_i, not that of j.",
        but(unsolved=True): (
            "Each token erases what the state before the chunk held, and not what the tokens "
            "before it in the chunk have written: solve (I + L) D = diag(b) (V − K S)."
        ),
        but(plus=True): "It is I + L: what earlier tokens wrote is taken out, not added.",
        but(blind=True): "The keys do not erase what the state before the chunk holds: V − K S.",
        but(closed=True): "The queries do not read the state before the chunk: add Q S.",
        but(strict=True): "A query reads the write of its own token as well.",
        but(fresh=True): "The new state lacks the old one: S + Kᵀ D.",
    },
    praise="One triangular solve and five matrix products replace the tokens of a chunk.",
    then=_without_a_loop,
)
