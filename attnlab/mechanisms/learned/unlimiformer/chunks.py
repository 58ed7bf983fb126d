"""Reading a long input with an encoder that has a window: overlapping chunks, the middle kept."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.integers import check_integer


class Window(NamedTuple):
    """Positions start … stop − 1 are encoded, and the states of first … last − 1 are kept."""

    start: int
    stop: int
    first: int
    last: int


def windows(n: int, length: int, overlap: float = 0.5) -> list[Window]:
    """Windows of ``length`` positions that keep each of n positions once.

    ``overlap`` is the share of a window that is encoded as context alone; half of it on each side,
    so a kept position has as many neighbours at least on both sides, unless the input ends there.
    The last window is moved back to full length.
    """
    n, length = check_integer("n", n, at_least=1), check_integer("length", length, at_least=1)
    if not isinstance(overlap, int | float) or not 0 <= overlap < 1:
        raise ValueError(f"overlap should be a share from 0 to below 1, got {overlap!r}")
    margin = int(length * overlap / 2)
    if length >= n:
        return [Window(0, n, 0, n)]
    found: list[Window] = []
    kept = start = 0
    while kept < n:
        start = min(start, n - length)
        stop = start + length
        last = n if stop == n else stop - margin
        found.append(Window(start, stop, kept, last))
        kept, start = last, start + length - 2 * margin
    return found


def encode(
    encoder: Callable[[Tensor], Tensor], tokens: Tensor, length: int, *,
    overlap: float = 0.5, padding: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b n dim"]:  # fmt: skip
    """The states of ``tokens`` (b, n), of any n, by an encoder that reads ``length`` of them.

    ``encoder(tokens)`` gives states (b, length, dim); it is called as ``encoder(tokens, padding)``
    where there is a padding.
    """
    parts = []
    for window in windows(tokens.shape[1], length, overlap):
        within = slice(window.start, window.stop)
        given = () if padding is None else (padding[:, within],)
        states = encoder(tokens[:, within], *given)
        parts.append(states[:, window.first - window.start : window.last - window.start])
    return torch.cat(parts, dim=1)
