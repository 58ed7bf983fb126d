r"""Log-linear Gated DeltaNet: the gated delta rule, in one state for each of a few blocks.

Gated DeltaNet keeps all of the past in one state. Here, as in ``log_linear``, the t tokens before
token t lie in a few blocks, small ones near by and large ones far away: one of $2^{\ell - 1}$
tokens for each binary digit $\ell$ of t that is 1, the largest first. Each block has a state of its
own, its level; the token itself is level 0. A token lets all of them fade, erases in each what its
key reads there, and writes into its own; its query weights what it reads of each level:

$$S_t^{(\ell)} = \sum_{s\ \text{in}\ \ell} A_t A_{t-1} \cdots A_{s+1}\, b_s\, k_s
v_s^\top,\qquad A_t = a_t\, (I - b_t\, k_t k_t^\top),\qquad o_t = \sum_{\ell}
\lambda_t^{(\ell)}\, q_t S_t^{(\ell)}$$

$$a_t = \exp\!\big(-e^{A}\, \mathrm{softplus}(x_t w_a + c)\big),\qquad b_t = \sigma(x_t w_b),\qquad
\lambda_t^{(\ell)} = \mathrm{softplus}(c_\ell \cdot x_t w_\ell)$$

Queries and keys are of unit length (rows), $q$ is divided by $\sqrt d$, and the layer around the
rule is that of Gated DeltaNet. Given queries, keys and gates the map of the values is Gated
DeltaNet's times Λ, number by number; with all λ = 1 it is Gated DeltaNet's:

$$M = \Lambda \odot \Big[\big(\mathrm{tril}(Q K^\top) \odot D\big)\, \big(I + \mathrm{stril}(
\mathrm{diag}(b)\, K K^\top) \odot D\big)^{-1} \mathrm{diag}(b)\Big],\qquad \Lambda_{ts} =
\lambda_t^{(\ell(t, s))}$$

where $D_{ij} = \prod_{j < s \le i} a_s$ and $\ell(t, s)$ is the highest binary digit in which s and
t differ. Λ stands outside the inverse: it weights what is read, and never what is erased.

Cost, for M levels: $n h\, d e\, (6 M + 2)$ FLOPs token by token; by chunks of c tokens $n h\, (c\,
(7 d + 3 e) + 2 d\, (d + e) + d\, (d + e) \log_2 (n / c) + 2 d^2 (d + e) / c)$.

``naive``    one token after the other: add up blocks, fade, erase, write, read each level.
``matrix``   the n × n map, by a triangular solve.
``chunked``  the map inside chunks; of two blocks the second reads the state of the first.

Common mistakes: λ inside the inverse; blocks counted back from the query; the erasure in the newest
state alone.

Readings. Levels of ``log_linear``, rule of ``gated_deltanet``; neither paper nor code was at hand.

Departures.
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

from attnlab.core import chunks, fenwick
from attnlab.core.card import Card, letters
from attnlab.core.fenwick import LevelMemory, Levels, LevelScales, Seen, States
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import HeadNorm, PerHead, PerToken, decay_bias, decay_rates, unit
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class LogLinearDeltaNetOptions(Options):
    """The levels, and how the rule is computed.

    ``levels``  of blocks, at least 2: one for each digit of 2^(levels - 1) tokens, and level 0 (M)
    ``width``   taps of the short convolution (p)
    ``chunk``   tokens per chunk of the chunked form, a power of two (c)
    """

    levels: Size = 16
    width: Size = 4
    chunk: Size = 64

    def check(self) -> None:
        fenwick.check_levels(self.levels)
        if self.chunk & (self.chunk - 1):
            raise ValueError(f"chunk={self.chunk} should be a power of two, as blocks are")


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales,
) -> Outputs:  # fmt: skip
    """Add up, fade, erase, write and read, token by token."""
    S, seen = fenwick.initial_states(k, v, level)
    out, S = advance(q, k, v, step, decay, log_A, level, scale, S, seen)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales, S: States, seen: Seen,
) -> tuple[Outputs, States]:  # fmt: skip
    """The outputs of the next tokens after the states ``S`` of ``seen`` ones, and those after."""
    given, out = ruled(q, k, step, decay, log_A, level, scale), []
    for t, (qi, ki, bi, ai, li, vi) in enumerate(
        zip(*(x.split(1, dim=2) for x in (*given, v)), strict=True)
    ):
        qi, ki = qi[:, :, None], ki[:, :, None]
        faded = ai.exp()[..., None] * fenwick.added_up(S, seen + t)
        erased = faded - bi[..., None] * ki.mT @ (ki @ faded)
        S = torch.cat((bi[..., None] * ki.mT @ vi[:, :, None], erased[:, :, 1:]), dim=2)
        out.append(li @ (qi @ S).squeeze(-2))
    return torch.cat(out, dim=2), S


def ruled(
    q: Queries, k: SelfKeys, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Queries and keys of unit length, the queries divided by √d; b and log a (b, h, n, 1); λ (b,
    h, n, levels)."""
    lam = fenwick.weights_of(level, scale)
    b = torch.sigmoid(step)[..., None]
    log_a = (-log_A.exp()[:, None] * F.softplus(decay))[..., None]
    q, k = note("queries", unit(q) * q.shape[-1] ** -0.5), note("keys", unit(k))
    return q, k, note("steps", b), note("decays", log_a), lam


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales,
) -> Outputs:  # fmt: skip
    """The map of all values at once."""
    q, k, b, log_a, lam = ruled(q, k, step, decay, log_A, level, scale)
    D = chunks.segments(log_a[..., 0]).exp()
    weights = torch.linalg.solve_triangular(
        (b * k @ k.mT) * D, (q @ k.mT) * D, upper=False, left=False, unitriangular=True
    )
    return note("weights", fenwick.of_pairs(lam) * weights * b.mT) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales, *,
    options: LogLinearDeltaNetOptions = LogLinearDeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks. A block has a state S of its own, the product ``kept`` of its
    transitions, and in ``read`` what each query is for the state before the block."""
    n = q.shape[2]
    c = min(options.chunk, 1 << (n - 1).bit_length())
    q, k, b, log_a, lam = ruled(q, k, step, decay, log_A, level, scale)
    q, k, v, b, log_a, near = (chunks.cut(x, c) for x in (q, k, v, b, log_a, lam))
    pairs, since, until = chunks.decayed(log_a)
    solved = b.mT * torch.linalg.solve_triangular(
        pairs(b * k, k), torch.cat((pairs(q, k), (until * k).mT), dim=-2),
        upper=False, left=False, unitriangular=True,
    )  # fmt: skip
    weights, written = solved.split((c, k.shape[-1]), dim=-2)
    out, S = (fenwick.of_pairs(near) * weights) @ v, written @ v
    read = since * q - weights @ (since * k)
    whole = torch.diag_embed(since[..., -1, :].expand_as(k[..., 0, :]))
    kept = whole - written @ (since * k)
    for digits in range(c.bit_length(), (n - 1).bit_length() + 1):
        (S, later), (kept, own), (read, reads), (out, reading) = (
            chunks.cut(x, 2).unbind(3) for x in (S, kept, read, out)
        )
        own_level = lam[..., min(digits, lam.shape[-1] - 1), None]
        weight = chunks.cut(own_level, 2 * read.shape[3])[..., read.shape[3] :, :]
        out = torch.cat((out, reading + weight * (reads @ S)), dim=3)
        read = torch.cat((read, reads @ kept), dim=3)
        S, kept = own @ S + later, own @ kept
    return out.flatten(2, 3)[:, :, :n]


@upcasting
def read(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    level: Levels, scale: LevelScales, options: LogLinearDeltaNetOptions,
) -> tuple[Outputs, States]:  # fmt: skip
    """The outputs of the first tokens by chunks, and the states after them."""
    out = chunked(q, k, v, step, decay, log_A, level, scale, options=options)
    q, k, b, log_a, lam = ruled(q, k, step, decay, log_A, level, scale)
    return out, fenwick.erased_states_of(k, v, b, log_a, lam.shape[-1], options.chunk)


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class LogLinearDeltaNet(LevelMemory):
    """Log-linear Gated DeltaNet: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. Each query and key serves
    ``value_heads`` / ``heads`` consecutive heads of values, each with its own gates and levels.
    ``step`` decodes; its state is every S, how many tokens were read, and the last inputs.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: LogLinearDeltaNetOptions = LogLinearDeltaNetOptions(),
        head_dim: Size | None = None, value_dim: Size | None = None,
        value_heads: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, width=options.width, head_dim=head_dim, value_dim=value_dim,
            value_heads=value_heads,
        )  # fmt: skip
        self.form, self.options, self.most = form, options, options.levels
        self.forms = with_options(FORMS, options)
        self.steps = nn.Linear(dim, self.value_heads, bias=False)
        self.decays = nn.Linear(dim, self.value_heads)
        self.decays.bias = decay_bias(self.value_heads)
        self.log_A = decay_rates(self.value_heads)
        self.levels = nn.Linear(dim, self.value_heads * options.levels, bias=False)
        self.scale = nn.Parameter(torch.ones(self.value_heads, options.levels))
        gate = nn.Linear(dim, self.value_heads * self.value_dim, bias=False)
        self.set_output(HeadNorm(self.value_heads, self.value_dim, dim, gate=gate))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        level = self.heads.split(self.levels(x), self.options.levels)
        return self.steps(x).mT, self.decays(x).mT, self.log_A, level, self.scale

    def _read(self, *given: Tensor) -> tuple[Tensor, States]:
        q, k, v, step, decay, log_A, level, scale = given
        return read(q, k, v, step, decay, log_A, level, scale, self.options)

    def _follow(self, S: States, seen: Seen, *given: Tensor) -> tuple[Tensor, States]:
        q, k, v, step, decay, log_A, level, scale = given
        return advance(q, k, v, step, decay, log_A, level, scale, S, seen)


