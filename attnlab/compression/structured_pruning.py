r"""Structured pruning: whole hidden units and heads go, and the matrices get smaller.

A mask of single weights leaves a matrix as large as it was, and a dense product takes as long. What
can be taken out of a network is what it owns in slices. A hidden unit of a feed-forward layer is
row j of $W_1$, its bias and column j of $W_2$; a head is its rows of $W_Q$, $W_K$ and $W_V$ and its
columns of $W_O$. Of the F units of one place, those of the largest norm stay:

$$\tilde W = M \odot W,\qquad M_u = 1 \;\text{if}\; \lVert w_u \rVert_2 \;\text{is among the}\;
\lceil r F \rceil \;\text{largest}$$

where $w_u$ is all that unit u owns. The masked module is called and trained like the one it was
made of. ``remove`` then takes the masked units out: the result is the smaller dense network with
the same outputs, and it is faster as it has less to multiply.

Which units are needed can also be measured (``attnlab.compression.head_importance``); ``cut`` names
those to go. A head that is masked gives nothing to the output projection, whose bias stays.

``naive``  one row of a matrix after the other, by its norm.
``ranked`` all rows at once.

Common mistakes: the bias of a removed unit that stays, so that gelu(b_j) still reaches the output;
a mask on the weights before the softmax, which is another network than one without the head; one
query head removed where several share keys and values.

Departures.
- each place keeps the share r of its units, at least one; a ranking over all places would compare
  norms of matrices of different sizes
- query heads that share keys and values go together

Li, Kadav, Durdanovic, Samet, Graf. Pruning Filters for Efficient ConvNets. ICLR 2017,
arXiv:1608.08710. Michel, Levy, Neubig. Are Sixteen Heads Really Better than One? NeurIPS 2019,
arXiv:1905.10650.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.compression.matrices import (
    check_module,
    count,
    largest,
    linear_layers,
    mask_on,
    refuse_meta,
    without_masks,
)
from attnlab.compression.units import Units, shrink, units_of
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.options import check_share, check_value
from attnlab.core.shapes import checked

# ---- forms

Kind = Literal["hidden", "heads", "both"]


@checked
def naive(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """The ⌈kept · f⌉ rows of the largest norm, one after the other."""
    refuse_meta(W)
    squares = [sum(float(w) ** 2 for w in row) for row in W.detach()]
    order = sorted(range(len(W)), key=lambda i: -squares[i])
    mask = torch.zeros(len(W), dtype=torch.bool)
    for i in order[: count(len(W), kept)]:
        mask[i] = True
    return W * mask[:, None].to(W.device)


@checked
def ranked(W: Float[Tensor, "f dim"], *, kept: float = 0.5) -> Float[Tensor, "f dim"]:
    """Computes ``naive`` by one sorting of all norms."""
    refuse_meta(W)
    squares = W.detach().double().square().sum(1)
    return W * largest(squares, count(len(W), kept))[:, None]


FORMS = {"naive": naive, "ranked": ranked}

# ---- module


class StructuredPruning(nn.Module):
    """Masks hidden units and heads of the smallest norms, and takes masked ones out.

    kept: the share of the units of each place that is left, from 0 to 1. units: of feed-forward
    layers ("hidden"), of attention ("heads"), or "both". cut: the units to go instead, as pairs
    (place, unit): place i is ``units_of(module)[i]``, or the i-th attention layer if units="heads".
    """

    def __init__(
        self, kept: float = 0.5, units: Kind = "both",
        cut: Sequence[tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kept = check_share("kept", kept)
        self.units: Kind = check_value("units", units, Kind)
        self.cut = check_value("cut", cut, Sequence[tuple[int, int]] | None)

    def extra_repr(self) -> str:
        chosen = f"kept={self.kept}" if self.cut is None else f"cut={list(self.cut)}"
        return f"{chosen}, units={self.units!r}"

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called as it is, with masked units; kept=1 masks nothing.

        Raises ValueError for a module without such units, and for weights that are NaN.
        """
        linear_layers(module)
        pruned = copy.deepcopy(module)
        places = self.places(pruned)
        if self.cut is None and self.kept == 1:
            return pruned
        for place, kept in zip(places, self._kept(places), strict=True):
            if not kept.all():
                place.mask(kept)
        return pruned

    def places(self, module: nn.Module) -> list[Units]:
        """Where units stand, in order; a ValueError where there are none."""
        found = [p for p in units_of(module) if self.units in (p.kind, "both")]
        if not found:
            words = {"hidden": "hidden units between two linear layers", "heads": "heads"}
            what = words.get(self.units, "hidden units and no heads")
            raise ValueError(f"{type(module).__name__} has no {what} that could be removed")
        return found

    def _kept(self, places: list[Units]) -> list[Tensor]:
        if self.cut is None:
            return [largest(place.squares(), count(place.count, self.kept)) for place in places]
        masks = [torch.ones_like(place.squares(), dtype=torch.bool) for place in places]
        for at, unit in self.cut:
            if not 0 <= at < len(places) or not 0 <= unit < places[at].count:
                sizes = ", ".join(str(place.count) for place in places)
                raise ValueError(
                    f"cut names unit {unit} of place {at}, and the {len(places)} places of the "
                    f"module have {sizes} units"
                )
            masks[at][unit] = False
        return masks

    def remove(self, module: nn.Module) -> nn.Module:
        """A copy of a pruned module without its masked units: smaller matrices, equal outputs.

        Raises ValueError where a place would have no unit left, or where attention has more than
        its projections, such as a bias for each head.
        """
        check_module(module)
        left = [place.left() for place in units_of(module)]
        smaller = without_masks(module)
        for place, kept in zip(units_of(smaller), left, strict=True):
            if kept.all():
                continue
            if not kept.any():
                raise ValueError(
                    f"all {len(kept)} units of {place.name or 'the module'} are masked, and a "
                    "layer of no width cannot be called; leave at least one"
                )
            if place.stuck:
                raise ValueError(
                    f"no head of {place.name or 'the layer'} can be taken out, as {place.stuck}; "
                    "keep the mask, under which the head gives nothing"
                )
            shrink(place, kept)
        return smaller

    def bytes(self, module: nn.Module) -> int:
        """What the matrices take when they are stored without the masked units: the numbers that
        are left, and a bit for each of their rows or columns."""
        check_module(module)
        places = [place for place in units_of(module) if not place.left().all()]
        bits = sum(-(-p.count * part.width // 8) for p in places for part in p.parts)
        layers: Any = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
        masks = [(layer.weight, mask_on(layer)) for layer in layers]
        left = [W.numel() if m is None else int(m.mask.sum()) for W, m in masks]
        sizes = [W.element_size() for W, _ in masks]
        return bits + sum(n * size for n, size in zip(left, sizes, strict=True))


# ---- card

N, r, f = letters("N r f")

CARD = Card(
    __doc__,
    name="structured_pruning",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=4 * r * N + f / 4, error=1 - r),
    letters={"r": "kept"},
    build=StructuredPruning,
    variants=({"kept": 0.0}, {"kept": 0.25}, {"kept": 0.9, "units": "hidden"}, {"kept": 1.0}),
    aliases=("structured",),
    demo="""
    >>> layer = attnlab.build("mlp", dim=16, hidden=64)
    >>> compress = attnlab.build("structured_pruning", kept=0.25)
    >>> smaller = compress.remove(compress(layer))
    >>> smaller.expand.weight.shape, smaller.contract.weight.shape
    (torch.Size([16, 16]), torch.Size([16, 16]))
    """,
)
