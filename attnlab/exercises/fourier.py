"""Checks of lesson 35: a count, padding left out, a mixing without loss, a block, by halves."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn
from attnlab.exercises.verdict import Function, Mistake
from attnlab.exercises.work import work_of

# ---- a count of FLOPs

check_transform_flops = NumberExercise(
    "Is it 2.5 N log₂ N for N = n · dim with n = 1,024 and dim = 64?",
    right=2.5 * 1024 * 64 * math.log2(1024 * 64),
    tolerance=0.01,
    unit="FLOPs",
    mistakes={
        2.5 * 1024 * 64 * math.log2(1024): (
            "The transform has n · dim points, so its logarithm is that of n · dim."
        ),
        2.5 * 1024 * 64 * math.log(1024 * 64): "It is the logarithm to base 2.",
        4 * 1024 * 64 * (1024 + 64): "That is the cost of the matrices of cosines and sines.",
        5 * 1024 * 64 * 16: "The numbers are real: that saves one half.",
    },
)


# ---- the mixing of a padded batch


def _waves(N: int, like: Tensor) -> tuple[Tensor, Tensor]:
    k = torch.arange(N, dtype=like.dtype)
    angle = 2 * math.pi * k[:, None] * k / N
    return angle.cos(), angle.sin()


def _mixed(x: Tensor) -> Tensor:
    (C, S), (c, s) = (_waves(N, x) for N in x.shape)
    return C @ x @ c - S @ x @ s


def _padded(x: Tensor, real: Tensor, *, padding: str = "left out", early: bool = False) -> Tensor:
    """Each sequence mixed as if it stood alone; every keyword is a mistake."""
    out = torch.zeros_like(x)
    for row, (tokens, kept) in enumerate(zip(x, real, strict=True)):
        if padding == "left out":
            mixed = _mixed(tokens[kept])
            out[row, kept] = (
                torch.fft.fft(torch.fft.fft(tokens[kept]).real, dim=0).real if (early) else mixed
            )
        else:
            y = _mixed(tokens * kept[:, None] if padding == "zeros" else tokens)
            out[row] = y if padding == "as it is" else y * kept[:, None]
    return out


def _padded_mixing_cases() -> Iterator[Arguments]:
    (x,) = random_tensors((3, 7, 5), seed=35)
    yield {"x": x, "real": torch.arange(7) < torch.tensor([[4], [7], [5]])}


check_padded_mixing = Exercise(
    """Is each sequence of a padded batch mixed alone? `mix(x, real)`.

    `x` (b, n, dim), `real` (b, n) True at the first tokens of a sequence; zeros at the padding.
    """,
    right=_padded,
    cases=_padded_mixing_cases,
    axes="b n dim",
    mistakes={
        but(padding="zeros"): "Zeros are transformed with the tokens: the waves of n places are "
        "not those of the real tokens alone. Transform `x[i, real[i]]`.",
        but(padding="as it is"): "The padding is mixed with the tokens.",
        but(padding="hidden"): "The padding is mixed with the tokens, and hidden afterwards.",
        but(early=True): "The real part is taken after each of the two transforms. Take it once, "
        "at the end: the product of two imaginary parts is real.",
        (lambda x, real: torch.fft.fftn(x).real): (
            "The sequences of the batch are mixed with each other: transform the last two axes."
        ),
    },
    praise="A sequence has the same outputs in every batch.",
)


# ---- a mixing that loses nothing


def _hartley(
    x: Tensor, *, sign: int = 1, tokens: bool = True, width: bool = True, normed: bool = False
) -> Tensor:
    """(C_n + S_n) x (C_dim + S_dim); every keyword is a mistake."""
    rows, columns = (C + sign * S for C, S in (_waves(N, x) for N in x.shape))
    out = (rows @ x if tokens else x) @ (columns if width else torch.eye(len(columns)).to(x))
    return out / x.numel() ** 0.5 if normed else out


check_hartley = Exercise(
    "Is it H_n x H_dim with the numbers cos θ + sin θ? `hartley(x)` with `x` (n, dim).",
    right=_hartley,
    cases=drawn(36, x=(7, 5)),
    axes="n dim",
    mistakes={
        but(sign=-1): "The sines are subtracted: it is cos θ + sin θ.",
        but(tokens=False): "Only the width of each token is transformed.",
        but(width=False): "Only the tokens are transformed, the width is not.",
        but(normed=True): "It is not divided by √(n · dim).",
        _mixed: "That is FNet's mixing, which loses a half of its input.",
        (lambda x: torch.fft.fft2(x).real - torch.fft.fft2(x).imag): (
            "That is real less imaginary part of the transform of both axes at once, the waves of "
            "the sum of two angles. Transform one axis after the other."
        ),
    },
    praise="Applied twice it gives n · dim times x: nothing is lost.",
)


# ---- a block


def _block(
    x: Tensor, W1: Tensor, W2: Tensor, *, residual: bool = True, norms: bool = True,
    before: bool = False, relu: bool = False, one: bool = False, sums: tuple[int, int] = (1, 1),
    last: bool = True,
) -> Tensor:  # fmt: skip
    """FNet's block, each norm after its sum; every keyword is a mistake."""

    def norm(y: Tensor) -> Tensor:
        return F.layer_norm(y, y.shape[-1:]) if norms else y

    def feed(y: Tensor) -> Tensor:
        return (F.relu(y @ W1) if relu else F.gelu(y @ W1)) @ W2

    if before:
        y = x + _mixed(norm(x))
        return y + feed(norm(y))
    first, second = sums if residual else (0, 0)
    y = norm(first * x + _mixed(x))
    z = y if one else second * y + feed(y)
    return norm(z) if last and not one else z


