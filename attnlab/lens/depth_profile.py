r"""The profile of a join by depth: how large the stream is after each layer, and its gradient.

Both are those of a stack before training: layers of full attention and a feed-forward layer, whose
matrices are drawn so that each keeps the variance of what it reads (Glorot and Bengio, AISTATS
2010), and then changed as the join asks for (``initialise``). The stream begins with a variance of
1, and the gradient begins behind the last layer, in a random direction.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.options import parameters_of
from attnlab.core.suggest import choose
from attnlab.models import parts
from attnlab.models.layers import Stack, initialise_branches
from attnlab.models.options import Options

DIM, HEADS, LENGTH, ROWS, DRAWS = 64, 4, 16, 2, 4


class DepthProfile(NamedTuple):
    """One number for each layer, the first layer first, in float64.

    ``variance`` is that of the stream after the layer, over its width, in the mean over tokens and
    over four draws of the weights.
    ``gradient`` is the norm of the gradient of the stream after the layer, beside that after the
    last one, which is therefore 1; of the four draws the geometric mean.
    """

    variance: Float[Tensor, "layers"]
    gradient: Float[Tensor, "layers"]


def depth_profile(name: str, layers: int = 64, **options: Any) -> DepthProfile:
    """The profile of the join ``name`` (``"pre_norm"``, ``"deep_norm"``, …) in so many layers, of
    two sublayers each.

    ``options`` are those of the join. Pre-norm and post-norm are shown as their papers have them,
    without GPT-2's smaller matrices, unless ``shrink=True`` is given. A ValueError or TypeError for
    a name, a number of layers or an option that there is not. 64 layers take about a
    second, and the same call gives the same numbers.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        found = [_profile(_stack(name, layers, options)) for _ in range(DRAWS)]
    variance, gradient = (torch.stack(each) for each in zip(*found, strict=True))
    return DepthProfile(variance.mean(0), gradient.log().mean(0).exp())


@torch.no_grad()
def token_similarity(name: str, layers: int = 64, **options: Any) -> Float[Tensor, "layers"]:
    """How alike the tokens of a sequence are after each layer of the same stacks, in float64: the
    mean cosine of the angle between the vectors of two tokens. Random vectors have 0 in the mean;
    at 1 all tokens are the same, and attention has nothing left to choose from.

    The arguments and errors are those of ``depth_profile``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = [_similarity(_stack(name, layers, options)) for _ in range(DRAWS)]
    return torch.stack(found).mean(0)


def _similarity(stack: Stack) -> Tensor:
    found = []
    for stream in _streams(stack):
        unit = stream / stream.norm(dim=-1, keepdim=True)
        cosines = unit @ unit.mT
        found.append((cosines.sum() / ROWS - LENGTH) / (LENGTH * (LENGTH - 1)))
    return torch.stack(found)


def _profile(stack: Stack) -> DepthProfile:
    streams = _streams(stack)
    grads = torch.autograd.grad(streams[-1], streams, torch.randn_like(streams[-1]))
    variances = [stream.detach().var(-1, correction=0).mean() for stream in streams]
    norms = torch.stack([grad.norm() for grad in grads])
    return DepthProfile(torch.stack(variances), norms / norms[-1])


def _streams(stack: Stack) -> list[Tensor]:
    """The stream after each layer, from random vectors."""
    x = torch.randn(ROWS, LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    streams = []
    for block in stack.blocks:
        x = block(x)
        streams.append(x)
    return streams


def _stack(name: str, layers: int, options: dict[str, Any]) -> Stack:
    """The layers of a TinyTransformer, each matrix keeping the variance of what it reads."""
    card = choose("join", name, catalog.with_role("join"))
    if "shrink" in parameters_of(card.build):
        options = {"shrink": False, **options}
    ends: dict[str, Any] = {
        "kind": "token_classifier",
        "features": DIM,
        "classes": 2,
        "positions": "none",
    }
    sizes: dict[str, Any] = {"dim": DIM, "heads": HEADS, "layers": layers, "max_len": LENGTH}
    made = parts.stack(Options(**ends, **sizes, join=name, join_options=options), causal=False)
    for part in made.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_normal_(part.weight)
    initialise_branches(nn.ModuleList([made]), keep=())
    return made.double().eval()
