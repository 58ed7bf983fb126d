"""The tables: what words share, where amplitudes, frequencies and phases start, what is trained."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.options import Count, Options
from attnlab.core.precision import HALVES

Shared = Literal["none", "words", "dimensions"]


@dataclass(frozen=True, kw_only=True)
class ComplexEmbeddingOptions(Options):
    """What is shared, where the tables start, and what is trained.

    ``amplitudes``, ``frequencies``, ``phases``  "none" shared, or shared by all "words" or all
                 "dimensions". Phases are "zero" unless asked for.
    ``start``    of the frequencies: "sinusoidal", "uniform" within [0, 1], "normal" with standard
                 deviation 1, or "zero": words do not turn, and are not trained to (the
                 paper's complex-vanilla, with phases="none").
    ``scale``    standard deviation of the first amplitudes.
    ``frozen``   frequencies stay as they start, as in the paper's translation models.
    ``filler``   a word of amplitude 0 that is never trained.
    """

    amplitudes: Shared = "none"
    frequencies: Shared = "none"
    phases: Literal["zero", "none", "words", "dimensions"] = "zero"
    start: Literal["sinusoidal", "uniform", "normal", "zero"] = "sinusoidal"
    scale: float = 1.0
    frozen: bool = False
    filler: Count | None = None

    def check(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"scale should be greater than 0, got {self.scale}")
        if self.filler is not None and self.amplitudes == "words":
            raise ValueError(
                "a filler has an amplitude of its own, 0; amplitudes='words' shares one: leave "
                "filler out"
            )
        if self.start == "sinusoidal" and self.frequencies == "dimensions":
            raise ValueError(
                "sinusoidal frequencies differ between dimensions, which frequencies='dimensions' "
                "shares: choose start='uniform', 'normal' or 'zero'"
            )


# ---- where tables start


def sinusoidal_frequencies(dim: int) -> Float[Tensor, "dim"]:
    """10000^(-2⌊d/2⌋/dim), d = 0 … dim - 1: pairs of equal frequencies, from 1 downwards."""
    pairs = torch.arange(dim) // 2
    return 10000.0 ** (-2 * pairs / dim)


def table_shape(vocab: int, dim: int, shared: str) -> tuple[int, int]:
    """Rows and columns of a table that is shared by nobody, by all words or by all dimensions."""
    return {"none": (vocab, dim), "words": (1, dim), "dimensions": (vocab, 1)}[shared]


def _started(start: str, vocab: int, dim: int, shared: str) -> Tensor:
    table = torch.zeros(table_shape(vocab, dim, shared))
    if start == "sinusoidal":
        return table + sinusoidal_frequencies(dim)
    if start == "uniform":
        return table.uniform_()
    return table.normal_() if start == "normal" else table


# ---- frequencies and phases


class AngleTables(nn.Module):
    """The tables of frequencies and phases, which stay in float32 where a model is made half.

    An angle is position times frequency: in bfloat16, whose numbers have eight bits, it would be
    wrong by radians after some hundred positions.
    """

    frequency: Tensor

    def __init__(self, vocab: int, dim: int, options: ComplexEmbeddingOptions) -> None:
        super().__init__()
        frequency = _started(options.start, vocab, dim, options.frequencies)
        if options.frozen or options.start == "zero":
            self.register_buffer("frequency", frequency)
        else:
            self.frequency = nn.Parameter(frequency)
        self.phase: nn.Parameter | None = None
        if options.phases != "zero":
            start = torch.empty(table_shape(vocab, dim, options.phases))
            self.phase = nn.Parameter(start.uniform_(-math.pi, math.pi))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "AngleTables":
        def keep(x: Tensor) -> Tensor:
            moved = fn(x)
            return x.to(moved.device, torch.float32) if moved.dtype in HALVES else moved

        super()._apply(keep, recurse)
        return self
