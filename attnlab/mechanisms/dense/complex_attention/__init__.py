r"""Complex attention: the scores of complex queries and keys are the sizes of their products.

Complex word embeddings (``positions.complex_embedding``) put the position of a word into the phase
of complex numbers. A Transformer that reads them keeps complex numbers throughout. With complex
projections and $k^\dagger$ for the conjugate transpose, a score is the absolute value of a complex
product:

$$z_{ij} = q_i k_j^\dagger = \sum_c q_{ic} \overline{k_{jc}},\qquad
w = \mathrm{softmax}_j\!\left(\frac{|z_{ij}|}{\sqrt d}\right),\qquad o_i = \sum_j w_{ij} v_j$$

The weights are real, the outputs complex. The conjugate makes scores relative: where a query
turns by $e^{i\omega i}$ and a key by $e^{i\omega j}$, their product turns by $e^{i\omega(i-j)}$.
A phase common to all inputs changes no weight, and turns all outputs.

``score`` says how a product becomes a real number:

"modulus"       $|z_{ij}|$, the paper's. Its sign is lost: vectors that point in opposite directions
                attend to each other as much as equal ones.
"real"          the real part, which is the ordinary product of the real vectors [Re, Im]. For real
                inputs it is softmax attention.
"unconjugated"  $|q_i k_j^\top|$, as the authors' code computes it: phases add up, so
                a score depends on i + j, that is on absolute positions.

``naive``       the equation, with PyTorch's complex numbers.
``real_pairs``  products of real matrices: $\mathrm{Re}\, z$ is the product of [Re q, Im q] with
                [Re k, Im k], and $\mathrm{Im}\, z$ that of [Im q, -Re q] with it.

Cost, with d and e counted in complex numbers: $8hnmd + 4hnme$ FLOPs, and $4hnmd + 4hnme$ for
``score="real"``. Beside a real layer whose heads are as wide (d real numbers instead of d complex
ones) that is four times the score products, twice the products with the values and four times the
projections; ``karatsuba`` makes the last factor three. Beside a real layer of as many real numbers
(2d) the projections cost the same and have half the parameters. The scores are held: n × m twice.

|z| has no derivative at z = 0. Both forms give the gradient 0 there, one of its subgradients.

The paper's letters: $W^Q, W^K, W^V$ are the complex projections; $e_{ij}$ is our score.

Departures.
- scores are |z|/√d; the paper prints the length under the root. The authors' classification code
  uses √d, their translation code √(2d). The printed $a_{ij} = \mathrm{softmax}(e_{ij}) / \sum
  e_{ij}$ is a softmax over the keys.
- keys are conjugated, as the paper writes and its code does not
- a row without keys gives zeros
- causal masks are aligned at the bottom right when there are fewer queries than keys
- no dropout on the weights

Gives up. A complex number needs the memory of two real ones, and its products cost more.

Wang, Zhao, Lioma, Li, Zhang, Simonsen. Encoding Word Order in Complex Embeddings. ICLR 2020,
arXiv:1912.12333, appendix B, eq. 13 and 14.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Complex
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.complex_linear import Weights, as_complex, as_pairs
from attnlab.core.options import Size
from attnlab.core.patterns import Mask
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.dense.complex_attention.heads import ComplexHeads

ComplexQueries = Complex[Tensor, "b h n d"]
ComplexKeys = Complex[Tensor, "b h m d"]
ComplexValues = Complex[Tensor, "b h m e"]
ComplexOutputs = Complex[Tensor, "b h n e"]
Score = Literal["modulus", "real", "unconjugated"]

# ---- helpers


class Modulus(torch.autograd.Function):
    """|z| of z = (real, imag), whose gradient at 0 is 0; that of ``torch.hypot`` is NaN there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(real: Tensor, imag: Tensor) -> Tensor:
        return torch.hypot(real, imag)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        real, imag, size = ctx.saved_tensors
        length = size.where(size > 0, 1)  # in float16 a division by less than 1e-5 overflows
        return grad * (real / length), grad * (imag / length)


# ---- naive


@checked
def naive(
    q: ComplexQueries, k: ComplexKeys, v: ComplexValues, *,
    mask: Mask = None, score: Score = "modulus",
) -> ComplexOutputs:  # fmt: skip
    """The equation in complex numbers (Wang et al., eq. 14)."""
    allowed = patterns.dense_of(mask, q, k)
    products = q @ (k.mT if score == "unconjugated" else k.mH)
    sizes = products.real if score == "real" else products.abs()
    scores = note("scores", sizes * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, allowed))
    return weights.to(v.dtype) @ v


# ---- real pairs


@checked
def real_pairs(
    q: ComplexQueries, k: ComplexKeys, v: ComplexValues, *,
    mask: Mask = None, score: Score = "modulus",
) -> ComplexOutputs:  # fmt: skip
    """``naive`` by products of real matrices, each complex vector as [Re, Im]."""
    allowed = patterns.dense_of(mask, q, k)
    keys = as_pairs(k.conj() if score == "unconjugated" else k)
    q = q * q.shape[-1] ** -0.5
    real = as_pairs(q) @ keys.mT
    if score == "real":
        scores = note("scores", real)
    else:
        scores = note("scores", Modulus.apply(real, as_pairs(-1j * q) @ keys.mT))
    weights = scores.softmax(-1) if allowed is None else masked_softmax(scores, allowed)
    note("weights", weights)
    return as_complex(weights @ as_pairs(v))


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "real_pairs": real_pairs}

# ---- module


class ComplexAttention(DenseAttention):
    """Multi-head complex attention on real tensors: (b, n, dim) → (b, n, dim).

    The first half of ``dim`` holds real parts, the second half imaginary ones; each of the heads
    has dim / (2·heads) complex numbers. ``weights`` and ``karatsuba`` are those of the projections
    (``core.complex_linear.ComplexLinear``). Half precisions are projected as they are and compared
    in float32.
    """

    one_softmax = False

    @checked
    def __init__(
        self,
        dim: Size,
        heads: Size,
        *,
        causal: bool = False,
        form: Literal["naive", "real_pairs"] = "real_pairs",
        score: Score = "modulus",
        bias: bool = False,
        weights: Weights = "free",
        karatsuba: bool = False,
    ) -> None:
        attend = functools.partial(_on_pairs, FORMS[form], score)
        heads_of = functools.partial(ComplexHeads, weights=weights, karatsuba=karatsuba)
        super().__init__(dim, heads, attend, causal=causal, bias=bias, projections=heads_of)
        self.form, self.score = form, score

    def extra_repr(self) -> str:
        return f"causal={self.causal}, form={self.form!r}, score={self.score!r}"


def _on_pairs(
    form: Callable[..., Tensor], score: Score, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask
) -> Tensor:
    """A form on heads that hold [Re, Im], in their own dtype again."""
    out = form(as_complex(q), as_complex(k), as_complex(v), mask=mask, score=score)
    return as_pairs(out).to(v.dtype)


# ---- card

h, n, m, d, e = letters("h n m d e")


CARD = Card(
    __doc__,
    name="complex_attention",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    positions_reason="its words are complex numbers, whose phases already turn with the positions",
    time={
        "naive": 8 * h * n * m * (d + e),  # the weights as complex numbers
        "real_pairs": 8 * h * n * m * d + 4 * h * n * m * e,
    },
    memory=2 * h * n * m,
    notes={"naive": ("scores", "weights"), "real_pairs": ("scores", "weights")},
    variants=(
        {"score": "real"},
        {"score": "unconjugated", "weights": "equal"},
        {"karatsuba": True},
    ),
    build=ComplexAttention,
)
