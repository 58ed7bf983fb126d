"""Keys and token shift of RWKV-7, and norm, bonus and gate after its recurrence."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.precision import upcast
from attnlab.core.shapes import SelfKeys, Tokens

PerHeadChannel = Float[Tensor, "h d"]


def mixed_keys(k: SelfKeys, a: Tensor, key_mix: PerHeadChannel) -> SelfKeys:
    """k̃: the smaller the rate of a channel, the less is written in it."""
    return k * (1 + (a - 1) * key_mix[:, None])


def to_the_token_before(x: Tokens, last: Tensor | None) -> Tokens:
    """From each token to the one before it, which is ``last`` (b, 1, dim), or 0, for the first."""
    last = torch.zeros_like(x[:, :1]) if last is None else last
    return torch.cat((last, x[:, :-1]), dim=1) - x


class NormalisedHeads(nn.Module):
    """Each head less its mean and divided by its deviation, with gains and biases per channel; the
    bonus added; times a gate; projected."""

    def __init__(self, heads: int, width: int, dim: int) -> None:
        super().__init__()
        self.heads, self.epsilon = heads, 1e-5 * width
        self.gain = nn.Parameter(torch.ones(heads * width))
        self.offset = nn.Parameter(torch.zeros(heads * width))
        self.project = nn.Linear(heads * width, dim, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.project.weight

    def forward(self, out: Tensor, bonus: Tensor, gate: Tensor) -> Tokens:
        each = upcast(out).unflatten(-1, (self.heads, -1))
        normed = F.layer_norm(each, each.shape[-1:], eps=self.epsilon).flatten(-2)
        mixed = normed * upcast(self.gain) + upcast(self.offset) + bonus
        return self.project((mixed * upcast(gate)).to(gate.dtype))
