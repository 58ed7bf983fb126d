r"""Quantization: weights, and perhaps activations, as integers of 8 bits or fewer.

A weight of float32 has 32 bits, and most models work with 8. The numbers from lo to hi, a range
that holds 0, get $2^b$ levels at equal distance:

$$s = \frac{\mathrm{hi} - \mathrm{lo}}{2^b - 1},\qquad
  z = \mathrm{clip}\left(q_\min - \mathrm{round}(\mathrm{lo} / s)\right),\qquad
  q = \mathrm{clip}\left(\mathrm{round}(x / s) + z\right),\qquad \hat x = s\,(q - z)$$

Zero is one of the levels, so padding and what a ReLU cuts stay exact. Within the range an error is
at most s/2. A symmetric scheme has z = 0 and a scale from the largest absolute value; it has two
conventions (``Levels``). One scale for each row of a matrix, which is an output of the layer, makes
every row as fine as its own largest weight allows. Scales for the columns could not be taken out of
the sum over them.

At 8 bits the scales of both conventions differ by less than 1 %, at 2 bits by half. With one scale
for each matrix the shipped ``digits`` classifies 71 % of 355 unseen images rightly with "affine"
(four levels from least to greatest), 54 % with "symmetric" (the largest weight at 1.5 steps, so
that it is clipped) and 10 %, which is guessing, with "restricted": the largest weight is the only
level above 0, and all weights below half of it become 0. With a scale for each row they are 95, 93
and 82 %.

With both sides as integers a linear layer is a sum of integers, exact in int32 for the usual
widths, and the zero points are taken care of afterwards:

$$\hat X \hat W^\top = s_x s_w \left(X_q W_q^\top - z_x 1 (W_q 1)^\top - (X_q 1) z_w^\top
  + K z_x z_w 1 1^\top\right)$$

The range of an activation is that of the input at hand (``dynamic``), or was observed on examples
before (``static``): by least and greatest, a moving average, or a percentile, as a single outlier
widens every step.

``naive``      one weight after the other.
``vectorised`` the whole matrix at once.

Both have the gradient of a straight line within the range and 0 beyond it, as rounding itself has
the gradient 0 almost everywhere.

Common mistakes: a step of $(\mathrm{hi} - \mathrm{lo})/2^{b-1}$, which uses 129 of the 256
levels; a zero point that is not rounded, so that 0 has no level; ``A @ B`` of two int8 tensors,
which returns int8 and wraps; an observer that still observes in evaluation; a tied table with two
scales.

Departures.
- the output of a layer is given as numbers, so each layer makes integers of its own input
- linear layers and tables of tokens become integers, all else stays; PyTorch's own attention, whose
  matrices are no linear layers, is refused
- softmax, norms and curves stay in the dtype of the model

Jacob, Kligys, Chen, Zhu, Tang, Howard, Adam, Kalenichenko. Quantization and Training of Neural
Networks for Efficient Integer-Arithmetic-Only Inference. CVPR 2018, arXiv:1712.05877, section 2.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
from attnlab.compression.matrices import check_module, refuse_meta, without_masks
from attnlab.compression.quantized import (
    Activations,
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    matrices_of,
    put,
    size_of,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.modes import mode
from attnlab.core.options import check_value
from attnlab.core.shapes import checked

# ---- forms


@checked
def naive(W: Float[Tensor, "f dim"], *, options: Levels = Levels()) -> Float[Tensor, "f dim"]:
    """x̂ = s (q - z), one weight after the other."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.numel():
        return W
    scale = scale_of(range_of(W, options.per), options)
    steps, zeros = (x.expand(len(W), 1)[:, 0].tolist() for x in scale)
    values, inside = torch.zeros(W.shape), torch.zeros(W.shape, dtype=torch.bool)
    values = values.to(torch.float64)
    for i, (row, s, z) in enumerate(zip(W.tolist(), steps, zeros, strict=True)):
        for j, x in enumerate(row):
            at = round(x / s) + z
            q = min(max(at, options.lowest), options.highest)
            values[i, j], inside[i, j] = s * (q - z), q == at
    return straight_through(W, values.to(W), inside.to(W.device))


