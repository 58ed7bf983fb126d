"""Layers whose heads each keep a matrix S (d, e): what the pages of linear recurrences share.

Queries, keys and values are projected, and in most of these layers go through a short causal
convolution and SiLU; the page's recurrence reads and writes S, and each head's result is divided by
its root mean square before it is projected.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.chunks import Sums
from attnlab.core.convolution import last_inputs, short_convolution
from attnlab.core.heads import Channels, check_input
from attnlab.core.layer import Layer
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

PerToken = Float[Tensor, "b h n"]
PerChannel = Float[Tensor, "b h n d"]
PerHead = Float[Tensor, "h"]


def unit(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Rows of length 1."""
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)


def decay_bias(size: int) -> nn.Parameter:
    """Numbers whose softplus is drawn between 0.001 and 0.1, uniformly in its logarithm."""
    drawn = torch.empty(size).uniform_(math.log(0.001), math.log(0.1)).exp()
    return nn.Parameter(drawn + (-torch.expm1(-drawn)).log())


def decay_rates(size: int) -> nn.Parameter:
    """Logarithms of rates drawn from 0.01 to 16: of a rate of 0 there would be none."""
    return nn.Parameter(torch.empty(size).uniform_(0.01, 16).log())


def chunked_flops(c: sympy.Expr, d: sympy.Expr, e: sympy.Expr, *, erase: bool) -> sympy.Expr:
    """FLOPs per token and head of chunks of c tokens: products of queries and keys, what is read
    inside the chunk and of the state, what is added to it; with an erasure also those of keys, the
    solve, the transition of the chunk and the products of transitions."""
    each = 2 * c * (d + e) + 4 * d * e
    if not erase:
        return each
    return each + c * (5 * d + e) + 2 * d**2 + 2 * d**2 * (d + 2 * e) / c


def chunked_elements(c: sympy.Expr, d: sympy.Expr, e: sympy.Expr, *, erase: bool) -> sympy.Expr:
    """A bound per token and head of the largest tensor: inputs, pairs of a chunk, states."""
    return 2 * d + e + c + d * (d + e if erase else e) / c


class MatrixState(NamedTuple):
    """What a layer knows of the tokens before: the last inputs of its convolution, or the last
    token of a token shift, if it has one, and S of every head."""

    inputs: Float[Tensor, "b _ channels"]
    sums: Sums

    def cleared(self, ended: Bool[Tensor, "b"]) -> "MatrixState":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


