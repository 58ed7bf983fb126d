"""The receptive field: which inputs can influence each output after some layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlab.core.integers import check_integer

MOST_LAYERS = 1024


@dataclass(frozen=True)
class ReceptiveField:
    """``after[L - 1]`` (n, n): can input j (column) influence output i (row) after L layers?

    ``layers`` is the smallest L after which more layers add nothing (None: not reached yet);
    ``complete`` says whether every input can then influence every output, ``complete_past`` whether
    every output depends on all inputs up to its own position.
    """

    after: tuple[Bool[Tensor, "n n"], ...]
    layers: int | None
    complete: bool
    complete_past: bool


@runtime_checkable
class Masked(Protocol):
    """An object with a mask of n × n; every pattern is one."""

    def dense(self, n: int) -> Bool[Tensor, "... n n"]: ...


def receptive_field(
    patterns: Masked | Sequence[Masked], n: int, layers: int, *, residual: bool = True
) -> ReceptiveField:
    """The receptive field of a stack of layers, which take the given patterns in turn.

    With ``residual`` there is a connection around each layer, so that the inputs that influence a
    position before the layer also influence it after the layer.
    """
    stack = list(patterns) if isinstance(patterns, Sequence) else [patterns]
    if not stack:
        raise ValueError("a receptive field needs the pattern of at least one layer, got none")
    if not isinstance(residual, bool):
        raise TypeError(f"residual should be True or False, got {residual!r}")
    check_integer("n", n, at_least=1)
    if check_integer("layers", layers, at_least=1) > MOST_LAYERS:
        raise ValueError(f"layers should be at most {MOST_LAYERS}, got {layers}")
    steps = [_step(pattern, n, residual) for pattern in stack]
    known, frames = torch.eye(n, dtype=torch.bool), []
    for layer in range(layers):
        known = (steps[layer % len(steps)] @ known.float()) > 0
        frames.append(known)
    past = torch.ones(n, n, dtype=torch.bool).tril()
    settled = [L for L, frame in enumerate(frames, 1) if torch.equal(frame, frames[-1])]
    grows = any(not torch.equal((step @ known.float()) > 0, known) for step in steps)
    return ReceptiveField(
        tuple(frames), None if grows else settled[0], bool(known.all()), bool((known | ~past).all())
    )


def _step(pattern: Masked, n: int, residual: bool) -> Tensor:
    if isinstance(pattern, type) or not isinstance(pattern, Masked):
        raise TypeError(f"a receptive field is computed from patterns, got {pattern!r}")
    allowed = pattern.dense(n)
    if allowed.dim() > 2:  # a pair counts if any head allows it
        allowed = allowed.flatten(0, -3).any(0)
    return (allowed | torch.eye(n, dtype=torch.bool) if residual else allowed).float()
