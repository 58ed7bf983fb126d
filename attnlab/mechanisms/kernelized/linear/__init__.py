r"""Linear Transformer: with features in place of the softmax, attention is an RNN.

A softmax weight measures how alike a query and a key are. If the measure is a dot product of
features instead, $\mathrm{sim}(q, k) = \phi(q) \cdot \phi(k)$, the query can be taken out of the
sum over the keys:

$$o_i = \frac{\sum_{j \le i} \phi(q_i)^\top \phi(k_j)\; v_j}{\sum_{j \le i} \phi(q_i)^\top
\phi(k_j)} = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top z_i},\qquad
S_i = S_{i-1} + \phi(k_i)\, v_i^\top,\quad z_i = z_{i-1} + \phi(k_i)$$

The matrix $S$ and the vector $z$ summarise the whole past: a recurrent network whose state does not
grow with the length. Without causality $S$ and $z$ are summed once, over all keys.

Cost: $4 h n r e$ FLOPs and no n × m tensor, with r features per head; the causal ``chunked`` form
adds $2 h n c (r + e)$ for chunks of c tokens.

Three forms of the same function:

``naive``      the left side: n × m weights, masked and divided by their sum.
``chunked``    the right side, with the weights inside each chunk and S, z from chunk to chunk, so
               that nearly all work is in matrix products; the backward pass computes the states
               again.
``recurrent``  the right side, one token at a time: the RNN itself.

``LinearAttention.step`` decodes with S and z as its state, and equals the parallel forms.

The feature map is an option: ``elu``, the paper's, ``relu``, ``dpfp``, ``taylor`` or ``based``,
whose equations stand beside their code in ``feature_maps``. Based takes the last with queries and
keys of 16 numbers (``feature_dim``), and lets such layers take turns with layers of attention in a
small window, which compare near tokens exactly.
A layer with ``positions`` turns the features above the line and leaves those below it, so that the
denominator stays positive (Su et al. 2021, arXiv:2104.09864, section 3.3).

The papers' letters: $N$ is our n, $D$ and $C$ are r, $M$ is e; $V'$ is the output, $S$ and $Z$ (or
$s$ and $z$) the two sums; Schlag's $d_{key}$ is d, $d_{dot}$ is r, and ν is ``nu``.

Common mistakes: padding must zero the features of a key (there are no scores to mask); a small
number added to denominators biases every row, so nothing is added here; sums over a long past need
float32, in bfloat16 they stop growing; the paper's map has no $1/\sqrt d$.

Readings. DPFP is the feature map alone here, without the delta rule by which Schlag et al. update
the state.

Departures.
- rows whose weights sum to exactly zero give zeros. The features relu and dpfp have such.
- causal masks are aligned at the bottom right when there are fewer queries than keys
- nothing is added to the denominators

Gives up. Without the softmax the weights are less sharp: it is hard to pick out one token.

Katharopoulos, Vyas, Pappas, Fleuret. Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention. ICML 2020, arXiv:2006.16236, sections 3.2 to 3.4. DPFP: Schlag, Irie, Schmidhuber.
Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021, arXiv:2102.11174, section 5.3.
Based: Arora, Eyuboglu, Zhang, Timalsina, Alberti, Zinsley, Zou, Rudra, Ré. Simple linear attention
language models balance the recall-throughput tradeoff. ICML 2024, arXiv:2402.18668.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Rotation, Turn
from attnlab.core.precision import upcast_together
from attnlab.core.probe import note
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.mechanisms.kernelized.linear import recurrence as linear_recurrence
from attnlab.mechanisms.kernelized.linear import turned
from attnlab.mechanisms.kernelized.linear.costs import elements, flops
from attnlab.mechanisms.kernelized.linear.feature_maps import (
    LinearOptions,
    based_features,
    dpfp_features,
    elu_features,
    exponential_features,
    relu_features,
)
from attnlab.mechanisms.kernelized.linear.recurrence import Sums, reciprocal
from attnlab.mechanisms.kernelized.linear.turned import TurnedSums

__all__ = [
    "CARD", "FORMS", "LinearAttention", "LinearOptions", "based_features", "chunked",
    "dpfp_features", "elu_features", "exponential_features", "naive", "recurrent", "relu_features",
]  # fmt: skip


# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *,
    causal: bool = False, padding: KeyPadding = None, options: LinearOptions = LinearOptions(),
    turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """The weights φ(q)·φ(k), masked, divided by their sum (Katharopoulos et al., eq. 4)."""
    phi_q, phi_k = _featured(q, k, padding, options)
    scores = compared = phi_q @ phi_k.mT
    if turn is not None:
        scores = turn.queries(phi_q) @ turn.keys(phi_k).mT
    if causal:
        seen = patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        scores, compared = scores * seen, compared * seen
    weights = note("weights", scores * reciprocal(compared.sum(dim=-1, keepdim=True)))
    return weights @ v


def _featured(
    q: Tensor, k: Tensor, padding: Tensor | None, options: LinearOptions
) -> tuple[Tensor, Tensor]:
    """φ(q) and φ(k); the features of padded keys are zero, which masks them."""
    q, k = options(q), options(k)
    if padding is not None:
        k = k.masked_fill(~padding[:, None, :, None], 0)
    return note("features_q", q), note("features_k", k)


# ---- recurrent


@form
def recurrent(
    q: Queries, k: Keys, v: Values, *,
    causal: bool = False, padding: KeyPadding = None, options: LinearOptions = LinearOptions(),
    turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """The RNN (eq. 16 to 20): each key and value is added to S and z, each query reads them.

    Training keeps a state per token, so this form is for reading the algorithm only.
    """
    n, m = q.shape[-2], k.shape[-2]
    last = range(m - n, m) if causal else [m - 1] * n  # the last key that each query sees
    phi_q, phi_k = _featured(q, k, padding, options)
    reading, written = (phi_q, phi_k) if turn is None else (turn.queries(phi_q), turn.keys(phi_k))
    S, z = linear_recurrence.initial_state(phi_k, v)
    out, seen = [], 0
    for i in range(n):
        while seen <= last[i]:
            key, value = written[:, :, seen], v[:, :, seen]
            S, z = S + key[..., None] * value[..., None, :], z + phi_k[:, :, seen]
            seen += 1
        total = phi_q[:, :, i, None] @ z[..., None]
        out.append(reading[:, :, i, None] @ S * reciprocal(total))
    note("state", Sums(S, z))
    return torch.cat(out, dim=-2)


# ---- chunked


@form
def chunked(
    q: Queries, k: Keys, v: Values, *,
    causal: bool = False, padding: KeyPadding = None, options: LinearOptions = LinearOptions(),
    turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """One sum over the keys (eq. 5 and 6); causally a running one, a chunk of tokens at a time.

    The causal backward pass computes the states again (section 3.3.1); first derivatives only.
    """
    features = _featured(q, k, padding, options)
    if turn is not None:
        return turned.chunked(*features, v, turn, causal=causal, chunk=options.chunk)
    return linear_recurrence.chunked(*features, v, causal=causal, chunk=options.chunk)


FORMS = {"naive": naive, "recurrent": recurrent, "chunked": chunked}

# ---- module


class LinearAttention(Layer):
    """Multi-head linear attention: (b, n, dim) → (b, n, dim), by any of the forms.

    Queries and keys have the width ``feature_dim`` d, which defaults to that of values.
    ``positions`` turns the features. ``step`` decodes; its state is S and z, of h·r·(e + 1)
    numbers per sequence at any length, and with ``positions`` the number of tokens.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "recurrent", "chunked"] = "chunked",
        options: LinearOptions = LinearOptions(), bias: bool = False,
        feature_dim: Size | None = None, positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)  # raises where heads do not divide dim
        if feature_dim is not None:
            width = self.heads.value_dim
            self.heads = Heads(dim, heads, bias=bias, head_dim=feature_dim, value_dim=width)
        self.causal, self.form, self.options = causal, form, options
        features = options(torch.zeros(self.heads.head_dim))  # raises where they do not fit
        self.positions = None if positions is None else positions.of_features(len(features))
        if self.positions is not None:
            self.positions.check_layer(heads, len(features), causal=causal)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        note("mask", patterns.visible(self.causal, padding))
        out = FORMS[self.form](
            q, k, v, causal=self.causal, padding=padding, options=self.options,
            turn=Turn.of(self.positions, x, padding),
        )  # fmt: skip
        return self.heads.merge(out)

    @checked
    def step(
        self, x: NewTokens, state: Sums | TurnedSums | None = None
    ) -> tuple[NewTokens, Sums | TurnedSums]:
        """The next t tokens given the sums over all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x)
        wide_q, wide_k = upcast_together(q, k)
        features = _featured(wide_q, wide_k, None, self.options)
        past: Any = state  # either of the two, which are checked where they are read
        chunk = self.options.chunk
        if self.positions is None:
            out, state = linear_recurrence.advance(*features, v, past, chunk=chunk)
        else:
            out, state = turned.advance(*features, v, self.positions, past, chunk=chunk)
        return self.heads.merge(out), note("state", state)


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="linear",
    family="kernelized",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=LinearOptions,
    letters={"c": "chunk"},
    time={
        "naive": lambda chosen: 2 * h * n * m * (chosen.count(d) + e),
        "recurrent": lambda chosen: 2 * h * (n + m) * chosen.count(d) * e,
        "chunked": flops,
    },
    launches={"recurrent": n},
    memory={
        "naive": lambda chosen: h * n * (m + chosen.count(d)),
        "recurrent": lambda chosen: h * n * (chosen.count(d) + e),
        "chunked": elements,
    },
    notes={
        "naive": ("features_q", "features_k", "weights"),
        "chunked": ("features_q", "features_k", "state"),
        "recurrent": ("features_q", "features_k", "state"),
    },
    variants=(
        {"chunk": 3},
        {"feature": "relu", "chunk": 5},
        {"feature": "dpfp", "nu": 3, "chunk": 2},
        {"feature": "taylor", "degree": 2},
        {"feature": "based"},
    ),
    build=LinearAttention,
    aliases=("linear_transformer",),
)
