r"""K-means weights: a matrix in which only $2^b$ different numbers occur.

Levels at equal distance are as dense among the few large weights as among the many small ones. Here
the levels are where the weights are: K centres $c_k$, and for each weight the number k of the
nearest, which takes b bits:

$$\tilde W_i = c_{k(i)},\qquad k(i) = \arg\min_k |W_i - c_k|,\qquad
  c_k = \text{mean of the } W_i \text{ with } k(i) = k$$

The centres begin at equal distance from the least to the greatest weight, and both steps are
repeated; neither can raise the squared error. Number 0 is kept for zeros, so that a matrix that was
pruned before keeps them, and $K = 2^b - 1$ centres are for the others.

A trained centre moves all its weights together: its gradient is the sum of theirs.

``naive``      one weight and one centre after the other.
``vectorised`` all weights at once, by the middles between two centres.

The forms have the gradient of a straight line, as rounding itself has 0.

Common mistakes: centres drawn from the weights, of which few are large, so that large weights are
lost; the table of centres not counted, which is 1 kB for a matrix of 8 bits; zeros that become a
small number.

Departures.
- a centre without weights stays where it is
- as many rounds as are asked for, not until nothing changes

Han, Mao, Dally. Deep Compression: Compressing Deep Neural Networks with Pruning, Trained
Quantization and Huffman Coding. ICLR 2016, arXiv:1510.00149, section 3.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.compression.levels import UNCHANGED, check_bits, straight_through
from attnlab.compression.matrices import check_module, linear_layers, refuse_meta, without_masks
from attnlab.compression.quantized import put, size_of, stored_size
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.options import Count, Options
from attnlab.core.shapes import checked

# ---- options


@dataclass(frozen=True, kw_only=True)
class KMeansOptions(Options):
    """bits: of the number of a centre, from 2 to 8; 32 changes nothing. rounds: how often centres
    and numbers are found again."""

    bits: int = 4
    rounds: Count = 10

    def check(self) -> None:
        check_bits(self.bits)

    @property
    def centres(self) -> int:
        return 2**self.bits - 1


# ---- forms


@checked
def naive(
    W: Float[Tensor, "f dim"], *, options: KMeansOptions = KMeansOptions()
) -> Float[Tensor, "f dim"]:
    """c_k of the nearest centre, one weight and one centre after the other."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.any():
        return W
    weights = [w for w in W.detach().flatten().tolist() if w != 0]
    K, low, high = options.centres, min(weights), max(weights)
    centres = [low + (high - low) * k / (K - 1) for k in range(K)]
    for _ in range(options.rounds):
        members: list[list[float]] = [[] for _ in centres]
        for w in weights:
            members[nearest(w, centres)].append(w)
        both = zip(members, centres, strict=True)
        centres = [sum(own) / len(own) if own else c for own, c in both]
    flat = W.detach().flatten().tolist()
    found = [centres[nearest(w, centres)] if w != 0 else 0.0 for w in flat]
    exact = torch.tensor(found, dtype=torch.float64).view_as(W).to(W)
    return straight_through(W, exact, torch.ones_like(W, dtype=torch.bool))


@checked
def vectorised(
    W: Float[Tensor, "f dim"], *, options: KMeansOptions = KMeansOptions()
) -> Float[Tensor, "f dim"]:
    """Computes all weights at once."""
    refuse_meta(W)
    if options.bits == UNCHANGED or not W.any():
        return W
    centres, codes = clustered(W, options)
    exact = values_of(centres, codes).to(W)
    return straight_through(W, exact, torch.ones_like(W, dtype=torch.bool))


FORMS = {"naive": naive, "vectorised": vectorised}


def nearest(w: float, centres: list[float]) -> int:
    """The number of the nearest centre; of two the lower."""
    return min(range(len(centres)), key=lambda k: abs(w - centres[k]))


