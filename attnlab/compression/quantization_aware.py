r"""Quantization-aware training: the network learns with the rounding that it will have.

A network that is rounded after its training has not learned to work with rounded numbers. Here
every forward pass uses rounded weights and inputs, while the unrounded weights are trained:

$$\hat x = s\,(q - z),\qquad
  \frac{\partial L}{\partial x} = \frac{\partial L}{\partial \hat x}\quad\text{where}\quad
  q_\min \le \mathrm{round}(x/s) + z \le q_\max,\quad 0\;\text{elsewhere}$$

The gradient of rounding is 0 almost everywhere; the straight-through estimator takes 1 in its
place. Beyond the range the gradient is 0, as a number that is clipped there does not move the
output. Q8BERT takes 1 ``everywhere``, so that clipped numbers go on moving.

The range of a weight is that of the matrix at each step. The range of an input is a moving average,
set by the first batch and observed in training alone. ``convert`` then gives the same layers with
integers.

``naive``      one weight after the other.
``vectorised`` the whole matrix at once.

Common mistakes: an estimator that multiplies by the gradient of ``round``, which is 0; ranges that
are observed in evaluation too; weights of which only the rounded numbers are kept, so that small
updates are lost.

Departures.
- activations are affine; Q8BERT's are symmetric, with a decay of 0.9999 where ``constant`` is
  0.0001
- a matrix that is used twice, as a tied table, is rounded with one scale for both

Zafrir, Boudoukh, Izsak, Wasserblat. Q8BERT: Quantized 8Bit BERT. NeurIPS Workshop on Energy
Efficient Machine Learning 2019, arXiv:1910.06188. Jacob, Kligys, Chen, Zhu, Tang, Howard, Adam,
Kalenichenko. Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference. CVPR 2018, arXiv:1712.05877, section 3.
"""

