"""The numbers of HeadMap: places and distances of the heads, and the maps of one text as bytes.

A weight is one byte, its square root in 254 steps, so that small ones keep their digits; 255 is a
pair that is masked. Divergences have four decimals. Python and the page say what these numbers say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.arguments import check_list
from attnlab.core.arrays import numbers, tokens_for
from attnlab.core.integers import check_integer
from attnlab.figures.labels import visible
from attnlab.lens.head_distances import HeadDistances, Plane, head_distances
from attnlab.lens.head_kinds import find_heads
from attnlab.lens.head_kinds.kinds import KINDS, Heads
from attnlab.lens.opening import sharpness, telling_query
from attnlab.lens.recorded_layers import layers_of

STEPS, MASKED = 254, 255
MOST_TOKENS, MOST_HEADS, MOST_CELLS = 128, 400, 4_000_000
ORDER = ("previous token", "first token", "same token", "induction", "mixed", "positional",
         "duplicate token", "next token", "delimiter")  # fmt: skip
"""Of the looks: colours go by five and shapes by four, so that these nine all differ."""
Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Study:
    """What is shown of a model's heads."""

    heads: list[Place]
    names: list[str]
    """Of the layers."""
    kinds: list[str]
    """Of each head."""
    plane: Plane
    divergence: np.ndarray
    """(heads, heads) float32."""
    importance: np.ndarray | None
    tokens: list[str]
    codes: np.ndarray
    """(heads, n, n) bytes."""

    @property
    def weights(self) -> np.ndarray:
        """(heads, n, n); 0 where a pair is masked."""
        return np.where(self.codes == MASKED, 0, (self.codes / STEPS) ** 2)

    def looks(self) -> list[str]:
        """The kinds that occur, each once: its place says how its heads are drawn."""
        own = dict.fromkeys(kind for kind in self.kinds if kind not in KINDS)
        return [*ORDER, *own]

    def told_kind(self, kind: str) -> str:
        return visible(kind, 30)

    def nearest(self, at: int) -> list[int]:
        """The other heads by their number, the one that attends most alike first."""
        order = np.argsort(self.divergence[at], kind="stable")
        return [int(other) for other in order if other != at]

    def strongest(self, at: int, query: int) -> int | None:
        """The key with the largest weight of a query; None where all are 0."""
        row = self.weights[at, query]
        return int(row.argmax()) if row.max() > 0 else None

    def opening(self) -> int:
        """The head that is worth a look first: the most important, or the sharpest."""
        if self.importance is not None:
            return int(self.importance.argmax())
        return int(sharpness(self.weights).argmax())

    def telling(self, at: int) -> int:
        """The query that attends to another token most, and to itself less."""
        return telling_query(self.weights[at])

    def told(self) -> dict[str, Any]:
        """What the page is told in JSON."""
        looks = self.looks()
        return {
            "heads": [list(place) for place in self.heads],
            "names": [visible(name, 60) for name in self.names],
            "looks": [visible(kind, 30) for kind in looks],
            "kinds": [looks.index(kind) for kind in self.kinds],
            "points": np.round(self.plane.points, 5).tolist(),
            "stress": round(self.plane.stress, 4),
            "importance": None if self.importance is None else self.importance.tolist(),
            "tokens": self.tokens,
        }

    def data(self) -> bytes:
        """Divergences as floats, then the maps."""
        return self.divergence.astype("<f4").tobytes() + self.codes.tobytes()


def study_of(
    seen: Any, tokens: Any, *, padding: Any, mask: Any, distances: Any, kinds: Any, importance: Any,
    batch: Any,
) -> Study:  # fmt: skip
    """The study of a recording; what does not fit is refused in a sentence."""
    layers = layers_of(seen, mask)
    b, n = _square(layers)
    batch = check_integer("`batch`", batch, at_least=0)
    if batch >= b:
        raise ValueError(f"`batch` should be 0 to {b - 1}, the texts that were read, got {batch}")
    names = _names(tokens, b, n)
    real = torch.ones(n, dtype=torch.bool) if padding is None else padding[batch].cpu()
    places = real.nonzero().flatten()[:MOST_TOKENS]
    if not len(places):
        raise ValueError(f"text {batch} has no real token to show: all of it is padding")
    _check_size(sum(weights.shape[1] for _, weights, _ in layers), len(places))
    found = _distances(seen, padding, distances, layers)
    if kinds is None:
        read = torch.arange(n).expand(b, n) if names is None else names
        kinds = find_heads(seen, read, padding=padding, mask=mask)
    chosen = _kinds(kinds, found.heads)
    labels = range(n) if names is None else names[batch]
    return Study(
        heads=found.heads,
        names=[name for name, *_ in layers],
        kinds=chosen,
        plane=found.plane(),
        divergence=np.round(found.divergence, 4).astype("<f4"),
        importance=None if importance is None else _importance(importance, layers),
        tokens=[visible(labels[int(place)], 24) for place in places],
        codes=np.concatenate([_codes(weights[batch], mask, batch, places)
                              for _, weights, mask in layers]),
    )  # fmt: skip