def clustered(W: Tensor, options: KMeansOptions) -> tuple[Tensor, Tensor]:
    """The centres (K,) of float64 in order, and for each weight 1 + the number of its centre, or 0
    for a zero, of uint8; both found on the CPU."""
    flat = W.detach().cpu().double().flatten()
    alive = flat[flat != 0]
    K = options.centres
    if not len(alive):
        return torch.zeros(K, dtype=torch.float64), torch.zeros(W.shape, dtype=torch.uint8)
    low, high = alive.min(), alive.max()
    centres = low + (high - low) * torch.arange(K, dtype=torch.float64) / (K - 1)
    for _ in range(options.rounds):
        at = _numbers(alive, centres)
        counts = torch.bincount(at, minlength=K)
        sums = torch.zeros(K, dtype=torch.float64).index_add_(0, at, alive)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    codes = torch.where(flat != 0, _numbers(flat, centres) + 1, 0)
    return centres, codes.view(W.shape).to(torch.uint8)


def _numbers(w: Tensor, centres: Tensor) -> Tensor:
    return torch.bucketize(w, (centres[1:] + centres[:-1]) / 2)


def values_of(centres: Tensor, codes: Tensor) -> Tensor:
    """The numbers of a matrix: the centre of each weight, and 0 of number 0."""
    return torch.cat([centres.new_zeros(1), centres])[codes.long()]


# ---- module


class SharedLinear(nn.Linear):
    """A linear layer whose weights are looked up: the parameter is the table of centres."""

    codes: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, options: KMeansOptions) -> None:
        nn.Module.__init__(self)  # not that of a linear layer, which would draw random numbers
        self.out_features, self.in_features = weight.shape
        self.options = options
        centres, codes = clustered(weight, options)
        self.centres = nn.Parameter(centres.to(weight.detach()))
        self.register_buffer("codes", codes.to(weight.device))
        self.bias: Any = None if bias is None else nn.Parameter(bias.detach().clone())

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The centre of each weight."""
        return values_of(self.centres, self.codes)

    def bytes(self) -> int:
        """What the numbers of the centres take as they are stored, with the centres."""
        table = self.centres.numel() * self.centres.element_size()
        return stored_size(self.codes == 0, self.options.bits) + table


class KMeansWeights(nn.Module):
    """Groups the weights of each linear layer, which then share one number in each group."""

    def __init__(self, options: KMeansOptions = KMeansOptions()) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return str(self.options)

    def forward(self, module: nn.Module) -> nn.Module:
        """A copy of the module, called as it is; bits=32 changes nothing. Zeros of a mask stay.

        Raises ValueError for a module without linear layers, and for weights that are NaN.
        """
        for name, layer in linear_layers(module).items():
            if not layer.weight.isfinite().all():
                raise ValueError(f"the weights of {name or 'the layer'} are infinite")
        if self.options.bits == UNCHANGED:
            return copy.deepcopy(module)
        made = without_masks(module)
        new: dict[str, nn.Module] = {
            name: SharedLinear(layer.weight, layer.bias, self.options).train(layer.training)
            for name, layer in linear_layers(made).items()
        }
        return put(made, new)

    def bytes(self, module: nn.Module) -> int:
        """What the matrices take when they are stored: the number of each weight's centre, and the
        centres."""
        check_module(module)
        return sum(size_of(part) for part in module.modules() if isinstance(part, nn.Linear))


# ---- card

N, B, S = letters("N B S")

CARD = Card(
    __doc__,
    name="kmeans_weights",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=B * N / 8 + 4 * (2**B - 1) * S, error=N / (2**B - 2) ** 2),
    letters={"B": "bits"},
    options=KMeansOptions,
    build=KMeansWeights,
    variants=({"bits": 8}, {"bits": 2, "rounds": 0}, {"bits": 3, "rounds": 2}, {"bits": 32}),
    aliases=("kmeans", "shared_weights"),
    demo="""
    >>> layer = torch.nn.Linear(100, 100)
    >>> compress = attnlab.build("kmeans_weights", bits=3)
    >>> smaller = compress(layer)
    >>> smaller.weight.unique().numel(), compress.bytes(smaller), compress.bytes(layer)
    (7, 3778, 40000)
    """,
)
