r"""Perceiver IO: inputs of any kind are read into a few latents, which are worked on, then asked.

Three parts, each made of one block. A block lets x attend to y, and both have residuals:

$$\mathrm{Block}(x, y) = A + \mathrm{MLP}(\mathrm{LN}(A)),\qquad
A = x + \mathrm{MHA}(\mathrm{LN}(x), \mathrm{LN}(y))$$

*Encode*: l learned latents attend to the m inputs. *Process*: the latents attend to each other,
``depth`` times. *Decode*: the output queries, as many as there are outputs, attend to the latents:

$$z_0 = \mathrm{Block}(\mathrm{latents}, x),\qquad z_{t+1} = \mathrm{Block}(z_t, z_t),\qquad
y = \mathrm{Block}(queries, z_{depth})$$

The inputs may be tokens, pixels or numbers: their order is known by what is added to them alone.
An output query says what is asked: a position, for a text; one learned vector, for a label; the
place of a pixel, for an image. Each output depends on its own query only, so outputs may be asked
for a few at a time. As a layer of a sequence the queries are the inputs themselves.

Cost: $4 h l n (d + e)$ FLOPs to encode and to decode n tokens, and $2 h\, depth\, l^2 (d + e)$ that
does not grow with n, beside the linear layers.

The forms encode and decode (section 3.1) without what stands between, as written in
``attnlab.core.latents``:

``naive``  by the equation.
``fused``  by PyTorch's ``scaled_dot_product_attention``.

The paper's letters: $M$ inputs, $N$ latents and $O$ outputs are our m, l and n; $L$ is ``depth``.

Readings. The MLP has one hidden layer of ``widening`` · dim with GELU. Inputs, latents and queries
have one width here; in the paper each may have its own. The residual of the queries
(``residual=False`` leaves it out) is optional in the paper. Padded inputs are no keys; the outputs
of padded queries mean nothing.

Departures.
- inputs, latents and output queries have one width
- as a layer of a sequence its output queries are its inputs

Gives up. Tokens meet only in a few latents, all at once: nothing causal.

Jaegle, Borgeaud, Alayrac, Doersch, Ionescu, Ding, Koppula, Zoran, Brock, Shelhamer, Hénaff,
Botvinick, Zisserman, Vinyals, Carreira. Perceiver IO: A General Architecture for Structured Inputs
& Outputs. ICLR 2022, arXiv:2107.14795, sections 3.1 and 3.2, appendix E.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.heads import Heads, check_input, zero_nonfinite_padding
from attnlab.core.latents import ATTEND, FORMS, Form
from attnlab.core.layer import Layer
from attnlab.core.options import Count, Options, Size
from attnlab.core.shapes import KeyPadding, TokenPadding, Tokens, checked

MOST_BLOCKS = 1000


@dataclass(frozen=True, kw_only=True)
class PerceiverIOOptions(Options):
    """The sizes of what stands between inputs and outputs.

    ``latents``   l, the number of latent vectors.
    ``depth``     how often the latents attend to each other.
    ``widening``  the hidden width of the MLPs, in units of dim.
    ``residual``  whether an output query is added to what it takes.
    """

    latents: Size = 32
    depth: Count = 2
    widening: Size = 1
    residual: bool = True

    def check(self) -> None:
        if self.depth > MOST_BLOCKS:
            raise ValueError(f"depth should be at most {MOST_BLOCKS}, got {self.depth:,}")


# ---- module


class Block(nn.Module):
    """x (b, n, dim) attends to y (b, m, dim), then an MLP: (b, n, dim)."""

    def __init__(
        self, dim: int, heads: int, *, widening: int, form: Form, residual: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.attend, self.residual = Heads(dim, heads), ATTEND[form], residual
        self.norms = nn.ModuleDict({name: nn.LayerNorm(dim) for name in ("x", "y", "mlp")})
        hidden = widening * dim
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor, y: Tensor, padding: KeyPadding = None) -> Tensor:
        q, k, v = self.heads.project(self.norms["x"](x), self.norms["y"](y), padding=padding)
        taken = self.heads.merge(self.attend(q, k, v, padding))
        a = x + taken if self.residual else taken
        out: Tensor = a + self.mlp(self.norms["mlp"](a))
        return out


class PerceiverIO(Layer):
    """Encode, process, decode: (b, m, dim) → (b, n, dim) for n queries, or as many as inputs."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Form = "fused", options: PerceiverIOOptions = PerceiverIOOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.options, self.form, self.dim = options, form, dim
        self.latents = nn.Parameter(torch.randn(options.latents, dim) * 0.02)
        width = options.widening
        self.encode = Block(dim, heads, widening=width, form=form)
        self.process = nn.ModuleList(
            Block(dim, heads, widening=width, form=form) for _ in range(options.depth)
        )
        self.decode = Block(dim, heads, widening=width, form=form, residual=options.residual)

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        queries: Float[Tensor, "b k dim"] | None = None,
    ) -> Float[Tensor, "b k dim"]:  # fmt: skip
        """The outputs of ``queries`` (b, k, dim), of the inputs themselves where none are given.

        ``padding`` (b, n) is True at real inputs.
        """
        check_input(x, "x", self.dim, self.latents)
        x = zero_nonfinite_padding(x, padding)
        z = self.encode(self.latents.to(x.dtype).expand(len(x), -1, -1), x, padding)
        for block in self.process:
            z = block(z, z)
        if queries is not None:
            check_input(queries, "queries", self.dim, self.latents)
        out: Tensor = self.decode(x if queries is None else queries, z)
        return out


# ---- card

h, n, d, e, l, w, dim = letters("h n d e l w dim")  # noqa: E741
HIDDEN = w * dim * (n + l)  # in the MLPs

CARD = Card(
    __doc__,
    name="perceiver_io",
    family="latents",
    role="attend",
    forms=FORMS,
    causal="never",
    causal_reason="its latents attend to all inputs before any output is asked for",
    options=PerceiverIOOptions,
    letters={"l": "latents", "depth": "depth", "w": "widening"},
    positions_reason="its latent vectors stand at no position",
    time=2 * h * l * (2 * n + letters("depth")[0] * l) * (d + e),
    memory={"naive": h * l * n + HIDDEN, "fused": h * (l + n) * (d + e) + HIDDEN},
    notes={"naive": ("scores", "weights")},
    variants=({}, {"latents": 5, "depth": 0, "widening": 2}, {"latents": 7, "residual": False}),
    build=PerceiverIO,
    aliases=("perceiver",),
    small_options={"latents": 6},
)
