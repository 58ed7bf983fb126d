"""The state of mLSTM, and the norm and the gate after its recurrence."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.chunks import Sums
from attnlab.core.matrix_memory import HeadNorm
from attnlab.core.precision import upcast
from attnlab.core.shapes import Tokens


class State(NamedTuple):
    """What a layer knows of the tokens before: C and n, both times e^(-m), and m of every head."""

    sums: Sums
    normaliser: Float[Tensor, "b h d"]
    largest: Float[Tensor, "b h"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


class GatedHeads(HeadNorm):
    """Each head less its mean and divided by its deviation, a gain per channel, a sigmoid gate."""

    def __init__(self, heads: int, width: int, dim: int) -> None:
        gate = nn.Linear(dim, heads * width, bias=False)
        super().__init__(heads, width, dim, gate=gate, squash=torch.sigmoid)
        self.gain = nn.Parameter(torch.ones(heads * width))

    def forward(self, out: Tensor, x: Tokens) -> Tokens:
        assert self.gate is not None
        each = upcast(out).unflatten(-1, (self.heads, -1))
        normed = F.layer_norm(each, each.shape[-1:], eps=self.epsilon).flatten(-2)
        gated = normed * upcast(self.gain) * self.squash(upcast(self.gate(x)))
        return self.project(gated.to(x.dtype))
