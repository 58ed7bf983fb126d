"""Checks of lesson 27: pairs in a matrix, an erasing write, parity, a swap, a gated delta rule."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- pairs in a matrix

WIDTH, VALUES = 16, 64

check_exact_pairs = NumberExercise(
    "Is it the number of pairs that a state of 16 × 64 numbers gives back exactly?",
    right=WIDTH,
    tolerance=0.01,
    unit="pairs",
    mistakes={
        VALUES: "That is the width of the values. What is read depends on the products of keys.",
        WIDTH * VALUES: "That is how many numbers the state has. One pair takes a row of them.",
        WIDTH + VALUES: "A pair has so many numbers; the state does not store the pairs as such.",
        2 * WIDTH: "Of more than 16 keys in 16 dimensions some are not orthogonal to the others.",
    },
)


# ---- a write that erases


def _overwrite(
    S: Tensor, k: Tensor, v: Tensor, b: float, *,
    erase: float | None = None, unit: bool = True, all_of_it: bool = False, write: float = 1,
) -> Tensor:  # fmt: skip
    """One step of the delta rule; every keyword is a mistake."""
    k = F.normalize(k, dim=0) if unit else k
    kept = (1 - b) * S if all_of_it else S - (b if erase is None else erase) * torch.outer(k, k @ S)
    return kept + b * write * torch.outer(k, v)


check_overwrite = Exercise(
    """Is the old value of the key erased, and the new one written? `overwrite(S, k, v, b)`.

    `S` (d, e) is the state, `k` (d,) a key of any length, `v` (e,) its value, `b` the step. It
    returns the new state (d, e).
    """,
    right=_overwrite,
    cases=drawn(27, S=(5, 3), k=(5,), v=(3,), b=0.7),
    axes="d e",
    mistakes={
        but(erase=0): "Nothing is erased: that is linear attention, which adds.",
        but(erase=1): "The old value is erased whole. The step b multiplies the erasure as well.",
        but(unit=False): "Divide the key by its length first.",
        but(all_of_it=True): "The whole state fades by 1 − b. Erase only what lies along the key.",
        (lambda S, k, v, b: _overwrite(S, k, v / b, b)): (
            "The new value is written whole. The step b multiplies it as well."
        ),
        (lambda S, k, v, b: _overwrite(S, k, -v, b)): "The new value has the wrong sign.",
        (lambda S, k, v, b: _overwrite(S, k, v, -b)): "The difference has the wrong sign.",
    },
    praise="It is a step of gradient descent of size b on half of the squared error |k S − v|².",
)


# ---- parity


def _signs(
    bits: Tensor, *, largest: float = 2, start: float = 1, early: bool = False, add: bool = False
) -> Tensor:
    """The state after each bit; every keyword is a mistake."""
    S, out = torch.tensor(start, dtype=torch.float64), []
    for bit in bits:
        old, S = S, (S - 2 * bit if add else (1 - largest * bit) * S)
        out.append(old if early else S)
    return torch.stack(out)


def _bits() -> Iterator[Arguments]:
    for seed, size in ((27, 11), (28, 7)):
        (drawn_numbers,) = random_tensors((size,), seed=seed)
        yield {"bits": (drawn_numbers > 0).to(torch.float64)}


check_signs = Exercise(
    """Does the sign of the state tell the parity? `signs(bits)` with `bits` (n,) of 0 and 1.

    It returns the state (n,) after each bit: 1 after an even number of ones, −1 after an odd one.
    """,
    right=_signs,
    cases=_bits,
    axes="n",
    mistakes={
        but(largest=1): "With b = 1 the state is 0 after the first one, and stays 0. Take b = 2.",
        but(start=-1): "The state begins at 1: no ones is an even number.",
        but(early=True): "That is the state before each bit.",
        but(add=True): "The state counts down. Multiply it by 1 − b.",
        (lambda bits: bits.cumsum(0) % 2): "That is the parity, 0 or 1. The state is 1 or −1.",
        (lambda bits: 1 - 2 * bits): "That is the last bit alone. The state remembers the others.",
    },
    praise="One number is enough, if the factor of the state may be −1.",
)


# ---- a swap


def _swap_key(i: int, j: int, d: int, *, sign: float = -1, size: float = 0.5**0.5) -> Tensor:
    """The key; every keyword is a mistake."""
    k = torch.zeros(d, dtype=torch.float64)
    k[i], k[j] = size, sign * size
    return k


def _swap_cases() -> Iterator[Arguments]:
    S, other = random_tensors((5, 3), (4, 2), seed=27)
    yield {"S": S, "i": 1, "j": 3}
    yield {"S": other, "i": 2, "j": 0}


def _swapped(S: Tensor, i: int, j: int, *, b: float = 2, **key: float) -> Tensor:
    k = _swap_key(i, j, len(S), **key).to(S)
    return S - b * torch.outer(k, k @ S)


check_swap = Exercise(
    """Are two rows of the state exchanged by one step? `swap(S, i, j)` with `S` (d, e).

    It returns (I − b k kᵀ) S for a key k of length 1 and a step b between 0 and 2.
    """,
    right=_swapped,
    cases=_swap_cases,
    axes="d e",
    mistakes={
        but(b=1): "With b = 1 the difference of the rows is erased: both become their mean.",
        but(sign=1): "The rows are exchanged and change their signs: the key is their difference.",
        but(size=1): "The key has the length √2: b |k|² is 4.",
        (lambda S, i, j: S): "Nothing is exchanged.",
    },
    praise="An exchange is a reflection. A cycle of three objects takes two of them.",
)


# ---- a gated delta rule


def _gated_delta(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, *,
    erase: bool = True, of_old: bool = False, late: bool = False, early: bool = False,
    fade_new: bool = False,
) -> Tensor:  # fmt: skip
    """Token by token; every keyword is a mistake."""
    S, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for qi, ki, vi, ai, bi in zip(q, k, v, a, b, strict=True):
        faded = S if late else ai * S
        found = ki @ (S if of_old else faded) if erase else torch.zeros_like(vi)
        new = faded + bi * torch.outer(ki, vi - found)
        new = ai * new if late or fade_new else new
        out.append(qi @ (S if early else new))
        S = new
    return torch.stack(out)


def _gated_cases() -> Iterator[Arguments]:
    q, k, v, a, b = random_tensors((7, 5), (7, 5), (7, 3), (7,), (7,), seed=27)
    yield {"q": q, "k": F.normalize(k, dim=-1), "v": v, "a": a.sigmoid(), "b": b.sigmoid()}


check_gated_delta = Exercise(
    """Is each token faded, erased, written and read? `gated_delta(q, k, v, a, b)`.

    `q` and `k` (n, d), keys of length 1, `v` (n, e); `a` (n,) are the decays, `b` (n,) the steps.
    It returns (n, e).
    """,
    right=_gated_delta,
    cases=_gated_cases,
    axes="n e",
    mistakes={
        but(erase=False): "Nothing is erased: that is a sum that fades, as in Mamba-2.",
        but(of_old=True): "What is erased is read from the old state. Let the state fade first.",
        but(late=True): "The new value fades at once. The decay multiplies the old state alone.",
        but(fade_new=True): "The state fades twice, with the new value in it.",
        but(early=True): "Each query reads the state before its own token. Read last.",
        (lambda q, k, v, a, b: _gated_delta(q, k, v, torch.ones_like(a), b)): (
            "Nothing fades: that is the delta rule without a gate."
        ),
        (lambda q, k, v, a, b: _gated_delta(q, k, v, a, torch.ones_like(b))): (
            "The step b is missing: it multiplies the difference that is written."
        ),
    },
    praise="With a = 1 it is DeltaNet, with b = 0 nothing but fading.",
)
