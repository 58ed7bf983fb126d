r"""mLSTM: the matrix memory of xLSTM, with an exponential gate and a normaliser.

The gates of an LSTM are sigmoids of its own last output, so its tokens are read one after the other
and a decision once stored is hard to revise. mLSTM keeps a matrix C in place of a vector, lets its
gates depend on the token alone, and opens the input gate by an exponential: one token can outweigh
all before it. A second state n sums the weights that the keys were stored with,

$$C_t = f_t\, C_{t-1} + i_t\, k_t v_t^\top,\qquad n_t = f_t\, n_{t-1} + i_t\, k_t,\qquad h_t =
\frac{q_t C_t}{\max(|q_t \cdot n_t|,\, 1)}$$

$$i_t = e^{\iota_t},\qquad f_t = \sigma(\varphi_t),\qquad \iota, \varphi = 15 \tanh((x_t w + b) /
15)$$

with $q$ divided by $\sqrt d$. Where weights are positive and large it is an average of values, as
linear attention with its denominator; where all are small, the 1 keeps the result small.

$e^{\iota}$ overflows. C and n are therefore kept times $e^{-m}$, where m is the largest exponent:

$$m_t = \max(\log f_t + m_{t-1},\, \iota_t),\qquad C_t e^{-m_t} = e^{\log f_t + m_{t-1} - m_t}\,
C_{t-1} e^{-m_{t-1}} + e^{\iota_t - m_t}\, k_t v_t^\top$$

and 1 becomes $e^{-m_t}$. No factor is larger than 1, and m cancels: any $m_0$ gives the same h, so
that it needs no gradient. The products again follow a recurrence with a decay, of keys $e^{\iota -
m} k$; n is one more column of C, of values 1.

The output is linear in the values, by weights of either sign,

$$M_{ij} = \frac{w_{ij}}{\max(|\sum_r w_{ir}|, e^{-m_i})},\qquad w_{ij} = \frac{q_i \cdot k_j}{\sqrt
d}\, e^{D_{ij} - m_i},\qquad D_{ij} = \sum_{s = j + 1}^{i} \log f_s + \iota_j,\qquad m_i = \max_j
D_{ij}$$

Around the recurrence: each head is normalised (mean and variance) with a gain per channel, and
multiplied by a sigmoid of another projection (the output gate). There is no convolution.

Cost: $4\, n h\, d\, (e + 1)$ FLOPs token by token; by chunks of c tokens $n h\, (2 c\, (d + e + 1)
+ 4 d\, (e + 1))$, and $\log_2 n$ rounds of maxima for m.

``naive``    one token after the other: m, fade, write, read, divide.
``matrix``   the n × n map; the paper calls it parallel.
``chunked``  m of all tokens; then the map inside chunks, C and n from one chunk to the next.
             ``attnlab.core.chunks`` derives it.

The paper's letters: its $\tilde i, \tilde f$ are ι and φ, its C our $C^\top$ (it writes columns).

Common mistakes: a bound of 1 beside a state that is kept times $e^{-m}$; a forget gate at the
diagonal of D; products of gates whose logarithm is taken afterwards.

Readings. The layer is that of xLSTM 7B in released code. sLSTM, the other cell of xLSTM, has gates
that read its last output, and can only be run in order: it has no page here.

Departures.
- queries and keys are as wide as values unless ``head_dim`` is given; in xLSTM 7B half as wide
- released code adds 1e-6 to the denominator that is kept times $e^{-m}$, so that its result depends
  on m; here nothing is added
- biases of the input gate start at 0, in xLSTM 7B at -10, and no weights at 0
- padded tokens are skipped

Gives up. Nothing is erased: a key that comes again gets a mean of its values.

Beck, Pöppel, Spanring, Auer, Prudnikova, Kopp, Klambauer, Brandstetter, Hochreiter. xLSTM: Extended
Long Short-Term Memory. NeurIPS 2024, arXiv:2405.04517. The layer: Beck et al. xLSTM 7B: A Recurrent
LLM for Fast and Efficient Inference. 2025, arXiv:2503.13427.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.chunks import initial_state
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.heads import check_input
from attnlab.core.matrix_memory import (
    MatrixMemory,
    PerToken,
    chunked_elements,
    chunked_flops,
)
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state
from attnlab.core.shapes import NewTokens, Outputs, Queries, SelfKeys, SelfValues, Tokens, checked
from attnlab.mechanisms.recurrence.mlstm.parts import GatedHeads, State


@dataclass(frozen=True, kw_only=True)
class MLSTMOptions(Options):
    """The bound of the gates, and how the recurrence is computed.

    ``cap``    the largest logit of a gate in the layer, by cap · tanh(x / cap); None: no bound
    ``chunk``  tokens per chunk of the chunked form (c)
    """

    cap: float | None = 15.0
    chunk: Size = 64

    def check(self) -> None:
        if self.cap is not None and self.cap <= 0:
            raise ValueError(f"cap={self.cap} should be positive, or None for gates without bound")


# ---- naive


@form
def naive(q: Queries, k: SelfKeys, v: SelfValues, write: PerToken, keep: PerToken) -> Outputs:
    """Fade, write, read and divide, token by token; i = e^write, f = σ(keep)."""
    q, log_f, C, out = q * q.shape[-1] ** -0.5, F.logsigmoid(keep), initial_state(k, v), []
    n, m = torch.zeros_like(k[:, :, :1]), torch.zeros_like(write[:, :, 0])
    for t, (qi, ki, vi) in enumerate(zip(*(x.split(1, dim=2) for x in (q, k, v)), strict=True)):
        before, m = m, torch.maximum(log_f[:, :, t] + m, write[:, :, t]).detach()
        f, i = (log_f[:, :, t] + before - m).exp(), (write[:, :, t] - m).exp()
        f, i, least = (x[..., None, None] for x in (f, i, (-m).exp()))
        C, n = f * C + i * ki.mT @ vi, f * n + i * ki
        out.append(qi @ C / torch.maximum((qi @ n.mT).abs(), least))
    note("state", C)
    return torch.cat(out, dim=2)


# ---- matrix


@form
def matrix(q: Queries, k: SelfKeys, v: SelfValues, write: PerToken, keep: PerToken) -> Outputs:
    """The map of all values at once."""
    D = chunks.segments(F.logsigmoid(keep)) + write[..., None, :]
    m = D.amax(dim=-1, keepdim=True).detach().clamp(min=torch.finfo(D.dtype).min)  # of no writes
    w = q * q.shape[-1] ** -0.5 @ k.mT * (D - m).exp()
    norm = torch.maximum(w.sum(dim=-1, keepdim=True).abs(), (-m).exp())
    return note("weights", w / norm) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, write: PerToken, keep: PerToken,
    *, options: MLSTMOptions = MLSTMOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next."""
    out, state = advance(q, k, v, write, keep, fresh(k, v), options)
    note("state", state.sums)
    return out