import copy
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from attnlab.compression.levels import (
    UNCHANGED,
    Levels,
    Range,
    Watching,
    observe,
    range_of,
    rounded,
    scale_of,
    straight_through,
)
from attnlab.compression.matrices import check_module, refuse_meta, under_mask
from attnlab.compression.quantized import (
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    matrices_of,
    put,
    size_of,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.options import check_value
from attnlab.core.shapes import checked

# ---- forms

Gradient = Literal["inside", "everywhere"]


@checked
def naive(
    W: Float[Tensor, "f dim"], *, options: Levels = Levels(), gradient: Gradient = "inside"
) -> Float[Tensor, "f dim"]:
    """x̂ and its estimated gradient, one weight after the other."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.numel():
        return W
    scale = scale_of(range_of(W, options.per), options)
    steps, zeros = (x.expand(len(W), 1)[:, 0].tolist() for x in scale)
    values = torch.zeros(W.shape, dtype=torch.float64)
    passes = torch.ones(W.shape, dtype=torch.bool)
    for i, (row, s, z) in enumerate(zip(W.tolist(), steps, zeros, strict=True)):
        for j, x in enumerate(row):
            at = round(x / s) + z
            q = min(max(at, options.lowest), options.highest)
            values[i, j], passes[i, j] = s * (q - z), q == at or gradient == "everywhere"
    return straight_through(W, values.to(W), passes.to(W.device))


@checked
def vectorised(
    W: Float[Tensor, "f dim"], *, options: Levels = Levels(), gradient: Gradient = "inside"
) -> Float[Tensor, "f dim"]:
    """Computes the whole matrix at once."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.numel():
        return W
    scale = scale_of(range_of(W, options.per), options)
    return rounded(W, scale, options, everywhere=gradient == "everywhere")


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class Rounded(nn.Module):
    """A weight that is rounded in each forward pass, by the range that it has then."""

    def __init__(self, options: Levels, gradient: Gradient) -> None:
        super().__init__()
        self.options, self.gradient = options, gradient

    def forward(self, W: Tensor) -> Tensor:
        rounds: Tensor = vectorised(W, options=self.options, gradient=self.gradient)
        return rounds


class RoundedInputs(nn.Module):
    """The input of a layer, rounded by a range that is observed in training alone.

    Before the first batch it leaves an input as it is.
    """

    low: Tensor
    high: Tensor

    def __init__(self, bits: int, gradient: Gradient, watching: Watching, like: Tensor) -> None:
        super().__init__()
        self.options, self.gradient, self.watching = Levels(bits=bits), gradient, watching
        nothing = torch.tensor(torch.inf, dtype=torch.promote_types(like.dtype, torch.float32))
        self.register_buffer("low", nothing.to(like.device))  # an empty range, until it is seen
        self.register_buffer("high", -nothing.to(like.device))

    @property
    def seen(self) -> bool:
        """Whether a batch has been observed."""
        return bool(self.high >= self.low)

    def before(self, layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The hook that a layer calls before its forward pass."""
        return (self(given[0]), *given[1:])

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel():
            before = Range(self.low, self.high) if self.seen else None
            self.low, self.high = (p.to(self.low) for p in observe(before, x, self.watching))
        if not self.seen:
            return x
        s = scale_of(Range(self.low, self.high), self.options)
        return rounded(x, s, self.options, everywhere=self.gradient == "everywhere")


class QuantizationAware(nn.Module):
    """Rounds weights, and inputs of linear layers, in each forward pass.

    gradient: "inside" the range, as torch's fake quantization, or "everywhere", as Q8BERT.
    activations: whether inputs are rounded too. watching: how their ranges are observed.
    """

    def __init__(
        self, options: Levels = Levels(), gradient: Gradient = "inside", activations: bool = True,
        watching: Watching = Watching(observer="moving_average"),
    ) -> None:  # fmt: skip
        super().__init__()
        self.options = options
        self.gradient: Gradient = check_value("gradient", gradient, Gradient)
        self.activations = check_value("activations", activations, bool)
        self.watching = check_value("watching", watching, Watching)

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called and trained as it is, that rounds; bits=32 changes nothing.
        Masks stay, and what they cut stays 0.

        Raises ValueError for a module without linear layers or with PyTorch's attention, and for
        weights that are NaN.
        """
        matrices_of(module)
        made = copy.deepcopy(module)
        if self.options.bits == UNCHANGED:
            return made
        for layer in matrices_of(made).values():
            if self.activations and isinstance(layer, nn.Linear):
                own = RoundedInputs(self.options.bits, self.gradient, self.watching, layer.weight)
                layer.add_module("inputs", own.train(layer.training))
                layer.register_forward_pre_hook(own.before)
            rounding = Rounded(self.options, self.gradient).train(layer.training)
            parametrize.register_parametrization(layer, "weight", rounding)
        return made

    def convert(self, module: nn.Module) -> nn.Module:
        """A copy of a trained module with integers in the place of what it rounded.

        Raises ValueError where inputs are to be rounded and none have been observed.
        """
        check_module(module)
        made = copy.deepcopy(module)
        new: dict[str, Any] = {}
        first: dict[int, QuantizedWeight] = {}
        rounding: dict[str, Any] = {n: part for n, part in made.named_modules() if _rounds(part)}
        for name, layer in rounding.items():
            own = layer.parametrizations.weight.original
            W = under_mask(layer)
            inputs = getattr(layer, "inputs", None)
            if inputs is not None and not inputs.seen:
                raise ValueError(
                    f"the inputs of {name or 'the layer'} have not been observed; train the module "
                    "for some steps first"
                )
            if isinstance(layer, nn.Embedding):
                new[name] = QuantizedEmbedding(W, self.options)
            else:
                given = None if inputs is None else Range(inputs.low, inputs.high)
                kind: Any = "none" if inputs is None else "static"
                new[name] = QuantizedLinear(W, layer.bias, self.options, kind, given)
            new[name].train(layer.training)
            new[name].share_with(first.setdefault(id(own), new[name]))
        return put(made, new)

    def bytes(self, module: nn.Module) -> int:
        """What the matrices take when they are converted and stored."""
        check_module(module)
        total, seen = 0, set()
        for layer in module.modules():
            rounds = isinstance(layer, nn.Linear | nn.Embedding) and _rounds(layer)
            if rounds:
                own: Any = layer.parametrizations.weight.original  # type: ignore[union-attr]
            elif type(layer) in (nn.Linear, nn.Embedding):
                own = layer.weight
            elif isinstance(layer, QuantizedWeight):
                own = layer.q
            else:
                continue
            if id(own) not in seen:
                seen.add(id(own))
                made = QuantizedWeight(under_mask(layer), self.options) if rounds else layer
                total += size_of(made)
        return total


def _rounds(layer: nn.Module) -> bool:
    found: Any = getattr(layer, "parametrizations", {})
    return "weight" in found and isinstance(found["weight"][-1], Rounded)


# ---- card

N, B, S = letters("N B S")

CARD = Card(
    __doc__,
    name="quantization_aware",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=B * N / 8 + 5 * S, error=N / (2**B - 2) ** 2),
    letters={"B": "bits"},
    options=Levels,
    build=QuantizationAware,
    variants=(
        {"bits": 4, "scheme": "symmetric", "gradient": "everywhere"},
        {"bits": 5, "per": "channel", "activations": False},
        {"bits": 2, "scheme": "restricted", "per": "channel"},
        {"bits": 32},
    ),
    aliases=("qat", "fake_quantization"),
    demo="""
    >>> compress = attnlab.build("quantization_aware", bits=4)
    >>> layer = compress(torch.nn.Linear(8, 8))
    >>> layer(torch.randn(100, 8)).square().sum().backward()  # a gradient despite the rounding
    >>> bool(layer.parametrizations.weight.original.grad.any())
    True
    >>> layer.weight.unique().numel() <= 16, compress.convert(layer).q.dtype
    (True, torch.int8)
    """,
)
