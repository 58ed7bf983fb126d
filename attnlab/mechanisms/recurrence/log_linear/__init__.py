r"""Log-linear attention: a state for the last token, for two before it, for four, for eight …

A recurrence keeps all of the past in one state, and attention keeps every token. Log-linear
attention keeps one state for each of a few blocks of the past, small ones near by and large ones
far away. Before token t (from 0) lie t tokens; the binary digits of t cut them into blocks, one of
$2^{\ell - 1}$ tokens for each digit $\ell$ that is 1, the largest first. The token itself is level
0. The query reads each level by itself, and weights what it reads:

$$o_t = \sum_{\ell} \lambda_t^{(\ell)}\, q_t S_t^{(\ell)} + D v_t,\qquad S_t^{(\ell)} =
\sum_{s\ \text{in}\ \ell} \Big(\prod_{s < u \le t} a_u\Big)\, \Delta_s\, k_s v_s^\top$$

$$\lambda_t^{(\ell)} = \mathrm{softplus}(c_\ell \cdot x_t w_\ell),\qquad
\Delta_t = \mathrm{softplus}(x_t w + c),\qquad a_t = e^{\Delta_t A},\qquad A < 0$$

With all λ = 1 it is Mamba-2, whose block it stands in. As t grows by one, the blocks change as the
digits of a counter do: levels up to its lowest 1 become one block of the next level. This is a
Fenwick tree. At most 1 + (the number of ones of t) states are not zero.

Token s lies in the level of t that is told by the highest digit in which s and t differ. The map of
the values is

$$M = (L \odot \Lambda \odot Q K^\top)\, \mathrm{diag}(\Delta) + D\, I,\qquad
\Lambda_{ts} = \lambda_t^{(\ell(t, s))}$$

L being Mamba-2's mask of decays. In the second half of an aligned block of $2^\ell$ tokens every
query sees the first half as its level ℓ.

Cost, for heads of P channels and a state of N rows: $2\, n h\, N P\, (1 + M)$ FLOPs for M levels
token by token; by chunks of c tokens $n h\, (2 c\, (N + P) + 2 N P + N P \log_2 (n / c))$.

``naive``    one token after the other: add up blocks, fade, write, read each level.
``matrix``   the n × n map.
``chunked``  the map inside chunks; of two blocks the second reads the state of the first.

The paper's letters: its α is our a. Mamba-2's B, C and x are our k, q and v.

Common mistakes: blocks counted back from the query; reading before the states are added up.

Readings. The rule follows the code of flash-linear-attention; the paper was not at hand.

Departures.
- convolution, steps and gates are those of ``mamba2``
- in texts of more than 2^(M - 1) tokens the last level holds all that is older
- ``step`` holds all levels from the beginning, and reads what follows a prompt token by token
- padded tokens are skipped

Gives up. Tokens of one far block are told apart no better than in one state of its size.

Guo, Yang, Goel, Xing, Dao, Kim. Log-Linear Attention. 2025, arXiv:2506.04761.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.fenwick import (
    LevelMemory,
    Levels,
    LevelScales,
    Seen,
    States,
    added_up,
    check_levels,
    initial_states,
    of_pairs,
    states_of,
    weights_of,
)
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import PerHead, PerToken
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked
from attnlab.core.state_space_block import StateSpaceBlock


@dataclass(frozen=True, kw_only=True)
class LogLinearOptions(Options):
    """The sizes of the state and of the block, and how the rule is computed.

    ``levels``  of blocks, at least 2: one for each digit of 2^(levels - 1) tokens, and level 0 (M)
    ``state``   rows of each state, the width of queries and keys (N)
    ``expand``  channels of the block in units of dim, spread over its heads (E)
    ``groups``  of heads that share queries and keys (G)
    ``width``   taps of the short convolution (p)
    ``chunk``   tokens per chunk of the chunked form, a power of two (c)
    """

    levels: Size = 16
    state: Size = 128
    expand: Size = 2
    groups: Size = 1
    width: Size = 4
    chunk: Size = 64

    def check(self) -> None:
        check_levels(self.levels)
        if self.chunk & (self.chunk - 1):
            raise ValueError(f"chunk={self.chunk} should be a power of two, as blocks are")


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, level: Levels, log_A: PerHead,
    skip: PerHead, scale: LevelScales,
) -> Outputs:  # fmt: skip
    """Add up, fade, write and read, token by token."""
    out, S = advance(q, k, v, step, level, log_A, skip, scale, *initial_states(k, v, level))
    note("state", S)
    return out


def ruled(
    step: PerToken, level: Levels, log_A: PerHead, scale: LevelScales
) -> tuple[Tensor, Tensor, Tensor]:
    """Δ and log a, (b, h, n, 1), from ``step``; λ (b, h, n, levels) from ``level``."""
    lam = weights_of(level, scale)
    delta = F.softplus(step)[..., None]
    log_a = -log_A.exp()[:, None, None] * delta
    return note("steps", delta), note("decays", log_a), lam


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, level: Levels, log_A: PerHead,
    skip: PerHead, scale: LevelScales, S: States, seen: Seen,
) -> tuple[Outputs, States]:  # fmt: skip
    """The outputs of the next tokens after the states ``S`` of ``seen`` ones, and those after."""
    delta, log_a, lam = ruled(step, level, log_A, scale)
    out = []
    for t, (qi, ki, vi, ai, li) in enumerate(
        zip(*(x.split(1, dim=2) for x in (q, k, delta * v, log_a.exp(), lam)), strict=True)
    ):
        before = ai[..., None] * added_up(S, seen + t)
        S = torch.cat((ki.mT[:, :, None] @ vi[:, :, None], before[:, :, 1:]), dim=2)
        out.append(li @ (qi[:, :, None] @ S).squeeze(-2))
    return torch.cat(out, dim=2) + skip[:, None, None] * v, S


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, level: Levels, log_A: PerHead,
    skip: PerHead, scale: LevelScales,
) -> Outputs:  # fmt: skip
    """The map of all values at once."""
    delta, log_a, lam = ruled(step, level, log_A, scale)
    L = chunks.segments(log_a[..., 0]).exp()
    own = torch.diag_embed(skip[:, None].expand(-1, q.shape[2]))
    return note("weights", L * of_pairs(lam) * (q @ k.mT) * delta.mT + own) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, level: Levels, log_A: PerHead,
    skip: PerHead, scale: LevelScales, *, options: LogLinearOptions = LogLinearOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks; of larger blocks the second half reads the state of the first."""
    n = q.shape[2]
    c = min(options.chunk, 1 << (n - 1).bit_length())
    delta, log_a, lam = ruled(step, level, log_A, scale)
    q, k, values, log_a, near = (chunks.cut(x, c) for x in (q, k, delta * v, log_a, lam))
    pairs, since, until = chunks.decayed(log_a)
    out = (pairs(q, k) * of_pairs(near)) @ values
    S, kept, read = (until * k).mT @ values, since[..., -1:, :], since * q
    for digits in range(c.bit_length(), (n - 1).bit_length() + 1):
        (S, later), (kept, own), (read, reads), (out, reading) = (
            chunks.cut(x, 2).unbind(3) for x in (S, kept, read, out)
        )
        own_level = lam[..., min(digits, lam.shape[-1] - 1), None]
        weight = chunks.cut(own_level, 2 * read.shape[3])[..., read.shape[3] :, :]
        out = torch.cat((out, reading + weight * (reads @ S)), dim=3)
        read = torch.cat((read, kept * reads), dim=3)
        S, kept = own * S + later, own * kept
    return out.flatten(2, 3)[:, :, :n] + skip[:, None, None] * v