check_fnet_block = Exercise(
    """Is it FNet's encoder block? `block(x, W1, W2)`: `x` (n, dim), `W1` (dim, f), `W2` (f, dim).

    Layer normalisation without gain and bias, after each of the two sums.
    """,
    right=_block,
    cases=drawn(37, x=(7, 5), W1=(5, 11), W2=(11, 5)),
    axes="n dim",
    mistakes={
        but(residual=False): "The residual connections are missing.",
        but(sums=(0, 1)): "The first sum is missing: the input is added to its mixing.",
        but(sums=(1, 0)): (
            "The second sum is missing: its input is added to what the feed-forward network makes."
        ),
        but(norms=False): "The layer normalisations are missing.",
        but(last=False): "The last layer normalisation is missing.",
        but(before=True): "The norms stand before the mixing and the feed-forward network. In FNet "
        "they come after each sum.",
        but(relu=True): "The nonlinear function is GELU, not ReLU.",
        but(one=True): "The feed-forward network is missing.",
    },
    praise="All that is learned stands in the two matrices of each position.",
)


# ---- the fast transform


def _fast(x: Tensor, *, sign: int = -1, turned: bool = True, mixed: bool = False) -> Tensor:
    """Real and imaginary part of F_n x, by halves; every keyword is a mistake."""

    def transform(y: Tensor) -> Tensor:
        if len(y) == 1:
            return y
        even, odd = transform(y[::2]), transform(y[1::2])
        angle = sign * 2 * math.pi * torch.arange(len(odd)).to(x) / len(y)
        odd = torch.polar(torch.ones_like(angle), angle)[:, None] * odd if turned else odd
        halves = (even + odd, even - odd)
        return torch.stack(halves, 1).flatten(0, 1) if mixed else torch.cat(halves)

    y = transform(torch.complex(x, torch.zeros_like(x)))
    return torch.stack([y.real, y.imag])


def _fast_transform_then(function: Function, given: Arguments) -> str:
    made, n = work_of(function, given), len(given["x"])
    if any("_fft" in name for name in made.names):
        raise Mistake("`torch.fft` is what you build here: do without it.")
    if made.elements > n**2:
        raise Mistake(
            f"The numbers are right, but with n = {n} it makes {made.elements:,} numbers, and n² "
            f"is {n**2:,}. Transform the two halves, each with a call of the function itself: that "
            "takes about n log₂ n."
        )
    return f"It makes {made.elements:,} numbers, and the matrix of waves alone has {n**2:,}."


check_fast_transform = Exercise(
    """Is it F_n x in about n log n steps? `fast(x)`: `x` (n, dim), n a power of 2; (2, n, dim).

    Called with n = 8, dim = 3, and with n = 512, dim = 1, where all tensors together may have no
    more than n² elements.
    """,
    right=_fast,
    cases=drawn([8, 512], x=[(8, 3), (512, 1)]),
    axes="2 n dim",
    mistakes={
        but(sign=1): "The sign of the angle is wrong: it is e^(−2πi k / n).",
        but(turned=False): (
            "The odd half is not turned: its k-th number is multiplied by e^(−2πi k / n)."
        ),
        but(mixed=True): (
            "The two halves of the result are mixed up: first all sums, then all differences."
        ),
        (lambda x: _fast(x) / len(x)): "It is not divided by n.",
        (lambda x: _fast(x) / len(x) ** 0.5): "It is not divided by √n.",
    },
    praise="",
    then=_fast_transform_then,
)