def fresh(k: SelfKeys, v: SelfValues) -> State:
    """The state before the first token."""
    C = initial_state(k, v)
    return State(C, C.new_zeros(*C.shape[:3]), C.new_zeros(*C.shape[:2]))


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, write: PerToken, keep: PerToken, state: State,
    options: MLSTMOptions,
) -> tuple[Outputs, State]:  # fmt: skip
    """The outputs of the next tokens after ``state``, and the state after them."""
    log_f, C = F.logsigmoid(keep), torch.cat((state.sums, state.normaliser[..., None]), dim=-1)
    m = largest_exponents(log_f, write, state.largest)
    before = torch.cat((state.largest.detach()[..., None], m[..., :-1]), dim=-1)
    # Where m is log f + the m before, their difference is 0, whatever was rounded on the way to m.
    left = torch.where(m > write, -log_f, torch.minimum(before - m, -log_f)).detach()
    fade = log_f + left
    out, C = chunks.advance(
        q * q.shape[-1] ** -0.5, (write - m).exp()[..., None] * k, F.pad(v, (0, 1), value=1.0), C,
        options.chunk, log_decay=fade[..., None],
    )  # fmt: skip
    out, norm = out[..., :-1], out[..., -1:].abs()
    after = State(C[..., :-1].clone(), C[..., -1].clone(), m[..., -1].clone())
    return out / torch.maximum(norm, (-m).exp()[..., None]), after


@torch.no_grad()
def largest_exponents(log_f: PerToken, write: PerToken, start: Tensor) -> PerToken:
    """m of every token. Of spans of 1, 2, 4 … tokens the sum of log f and the largest exponent at
    their end are found of those of two halves."""
    total, m, span = log_f, write, 1
    while span < log_f.shape[-1]:
        earlier = F.pad(m, (span, 0), value=-torch.inf)[..., :-span]
        m = torch.maximum(total + earlier, m)
        total = total + F.pad(total, (span, 0))[..., :-span]
        span *= 2
    return torch.maximum(total + start[..., None], m)


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class MLSTM(MatrixMemory):
    """Multi-head mLSTM: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. ``step`` decodes; its state is C, n
    and m of every head.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: MLSTMOptions = MLSTMOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=None, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        self.write, self.keep = nn.Linear(dim, heads), nn.Linear(dim, heads)
        with torch.no_grad():
            self.write.bias.zero_()
            self.keep.bias.copy_(torch.linspace(3, 6, heads))
        self.set_output(GatedHeads(heads, self.value_dim, dim))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        cap, logits = self.options.cap, (self.write(x).mT, self.keep(x).mT)
        return logits if cap is None else tuple(cap * torch.tanh(each / cap) for each in logits)

    @checked
    def step(  # type: ignore[override]
        self, x: NewTokens, state: State | None = None
    ) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.into.weight)
        q, k, v, write, keep = self.taken(x)
        begin = fresh(k, v)
        if state is None:
            state = begin
        check_state(state, begin)
        out, after = advance(q, k, v, write, keep, state, self.options)
        return self._output(out, x, None), note("state", after)


# ---- card

n, h, d, e, c = letters("n h d e c")

CARD = Card(
    __doc__,
    name="mlstm",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=MLSTMOptions,
    letters={"c": "chunk"},
    time={
        "naive": 4 * h * n * d * (e + 1),
        "matrix": 2 * h * n**2 * (d + e),
        "chunked": h * n * chunked_flops(c, d, e + 1, erase=False),
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * sympy.Max(d, e, n),
        "chunked": h * n * chunked_elements(c, d, e + 1, erase=False),
    },
    notes={"naive": ("state",), "matrix": ("weights",), "chunked": ("state",)},
    variants=({"chunk": 3}, {"chunk": 5, "cap": None}),
    build=MLSTM,
    aliases=("xlstm", "matrix_lstm"),
)
