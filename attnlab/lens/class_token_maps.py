r"""What a class token attends to, as a map of the image; and classes by nearest neighbours.

A vision transformer without labels, such as DINO, is judged by two things that need no training.

**Maps.** The row of the class token in the last layer has a weight $w_p$ for each patch p, one map
for each head. A map has a number everywhere, and to compare it with what the image shows, only the
fewest patches are kept that hold a share of the weight, 60 % in the paper: the largest weights, one
after the other, until their sum reaches the share. What is kept is compared with the patches of the
object by the **Jaccard index** $|A \cap B| / |A \cup B|$.

A map that knows nothing has an index above 0, too. A control belongs beside every number: the map
of another image (``control``), which has the same habits of the head, such as looking at the
middle, and knows nothing of this image.

**Nearest neighbours.** An image gets the class that its k nearest images vote for, with the weight
$e^{s / 0.07}$ for a cosine s: no layer is trained for it.

Common mistakes: the weight of the class token to itself counted in the share of the patches; the
share taken of the number of patches and not of their weight; neighbours of an image that count the
image itself.

Caron, Touvron, Misra, Jégou, Mairal, Bojanowski, Joulin. Emerging Properties in Self-Supervised
Vision Transformers. ICCV 2021, arXiv:2104.14294, section 4.2.2 and appendix A.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Size, check_share
from attnlab.core.shapes import checked
from attnlab.lens.heads import check_weights

SHARE = 0.6
NEIGHBOURS, TEMPERATURE = 20, 0.07


@checked
def class_token_maps(
    weights: Float[Tensor, "b h n n"], grid: tuple[Size, Size]
) -> Float[Tensor, "b h rows columns"]:
    """How the first token distributes its attention over the patches, which are all others, in
    reading order; each map adds up to 1.

    A ValueError where there are other tokens than it and the patches, or no weight on patches.
    """
    rows, columns = grid
    check_weights(weights)
    if weights.shape[-1] != rows * columns + 1:
        raise ValueError(
            f"weights should be of a class token and {rows} × {columns} patches, "
            f"{rows * columns + 1} tokens in all, got {weights.shape[-1]}"
        )
    of_patches = weights[:, :, 0, 1:]
    total = of_patches.sum(-1, keepdim=True)
    if (total <= 0).any():
        raise ValueError("in some head the class token has no weight on any patch")
    return (of_patches / total).unflatten(-1, (rows, columns))


@checked
def kept(
    maps: Float[Tensor, "... rows columns"], share: float = SHARE
) -> Bool[Tensor, "... rows columns"]:
    """The fewest patches that hold at least ``share`` of each map's weight; of equal patches the
    first. With a share of 0 none, with 1 all that have weight."""
    share = check_share("share", share)
    if (maps < 0).any() or not maps.isfinite().all():
        raise ValueError("maps should hold finite weights of at least 0")
    flat = maps.double().flatten(-2)
    value, order = flat.sort(dim=-1, descending=True, stable=True)
    before = value.cumsum(-1) - value
    rounding = 1e-9 * flat.sum(-1, keepdim=True)
    wanted = before < share * flat.sum(-1, keepdim=True) - rounding
    mask = torch.zeros_like(wanted).scatter(-1, order, wanted)
    return mask.unflatten(-1, maps.shape[-2:])


@checked
def jaccard(
    one: Bool[Tensor, "... rows columns"], other: Bool[Tensor, "... rows columns"]
) -> Float[Tensor, "..."]:
    """Patches in both, over patches in either; NaN where neither has one."""
    both, either = (one & other).flatten(-2).sum(-1), (one | other).flatten(-2).sum(-1)
    return both.double() / either


class Overlap(NamedTuple):
    """The mean Jaccard index of each head (h,), and that of the maps of other images."""

    own: Float[Tensor, "h"]
    control: Float[Tensor, "h"]


@checked
def overlap(
    maps: Float[Tensor, "b h rows columns"], ink: Bool[Tensor, "b rows columns"],
    share: float = SHARE,
) -> Overlap:  # fmt: skip
    """How far what is kept of each map is the ``ink`` of its image; the control compares it with
    the ink of each of the other images. Needs two images; images without ink are left out."""
    some = ink.flatten(1).any(-1)
    maps, ink = maps[some], ink[some]
    if len(ink) < 2:
        raise ValueError(f"two images with ink are needed for a control, got {len(ink)}")
    found = kept(maps, share)
    pairs = jaccard(
        found[:, None].expand(-1, len(ink), -1, -1, -1),
        ink[None, :, None].expand(len(ink), -1, found.shape[1], -1, -1),
    )  # (image of the map, image of the ink, head)
    same = torch.eye(len(ink), dtype=torch.bool, device=ink.device)
    return Overlap(pairs[same].mean(0), pairs[~same].mean(0))


@checked
def nearest_classes(
    known: Float[Tensor, "m dim"], labels: Int[Tensor, "m"], vectors: Float[Tensor, "b dim"],
    k: Size = NEIGHBOURS, *, temperature: float = TEMPERATURE,
) -> Int[Tensor, "b"]:  # fmt: skip
    """The class of each vector by votes of the k ``known`` ones of the largest cosine, each with
    the weight exp(cosine / temperature); the smallest of classes with equal votes."""
    if k > len(known):
        raise ValueError(f"k should be at most the {len(known)} known vectors, got {k}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature should be above 0 and finite, got {temperature}")
    if (labels < 0).any():
        raise ValueError("labels should be classes, from 0 on")
    cosine = F.normalize(vectors.double(), dim=-1) @ F.normalize(known.double(), dim=-1).mT
    nearest, place = cosine.topk(k, dim=-1)
    weight = ((nearest - nearest[:, :1]) / temperature).exp()  # the largest is 1: no overflow
    votes = weight.new_zeros(len(vectors), int(labels.max()) + 1)
    return votes.scatter_add(1, labels[place].long(), weight).argmax(-1)
