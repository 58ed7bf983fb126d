"""The numbers of QueriesView: the weights of every moment, layer, head, query and patch as bytes.

A weight is one byte, its square root in 254 steps, so that small ones keep their digits; 255 is a
pair that is masked. What a query gives to a class token is a byte, too, apart from its patches.
Python and the page say what these bytes say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.markup import legible
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of
from attnlab.lens.sources.patches import Grid, Patches

STEPS, MASKED = 254, 255
ROUNDED = 0.02  # by which a weight of half precision may be above 1
MOST_QUERIES, MOST_MOMENTS, MOST_CELLS = 64, 64, 2_000_000
Layers = list[tuple[str, Tensor, Tensor | None]]


@dataclass(frozen=True, eq=False)
class Study:
    """What queries read of one image."""

    steps: list[int]
    """The updates after which the queries were looked at; one, 0, where none are known."""
    dated: bool
    """Whether they are known."""
    layers: list[str]
    grid: Grid
    image: Patches
    codes: np.ndarray
    """(moments, layers, 1 + heads, q, patches) bytes; the mean over the heads comes first."""
    before: int
    """How many keys stand before the patches: a class token, registers."""
    aside: np.ndarray
    """(moments, layers, 1 + heads, q) bytes: what goes to those keys together."""

    @property
    def heads(self) -> int:
        return self.codes.shape[2] - 1

    @property
    def queries(self) -> int:
        return self.codes.shape[3]

    @property
    def patches(self) -> int:
        return self.codes.shape[4]

    @property
    def weights(self) -> np.ndarray:
        """As ``codes``; 0 where a pair is masked."""
        return np.where(self.codes == MASKED, 0, (self.codes / STEPS) ** 2)

    @property
    def largest(self) -> int:
        """The byte of the largest weight of a patch, of all moments, layers, heads and queries: the
        end of the colours."""
        return max(1, int(np.where(self.codes == MASKED, 0, self.codes).max()))

    def chosen(self, moment: int, layer: int, head: int) -> np.ndarray:
        """(q, patches) bytes; head -1 is the mean."""
        return np.asarray(self.codes[moment, layer, head + 1])

    def set_aside(self, moment: int, layer: int, head: int) -> np.ndarray:
        """(q,) bytes: what each query gives to the keys before the patches; head -1 is the mean."""
        return np.asarray(self.aside[moment, layer, head + 1])

    def data(self) -> bytes:
        """What the page is sent in bytes."""
        return self.codes.tobytes() + self.aside.tobytes()

    def told(self) -> dict[str, Any]:
        """What the page is told in JSON."""
        return {
            "steps": self.steps,
            "dated": self.dated,
            "layers": [legible(name)[:60] for name in self.layers],
            "heads": self.heads,
            "queries": self.queries,
            "before": self.before,
            "largest": self.largest,
            "grid": {"rows": self.grid[0], "columns": self.grid[1], "first": 0},
            "image": self.image.sent(),
        }


def study_of(seen: Any, image: Any, grid: Any, batch: Any) -> Study:
    """The study of recordings; what does not fit is refused in a sentence."""
    patches = Patches(image, grid)
    moments = _moments(seen)
    batch = check_integer("`batch`", batch, at_least=0)
    found = {step: _reading(layers_of(each), patches) for step, each in moments.items()}
    first = next(iter(found.values()))
    for step, layers in found.items():
        if _shapes(layers) != _shapes(first):
            raise ValueError(
                f"every moment should have the same layers; those of {step} are "
                f"{_shapes(layers)}, and those of the first {_shapes(first)}"
            )
    b, h, q, m = first[0][1].shape
    if batch >= b:
        raise ValueError(f"`batch` should be 0 to {b - 1}, the images that were read, got {batch}")
    cells = patches.grid_of(m)
    assert cells is not None
    _check_size(len(moments), len(first), h, q, cells)
    coded = [
        [_codes(name, weights[batch], mask, batch, cells) for name, weights, mask in layers]
        for layers in found.values()
    ]
    return Study(
        steps=[0 if step is None else step for step in found],
        dated=None not in found,
        layers=[name for name, *_ in first],
        grid=cells,
        image=patches,
        codes=np.array([[codes for codes, _ in layers] for layers in coded]),
        before=m - cells[0] * cells[1],
        aside=np.array([[aside for _, aside in layers] for layers in coded]),
    )


def _moments(seen: Any) -> dict[Any, Any]:
    """Update → recording, in order; of a single recording None → it."""
    if not isinstance(seen, Mapping) or isinstance(seen, Seen) or not seen:
        return {None: seen}
    numbers = [isinstance(step, int) and not isinstance(step, bool) for step in seen]
    if not any(numbers):
        return {None: seen}
    if not all(numbers) or min(seen) < 0:
        raise ValueError(
            "`seen` of several moments should be {update: recording}, updates from 0 on, got the "
            f"keys {list(seen)[:6]}"
        )
    return {step: seen[step] for step in sorted(seen)}


def _reading(layers: Layers, patches: Patches) -> Layers:
    """The layers in which queries read patches."""
    found = [
        (name, weights, mask) for name, weights, mask in layers
        if weights.shape[2] != weights.shape[3] and patches.fits(weights.shape[3])
    ]  # fmt: skip
    if not found:
        sizes = ", ".join(f"{name} {w.shape[2]} × {w.shape[3]}" for name, w, _ in layers[:6])
        raise ValueError(
            "no layer has queries that read the patches of the image: there should be another "
            "number of keys than of queries, and as many as patches (queries × keys: "
            f"{sizes}). Where an image attends to itself, AttentionView shows it; where the "
            "patches form another grid, give `grid=(rows, columns)`"
        )
    if len({weights.shape for _, weights, _ in found}) > 1:
        raise ValueError(
            "the layers differ in heads, queries or patches: "
            f"{_shapes(found)}; record some of them, by attnlab.watch(model, only=…)"
        )
    return found


def _shapes(layers: Layers) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weights.shape) for name, weights, _ in layers}


def _check_size(moments: int, layers: int, h: int, q: int, grid: Grid) -> None:
    cells = moments * layers * (1 + h) * q * grid[0] * grid[1]
    if q > MOST_QUERIES or moments > MOST_MOMENTS or cells > MOST_CELLS:
        raise ValueError(
            f"{moments} moments of {layers} layers, {h} heads, {q} queries and "
            f"{grid[0] * grid[1]} patches are too many to show: at most {MOST_MOMENTS} moments, "
            f"{MOST_QUERIES} queries and {MOST_CELLS:,} weights; leave out moments or layers"
        )


def _codes(
    name: str, weights: Tensor, mask: Tensor | None, batch: int, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """(1 + h, q, patches): the weights of one image as bytes, the mean over the heads first; and
    (1 + h, q): what goes to the keys before the patches."""
    special = weights.shape[-1] - grid[0] * grid[1]
    w = weights.detach().double().cpu()
    _check_weights(name, w)
    hidden = torch.zeros(w.shape, dtype=torch.bool)
    if mask is not None:
        hidden = ~mask[min(batch, len(mask) - 1)].expand(w.shape).cpu()
    w, hidden = torch.cat([w.mean(0, True), w]), torch.cat([hidden.all(0, True), hidden])
    codes = _bytes_of(w)
    codes = codes.masked_fill(hidden & (codes == 0), MASKED)[..., special:]
    return codes.numpy(), _bytes_of(w[..., :special].sum(-1)).numpy()


def _bytes_of(weights: Tensor) -> Tensor:
    return (weights.clamp(0, 1).sqrt() * STEPS).round().to(torch.uint8)


def _check_weights(name: str, weights: Tensor) -> None:
    """A map shows shares of one; rounding may bring one a little above."""
    wrong = ~((weights >= 0) & (weights <= 1 + ROUNDED))
    if wrong.any():
        raise ValueError(
            f"the weights of a query should be from 0 to 1, and {int(wrong.sum())} of {name!r} are "
            f"not, the first of them {weights[wrong][0].item():.3g}; AttentionView shows weights "
            "of both signs"
        )
