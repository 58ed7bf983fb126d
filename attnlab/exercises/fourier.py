"""Checks of lesson 35: a count, the mixing by waves, what it keeps, a whole block."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, Verdict, returns_verdict

# ---- a count of FLOPs

_FLOPS_MISTAKEN: dict[float, str] = {
    2.5 * 1024 * 64 * math.log2(1024): (
        "The transform has n · dim points, so its logarithm is that of n · dim."
    ),
    2.5 * 1024 * 64 * math.log(1024 * 64): "It is the logarithm to base 2.",
    4 * 1024 * 64 * (1024 + 64): "That is the cost of the matrices of cosines and sines.",
    5 * 1024 * 64 * 16: "The numbers are real: that saves one half.",
}


def check_transform_flops(flops: object) -> Verdict:
    """Is it 2.5 N log₂ N for N = n · dim with n = 1,024 and dim = 64?"""
    expected = 2.5 * 1024 * 64 * 16
    return check_number(flops, expected, tolerance=0.01, unit="FLOPs", mistakes=_FLOPS_MISTAKEN)


# ---- the mixing


def _waves(N: int, like: Tensor) -> tuple[Tensor, Tensor]:
    k = torch.arange(N, dtype=like.dtype)
    angle = 2 * math.pi * k[:, None] * k / N
    return angle.cos(), angle.sin()


def _mixed(
    x: Tensor, *, sign: int = -1, early: bool = False, tokens: bool = True, width: bool = True,
    normed: bool = False,
) -> Tensor:  # fmt: skip
    """Cosines and sines of both axes; every keyword is a mistake."""
    (C, S), (c, s) = (_waves(N, x) for N in x.shape)
    if not tokens:
        return x @ c
    if not width:
        return C @ x
    out = C @ x @ c + (0 if early else sign * (S @ x @ s))
    return out / x.numel() ** 0.5 if normed else out


_MIXED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The product of the sines is subtracted: i² is −1.",
        partial(_mixed, sign=1),
    ),
    (
        "The real part is taken after each of the two transforms. Take it once, at the end: the "
        "product of two imaginary parts is real.",
        partial(_mixed, early=True),
    ),
    (
        "Only the width of each token is transformed: the tokens are not mixed.",
        partial(_mixed, tokens=False),
    ),
    ("Only the tokens are transformed, the width is not.", partial(_mixed, width=False)),
    (
        "The transform is not normalised: it is not divided by √(n · dim).",
        partial(_mixed, normed=True),
    ),
)


@returns_verdict
def check_fourier_mixing(function: Function) -> str:
    """Is it Re(F_n x F_dim)? `mix(x)` with `x` (n, dim); it returns (n, dim)."""
    (x,) = random_tensors((7, 5), seed=35)
    require(function, {"x": x}, _mixed, shape="n dim", known_mistakes=_MIXED_MISTAKEN)
    check_arguments_and_dtype(function, {"x": x})
    return "Every output is a sum over all numbers of all tokens, with fixed weights."


# ---- what the mixing keeps


def _turned(x: Tensor) -> Tensor:
    """x at the places −i modulo n and −j modulo dim."""
    return x.flip(0, 1).roll((1, 1), (0, 1))


_KEPT_MISTAKEN: tuple[KnownMistake, ...] = (
    ("x itself does not come back: a part of it is lost.", lambda x: x),
    (
        "The other half: this part is what the real part takes away.",
        lambda x: (x - _turned(x)) / 2,
    ),
    (
        "The indices are −i modulo n: 0 stays where it is, and only the others are exchanged.",
        lambda x: (x + x.flip(0, 1)) / 2,
    ),
    ("Both axes are turned, not the tokens alone.", lambda x: (x + x.flip(0).roll(1, 0)) / 2),
    ("It is the mean of the two: divide by 2.", lambda x: x + _turned(x)),
)


@returns_verdict
def check_kept(function: Function) -> str:
    """Is it the part of x that mixing twice gives back? `kept(x)` with `x` (n, dim)."""
    (x,) = random_tensors((7, 5), seed=36)
    require(
        function,
        {"x": x},
        lambda x: (x + _turned(x)) / 2,
        shape="n dim",
        known_mistakes=_KEPT_MISTAKEN,
    )
    check_arguments_and_dtype(function, {"x": x})
    return "The residual connection carries the other half around the mixing."


# ---- a block


def _block(
    x: Tensor, W1: Tensor, W2: Tensor, *, residual: bool = True, norms: bool = True,
    before: bool = False, relu: bool = False, one: bool = False,
) -> Tensor:  # fmt: skip
    """FNet's block, each norm after its sum; every keyword is a mistake."""

    def norm(y: Tensor) -> Tensor:
        return F.layer_norm(y, y.shape[-1:]) if norms else y

    def feed(y: Tensor) -> Tensor:
        return (F.relu(y @ W1) if relu else F.gelu(y @ W1)) @ W2

    if before:
        y = x + _mixed(norm(x))
        return y + feed(norm(y))
    y = norm((x if residual else 0) + _mixed(x))
    return (y if one else norm(y + feed(y))) if residual else norm(feed(y))


_BLOCK_MISTAKEN: tuple[KnownMistake, ...] = (
    ("The residual connections are missing.", partial(_block, residual=False)),
    ("The layer normalisations are missing.", partial(_block, norms=False)),
    (
        "The norms stand before the mixing and the feed-forward network. In FNet they come after "
        "each sum.",
        partial(_block, before=True),
    ),
    ("The nonlinear function is GELU, not ReLU.", partial(_block, relu=True)),
    ("The feed-forward network is missing.", partial(_block, one=True)),
)


@returns_verdict
def check_fnet_block(function: Function) -> str:
    """Is it FNet's encoder block? `block(x, W1, W2)`: `x` (n, dim), `W1` (dim, f), `W2` (f, dim).

    Layer normalisation without gain and bias, after each of the two sums.
    """
    x, W1, W2 = random_tensors((7, 5), (5, 11), (11, 5), seed=37)
    given = {"x": x, "W1": W1, "W2": W2}
    require(function, given, _block, shape="n dim", known_mistakes=_BLOCK_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "All that is learned stands in the two matrices of each position."
