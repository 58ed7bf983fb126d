r"""A band of weights beside the diagonal: what the pages of convolutions share.

Token i takes k weights, its taps, one for each of k neighbouring positions:

$$o_i = \sum_{j = 0}^{k - 1} w_{ij}\, v_{i + j - p}$$

p positions lie before the token itself: k − 1 where nothing after it may be read, ⌊k/2⌋ where the
band is centred. What lies outside the sequence counts as zero.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import check_carried
from attnlab.core.heads import Heads, check_input, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.probe import note
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

Taps = Float[Tensor, "b h n k"]


def left_taps(k: int, *, causal: bool) -> int:
    """How many of k taps lie before the token itself."""
    return k - 1 if causal else k // 2


def dense(taps: Taps, p: int) -> Float[Tensor, "b h n n"]:
    """The matrix of the band: entry (i, i + j − p) is tap j of token i."""
    k, i = taps.shape[-1], torch.arange(taps.shape[-2], device=taps.device)
    j = i - i[:, None] + p
    weights = taps.gather(-1, j.clamp(0, k - 1).expand(*taps.shape[:-1], len(i)))
    return weights.masked_fill((j < 0) | (j >= k), 0)


def shifted(taps: Float[Tensor, "#b h #n k"], v: Float[Tensor, "b h n e"], p: int) -> Tensor:
    """The sum over the band: for each tap one product with the values, moved by one position."""
    k, n = taps.shape[-1], v.shape[-2]
    values = F.pad(v, (0, 0, p, k - 1 - p))
    out = taps[..., :1] * values[:, :, :n]
    for j in range(1, k):
        out = torch.addcmul(out, taps[..., j : j + 1], values[:, :, j : j + n])
    return out


def valid_taps(
    n: int, k: int, p: int, padding: Tensor | None, like: Tensor
) -> Bool[Tensor, "... n k"]:
    """Which taps meet a real token of the sequence: (n, k), or (b, 1, n, k) with padding."""
    at = torch.arange(n, device=like.device)[:, None] + torch.arange(k, device=like.device) - p
    real = (at >= 0) & (at < n)
    return real if padding is None else real & padding[:, at.clamp(0, n - 1)][:, None]


class ConvolutionState(NamedTuple):
    """What a causal convolution knows of the past: its last inputs, k − 1 of them at most."""

    inputs: Float[Tensor, "b r dim"]


class GatedLinear(nn.Linear):
    """A linear map and its gate (a gated linear unit): (…, dim) → (…, out), x W ⊙ σ(x W′)."""

    def __init__(self, dim: int, out: int, *, bias: bool) -> None:
        super().__init__(dim, 2 * out, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(super().forward(x), dim=-1)


class GatedConvolution(Layer):
    """Gated inputs, a convolution over the positions, one linear map: (b, n, dim) → (b, n, dim).

    A subclass says what the taps are, by ``convolve``. Zeros at padding: padded values are set to
    zero after the gate, so that no bias returns there.
    """

    def __init__(self, dim: int, heads: int, kernel: int, *, causal: bool, bias: bool) -> None:
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias, queries=False)
        self.heads.value = nn.Identity()  # the values are the gated inputs themselves
        self.inputs = GatedLinear(dim, dim, bias=bias)
        self.causal, self.kernel = causal, kernel

    @abstractmethod
    def convolve(
        self, u: Tokens, v: Float[Tensor, "b h n e"], padding: TokenPadding
    ) -> Float[Tensor, "b h n e"]:
        """The convolution of the values v, which are the gated inputs u split into heads."""

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.heads.dim, self.inputs.weight)
        u = self.inputs(zero_nonfinite_padding(x, padding))
        return zero_nonfinite_padding(self._mixed(u, padding), padding)

    @checked
    def step(
        self, x: NewTokens, state: ConvolutionState | None = None
    ) -> tuple[NewTokens, ConvolutionState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        check_input(x, "x", self.heads.dim, self.inputs.weight)
        new = self.inputs(x)
        past = new[:, :0] if state is None else _inputs_of(state, new)
        u = torch.cat((past, new), dim=1)
        kept = u[:, max(0, u.shape[1] - (self.kernel - 1)) :].clone()  # a view would keep all
        return self._mixed(u, None)[:, past.shape[1] :], note("state", ConvolutionState(kept))

    def _mixed(self, u: Tensor, padding: Tensor | None) -> Tensor:
        values = zero_nonfinite_padding(self.heads.value(u), padding)
        v = note("values", self.heads.split(values, self.heads.value_dim))
        return self.heads.merge(self.convolve(u, v, padding))


def _inputs_of(state: ConvolutionState, new: Tensor) -> Tensor:
    check_carried({"inputs": (state.inputs, (None, new.shape[-1]))}, len(new), new)
    return state.inputs