@upcasting
def read(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, level: Levels, log_A: PerHead,
    skip: PerHead, scale: LevelScales, options: LogLinearOptions,
) -> tuple[Outputs, States]:  # fmt: skip
    """The outputs of the first tokens by chunks, and the states after them."""
    delta, log_a, lam = ruled(step, level, log_A, scale)
    out = chunked(q, k, v, step, level, log_A, skip, scale, options=options)
    return out, states_of(k, delta * v, log_a, lam.shape[-1])


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class LogLinear(LevelMemory, StateSpaceBlock):
    """Log-linear Mamba-2: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` decodes; its state is every S, how many tokens were read, and the last inputs.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: LogLinearOptions = LogLinearOptions(),
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, state=options.state, expand=options.expand, groups=options.groups,
            width=options.width,
        )  # fmt: skip
        self.form, self.options, self.most = form, options, options.levels
        self.forms = with_options(FORMS, options)
        self.levels = nn.Linear(dim, heads * options.levels, bias=False)
        self.scale = nn.Parameter(torch.ones(heads, options.levels))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        level = self.heads.split(self.levels(x), self.options.levels)
        step, log_A, skip = super()._gates(x)
        return step, level, log_A, skip, self.scale

    def _read(self, *given: Tensor) -> tuple[Tensor, States]:
        q, k, v, step, level, log_A, skip, scale = given
        return read(q, k, v, step, level, log_A, skip, scale, self.options)

    def _follow(self, S: States, seen: Seen, *given: Tensor) -> tuple[Tensor, States]:
        q, k, v, step, level, log_A, skip, scale = given
        return advance(q, k, v, step, level, log_A, skip, scale, S, seen)


# ---- card

n, h, dim, N, E, G, c, p, M = letters("n h dim N E G c p M")
P = E * dim / h
convolution = 2 * p * n * (E * dim + 2 * G * N)

CARD = Card(
    __doc__,
    name="log_linear",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its states hold what was read before",
    options=LogLinearOptions,
    letters={"M": "levels", "N": "state", "E": "expand", "G": "groups", "p": "width", "c": "chunk"},
    time={
        "naive": 2 * h * n * N * P * (1 + M) + convolution,
        "matrix": 2 * h * n**2 * (N + P) + convolution,
        "chunked": h * n * (2 * c * (N + P) + N * P * (2 + sympy.log(n / c, 2))) + convolution,
    },
    launches={"naive": n, "chunked": sympy.log(n, 2)},
    memory={
        "naive": h * n * (2 * N + P),
        "matrix": h * n * sympy.Max(N, P, n, M),
        "chunked": h * n * (2 * N + P + c + M + N * P / c),
    },
    notes={
        "naive": ("steps", "decays", "levels", "state"),
        "matrix": ("steps", "decays", "levels", "weights"),
        "chunked": ("steps", "decays", "levels"),
    },
    variants=({"chunk": 4, "state": 3, "expand": 1, "groups": 2}, {"width": 1, "state": 5}),
    build=LogLinear,
    aliases=("log_linear_attention", "log_linear_mamba2"),
)
