r"""Magnitude pruning: the weights nearest to zero become zero.

A trained network has many more weights than its function needs. The smallest change of a weight
matrix that leaves a share $r$ of its N weights keeps the largest in absolute value:

$$\tilde W = M \odot W,\qquad M_i = 1 \;\text{if}\; |W_i| \;\text{is among the}\; \lceil r N \rceil
\;\text{largest}$$

No other mask with so many ones leaves a smaller squared error, and as the weights that go are the
smallest, their squares are at most a share $1 - r$ of all squares. What the network answers can
still change much: the error of a weight counts as much as the input that it multiplies.

Two scopes: ``local`` leaves every matrix the share r, ``global`` ranks the weights of all matrices
together, so that one threshold decides. The global mask has the smaller squared error. It also
empties matrices whose weights are small by initialisation and spares those whose weights are large.

The mask stands in each forward pass, so a weight that was cut gets no gradient and stays zero when
the network trains on; ``remove`` gives an ordinary module with zeros. A zero is multiplied like any
other number: a mask saves bytes when it is stored (a bit of mask for each weight, and the weights
that are left), not time.

A network can also be cut while it trains, so that it adapts to each cut. Zhu and Gupta raise the
share $s$ that is cut from $s_i$ to $s_f$ in n cuts, one every D steps from step $t_0$ on, fast at
first and slowly at the end (``gradual_share`` and ``Gradual``):

$$s_t = s_f + (s_i - s_f)\left(1 - \frac{t - t_0}{n D}\right)^3$$

``naive``  one weight after the other, by its place in the order of absolute values.
``ranked`` one threshold for the whole matrix.

Common mistakes: pruned weights that an optimizer with momentum or decay moves away from zero, as
they have no mask; a state dict that is saved before the mask is put on and loaded after it, when
the weight has another name; the sparsity of the pruned matrices told as that of the whole model.

Departures.
- a module that is pruned again keeps a share of all its weights, so twice 0.5 leaves 0.5;
  ``torch.nn.utils.prune`` cuts what is left, so that twice 0.5 leaves 0.25
- biases, norms and embeddings stay whole
- the original learns weights, cuts and trains again; here training is left to the caller

Han, Pool, Tran, Dally. Learning both Weights and Connections for Efficient Neural Networks. NeurIPS
2015, arXiv:1506.02626. Zhu, Gupta. To prune, or not to prune: exploring the efficacy of pruning for
model compression. arXiv 2017, arXiv:1710.01878.
"""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.compression.matrices import (
    count,
    largest,
    linear_layers,
    put_mask,
    refuse_meta,
    stored_bytes,
    without_masks,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.integers import check_integer
from attnlab.core.options import Count, Options, Size, check_share, check_value
from attnlab.core.shapes import checked

# ---- forms

Scope = Literal["local", "global"]


@checked
def naive(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """The weights of the ⌈kept · N⌉ largest absolute values, one after the other."""
    refuse_meta(W)
    order = sorted(range(W.numel()), key=lambda i: -abs(W.flatten()[i].item()))
    mask = torch.zeros(W.numel(), dtype=torch.bool)
    for i in order[: count(W.numel(), kept)]:
        mask[i] = True
    return W * mask.view_as(W).to(W.device)


@checked
def ranked(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """Computes ``naive`` by one sorting of the whole matrix."""
    return W * mask_of(W, kept)


FORMS = {"naive": naive, "ranked": ranked}


def mask_of(W: Float[Tensor, "f dim"], kept: float) -> Bool[Tensor, "f dim"]:
    """True at the weights that are left; of equal absolute values the first."""
    refuse_meta(W)
    return largest(W.detach().abs().flatten(), count(W.numel(), kept)).view_as(W)


def masks_of(
    matrices: dict[str, Tensor], kept: float, scope: Scope = "local"
) -> dict[str, Bool[Tensor, "f dim"]]:
    """The mask of each matrix, by name: of the largest in each, or in all together."""
    if scope == "local":
        return {name: mask_of(W, kept) for name, W in matrices.items()}
    home = next(iter(matrices.values())).device
    sizes = torch.cat([W.detach().abs().flatten().to(home) for W in matrices.values()])
    parts = largest(sizes, count(len(sizes), kept)).split([W.numel() for W in matrices.values()])
    both = zip(matrices.items(), parts, strict=True)
    return {name: part.view_as(W).to(W.device) for (name, W), part in both}


# ---- gradual


@dataclass(frozen=True, kw_only=True)
class GradualOptions(Options):
    """start: the step of the first cut, t₀. every: steps between two cuts, D. times: how many
    intervals there are, n. initial, final: the shares that are cut at first and at last."""

    start: Count = 0
    every: Size = 100
    times: Size = 10
    initial: float = 0.0
    final: float = 0.5

    def check(self) -> None:
        check_share("initial", self.initial)
        check_share("final", self.final)
        if self.final < self.initial:
            raise ValueError(
                f"a weight that was cut does not come back, so final={self.final} should be at "
                f"least initial={self.initial}"
            )


def gradual_share(step: int, options: GradualOptions = GradualOptions()) -> float:
    """The share, from 0 to 1, that is cut after this step; it changes at t₀, t₀ + D, …, t₀ + n D.

    Raises ValueError for a step below 0.
    """
    step, o = check_integer("step", step, at_least=0), options
    if step < o.start:
        return 0.0
    done = min((step - o.start) // o.every, o.times) / o.times
    return o.final + (o.initial - o.final) * (1 - done) ** 3


class Gradual:
    """Cuts a model while it trains: call ``after_step(model, step, steps)`` after each update.

    scope: as of ``MagnitudePruning``.
    """

    def __init__(self, options: GradualOptions = GradualOptions(), scope: Scope = "global") -> None:
        self.options = check_value("options", options, GradualOptions)
        self.scope: Scope = check_value("scope", scope, Scope)

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        """Puts the masks of this step on the model itself, where the schedule has a cut."""
        o = self.options
        now = step - o.start
        if 0 <= now <= o.every * o.times and now % o.every == 0:
            cut(model, 1 - gradual_share(step, o), self.scope)


def cut(module: nn.Module, kept: float, scope: Scope) -> None:
    """Masks the linear layers of the module itself."""
    layers = linear_layers(module)
    weights = {name: layer.weight.detach() for name, layer in layers.items()}
    for name, mask in masks_of(weights, kept, scope).items():
        put_mask(layers[name], mask)


# ---- module


class MagnitudePruning(nn.Module):
    """Cuts the matrices of the linear layers to a share of their weights.

    kept: the share that is left, from 0 to 1. scope: of each matrix ("local"), or of all matrices
    together ("global").
    """

    def __init__(self, kept: float = 0.5, scope: Scope = "local") -> None:
        super().__init__()
        self.kept = check_share("kept", kept)
        self.scope: Scope = check_value("scope", scope, Scope)

    def extra_repr(self) -> str:
        return f"kept={self.kept}, scope={self.scope!r}"

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called as it is, with masked matrices; kept=1 masks nothing.

        Raises ValueError for a module without linear layers, and for weights that are NaN.
        """
        linear_layers(module)
        pruned = copy.deepcopy(module)
        if self.kept < 1:
            cut(pruned, self.kept, self.scope)
        return pruned

    def remove(self, module: nn.Module) -> nn.Module:
        """A copy of a pruned module without masks, with zeros where its weights were cut."""
        return without_masks(module)

    def bytes(self, module: nn.Module) -> int:
        """What the matrices of a pruned module take when they are stored: a bit for each weight and
        the numbers that are left, or all numbers where nothing was cut."""
        return stored_bytes(module)


# ---- card

N, r = letters("N r")

CARD = Card(
    __doc__,
    name="magnitude_pruning",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=N / 8 + 4 * r * N, error=1 - r),
    letters={"r": "kept"},
    build=MagnitudePruning,
    variants=(
        {"kept": 0.0},
        {"kept": 0.25},
        {"kept": 0.3, "scope": "global"},
        {"kept": 0.9},
        {"kept": 1.0},
    ),
    aliases=("pruning",),
    demo="""
    >>> layer = torch.nn.Linear(100, 100)
    >>> smaller = attnlab.build("magnitude_pruning", kept=0.1)(layer)
    >>> (smaller.weight != 0).sum().item(), smaller.weight.numel()
    (1000, 10000)
    """,
)
