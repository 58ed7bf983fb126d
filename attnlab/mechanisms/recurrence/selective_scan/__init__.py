r"""Mamba: selective state space. It chooses, token by token, what it keeps.

The map of S4D depends on distance alone: it cannot keep one token and skip the next for what they
say. A selective state space computes the step of time $\Delta$, and with B and C what is written
and read, from the token itself. A large step lets the state forget and take the token in; a step
near 0 leaves the state as it is. In each channel:

$$h_t = e^{\Delta_t A}\, h_{t-1} + \Delta_t B_t x_t,\qquad y_t = C_t \cdot h_t + D x_t$$

$A < 0$, N numbers per channel, is learned; $\Delta_t$ is one number per channel, $B_t$ and $C_t$
are N numbers that all channels share. The state holds N numbers per channel. Because the
coefficients change from token to token there is no convolution any more, but still a map: given the
coefficients, y is linear in x,

$$M_{ij} = \sum_r C_{i,r} \Big( \prod_{k = j + 1}^{i} e^{\Delta_k A_r} \Big) \Delta_j B_{j,r},\qquad
j \le i,$$

one lower triangular matrix per channel. Its entries have either sign and its rows do not sum to 1.

Where A is one number per channel (``decay="scalar"``), the product of decays leaves the sum, and
the scan is linear attention under a mask, with C as queries, B as keys and the steps times x as
values:

$$M = L \odot C B^\top \mathrm{diag}(\Delta),\qquad L_{ij} = \prod_{k = j + 1}^{i} e^{\Delta_k A}$$

This is the duality on which Mamba-2 rests. Every block of L below the diagonal has rank 1, so that
one of M has at most rank N: no more of the past gets through than the state holds. If the decay is
the same for all tokens, it is retention; a decay of 1 leaves the causal sum of linear attention.

Around the scan (``SelectiveScan`` is the whole block of the paper): x is projected to E · dim
channels and goes through a short causal convolution and SiLU, $\Delta$, B and C are read from it,
and the result is multiplied by SiLU of a second projection before it is projected back.

Cost: $7\, n\, E\, dim\, N$ elementary operations, an exponential counted as one; 13 in place of 7
with ``zoh``, and 3 more where several chunks step together. No n × n tensor.

``naive``    the recurrence, one token at a time.
``chunked``  all coefficients of a span of tokens at once, then the scan: where a state is small,
             many chunks of the span step forward together, from zero; what came before them is
             added afterwards, times the product of the decays since. A large state is worth a call
             for each token. The backward pass computes each span again, so that between them only
             the states are kept.
``triton``   as ``chunked``, with one kernel for the scan of a span; it needs a GPU
             (``attnlab.core.kernels``).

The paper's letters are ours, but for its L, our n, and its D, our dim (D is here the skip, as in
its code).

Common mistakes: a bias outside the softplus of $\Delta$; a decay by the token's own step on what it
writes; a convolution that is cached after, not before, it is computed.

Readings. With a scalar decay every channel has steps of its own; in ``mamba2`` those of a head
share them, B and C go through the convolution too, and a norm follows the gate.

Departures.
- B is multiplied by the step, as in the released code; the printed rule is an option. Printed is
  zero-order hold, $(e^{\Delta A} - 1) A^{-1} B$; ``rule`` chooses ("euler" is the code's).
- padded tokens are skipped

Gives up. All of the past goes through N numbers per channel; what was not kept is gone.

Gu, Dao. Mamba: Linear-Time Sequence Modeling with Selective State Spaces. COLM 2024,
arXiv:2312.00752, sections 3.2 to 3.6. Mamba-2: Dao, Gu. Transformers are SSMs. ICML 2024,
arXiv:2405.21060, sections 3 to 5.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import kernels
from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.convolution import last_inputs, short_convolution
from attnlab.core.forms import form
from attnlab.core.heads import Channels, check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.mechanisms.recurrence.selective_scan.rules import (
    RULES,
    Held,
    PerState,
    SelectiveScanOptions,
    coefficients,
    euler,
    initial_state,
)
from attnlab.mechanisms.recurrence.selective_scan.scan import (
    SPAN,
    PerChannel,
    Shared,
    advance,
)

__all__ = [
    "CARD", "FORMS", "KERNELS", "RULES", "GatedOutput", "SelectiveScan", "SelectiveScanOptions",
    "State", "advance", "chunked", "euler", "initial_state", "naive", "triton",
]  # fmt: skip

# ---- naive


@form
def naive(
    x: Tokens, log_A: PerState, steps: Tokens, B: Shared, C: Shared, skip: PerChannel,
    *, options: SelectiveScanOptions = SelectiveScanOptions(),
) -> Tokens:  # fmt: skip
    """The recurrence, token by token (Gu & Dao, section 3.2), with A = -e^log_A and Δ the softplus
    of ``steps``."""
    A, delta, h = -log_A.exp(), F.softplus(steps), initial_state(x, log_A)
    out = []
    for t in range(x.shape[1]):
        decay, drive = coefficients(x[:, t], delta[:, t], A, B[:, t], options)
        h = decay * h + drive
        out.append((h * C[:, t, None]).sum(dim=-1))
    note("state", h)
    return torch.stack(out, dim=1) + skip * x


# ---- chunked, triton


@form
def chunked(
    x: Tokens, log_A: PerState, steps: Tokens, B: Shared, C: Shared, skip: PerChannel,
    *, options: SelectiveScanOptions = SelectiveScanOptions(),
) -> Tokens:  # fmt: skip
    """``naive`` by spans of tokens."""
    out, state = advance(x, log_A, steps, B, C, skip, initial_state(x, log_A), options)
    note("state", state)
    return out


@form
def triton(
    x: Tokens, log_A: PerState, steps: Tokens, B: Shared, C: Shared, skip: PerChannel,
    *, options: SelectiveScanOptions = SelectiveScanOptions(),
) -> Tokens:  # fmt: skip
    """``chunked`` with a kernel for the scan. Raises ValueError where Triton cannot run."""
    scan = kernels.kernel("linear_recurrence", "recurrence", x)
    out, state = advance(x, log_A, steps, B, C, skip, initial_state(x, log_A), options, scan)
    note("state", state)
    return out


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "chunked": chunked}
KERNELS: dict[str, Callable[..., Tensor]] = {"triton": triton}
Selected = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: E · dim · (N + width - 1) numbers per sequence."""

    inputs: Float[Tensor, "b _ channels"]  # the last, before the short convolution
    scan: Held

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


