"""Checks of lesson 31: a half-life, a push, two pieces of a sum, a layer with a state."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.parts import PartsExercise

# ---- a half-life

DECAY = 0.02

check_half_life = NumberExercise(
    "Is it the number of tokens after which e^(−w n) is one half, with w = 0.02?",
    right=math.log(2) / DECAY,
    tolerance=0.02,
    mistakes={
        1 / DECAY: "After 1 / w tokens the weight is 1 / e of what it was, 0.37 and not 0.5.",
        0.5 / DECAY: (
            "The weight does not fall by the same amount each token, but by the same factor."
        ),
        math.log10(2) / DECAY: "That is the logarithm to base 10; the factor is e^(−w).",
        1 / (math.log(2) * DECAY): "e^(−w n) = 1/2 gives n = log(2) / w: multiply by log 2.",
    },
)


# ---- a push

STRENGTH, GATE = 1.5, 0.5


def upper(strength: float) -> float:
    """The largest solution of h = tanh(a h), for a strength a above 1."""
    h = 1.0
    for _ in range(200):
        h = math.tanh(strength * h)
    return h


check_push = NumberExercise(
    "Is it the size of u at which c h + (1 − c) tanh(a h − u) is zero, for a = 1.5, c = 0.5?",
    right=2 * STRENGTH * upper(STRENGTH),  # tanh(a h − u) = −h = tanh(−a h)
    tolerance=0.02,
    mistakes={
        STRENGTH * upper(STRENGTH): (
            "That brings the candidate to zero. The gate keeps half of the old state, which is "
            "still positive: the candidate must be −h."
        ),
        2 * upper(STRENGTH): "The feedback is a times the state, in the candidate.",
        upper(STRENGTH): "That is the state itself. The push stands inside the tanh, beside a h.",
        2 * STRENGTH: "The unit rests at h = tanh(a h), which is below 1.",
    },
)


# ---- two pieces of a sum


def _joined(
    first: Tensor, second: Tensor, w: Tensor, tokens: int, *,
    fade: int | None = None, fade_second: int = 0, scaled: bool = True,
) -> Tensor:  # fmt: skip
    """The sums of both pieces; every keyword is a mistake."""
    before = first[2] - (tokens if fade is None else fade) * w
    after = second[2] - fade_second * w
    largest = torch.maximum(before, after)
    if scaled:
        first, second = (before - largest).exp() * first, (after - largest).exp() * second
    return torch.stack((first[0] + second[0], first[1] + second[1], largest))


def _joined_cases() -> Iterator[Arguments]:
    first, second, w = random_tensors((3, 5), (3, 5), (5,), seed=31)
    first[1], second[1], w = first[1].exp(), second[1].exp(), w.exp() / 4
    yield {"first": first, "second": second, "w": w, "tokens": 4}


check_joined = Exercise(
    """Are the sums of two pieces joined? `joined(first, second, w, tokens)`.

    `first` and `second` (3, dim) hold both sums and the largest exponent, `w` is (dim,), the second
    piece has `tokens` tokens. It returns (3, dim).
    """,
    right=_joined,
    cases=_joined_cases,
    axes="3 dim",
    mistakes={
        but(fade=0): (
            "The first piece has not faded: every token of the second piece takes w from its "
            "exponent."
        ),
        but(fade=1): (
            "The first piece has faded by one token. It fades by all tokens of the second piece."
        ),
        (lambda first, second, w, tokens: _joined(first, second, w, tokens, fade_second=tokens)): (
            "The second piece has faded, too. Its sums are those after its own last token."
        ),
        (
            lambda first, second, w, tokens: _joined(
                first, second, w, tokens, fade=0, fade_second=tokens
            )
        ): ("The second piece has faded, and the first has not. The first is the older one."),
        but(scaled=False): (
            "The sums are added as they are. Each is divided by e to its own largest exponent: "
            "bring both to the same one first."
        ),
    },
    praise="Pieces can be summed apart from each other, and joined afterwards.",
)


# ---- a layer with a state


def _mix(
    x: Tensor, W_r: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, mu: Tensor, w: Tensor, u: Tensor,
    state: Tensor, *, shift: str = "right", gate: Callable[[Tensor], Tensor] = torch.sigmoid,
    gate_last: bool = False, bonus: bool = True, early: bool = False, fade: bool = True,
    write_bonus: bool = False, fade_newest: bool = False,
) -> Parts:  # fmt: skip
    """The layer, token by token; every keyword is a mistake."""
    last, values, weights, largest = state
    out = []
    for token in x:
        now, before = (last, token) if shift == "exchanged" else (token, last)
        before = token if shift == "none" else before
        r, k, v = (
            (m * now + (1 - m) * before) @ W for m, W in zip(mu, (W_r, W_k, W_v), strict=True)
        )
        one = torch.ones_like(v)
        past = (values, weights, largest - w if early else largest)
        read = _sum(past, (v, one, k + u if bonus else k))
        mixed = read[0] / read[1]
        out.append(gate(r) * (mixed @ W_o) if gate_last else (gate(r) * mixed) @ W_o)
        key = k + u if write_bonus else k
        if fade_newest:
            key = key - w
        faded = (values, weights, largest - w if fade else largest)
        values, weights, largest = _sum(faded, (v, one, key))
        if not shift.startswith("stale"):
            last = token
    first = last if shift == "stale, returned" else x[-1]
    return torch.stack(out), torch.stack((first, values, weights, largest))


def _sum(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    largest = torch.maximum(one[2], other[2])
    first, second = (one[2] - largest).exp(), (other[2] - largest).exp()
    return first * one[0] + second * other[0], first * one[1] + second * other[1], largest


_right: Callable[..., Parts] = _mix


def _old_token(*given: Tensor, shift: str = "right") -> Parts:
    y, state = _right(*given, shift=shift)
    return y, torch.cat((given[-1][:1], state[1:]))


def _without_largest(*given: Tensor) -> Parts:
    y, (token, values, weights, largest) = _right(*given)
    by = largest.exp()
    return y, torch.stack((token, by * values, by * weights, torch.zeros_like(largest)))


_STALE = (
    "The token shift takes the token in the state for every token of the piece. After each "
    "token, that token is the one before."
)


def _given(*, full: bool) -> Arguments:
    """Five tokens of width 3; the state after three others, or that of the beginning."""
    x, *matrices = random_tensors((8, 3), *[(3, 3)] * 4, seed=33)
    mu, w, u = random_tensors((3, 3), (3,), (3,), seed=34)
    parts = (*matrices, mu.sigmoid(), w.exp() / 4, u)
    state = torch.zeros(4, 3, dtype=torch.float64)
    state[3] = -torch.inf
    if full:
        state = _right(x[:3], *parts, state)[1]
    names = ("x", "W_r", "W_k", "W_v", "W_o", "mu", "w", "u", "state")
    return dict(zip(names, (x[3:], *parts, state), strict=True))


check_time_mixing = PartsExercise(
    """Is it RWKV's time mixing? `mix(x, W_r, W_k, W_v, W_o, mu, w, u, state)`.

    `x` is (t, dim), the matrices (dim, dim) are applied as `x @ W`, `mu` (3, dim) are the shifts of
    r, k and v, `w` and `u` (dim,) decay and bonus. `state` (4, dim) holds the last token, both sums
    divided by e to the largest exponent, and that exponent. It returns (y, the state afterwards).
    Called with t = 5, dim = 3, from the beginning and after three tokens.
    """,
    right=_mix,
    cases=lambda: [_given(full=False), _given(full=True)],
    axes={"y": "t dim", "state": "4 dim"},
    mistakes={
        but(shift="exchanged"): (
            "The token shift is the wrong way round: μ weighs the token, 1 − μ the one before it."
        ),
        but(shift="stale"): _STALE,
        but(shift="stale, returned"): _STALE,
        but(shift="none"): (
            "The token shift is missing: each token is mixed with the one before it, by `mu`."
        ),
        (lambda *given: _old_token(*given, shift="none")): (
            "The token shift is missing, and the state keeps the old token: each token is mixed "
            "with the one before it, by `mu`."
        ),
        but(gate=torch.ones_like): "The receptance is missing: σ(r) multiplies the weighted mean.",
        but(gate=torch.clone): "The receptance lacks the logistic function: it is σ(r), not r.",
        but(gate_last=True): "The receptance comes before the output matrix, not after it.",
        but(bonus=False): "The newest token has no bonus u in the output.",
        but(early=True): (
            "The sums fade before they are read. The token before the newest has not faded yet."
        ),
        but(write_bonus=True): (
            "The bonus u was written into the sums. It belongs to the output alone: the next token "
            "reads e^k of this one."
        ),
        but(fade=False): (
            "The sums do not fade: each new token takes w from the exponent of the old sums."
        ),
        but(fade_newest=True): (
            "The newest token has faded as well. Only what was in the sums before it fades."
        ),
        _old_token: (
            "The first row of the state is still the old token; it should be the last of x."
        ),
        _without_largest: (
            "The sums are right, but not divided by e to the largest exponent: with exponents "
            "above 88, float32 overflows."
        ),
    },
    praise="Four numbers per channel carry all of the past.",
    in_place=True,
)
