"""The two sums over the past, in units of their largest term."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Sums(NamedTuple):
    """The past of every channel: both sums divided by e to the power of ``largest``."""

    values: Float[Tensor, "... dim"]  # Σ_j e^{k_j - (i - 1 - j) w} v_j
    weights: Float[Tensor, "... dim"]  # the same without v
    largest: Float[Tensor, "... dim"]  # the largest exponent; -inf before the first token


def steps(sums: Sums, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, Sums]:
    """The outputs of tokens (…, t, dim) after those of ``sums``, and the sums after them."""
    out = []
    for key, value in zip(k.unbind(-2), v.unbind(-2), strict=True):
        new = added(sums, Sums(value, torch.ones_like(value), key + u))
        out.append(new.values / new.weights)
        sums = read_in(sums, key, value, w)
    return torch.stack(out, dim=-2), sums


def read_in(sums: Sums, key: Tensor, value: Tensor, w: Tensor) -> Sums:
    return added(faded(sums, w), Sums(value, torch.ones_like(value), key))


def faded(sums: Sums, w: Tensor) -> Sums:
    return sums._replace(largest=sums.largest - w)


def added(one: Sums, other: Sums) -> Sums:
    """The sums of both. No gradient passes through the maximum, which cancels in every output."""
    largest = torch.maximum(one.largest, other.largest).detach()
    first, second = (one.largest - largest).exp(), (other.largest - largest).exp()
    values = first * one.values + second * other.values
    return Sums(values, first * one.weights + second * other.weights, largest)


def accumulated(sums: Sums, w: Tensor) -> Sums:
    """The sums of each piece (b, k, dim) and all pieces before it, each of which fades by ``w``.

    In log₂ k rounds: after the first, a piece holds two; after the second, four.
    """
    step = 1
    while step < sums.largest.shape[1]:
        before = faded(Sums(*(x[:, :-step] for x in sums)), step * w)
        both = added(before, Sums(*(x[:, step:] for x in sums)))
        held = zip(sums, both, strict=True)
        sums = Sums(*(torch.cat((alone[:, :step], more), dim=1) for alone, more in held))
        step *= 2
    return sums
