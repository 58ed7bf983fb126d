r"""Magnitude pruning: the weights nearest to zero become zero.

A trained network has many more weights than its function needs. The smallest change of a weight
matrix that leaves a share $r$ of its N weights keeps the largest in absolute value:

$$\tilde W = M \odot W,\qquad M_i = 1 \;\text{if}\; |W_i| \;\text{is among the}\; \lceil r N \rceil
\;\text{largest}$$

No other mask with so many ones leaves a smaller squared error, and as the weights that go are the
smallest, their squares are at most a share $1 - r$ of all squares. What the network answers can
still change much: the error of a weight counts as much as the input that it multiplies.

The mask stands in each forward pass, so a weight that was cut gets no gradient and stays zero when
the network trains on. A zero is multiplied like any other number: a mask saves bytes when it is
stored (a bit of mask for each weight, and the weights that are left), not time.

``naive``  one weight after the other, by its place in the order of absolute values.
``ranked`` one threshold for the whole matrix.

Common mistakes: a threshold of the whole network that empties narrow layers; pruned weights that
an optimizer with momentum or decay moves away from zero, as they have no mask.

Departures.
- each matrix is cut to the same share, as the ranking over all of them favours wide layers
- biases, norms and embeddings stay whole

Han, Pool, Tran, Dally. Learning both Weights and Connections for Efficient Neural Networks. NeurIPS
2015, arXiv:1506.02626.
"""

import copy
import math
import reprlib

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.options import check_share
from attnlab.core.shapes import checked

# ---- forms


@checked
def naive(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """The weights of the ⌈kept · N⌉ largest absolute values, one after the other."""
    refuse_meta(W)
    order = sorted(range(W.numel()), key=lambda i: -abs(W.flatten()[i].item()))
    mask = torch.zeros(W.numel(), dtype=torch.bool)
    for i in order[: count(W, kept)]:
        mask[i] = True
    return W * mask.view_as(W).to(W.device)


@checked
def ranked(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """Computes ``naive`` by one sorting of the whole matrix."""
    return W * mask_of(W, kept)


FORMS = {"naive": naive, "ranked": ranked}


def check_module(module: object) -> None:
    """A TypeError for what is no module of PyTorch."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"a module of PyTorch is expected, whose weights are cut, got {reprlib.repr(module)}"
        )


def refuse_meta(W: Tensor) -> None:
    if W.is_meta:
        raise ValueError(
            "the largest weights are asked for, and on the meta device there are no numbers"
        )


def count(W: Tensor, kept: float) -> int:
    """How many weights are left: ⌈kept · N⌉."""
    return math.ceil(kept * W.numel())


def mask_of(W: Float[Tensor, "f dim"], kept: float) -> Bool[Tensor, "f dim"]:
    """True at the weights that are left; of equal absolute values the first."""
    refuse_meta(W)
    order = W.detach().abs().flatten().argsort(descending=True, stable=True)
    mask = torch.zeros(W.numel(), dtype=torch.bool, device=W.device)
    mask[order[: count(W, kept)]] = True
    return mask.view_as(W)


# ---- module


class Masked(nn.Module):
    """A weight under its mask: the gradient of what was cut is zero."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


class MagnitudePruning(nn.Module):
    """Cuts the matrix of every linear layer to a share of its weights.

    kept: the share that is left, from 0 to 1.
    """

    def __init__(self, kept: float = 0.5) -> None:
        super().__init__()
        self.kept = check_share("kept", kept)

    def extra_repr(self) -> str:
        return f"kept={self.kept}"

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called as it is, with masked matrices; kept=1 masks nothing.

        Raises ValueError for a module without linear layers, and for weights that are NaN.
        """
        check_module(module)
        pruned = copy.deepcopy(module)
        layers = {name: part for name, part in pruned.named_modules() if type(part) is nn.Linear}
        if not layers:
            raise ValueError(
                f"{type(module).__name__} has no linear layer whose weights could be cut"
            )
        for name, layer in layers.items():
            refuse_meta(layer.weight)
            if layer.weight.isnan().any():
                raise ValueError(
                    f"the weights of {name or 'the layer'} are NaN: they have no order"
                )
            if self.kept < 1:
                mask = Masked(mask_of(layer.weight, self.kept))
                parametrize.register_parametrization(layer, "weight", mask)
        return pruned

    def bytes(self, module: nn.Module) -> int:
        """What the matrices of a pruned module take when they are stored: a bit for each weight and
        the numbers that are left, or all numbers where nothing was cut."""
        check_module(module)
        total = 0
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                N, size = layer.weight.numel(), layer.weight.element_size()
                left = int((layer.weight != 0).sum())
                cut = parametrize.is_parametrized(layer, "weight")
                total += math.ceil(N / 8) + size * left if cut else size * N
        return total


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
    variants=({"kept": 0.0}, {"kept": 0.25}, {"kept": 0.9}, {"kept": 1.0}),
    aliases=("pruning",),
    demo="""
    >>> layer = torch.nn.Linear(100, 100)
    >>> smaller = attnlab.build("magnitude_pruning", kept=0.1)(layer)
    >>> (smaller.weight != 0).sum().item(), smaller.weight.numel()
    (1000, 10000)
    """,
)