class HeadNorm(nn.Module):
    """Each head divided by its root mean square and times a learned gain that all heads share, then
    times a gate of the token where there is one, then projected."""

    def __init__(
        self, heads: int, width: int, dim: int, *, gate: nn.Module | None = None,
        squash: Callable[[Tensor], Tensor] = F.silu, epsilon: float = 1e-6,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.squash, self.epsilon = heads, squash, epsilon
        self.gain = nn.Parameter(torch.ones(width))
        self.gate = gate
        self.project = nn.Linear(heads * width, dim, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.project.weight

    def forward(self, out: Tensor, x: Tokens) -> Tokens:
        each = upcast(out).unflatten(-1, (self.heads, -1))
        normed = F.rms_norm(each, each.shape[-1:], upcast(self.gain), self.epsilon).flatten(-2)
        if self.gate is not None:
            normed = normed * self.squash(upcast(self.gate(x)))
        return self.project(normed.to(x.dtype))


class MatrixMemory(Layer):
    """(b, n, dim) → (b, n, dim), causal; zeros at padding. ``step`` decodes.

    A page gives its ``forms``, and ``_gates`` and ``_advance``. ``heads`` have queries
    and keys of width ``head_dim``; ``value_heads`` of them, consecutive ones, share one query and
    key. The convolution has ``width`` taps, and a bias with ``bias``; with None there is neither a
    convolution nor SiLU. ``lens.mixing_matrix`` is exact: one map for each head of values, before
    the norm.
    """

    State: ClassVar[type[MatrixState]] = MatrixState
    """What ``step`` gives and takes: each page has its own, so that no page goes on with what
    another has written by another rule."""
    forms: Mapping[str, Callable[..., Tensor]]
    form: str
    fused = True
    """Whether queries, keys and values are one projection of the same tokens, ``into``."""
    taps: nn.Parameter | None
    bias: nn.Parameter | None

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.State"}
        cls.State = type("State", (MatrixState,), {**place, "__slots__": ()})

    def __init__(
        self, dim: int, heads: int, *, width: int | None, head_dim: int | None,
        value_dim: int | None, value_heads: int | None = None, bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if head_dim is None and dim % heads:
            raise ValueError(
                f"heads={heads} does not divide dim={dim}: choose heads among the divisors of dim, "
                "or give head_dim"
            )
        value_heads = heads if value_heads is None else value_heads
        if value_heads % heads:
            raise ValueError(
                f"heads={heads} does not divide value_heads={value_heads}: each query and key "
                "serves equally many heads of values"
            )
        self.dim, self.key_heads, self.value_heads = dim, heads, value_heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        keys, values = heads * self.head_dim, value_heads * self.value_dim
        self.widths = (keys, keys, values)
        if self.fused:
            self.into = nn.Linear(dim, sum(self.widths), bias=False)
        self.taps = self.bias = None
        if width is not None:
            conv = nn.Conv1d(sum(self.widths), sum(self.widths), width, groups=sum(self.widths))
            self.taps = nn.Parameter(conv.weight.detach()[:, 0].flip(1))  # the newest first
            if bias and conv.bias is not None:
                self.bias = nn.Parameter(conv.bias.detach())

    def set_output(self, output: nn.Module) -> None:
        """Take what the heads give to."""
        self.heads = Channels(self.value_heads, nn.Identity(), output, width=self.value_dim)

    @abstractmethod
    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        """What the forms take beside queries, keys and values."""

    @abstractmethod
    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        """The outputs of the next tokens after ``S``, and the state after them."""

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, next(self.parameters()))
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        given = self.taken(x)
        return self._output(self.forms[self.form](*given), x, None, *given)

    def _output(self, out: Tensor, x: Tokens, before: Tensor | None, *given: Tensor) -> Tokens:
        """What the layer gives, of what its heads read; ``given`` is what the forms took, after the
        tokens that ``before`` was carried from."""
        return self.heads.output(self.heads.join(out), x)

    def taken(self, x: Tokens) -> tuple[Tensor, ...]:
        """What the forms take, of a sequence from its beginning."""
        return self._taken(x, self._carried(x), None)

    def _carried(self, x: Tokens) -> Tensor:
        """What the next ``reach`` tokens read of each token: the inputs of the convolution."""
        return self.into(x)

    @property
    def reach(self) -> int:
        """How many of the last tokens the next one reads beside S."""
        return 0 if self.taps is None else self.taps.shape[1] - 1

    def _taken(self, x: Tokens, inputs: Tensor, before: Tensor | None) -> tuple[Tensor, ...]:
        return (*self._projected(inputs, before), *self._gates(x))

    def _projected(self, inputs: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head of values."""
        if self.taps is not None:
            inputs = short_convolution(inputs, self.taps, before)
            inputs = F.silu(inputs if self.bias is None else inputs + self.bias)
        q, k, v = inputs.split(self.widths, dim=-1)
        q, k = (
            self.heads.split(x, self.head_dim).repeat_interleave(
                self.value_heads // self.key_heads, dim=1
            )
            for x in (q, k)
        )
        return q, k, self.heads.split(self.heads.value(v), self.value_dim)

    @checked
    def step(self, x: NewTokens, state: MatrixState | None = None) -> tuple[NewTokens, MatrixState]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, next(self.parameters()))
        inputs = self._carried(x)
        size = (len(x), self.value_heads, self.head_dim, self.value_dim)
        begin = self.State(
            inputs.new_zeros(len(x), self.reach, inputs.shape[-1]),
            upcast(inputs).new_zeros(size),
        )
        if state is None:
            state = begin
        check_state(state, begin)
        given = self._taken(x, inputs, state.inputs)
        out, sums = self._advance(state.sums, *given)
        after = self.State(last_inputs(inputs, state.inputs), sums)
        return self._output(out, x, state.inputs, *given), note("state", after)