# ---- card

n, h, d, e, c, p, M = letters("n h d e c p M")
convolution = 2 * p * n * h * (2 * d + e)
across = d * (d + e) * (2 + sympy.log(n / c, 2))  # and 2 d² (d + e) / c for the states of blocks

CARD = Card(
    __doc__,
    name="log_linear_deltanet",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its states hold what was read before",
    options=LogLinearDeltaNetOptions,
    letters={"M": "levels", "c": "chunk", "p": "width"},
    time={
        "naive": h * n * d * e * (6 * M + 2) + convolution,
        "matrix": h * n**2 * (4 * d + 2 * e + n) + convolution,
        "chunked": h * n * (c * (7 * d + 3 * e) + across) + convolution,
    },
    launches={"naive": n, "chunked": sympy.log(n, 2)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * (2 * d + e + n + M),
        "chunked": h * n * (2 * d + e + c + M + d * (d + e) / c),
    },
    notes={
        "naive": ("queries", "keys", "steps", "decays", "levels", "state"),
        "matrix": ("queries", "keys", "steps", "decays", "levels", "weights"),
        "chunked": ("queries", "keys", "steps", "decays", "levels"),
    },
    variants=({"chunk": 4, "levels": 5}, {"width": 1, "levels": 3}),
    build=LogLinearDeltaNet,
    aliases=("log_linear_gated_deltanet", "log_linear_gdn"),
)