class GatedOutput(nn.Linear):
    """The scan's output times SiLU of the gate, projected."""

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(y * F.silu(gate))


class SelectiveScan(Layer):
    """Mamba's block: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` decodes. Every channel of the scan is a head of width one for ``lens.mixing_matrix``;
    the convolution, SiLU and the gate lie outside its map.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "chunked", "triton"] = "chunked",
        options: SelectiveScanOptions = SelectiveScanOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.form, self.options = dim, form, options
        channels, rank = options.expand * dim, math.ceil(dim / 16)
        self.into = nn.Linear(dim, 2 * channels, bias=False)
        conv = nn.Conv1d(channels, channels, options.width, groups=channels)
        self.taps = nn.Parameter(conv.weight.detach()[:, 0].flip(1))  # the newest first
        self.bias = nn.Parameter(conv.bias.detach())  # type: ignore[union-attr]
        self.select = nn.Linear(channels, rank + 2 * options.state, bias=False)
        self.steps = nn.Linear(rank, channels)
        nn.init.uniform_(self.steps.weight, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():
            drawn = torch.empty(channels).uniform_(math.log(0.001), math.log(0.1)).exp()
            self.steps.bias.copy_(drawn + (-torch.expm1(-drawn)).log())  # softplus of it is drawn
        rates = torch.arange(1.0, options.state + 1).repeat(channels, 1)
        if options.decay == "scalar":
            rates = torch.empty(channels, 1).uniform_(1, 16)
        self.log_A = nn.Parameter(rates.log())
        self.skip = nn.Parameter(torch.ones(channels))
        self.heads = Channels(channels, nn.Identity(), GatedOutput(channels, dim, bias=False))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.skip)
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        inputs, gate = self.into(x).chunk(2, dim=-1)
        given = self._selected(inputs, None)
        mixed = (FORMS | KERNELS)[self.form](*given, self.skip, options=self.options)
        return self.heads.output(mixed, gate)

    def _selected(self, inputs: Tensor, before: Tensor | None) -> Selected:
        """What the scan takes: x, log A, steps, B and C."""
        x = F.silu(short_convolution(inputs, self.taps, before) + self.bias)
        N = self.options.state
        low, B, C = self.select(x).split((self.steps.in_features, N, N), dim=-1)
        log_A = self.log_A.expand(-1, N)
        return self.heads.value(x), log_A, note("steps", self.steps(low)), B, C

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.skip)
        inputs, gate = self.into(x).chunk(2, dim=-1)
        begin = State(
            inputs.new_zeros(len(x), self.options.width - 1, inputs.shape[-1]),
            initial_state(inputs, self.log_A.expand(-1, self.options.state)),
        )
        if state is None:
            state = begin
        check_state(state, begin)
        given = self._selected(inputs, state.inputs)
        out, scan = advance(*given, self.skip, state.scan, self.options)
        after = State(last_inputs(inputs, state.inputs), scan)
        return self.heads.output(out, gate), note("state", after)


# ---- card

n, dim, N, E, p = letters("n dim N E p")
IN_SPANS, READ, ALL = ("chunked", "triton"), 2 * n * (E * dim + N), n * E * dim * N


def _time(more: int, chosen: SelectiveScanOptions) -> sympy.Expr:
    """Operations of the scan and of the short convolution."""
    each = more + (13 if chosen.rule == "zoh" else 7)
    return n * E * dim * (each * N + 2 * p)


CARD = Card(
    __doc__,
    name="selective_scan",
    family="recurrence",
    role="mix",
    forms=FORMS,
    kernels=KERNELS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=SelectiveScanOptions,
    letters={"N": "state", "E": "expand", "p": "width"},
    time={"naive": partial(_time, 0), **dict.fromkeys(IN_SPANS, partial(_time, 3))},
    launches={"naive": n, "chunked": sympy.sqrt(n) + ALL / SPAN, "triton": 1 + ALL / (256 * SPAN)},
    memory={"naive": READ, **dict.fromkeys(IN_SPANS, READ + ALL)},
    notes=dict.fromkeys((*FORMS, *KERNELS), ("state",)),
    variants=({"rule": "zoh", "state": 3, "expand": 1}, {"width": 1, "decay": "scalar"}),
    build=SelectiveScan,
    aliases=("mamba", "s6"),
)