@checked
def vectorised(W: Float[Tensor, "f dim"], *, options: Levels = Levels()) -> Float[Tensor, "f dim"]:
    """Computes the whole matrix at once."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.numel():
        return W
    return rounded(W, scale_of(range_of(W, options.per), options), options)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class Quantization(nn.Module):
    """Makes integers of the matrices of linear layers and embeddings.

    activations: whether linear layers multiply integers, with ranges of the input at hand
    ("dynamic") or observed before ("static"). watching: how those are observed. examples: what the
    module is called with to observe them.
    """

    def __init__(
        self, options: Levels = Levels(), activations: Activations = "none",
        watching: Watching = Watching(), examples: Sequence[Tensor] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.options = options
        self.activations: Activations = check_value("activations", activations, Activations)
        self.watching = check_value("watching", watching, Watching)
        self._examples = check_value("examples", examples, Sequence[Tensor] | None)
        if self.activations == "static" and not self._examples:
            raise ValueError(
                "static activations have ranges that were observed on examples, and there are "
                "none: give examples=[x, …], inputs of the module"
            )
        if self.activations != "static" and self._examples is not None:
            raise ValueError(
                f"activations={self.activations!r} need no examples; leave them out, or take "
                'activations="static"'
            )

    def extra_repr(self) -> str:
        return f"{self.options}, activations={self.activations!r}"

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called as it is, with integers; bits=32 changes nothing.

        A matrix that two layers have in common becomes integers once; what a mask has cut is the
        integer of 0. Raises ValueError for a module without linear layers or with PyTorch's
        attention, and for weights that are NaN or infinite.
        """
        if self.options.bits == UNCHANGED:
            matrices_of(module)  # which refuses what it does not fit
            return copy.deepcopy(module)
        made = without_masks(module)
        parts = matrices_of(made)
        ranges = self._observed(made, parts) if self.activations == "static" else {}
        new: dict[str, Any] = {
            name: QuantizedLinear(
                part.weight, part.bias, self.options, self.activations, ranges.get(name)
            )
            if isinstance(part, nn.Linear)
            else QuantizedEmbedding(part.weight, self.options)
            for name, part in parts.items()
        }
        first: dict[int, QuantizedWeight] = {}
        for name, part in parts.items():
            new[name].share_with(first.setdefault(id(part.weight), new[name]))
            new[name].train(part.training)
        return put(made, new)

    def _observed(self, module: nn.Module, parts: dict[str, Any]) -> dict[str, Range]:
        found: dict[str, Range] = {}

        def watch(name: str) -> Any:
            def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
                if given[0].numel():
                    found[name] = observe(found.get(name), given[0], self.watching)

            return hook

        linear = {name: part for name, part in parts.items() if isinstance(part, nn.Linear)}
        handles = [part.register_forward_pre_hook(watch(name)) for name, part in linear.items()]
        try:
            with torch.no_grad(), mode(module, training=False):
                for x in self._examples or ():
                    module(x)
        finally:
            for handle in handles:
                handle.remove()
        unseen = [name for name in linear if name not in found]
        if unseen:
            raise ValueError(f"the examples have not reached the layer {unseen[0]!r}: no range")
        return found

    def bytes(self, module: nn.Module) -> int:
        """What the matrices take when they are stored: their integers, each with its bits, or a bit
        for each and those that are not 0 where this is less; scales and zero points; what two
        layers have in common once."""
        check_module(module)
        total, seen = 0, set()
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                own = part.q if isinstance(part, QuantizedWeight) else part.weight
                if id(own) not in seen:
                    seen.add(id(own))
                    total += size_of(part)
        return total


# ---- card

N, B, S = letters("N B S")

CARD = Card(
    __doc__,
    name="quantization",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=B * N / 8 + 5 * S, error=N / (2**B - 2) ** 2),
    letters={"B": "bits"},
    options=Levels,
    build=Quantization,
    variants=(
        {"bits": 4, "scheme": "symmetric"},
        {"bits": 5, "per": "channel", "activations": "dynamic"},
        {"bits": 2, "scheme": "restricted", "per": "channel"},
        {"scheme": "symmetric", "activations": "dynamic"},
        {"bits": 32},
    ),
    aliases=("int8", "post_training_quantization"),
    demo="""
    >>> layer, x = torch.nn.Linear(64, 64), torch.randn(5, 64)
    >>> compress = attnlab.build("quantization", bits=8, activations="dynamic")
    >>> smaller = compress(layer)
    >>> smaller.q.dtype, compress.bytes(smaller), compress.bytes(layer)
    (torch.int8, 4101, 16384)
    >>> (smaller(x) - layer(x)).abs().max().item() < 0.05
    True
    """,
)
