"""The weights behind an output, recovered and explained.

Attention is linear in the values, so one-hot values give its weights, however the code computes
them. The logarithms of the weights give the scores up to a constant, and so their scale.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from attnlab.exercises.attempt import Arguments, as_float64, number, run, same
from attnlab.exercises.verdict import Function

EXTRA_COLUMNS = 6  # columns of zeros after the one-hot values, so that e differs from m


def implied_weights(function: Function, given: Arguments, values: str = "v") -> Tensor | None:
    """The weights (…, n, m) that the function gives to each key; None where they cannot be derived.

    The second-to-last axis of the argument called `values` is that of the keys.
    """
    v = given[values]
    m = v.shape[-2]
    one_hot = torch.eye(m, m + EXTRA_COLUMNS, dtype=v.dtype).expand(
        *v.shape[:-1], m + EXTRA_COLUMNS
    )
    out = as_float64(run(function, {**given, values: one_hot}).value)
    if out is None or out.shape[-1] != m + EXTRA_COLUMNS:
        return None
    return out[..., :m]


def explain(
    weights: Tensor, products: Tensor, allowed: Tensor, sizes: Mapping[str, int]
) -> str | None:
    """What is wrong with the weights (…, n, m), in one sentence.

    `products` are the bare q·k; `sizes` the lengths of the axes by their letters, d among them.
    """
    if not weights.isfinite().all():
        return None
    return (
        _sums(weights, products, sizes["d"])
        or _signs(weights)
        or _support(weights, allowed)
        or _scale(weights, products, allowed, sizes)
    )


def _sums(weights: Tensor, products: Tensor, d: int) -> str | None:
    rows = weights.sum(dim=-1)
    one = torch.ones((), dtype=weights.dtype)
    if same(rows, one.expand_as(rows)):
        return None
    first = f"the first one sums to {number(rows.flatten()[0])}"
    columns = weights.sum(dim=-2)
    if same(columns, one.expand_as(columns)):
        return (
            f"The rows do not sum to one ({first}), the columns do: the softmax runs over the "
            "queries. It belongs over the keys, `dim=-1`."
        )
    if same(weights.sum(dim=(-2, -1)), one.expand(weights.shape[:-2])):
        return (
            f"The rows do not sum to one ({first}); the whole matrix does: each query needs a "
            "softmax of its own, over `dim=-1`."
        )
    ratio = weights / products
    if same(ratio, ratio.flatten()[0].expand_as(ratio)):
        return (
            f"The rows do not sum to one ({first}): the values are mixed by the scores "
            "themselves. The softmax is missing."
        )
    powers = weights.clamp_min(0).log() - products * d**-0.5
    if powers.isfinite().all() and same(powers, powers.flatten()[0].expand_as(powers)):
        return (
            f"The rows do not sum to one ({first}): the exponentials are right, but they are not "
            "divided by the sum of their row."
        )
    if same(rows, rows.flatten()[0].expand_as(rows)):
        return _constant_sum(float(rows.flatten()[0]), d)
    return (
        f"The rows do not sum to one ({first}): each row of the weights is a softmax over the keys."
    )


def _constant_sum(total: float, d: int) -> str:
    if math.isclose(total, d**-0.5, rel_tol=1e-4):
        return (
            f"The rows sum to {number(total)} = 1/√d, not to one: the scale comes after the "
            "softmax. Divide the scores by √d before it."
        )
    return (
        f"The rows do not sum to one; every row sums to {number(total)}: something multiplies the "
        "weights or the output after the softmax."
    )


def _signs(weights: Tensor) -> str | None:
    if (weights >= 0).all():
        return None
    return (
        "Some weights are negative, though the rows sum to one: no softmax gives that. It "
        "exponentiates the scores and divides by their sum."
    )


def _support(weights: Tensor, allowed: Tensor) -> str | None:
    most = weights.amax(dim=-1)
    if same(most, torch.ones_like(most)):
        return (
            "Each query takes the one best key and nothing of the others: that is an argmax. A "
            "softmax gives every key some weight."
        )
    if ((weights < 1e-12) & allowed).any():
        *_, i, j = ((weights < 1e-12) & allowed).nonzero()[0].tolist()
        return (
            f"Query {i} gives key {j} no weight at all, though it may attend to it: "
            f"something masks what "
            "should not be masked."
        )
    return None


def _scale(
    weights: Tensor, products: Tensor, allowed: Tensor, sizes: Mapping[str, int]
) -> str | None:
    """log w is c q·k up to a constant of the row; c shows by what the scores were divided."""
    logs, dots = (_centred(x, allowed) for x in (weights.clamp_min(1e-300).log(), products))
    c = float((logs * dots).sum() / (dots * dots).sum())
    if not torch.allclose(logs, c * dots, rtol=1e-3, atol=1e-5):
        return None
    return scale_sentence(c, sizes)


def _centred(x: Tensor, allowed: Tensor) -> Tensor:
    x = x.masked_fill(~allowed, 0)
    count = allowed.sum(dim=-1, keepdim=True).clamp_min(1)
    return (x - x.sum(dim=-1, keepdim=True) / count).masked_fill(~allowed, 0)


def scale_sentence(c: float, sizes: Mapping[str, int]) -> str | None:
    """What it means that the weights are the softmax of c q·k; None where c is right."""
    d = sizes["d"]
    if abs(c) < 1e-6:
        return (
            "Every key gets the same weight, so that each query gets the mean of the values: the "
            "scores q·k do not reach the softmax."
        )
    if c < 0:
        return "The least similar key gets the most weight: the scores have the wrong sign."
    known = {
        d**-0.5: None,
        1.0: "The scores are off by a factor of √d: the scale is missing. Divide q·k by √d.",
        d**0.5: (
            "The scores are off by a factor of d: they are multiplied by √d instead of divided "
            "by it."
        ),
        1.0 * d: "The scores are multiplied by d; the scale divides them, and by √d.",
        1.0 / d: (
            "The scores are divided by d instead of √d: the square root is missing, or the scale "
            "is applied twice."
        ),
        d**-0.25: (
            "The scores are divided by √√d instead of √d: is the square root taken twice, or only "
            "one of queries and keys scaled?"
        ),
        **{
            size**-0.5: f"The scores are divided by √{name} = √{size}; the scale is √d, the width "
            "of queries and keys."
            for name, size in sizes.items()
            if name != "d"
        },
        **{
            1.0 / size: f"The scores are divided by {name} = {size}; the scale is √d, the square "
            "root of the width of queries and keys."
            for name, size in sizes.items()
            if name != "d"
        },
    }
    for value, sentence in known.items():
        if math.isclose(c, value, rel_tol=1e-3):
            return sentence
    if math.isclose(c**-2, round(c**-2), rel_tol=1e-3) and round(c**-2) > 1:
        return (
            f"The scores are divided by √{round(c**-2)}, whatever the size of the inputs: the "
            "scale is √d with d the width of the queries given, not a fixed number or the model's "
            "width."
        )
    return (
        f"The scores are off by a factor of {number(c * d**0.5)}: the weights are a softmax of "
        f"{number(c)} q·k, where q·k/√d is asked for."
    )