def _check_size(heads: int, tokens: int) -> None:
    if heads > MOST_HEADS or heads * tokens**2 > MOST_CELLS:
        raise ValueError(
            f"{heads} heads with maps of {tokens} tokens are too many: at most {MOST_HEADS} heads "
            f"and {MOST_CELLS:,} weights can be shown; give a shorter text, or fewer layers by "
            "watch(model, only=…)"
        )


def _square(layers: Sequence[tuple[str, Tensor, Tensor | None]]) -> tuple[int, int]:
    b, _, n, _ = layers[0][1].shape
    for name, weights, _ in layers:
        if (len(weights), *weights.shape[2:]) != (b, n, n):
            raise ValueError(
                f"{name!r} has {len(weights)} texts, {weights.shape[2]} queries and "
                f"{weights.shape[3]} keys: heads are compared in the attention of the same "
                "texts to themselves; leave other layers out by watch(model, only=…)"
            )
    return b, n


def _names(tokens: Any, b: int, n: int) -> list[list[str]] | None:
    if tokens is None:
        return None
    given = check_list("tokens", tokens)
    several = bool(given) and all(isinstance(row, list | tuple) for row in given)
    rows = given if several else [given] * b
    if len(rows) != b:
        raise ValueError(
            f"`tokens` should be one list, or {b} lists for {b} texts, got {len(rows)}"
        )
    return [[str(each) for each in tokens_for("tokens", row, n, "tokens")] for row in rows]


def _distances(seen: Any, padding: Any, given: Any, layers: Any) -> HeadDistances:
    if given is None:
        return head_distances(seen, padding=padding)
    heads = [(layer, h) for layer, (_, w, _) in enumerate(layers) for h in range(w.shape[1])]
    if not isinstance(given, HeadDistances):
        raise TypeError(
            f"`distances` should be what head_distances found, got {type(given).__name__}"
        )
    if given.heads != heads:
        raise ValueError(
            f"`distances` are of {len(given.heads)} heads, and `seen` has {len(heads)}: they "
            "should be of the same layers"
        )
    return given


def _kinds(given: Any, heads: Sequence[Place]) -> list[str]:
    of_each = given.kinds if isinstance(given, Heads) else given
    if not isinstance(of_each, Mapping):
        raise TypeError(
            "`kinds` should be what find_heads found, or a dict {(layer, head): name}, got "
            f"{type(given).__name__}"
        )
    missing = [place for place in heads if place not in of_each]
    if missing:
        layer, head = missing[0]
        raise ValueError(f"`kinds` should name every head, and head {head} of layer {layer} is not")
    found = [of_each[place] for place in heads]
    if wrong := [kind for kind in found if not isinstance(kind, str)]:
        raise TypeError(f"`kinds` should be texts, got {wrong[0]!r}")
    return found


def _importance(given: Any, layers: Any) -> np.ndarray:
    counts = [weights.shape[1] for _, weights, _ in layers]
    if isinstance(given, Mapping):
        parts = [np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part).reshape(-1)
                 for part in given.values()]  # fmt: skip
        if [len(part) for part in parts] != counts:
            raise ValueError(
                f"`importance` should hold {counts} numbers for the layers, got "
                f"{[len(part) for part in parts]}"
            )
        given = np.concatenate(parts)
    found = numbers("importance", given, "heads")
    if found.shape != (sum(counts),) or found.min() < 0:
        raise ValueError(
            f"`importance` should be {sum(counts)} numbers of at least 0, one for each head, got "
            f"{found.shape[0]} from {found.min():g} on"
        )
    return np.asarray(found, np.float64)


def _codes(weights: Tensor, mask: Tensor | None, batch: int, places: Tensor) -> np.ndarray:
    """(h, n, n): the weights of one text as bytes."""
    w = weights.detach().double().cpu().nan_to_num()[:, places][:, :, places]
    codes = (w.clamp(0, 1).sqrt() * STEPS).round().to(torch.uint8)
    if mask is not None:
        allowed = mask[min(batch, len(mask) - 1)].expand(weights.shape).cpu()
        allowed = allowed[:, places][:, :, places]
        codes = codes.masked_fill(~allowed & (codes == 0), MASKED)
    return codes.numpy()
