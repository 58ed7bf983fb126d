"""Reach: which inputs can influence each output after some layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.patterns.algebra import Pattern


@dataclass(frozen=True)
class Reach:
    """``after[L - 1]`` (n, n): where is output i under the influence of input j after L layers?

    ``layers`` is the smallest L after which more layers add nothing (None: not reached yet);
    ``complete`` says whether every output then knows every input, ``complete_past`` whether it
    knows all that come before it.
    """

    after: tuple[Bool[Tensor, "n n"], ...]
    layers: int | None
    complete: bool
    complete_past: bool


def reach(
    patterns: Pattern | Sequence[Pattern], n: int, layers: int, *, residual: bool = True
) -> Reach:
    """What a stack of layers can carry where: layer l has the l-th pattern (in turn).

    ``residual`` counts the connection around each layer: a position always keeps what it knows.
    """
    stack = [patterns] if isinstance(patterns, Pattern) else list(patterns)
    if not stack:
        raise ValueError("reach needs the pattern of at least one layer, got none")
    check_integer("layers", layers, at_least=1)
    steps = [_step(pattern, n, residual) for pattern in stack]
    known, frames = torch.eye(n, dtype=torch.bool), []
    for layer in range(layers):
        known = (steps[layer % len(steps)] @ known.float()) > 0
        frames.append(known)
    past = torch.ones(n, n, dtype=torch.bool).tril()
    settled = [L for L, frame in enumerate(frames, 1) if torch.equal(frame, frames[-1])]
    grows = any(not torch.equal((step @ known.float()) > 0, known) for step in steps)
    return Reach(
        tuple(frames), None if grows else settled[0], bool(known.all()), bool((known | ~past).all())
    )


def _step(pattern: Pattern, n: int, residual: bool) -> Tensor:
    allowed = pattern.dense(n)
    if allowed.dim() > 2:  # any head carries
        allowed = allowed.flatten(0, -3).any(0)
    return (allowed | torch.eye(n, dtype=torch.bool) if residual else allowed).float()
