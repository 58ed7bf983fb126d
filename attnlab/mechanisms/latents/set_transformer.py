r"""Set Transformer (ISAB): a set attends to itself through l inducing points.

A set has no order: what a network says of it must not change when its members are permuted.
Attention without positions has this property. The Set Transformer builds four blocks of it. The
multi-head attention block (MAB) has residuals, normalisations and a feed-forward layer rFF that
acts on each member alone:

$$\mathrm{MAB}(X, Y) = \mathrm{LN}(H + \mathrm{rFF}(H)),\qquad
H = \mathrm{LN}(X + \mathrm{Multihead}(X, Y, Y))$$

$$\mathrm{SAB}(X) = \mathrm{MAB}(X, X),\qquad
\mathrm{ISAB}(X) = \mathrm{MAB}(X, \mathrm{MAB}(I, X)),\qquad
\mathrm{PMA}(X) = \mathrm{MAB}(S, \mathrm{rFF}(X))$$

The set attention block (SAB) compares all pairs. The induced one (ISAB) has l learned inducing
points I: they attend to the set, and the set attends to them, which costs n · l pairs in place of
n². Both are equivariant: permuting the members permutes the outputs. Pooling by attention (PMA)
gives one vector for each of its k learned seeds S, and is invariant: the order does not matter.

Cost of an ISAB: $4 h l n (d + e)$ FLOPs beside its linear layers; no n × n tensor.

The forms are the two attentions of an ISAB (eqs. 9 and 10) without what stands between, as written
in ``attnlab.core.latents``:

``naive``  both by the equation.
``fused``  both by PyTorch's ``scaled_dot_product_attention``.

The paper's letters: $m$ (the number of inducing points) is our l.

Readings, and differences. The scale is 1/√d of the width of a head; the released code divides by
the root of the full width. The residual is the block's input, as printed; the released code adds
the projected queries, has no output projection and no layer normalisation unless asked. rFF(H) is
relu(H W + b), as there. Padded members are no keys; their own outputs mean nothing.

The layer has residuals of its own. In a model that adds a residual and a feed-forward layer around
it, both are there twice.

Departures.
- the scale is that of a head's width, as in attention; the released code takes the full width
- the residual is the block's input, and there is an output projection

Gives up. Members meet only through a few inducing points, and have no order.

Lee, Lee, Kim, Kosiorek, Choi, Teh. Set Transformer: A Framework for Attention-based
Permutation-Invariant Neural Networks. ICML 2019, arXiv:1810.00825, section 3.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.latents import ATTEND, FORMS, Form
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.shapes import KeyPadding, TokenPadding, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class SetTransformerOptions(Options):
    """The sizes of an induced set attention block.

    ``inducing``  l, the number of inducing points.
    ``norm``      whether there is layer normalisation, as printed.
    """

    inducing: Size = 32
    norm: bool = True


# ---- module


class MAB(nn.Module):
    """A multi-head attention block: x (b, n, dim) attends to y (b, m, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, norm: bool = True, form: Form = "fused"
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.attend = Heads(dim, heads), ATTEND[form]
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())
        self.norms = nn.ModuleList(nn.LayerNorm(dim) if norm else nn.Identity() for _ in range(2))

    @checked
    def forward(
        self, x: Tokens, y: Float[Tensor, "b m dim"], padding: KeyPadding = None
    ) -> Tokens:  # fmt: skip
        """``padding`` (b, m) is True at the real members of ``y``."""
        q, k, v = self.heads.project(x, y, padding=padding)
        h = self.norms[0](x + self.heads.merge(self.attend(q, k, v, padding)))
        out: Tensor = self.norms[1](h + self.feed_forward(h))
        return out


class SAB(nn.Module):
    """A set attention block: every member attends to every member, (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, norm: bool = True, form: Form = "fused"
    ) -> None:  # fmt: skip
        super().__init__()
        self.block = MAB(dim, heads, norm=norm, form=form)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        x = zero_nonfinite_padding(x, padding)
        out: Tensor = self.block(x, x, padding)
        return out


class ISAB(Layer):
    """An induced set attention block: (b, n, dim) → (b, n, dim) through l inducing points."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Form = "fused", options: SetTransformerOptions = SetTransformerOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.options, self.form = options, form
        self.inducing = nn.Parameter(torch.randn(options.inducing, dim) * dim**-0.5)
        self.reading = MAB(dim, heads, norm=options.norm, form=form)
        self.answering = MAB(dim, heads, norm=options.norm, form=form)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.reading.heads.check_input(x, "x")
        x = zero_nonfinite_padding(x, padding)
        points = self.inducing.to(x.dtype).expand(len(x), -1, -1)
        return self.answering(x, self.reading(points, x, padding))


class PMA(nn.Module):
    """Pooling by attention: a set (b, n, dim) → ``seeds`` vectors (b, seeds, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, seeds: Size = 1, norm: bool = True, form: Form = "fused"
    ) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(seeds, dim) * dim**-0.5)
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())
        self.block = MAB(dim, heads, norm=norm, form=form)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Float[Tensor, "b k dim"]:
        """Raises ValueError for a set whose members are all padding."""
        self.block.heads.check_input(x, "x")
        if padding is not None and not padding.any(dim=1).all():
            empty = int((~padding.any(dim=1)).nonzero()[0])
            raise ValueError(f"set {empty} has no members: every place of it is padding")
        seeds = self.seeds.to(x.dtype).expand(len(x), -1, -1)
        out: Tensor = self.block(
            seeds, self.feed_forward(zero_nonfinite_padding(x, padding)), padding
        )
        return out


# ---- card

h, n, d, e, l = letters("h n d e l")  # noqa: E741

CARD = Card(
    __doc__,
    name="set_transformer",
    family="latents",
    role="attend",
    forms=FORMS,
    causal="never",
    causal_reason="each of its inducing points attends to the whole set, which has no order",
    options=SetTransformerOptions,
    letters={"l": "inducing"},
    positions_reason="it is for sets, and its inducing points stand at no position",
    time=4 * h * l * n * (d + e),
    memory={"naive": h * l * n, "fused": h * (l + n) * (d + e)},
    notes={"naive": ("scores", "weights")},
    variants=({}, {"inducing": 5, "norm": False}),
    build=ISAB,
    aliases=("isab", "induced_set_attention"),
    small_options={"inducing": 6},
)
