r"""What attention heads do on an image: rows, columns, neighbours, ink.

A vision transformer reads the patches of an image as a sequence, in reading order. Positions i and
j of that sequence are patches in some row and column of a grid, and ``patch_statistics`` says for
each head how much of its attention stays in the row of the query's patch, in its column, near it,
and on patches with ink, and how far it reaches on average (the attention distance of Dosovitskiy
and others, An Image is Worth 16x16 Words, ICLR 2021, arXiv:2010.11929, Figure 7).

A share alone says little. In a picture with much ink, a head that attends to all patches alike also
attends to ink; and because strokes cross the middle of most images, so does a head that attends to
the middle whatever the image. So each share is given three times: for the head; for **uniform**
attention; and for the head's own **average** over the images, which depends on positions alone.
What the head has beyond its average, it owes to the content of the image.

The variance of the weights $w_{bij}$ over images b and pairs ij is split in the same way. With
$\bar w_{ij}$ the mean over images and $\bar w_{\Delta}$ the mean over images and all pairs with the
same offset $\Delta$ (rows down, columns to the right),

$$\sum_{bij} (w_{bij} - \bar w)^2 = \sum_{bij} (\bar w_{\Delta(ij)} - \bar w)^2
  + \sum_{bij} (\bar w_{ij} - \bar w_{\Delta(ij)})^2 + \sum_{bij} (w_{bij} - \bar w_{ij})^2 :$$

explained by the offset, by the two positions beyond their offset, and not by positions at all. How
far the query matters is asked apart from this: of the same sum, image and key alone explain
$\sum_{bij} (\bar w_{bj} - \bar w)^2$, with $\bar w_{bj}$ the mean over queries. It is all of it
where all queries attend to the same keys.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.shapes import checked
from attnlab.lens.heads import check_weights


@dataclass(frozen=True, eq=False)
class PatchShares:
    """Where the attention of each head goes: arrays (h,) of float64, means over queries.

    ``same``        share to the query's own patch
    ``row``         to the other patches of its row
    ``column``      to the other patches of its column
    ``neighbours``  to the patches that touch it: 8, at an edge 5, in a corner 3
    ``special``     to the tokens before the patches, such as [CLS]; 0 where there are none
    ``distance``    mean distance between the middles of both patches, in sides of a patch, weighted
                    by the attention among patches
    ``ink``         to patches with ink
    ``stroke``      of queries with ink: to other patches with ink
    ``alike``       to other patches that have ink as the query's has, or have none as it has none

    ``same``, ``row``, ``column``, ``special`` and the rest of the grid add up to 1. The last three
    are None where no ink was given.
    """

    same: np.ndarray
    row: np.ndarray
    column: np.ndarray
    neighbours: np.ndarray
    special: np.ndarray
    distance: np.ndarray
    ink: np.ndarray | None = None
    stroke: np.ndarray | None = None
    alike: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class PatchStatistics:
    """What each head does on a grid of patches.

    ``shares``     of the head itself
    ``average``    the same shares if the head had its mean over the images on every image
    ``uniform``    the same shares if all (real) tokens had the same weight
    ``offset``     (h,): the share of the variance of the weights that the offset from query to key
                   explains; NaN for a head whose weights are all alike
    ``position``   (h,): the share that the positions of query and key explain, offset included; 1
                   minus it is what changes from image to image. NaN for a single image
    ``key``        (h,): the share that image and key explain, whatever the query; about 0 where
                   each query attends elsewhere, 1 where all queries attend to the same keys
    ``by_offset``  (h, 2·rows − 1, 2·columns − 1): mean attention by offset; the middle is the query
    """

    shares: PatchShares
    average: PatchShares
    uniform: PatchShares
    offset: np.ndarray
    position: np.ndarray
    key: np.ndarray
    by_offset: np.ndarray

    def rows(self) -> list[dict[str, float]]:
        """One plain dict per head, for a table; ``ink (uniform)`` is that share by chance."""
        kinds = {"": self.shares, " (average)": self.average, " (uniform)": self.uniform}
        columns = {
            name + kind: column
            for name in vars(self.shares)
            for kind, shares in kinds.items()
            if (column := getattr(shares, name)) is not None
        }
        columns |= {"offset": self.offset, "position": self.position, "key": self.key}
        return [
            {"head": head, **{name: float(column[head]) for name, column in columns.items()}}
            for head in range(len(self.offset))
        ]


@checked
def patch_statistics(
    weights: Float[Tensor, "b h n n"],
    grid: tuple[int, int],
    ink: Bool[Tensor, "b p"] | None = None,
    *,
    padding: Bool[Tensor, "b n"] | None = None,
) -> PatchStatistics:
    """Statistics of each head from its weights on a batch of images.

    ``grid`` is (rows, columns). The last p = rows · columns of the n tokens are the patches, in
    reading order; tokens before them, such as [CLS], are asked for as keys and left out as queries.
    ``ink`` is True for patches that have some, for example ``brightness > 0.5``. ``padding`` (True
    = a real token) leaves tokens out; queries without any weight are left out too.

    The images are the sample: with b of them, noise alone makes ``position`` about 1/b. Works in
    float64, with a few copies of ``weights``.
    """
    rows, columns = _check_grid(grid, weights.shape[-1])
    w = weights.detach().double()
    check_weights(w)
    b, h, n, _ = w.shape
    p = rows * columns
    if ink is not None and ink.shape[1] != p:
        raise ValueError(
            f"`ink` should say of each of the {rows} × {columns} = {p} patches whether it has ink, "
            f"got {ink.shape[1]} per image"
        )
    valid = torch.ones(b, n, dtype=torch.bool, device=w.device) if padding is None else padding
    ink = None if ink is None else ink & valid[:, n - p :]
    w = w[:, :, n - p :] * valid[:, None, n - p :, None]
    counts = w.sum(-1) > 0
    average = (w.sum(0) / counts.sum(0)[..., None]).nan_to_num()
    even = (valid / valid.sum(-1, keepdim=True)).double()[:, None, None]
    places = _Places(rows, columns, w.device)
    explained, by_offset = _explained(w, counts, valid, places)
    return PatchStatistics(
        shares=_shares(w, counts, ink, places),
        average=_shares(average.expand(b, h, p, n), counts, ink, places),
        uniform=_shares(even.expand(b, h, p, n), counts, ink, places),
        **explained,
        by_offset=by_offset,
    )


def _check_grid(grid: tuple[int, int], tokens: int) -> tuple[int, int]:
    names = ("rows of `grid`", "columns of `grid`")
    rows, columns = (check_integer(*pair, at_least=1) for pair in zip(names, grid, strict=True))
    if rows * columns > tokens:
        raise ValueError(
            f"`grid` has {rows} × {columns} = {rows * columns} patches, and there are only "
            f"{tokens} tokens"
        )
    return rows, columns


class _Places:
    """The pairs of patches of a grid: (p, p), queries down and keys across."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        at = torch.arange(rows * columns, device=device)
        down = (at // columns) - (at // columns)[:, None]
        right = (at % columns) - (at % columns)[:, None]
        self.same = (down == 0) & (right == 0)
        self.row = (down == 0) & ~self.same
        self.column = (right == 0) & ~self.same
        self.near = (down.abs() <= 1) & (right.abs() <= 1) & ~self.same
        self.distance = torch.hypot(down.double(), right.double())
        self.window = 2 * rows - 1, 2 * columns - 1
        self.offset = (down + rows - 1) * self.window[1] + right + columns - 1


def _shares(w: Tensor, counts: Tensor, ink: Tensor | None, places: _Places) -> PatchShares:
    """``w`` is (b, h, p, n), ``counts`` (b, h, p)."""
    among = w[..., -w.shape[2] :]  # the patches as keys

    def share(columns: Tensor, of: Tensor = counts) -> np.ndarray:
        return _mean((among * columns).sum(-1), of)

    to_patches = among.sum(-1)
    found = {
        "same": share(places.same),
        "row": share(places.row),
        "column": share(places.column),
        "neighbours": share(places.near),
        "special": _mean(w.sum(-1) - to_patches, counts).clip(0),
        "distance": _mean(
            (among * places.distance).sum(-1) / to_patches, counts & (to_patches > 0)
        ),
    }
    if ink is not None:
        others = ~places.same
        keys, queries = ink[:, None, None, :], ink[:, None, :]
        found["ink"] = share(keys)
        found["stroke"] = share(keys & others, counts & queries)
        found["alike"] = share((keys == queries[..., None]) & others)
    return PatchShares(**found)


def _mean(value: Tensor, counts: Tensor) -> np.ndarray:
    """Over images and queries that count, per head; NaN for a head without any."""
    total = value.masked_fill(~counts, 0).sum(dim=(0, 2))
    return np.asarray((total / counts.sum(dim=(0, 2))).cpu().numpy())


def _explained(
    w: Tensor, counts: Tensor, valid: Tensor, places: _Places
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What offset, positions and keys explain, (h,) each, and mean attention by offset."""
    p = w.shape[2]
    pairs = counts[..., None] & valid[:, None, None, -p:]
    among = w[..., -p:] * pairs
    square = among.square().sum(dim=(0, 2, 3))
    sums, sizes = among.sum(0), pairs.sum(0).double()
    cells = {
        "offset": tuple(_by_offset(part, places) for part in (sums, sizes)),
        "position": (sums, sizes),
        "key": tuple(part.sum(2).transpose(0, 1).double() for part in (among, pairs)),
    }
    common = _squares(sums.sum(dim=(1, 2)), sizes.sum(dim=(1, 2)))
    total = square - common
    total = total.masked_fill(total <= 1e-12 * square, torch.nan)
    found = {
        name: ((_squares(*pair) - common) / total).clamp(0, 1).cpu().numpy()
        for name, pair in cells.items()
    }
    if len(w) < 2:
        found["position"] = np.full_like(found["position"], np.nan)
    mean = torch.div(*cells["offset"]).unflatten(1, places.window)
    return found, mean.cpu().numpy()


def _by_offset(values: Tensor, places: _Places) -> Tensor:
    """(h, p, p) → (h, offsets): sums over the pairs of each offset."""
    down, right = places.window
    empty = values.new_zeros(len(values), down * right)
    return empty.index_add(1, places.offset.flatten(), values.flatten(1))


def _squares(sums: Tensor, sizes: Tensor) -> Tensor:
    """(h,): the squares of the means of cells, each as often as the cell has members."""
    return (sums.square() / sizes.clamp_min(1)).reshape(len(sums), -1).sum(1)
