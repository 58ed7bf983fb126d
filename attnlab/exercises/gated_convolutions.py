"""Checks of lesson 37: the size of a state, a map, a recalling sum, and a layer of H3."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.core.convolution import short_convolution, toeplitz
from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn
from attnlab.exercises.parts import PartsExercise

# ---- the size of a state

DIM, HEADS, STATE, SHIFT = 64, 4, 16, 4
_D = DIM // HEADS

check_h3_state = NumberExercise(
    "Is it the numbers that H3 keeps, with dim = 64, 4 heads, N = 16 and a shift of 4 taps?",
    right=DIM * (STATE * _D + SHIFT - 1),
    mistakes={
        DIM * (STATE + SHIFT - 1): (
            "That is a state of N numbers for each channel. H3 keeps one for each of the d × d "
            "products of a head."
        ),
        DIM * STATE * _D: "The shift has a state, too: the last p − 1 keys.",
        DIM * (STATE * _D + SHIFT): (
            "The shift needs the last p − 1 keys; the newest key comes with the token."
        ),
        DIM * (2 * STATE * _D + SHIFT - 1): (
            "N counts numbers, not complex modes: N / 2 modes of two numbers each are stored."
        ),
        STATE * _D**2 + _D * (SHIFT - 1): "That is one head; there are 4.",
        STATE * DIM**2 + DIM * (SHIFT - 1): (
            "Products are taken inside a head: d × d for each of the heads, not dim × dim."
        ),
    },
)


# ---- the map of one channel


def _map(
    gates: Tensor, filters: Tensor, *,
    matrices: Callable[[Tensor], Tensor] = toeplitz, gate_first: bool = False,
    reversed_gates: bool = False, turned: bool = False, gated: bool = True,
) -> Tensor:  # fmt: skip
    """The product of all D S; every keyword is a mistake."""
    n = filters.shape[1]
    out = torch.eye(n, dtype=filters.dtype)
    for gate, S in zip(gates.flip(0) if reversed_gates else gates, matrices(filters), strict=True):
        D = torch.diag(gate if gated else torch.ones_like(gate))
        factor = S @ D if gate_first else D @ S
        out = out @ factor if turned else factor @ out
    return out


def _circular(filters: Tensor) -> Tensor:
    i = torch.arange(filters.shape[1])
    return filters[:, (i[:, None] - i) % filters.shape[1]]


check_hyena_map = Exercise(
    """Is it the map of one channel of Hyena? `hyena_map(gates, filters)`.

    `gates` and `filters` are (N, n), the first row is applied first. It returns (n, n), whose entry
    i, j is the weight of value j in output i. Called with N = 3 and n = 5.
    """,
    right=_map,
    cases=drawn(37, gates=(3, 5), filters=(3, 5)),
    axes="n n",
    mistakes={
        but(turned=True): (
            "The matrices stand in reading order. What is applied first, D_1 S_1, "
            "stands on the right."
        ),
        but(reversed_gates=True): (
            "The gates are taken in reversed order: the first gate follows the first filter."
        ),
        but(gate_first=True): (
            "Each gate stands before its filter. Hyena convolves first and multiplies the result."
        ),
        but(matrices=_circular): "The filters go round: the last tokens reach the first. Where j "
        "is later than i, the entry is zero.",
        but(matrices=lambda filters: toeplitz(filters).mT): (
            "The filters look ahead: the entry of output i and input j is h at i − j, not at j − i."
        ),
        but(gated=False): "The gates are missing.",
        (lambda gates, filters: _map(gates[:1], filters[:1])): (
            "That is the first filter and gate only; all of them are multiplied."
        ),
    },
    praise="The gates are the only part of this map that depends on the tokens.",
)


# ---- a sum that recalls


def _one_later(k: Tensor) -> Tensor:
    return torch.cat((torch.zeros_like(k[:1]), k[:-1]))


def _associate(
    q: Tensor, k: Tensor, v: Tensor, *,
    shift: Callable[[Tensor], Tensor] = _one_later, latest: int | None = 0, softmax: bool = False,
) -> Tensor:  # fmt: skip
    """Σ (q_i · k_{j-1}) v_j over j ≤ i; every keyword is a mistake."""
    scores = q @ shift(k).T
    if softmax:
        blocked = torch.ones_like(scores).triu(1).bool()
        return scores.masked_fill(blocked, -torch.inf).softmax(-1) @ v
    return (scores if latest is None else scores.tril(latest)) @ v


check_associate = Exercise(
    """Does the sum recall what followed a key? `associate(q, k, v)`.

    `q` and `k` are (n, d), `v` (n, e). Output i is the sum over j ≤ i of (q_i · k_{j−1}) v_j, with
    zeros before the first key. Called with n = 7, d = 3, e = 5.
    """,
    right=_associate,
    cases=drawn(38, q=(7, 3), k=(7, 3), v=(7, 5)),
    axes="n e",
    mistakes={
        but(shift=torch.clone): "No shift: each key meets its own value, so that a query finds the "
        "key itself, and not what stood after it.",
        (lambda q, k, v: _associate(q, k, _one_later(v), shift=torch.clone)): (
            "The values are shifted, and the keys are not. Each value meets the key before it, so "
            "a value stays at its place."
        ),
        but(shift=lambda k: torch.cat((k[1:], torch.zeros_like(k[:1])))): (
            "The shift goes the wrong way: it brings each value together with the key after it."
        ),
        but(shift=lambda k: k.roll(1, 0)): (
            "The shift goes round: the first value meets the last key, which comes from the "
            "future. Before the first token there is zero."
        ),
        but(latest=None): "The sum runs over all tokens, later ones included.",
        but(latest=-1): "The newest token is left out: the sum runs up to j = i.",
        but(softmax=True): "There is no softmax here: the weight is the dot product.",
    },
    praise="One shift and two products: a layer without softmax that recalls.",
)


# ---- a layer of H3 that reads on


def _layer(
    x: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor, taps: Tensor, decay: Tensor,
    weight: Tensor, D: Tensor, products: Tensor, keys: Tensor, *,
    turned: bool = False, shift_values: bool = False, forgotten: bool = False,
    transposed: bool = False, late: bool = False, faded: bool = False, fades: bool = True,
    fades_late: bool = False, weighed: bool = True, skip: str = "product", output: bool = True,
) -> Parts:  # fmt: skip
    """One head, token by token; every keyword is a mistake."""
    q, k, v = x @ Wq, x @ Wk, x @ Wv
    before = torch.zeros_like(keys) if forgotten else keys
    taps = taps.flip(1) if turned else taps
    shifted = short_convolution((v if shift_values else k)[None], taps, before[None])[0]
    met, values = (k, shifted) if shift_values else (shifted, v)
    fade = decay[:, None, None] if fades else torch.ones_like(decay)[:, None, None]
    share = weight if weighed else torch.ones_like(weight)
    out = []
    for query, key, value in zip(q, met, values, strict=True):
        new = torch.outer(value, key) if transposed else torch.outer(key, value)
        old = products
        products = fade * (products + new) if faded else fade * products + new
        if fades_late:
            products = old + new
        read = query @ (share[:, None, None] * (fade * old if late else products)).sum(0)
        extra = {"product": (query @ key) * value, "value": value, "none": 0 * value}[skip]
        out.append(read + D * extra)
        products = fade * products if fades_late else products
    y = torch.stack(out)
    return y @ Wo if output else y, products, torch.cat((keys, k))[len(k) :]


_right: Callable[..., Parts] = _layer


def _shifted_kept(*given: Tensor) -> Parts:
    y, products, _ = _right(*given)
    x, Wk, taps, old = given[0], given[2], given[5], given[10]
    shifted = short_convolution((x @ Wk)[None], taps, old[None])[0]
    return y, products, torch.cat((old, shifted))[len(shifted) :]


def _given(*, full: bool) -> Arguments:
    """Five tokens of width 3, with the state of the beginning, or that after four others."""
    x, *matrices = random_tensors((9, 3), *[(3, 3)] * 4, seed=39)
    taps, decay, weight, D = random_tensors((3, 3), (2,), (2,), (), seed=40)
    parts = (*matrices, taps, decay.sigmoid(), weight, D)
    state: Parts = (torch.zeros(2, 3, 3, dtype=x.dtype), torch.zeros(2, 3, dtype=x.dtype))
    if full:
        state = _right(x[:4], *parts, *state)[1:]
    names = ("x", "Wq", "Wk", "Wv", "Wo", "taps", "decay", "weight", "D", "products", "keys")
    return dict(zip(names, (x[4:], *parts, *state), strict=True))


check_h3_layer = PartsExercise(
    """Is it a layer of H3? `layer(x, Wq, Wk, Wv, Wo, taps, decay, weight, D, products, keys)`.

    One head of width d: `x` is (t, d), the matrices (d, d) are applied as `x @ W`. `taps` (d, p)
    are those of the shift, the first for the token itself. `decay` and `weight` (r,) make the
    kernel, the sum of weight · decay^t; `D` is the skip. `products` (r, d, d) and `keys` (p − 1, d,
    the oldest first) are the state. It returns (y, products, keys). Called with t = 5, from the
    beginning and after four tokens.
    """,
    right=_layer,
    cases=lambda: [_given(full=False), _given(full=True)],
    axes={"y": "t d", "products": "r d d", "keys": "p-1 d"},
    mistakes={
        but(turned=True): "The taps are turned around: the first belongs to the token itself, the "
        "second to the one before it.",
        but(shift_values=True): (
            "The values went through the shift. It is the keys that are shifted."
        ),
        but(forgotten=True): "The piece begins as if nothing stood before it: the shift needs the "
        "last p − 1 keys of the state.",
        but(transposed=True): "The product is the wrong way round: rows belong to the key, columns "
        "to the value, so that the query meets the key.",
        but(late=True): (
            "The query reads before the newest product is added. The sum runs up to "
            "the token itself."
        ),
        but(faded=True): (
            "The newest product has faded as well. Only what was in the state before it fades."
        ),
        but(fades_late=True): "The state fades after it is read, so that what is read has faded "
        "once too little. Fade the state, add the newest product, then read.",
        but(fades=False): (
            "The products do not fade: each mode is multiplied by its decay at every token."
        ),
        but(weighed=False): "The modes are added as they are; each has its weight in the output.",
        but(skip="none"): (
            "The skip D is missing: the product of the newest token is read a second time, times D."
        ),
        but(skip="value"): "The skip D belongs to what the state space reads, the product of key "
        "and value, and not to the value alone.",
        but(output=False): "The output matrix is missing.",
        _shifted_kept: (
            "The state holds keys after the shift. The next shift needs them as they "
            "were before it."
        ),
    },
    praise="A shift, two products and a fading state: that is all of H3.",
    in_place=True,
)
