"""Checks of lesson 81: the bytes of integers, rounding to levels, a product of integers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- bytes

ROWS, COLUMNS = 512, 2048

check_quantized_bytes = NumberExercise(
    """Is it the bytes of a matrix of 512 rows and 2,048 columns, as integers of 4 bits, with a
    scale of 4 bytes and a zero point of 1 byte for each row?""",
    right=ROWS * COLUMNS // 2 + 5 * ROWS,
    unit="bytes",
    mistakes={
        ROWS * COLUMNS // 2: "The scales and zero points of the rows are missing.",
        ROWS * COLUMNS // 2 + 5: "Each row has a scale and a zero point of its own.",
        ROWS * COLUMNS // 2 + 5 * COLUMNS: "The rows have scales, not the columns.",
        ROWS * COLUMNS + 5 * ROWS: "Two integers of 4 bits stand in one byte.",
    },
)

# ---- rounding to levels


def _rounded(
    x: Tensor, bits: int,
    *, half: bool = False, whole: bool = True, zero: bool = True, even: bool = False,
    integers: bool = False,
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    low, high = x.min(), x.max()
    if zero:
        low, high = low.clamp(max=0), high.clamp(min=0)
    if even:
        high = x.abs().max()
        low = -high
    s = (high - low) / (2 ** (bits - 1) if half else 2**bits - 1)
    z = -low / s
    z = z.round() if whole else z
    q = ((x / s).round() + z if whole else (x / s + z).round()).clamp(0, 2**bits - 1)
    return q if integers else s * (q - z)


def _rounded_cases() -> Iterator[Arguments]:
    for n, bits, shift in ((7, 3, 0.2), (5, 2, -0.4), (6, 4, 9.0)):
        (x,) = random_tensors((n,), seed=n)
        yield {"x": x + shift, "bits": bits}


check_rounded = Exercise(
    """Are they the numbers of the nearest levels? `rounded(x, bits)` with `x` (n,).

    The range from least to greatest number is widened to hold 0 and has 2^bits levels at equal
    distance, of which one is 0; it returns x̂ = s (q - z).
    """,
    right=_rounded,
    cases=_rounded_cases,
    axes="n",
    mistakes={
        but(half=True): "That step is for 2^(bits - 1) intervals, which uses about half of the "
        "levels. There are 2^bits levels, and 2^bits - 1 intervals between them.",
        but(whole=False): "The offset is not rounded, so that 0 has no level.",
        but(
            zero=False
        ): "The range does not hold 0 where all numbers are above it: widen it first.",
        but(even=True): "That range is symmetric. Here it goes from the least to the greatest.",
        but(integers=True): "Those are the integers q. The numbers are s (q - z).",
    },
    praise="Padding and what a ReLU cuts are 0 also after the rounding.",
)

# ---- a product of integers


def _product(
    X: Tensor, s_x: float, z_x: int, W: Tensor, s_w: Tensor, z_w: Tensor,
    *, wraps: bool = False, plain: bool = False, last: bool = True, turned: bool = False,
) -> Tensor:  # fmt: skip
    """Every keyword from ``wraps`` on is a mistake."""
    A, B, K = X.double(), W.double(), X.shape[1]
    sums = (X @ W.T).double() if wraps else A @ B.T
    of_inputs, of_rows = A.sum(1, keepdim=True), B.sum(1)[None]
    if not plain:
        first, second = (z_w.double(), z_x) if not turned else (z_x, z_w.double())
        sums = sums - first * of_inputs - second * of_rows
        sums = sums + (K * z_x * z_w.double() if last else 0)
    return s_x * s_w * sums


def _product_cases() -> Iterator[Arguments]:
    for n, rows, K in ((3, 5, 7), (2, 4, 11)):
        x, w, s, z = random_tensors((n, K), (rows, K), (rows,), (rows,), seed=n)
        X, W, z_w = ((40 * each).round().clamp(-128, 127).to(torch.int8) for each in (x, w, z))
        yield {"X": X, "s_x": 0.02, "z_x": -9 + n, "W": W, "s_w": 0.01 + s.abs() / 50, "z_w": z_w}


check_integer_product = Exercise(
    """Is it the product of the numbers, out of sums of integers?
    `product(X, s_x, z_x, W, s_w, z_w)`.

    `X` (n, K) and `W` (rows, K) of int8; scale `s_x` and zero point `z_x` of X are numbers, those
    of W are one for each row, (rows,). It returns (n, rows), where the numbers of X are
    s_x (X - z_x).
    """,
    right=_product,
    cases=_product_cases,
    axes="n rows",
    mistakes={
        but(wraps=True): "`X @ W.T` of two int8 tensors returns int8 and wraps at 128: make them "
        "wider first.",
        but(plain=True): "The zero points are missing: an integer q stands for s (q - z).",
        but(last=False): "K z_x z_w is missing: each of the K products has z_x z_w once.",
        but(turned=True): "The zero points are exchanged: z_w goes with the sums of the rows of X, "
        "and z_x with those of the rows of W.",
    },
    praise="The sums of W do not depend on the input: they are computed once.",
)
