"""The feed-forward layer of RWKV, and the token shift of both of its layers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.heads import check_input
from attnlab.core.options import Size
from attnlab.core.recurrence import skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

PerChannel = Float[Tensor, "dim"]


class ChannelMixing(nn.Module):
    """The paper's feed-forward layer: (b, n, dim) → (b, n, dim); zeros at padding.

    ``hidden`` is 4 · dim unless given. Its state is the last token, (b, dim).
    """

    @checked
    def __init__(self, dim: Size, *, hidden: Size | None = None) -> None:
        super().__init__()
        hidden = 4 * dim if hidden is None else hidden
        self.dim = dim
        self.key = nn.Linear(dim, hidden, bias=False)
        self.receptance = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(hidden, dim, bias=False)
        self.shift_key, self.shift_receptance = (
            nn.Parameter(torch.arange(dim) / dim) for _ in range(2)
        )

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        return skipping_padding(lambda real: self.step(real)[0], x, padding)

    @checked
    def step(
        self, x: NewTokens, state: Float[Tensor, "b dim"] | None = None
    ) -> tuple[NewTokens, Float[Tensor, "b dim"]]:
        """The next t tokens given the one before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.key.weight)
        before = token_before(x, torch.zeros_like(x[:, 0]) if state is None else state)
        gate = torch.sigmoid(self.receptance(shifted(x, before, self.shift_receptance)))
        k = self.key(shifted(x, before, self.shift_key)).relu() ** 2
        return gate * self.value(k), x[:, -1].clone()  # a view would keep all


def token_before(x: Tokens, last: Float[Tensor, "b dim"]) -> Tokens:
    """The token before each; ``last`` before the first."""
    return torch.cat((last[:, None], x[:, :-1]), dim=1)


def shifted(x: Tokens, before: Tokens, mu: PerChannel) -> Tokens:
    return mu * x + (1 - mu) * before
