"""A head over a corpus: what it does in each text, and the texts in which it does it most.

    atlas = HeadAtlas()
    for inputs in batches:
        with attnlab.watch(model) as seen:
            model(inputs)
        atlas.add(seen, inputs)
    found = atlas.found()
    found.deciles("induction")                 # a row for each head
    found.examples(1, 0, "induction")          # texts in which head 1.0 is strong, middling, idle

``find_heads`` gives each head one number for all texts together, and a picture of one sentence
shows one case. Neither says whether a head does its work everywhere or in a few texts, where it is
strong while it rests in all others. Here every statistic of ``attnlab.lens.head_kinds`` is measured
for each text by itself: the shares on the previous, next, own and first token, on delimiters, on
earlier places of the same token and on those right after them (induction), the entropy, and the
distance. How they spread is said by deciles: the 0th is the smallest of all texts, the 5th the
median, the 10th the largest.

A statistic of a text is the mean over its queries that have such a key at all; a text without any
has NaN and stands in no decile. A text of few queries has noisy numbers, which spread by chance.
What position alone explains is not measured here: in one text it explains everything.

The texts of a head by decile of its strength are the idea of HeadVis, 2026,
transformer-circuits.pub/2026/headvis.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.lens.head_kinds import Tokens, check_batch
from attnlab.lens.head_kinds.kinds import SHARES, STATISTICS, Heads
from attnlab.lens.head_kinds.sums import LayerSums, measure
from attnlab.lens.heads import DELIMITERS, check_delimiters
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of

NAMES = (*SHARES, *STATISTICS)
"""What is measured of each head in each text."""


class Examples(NamedTuple):
    """Texts, by their numbers in the order in which they were added."""

    strong: list[int]
    """Those in which the statistic is largest, the largest first."""
    middling: list[int]
    """Those nearest to the median."""
    idle: list[int]
    """Those in which it is smallest, the smallest first."""


class Atlas:
    """The heads of a model over t texts; made by ``HeadAtlas``.

    ``heads``  (layer, head) of each, in order of layers
    ``texts``  the tokens of each text, without padding: texts, or token numbers
    ``whole``  the heads over all texts together, with their kinds: ``attnlab.lens.head_kinds``
    """

    def __init__(
        self, values: Mapping[str, np.ndarray], texts: Sequence[Sequence[Any]], whole: Heads
    ) -> None:
        self._values, self.texts, self.whole = dict(values), [*texts], whole
        self.heads = [(head.layer, head.head) for head in whole]

    def values(self, name: str) -> np.ndarray:
        """(heads, t) float64: one statistic of each head in each text; NaN where a text has no
        query for it. ``name`` is one of ``NAMES``."""
        return np.array(choose("statistic", name, self._values))

    def deciles(self, name: str) -> np.ndarray:
        """(heads, 11): the smallest value of each head over the texts, nine between, the largest;
        NaN for a head without any."""
        found = np.full((len(self.heads), 11), np.nan)
        for row, values in zip(found, self.values(name), strict=True):
            known = values[np.isfinite(values)]
            if len(known):
                row[:] = np.quantile(known, np.linspace(0, 1, 11))
        return found

    def often(self, name: str, least: float) -> np.ndarray:
        """(heads,): the share of texts in which a statistic is at least ``least``."""
        values = self.values(name)
        with np.errstate(invalid="ignore"):
            known = np.isfinite(values).sum(1)
            return np.where(known, (values >= least).sum(1) / np.maximum(known, 1), np.nan)

    def by_decile(self, layer: int, head: int, name: str) -> list[list[int]]:
        """Ten lists of texts, those of the smallest tenth of a head's values first; their lengths
        differ by one at most. With fewer than ten texts the last lists are empty."""
        return [part.tolist() for part in np.array_split(self._order(layer, head, name), 10)]

    def examples(self, layer: int, head: int, name: str, count: int = 3) -> Examples:
        """The texts in which a head is strong, middling and idle, ``count`` of each."""
        count = check_integer("count", count, at_least=1)
        order = self._order(layer, head, name)
        start = max(0, (len(order) - count) // 2)
        return Examples(
            order[::-1][:count].tolist(),
            order[start : start + count].tolist(),
            order[:count].tolist(),
        )

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per head: layer, head, kind over all texts, and of each statistic the
        first decile, the median and the ninth."""
        deciles = {name: self.deciles(name) for name in self._values}
        return [
            {
                "layer": head.layer,
                "head": head.head,
                "kind": head.kind,
                **{
                    f"{name}{word}": float(of[at, place])
                    for name, of in deciles.items()
                    for word, place in ((", 10 %", 1), ("", 5), (", 90 %", 9))
                },
            }
            for at, head in enumerate(self.whole)
        ]

    def __repr__(self) -> str:
        """A plain table: of each share the median text, and the first and ninth decile."""
        shown = [name for name in SHARES if (self.values(name) > 0).any()]
        deciles = {name: self.deciles(name) for name in shown}
        wide = max(len(head.kind) for head in self.whole)
        lines = [f"layer head  {'kind':{wide}}" + "".join(f"{name:>18}" for name in shown)]
        for at, head in enumerate(self.whole):
            cells = (deciles[name][at] for name in shown)
            lines.append(
                f"{head.layer:5} {head.head:4}  {head.kind:{wide}}"
                + "".join(f"{f'{c[5]:.2f} ({c[1]:.2f}–{c[9]:.2f})':>18}" for c in cells)
            )
        count = len(self.texts)
        return "\n".join([*lines, f"median of {count} texts (first to ninth decile)"])

    def _order(self, layer: int, head: int, name: str) -> np.ndarray:
        """The texts with a value, the smallest first."""
        if (layer, head) not in self.heads:
            last = self.heads[-1]
            raise ValueError(
                f"there is no head {head!r} in layer {layer!r}; the last is {last[0]}.{last[1]}"
            )
        values = self.values(name)[self.heads.index((layer, head))]
        known = np.flatnonzero(np.isfinite(values))
        if not len(known):
            raise ValueError(
                f"no text has a query for {name!r} of head {layer}.{head}, so none is strong or "
                "idle in it"
            )
        found: np.ndarray = known[np.argsort(values[known], kind="stable")]
        return found


class HeadAtlas:
    """Measures the heads of a model in one text after the other; ``found()`` gives the atlas.

    Batches may differ in length and size. Memory: ten numbers for each head and text, and half a
    megabyte per head for the kinds.

    ``delimiters`` are texts of tokens.
    """

    def __init__(self, *, delimiters: Sequence[str] | frozenset[str] = DELIMITERS) -> None:
        self._delimiters = check_delimiters(delimiters)
        self._whole: dict[str, LayerSums] = {}
        self._texts: list[list[Any]] = []
        self._values: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}

    def add(
        self,
        seen: Seen | Mapping[str, Tensor],
        tokens: Tokens,
        *,
        padding: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Add the texts of one batch; arguments and errors are those of ``HeadFinder.add``."""
        layers = layers_of(seen, mask)
        texts, numbers = check_batch(layers, tokens, padding, self._whole)
        for row in range(len(numbers)):
            at = slice(row, row + 1)
            own = None if padding is None else padding[at]
            named = None if texts is None else texts[at]
            measured = {
                name: measure(
                    weights[at], _of_row(allowed, at), numbers[at], own, named, self._delimiters
                )
                for name, weights, allowed in layers
            }
            self._keep(measured, _without_padding(numbers, texts, padding, row))

    def found(self) -> Atlas:
        """The heads over all texts so far."""
        if not self._texts:
            raise ValueError("no batch was added yet: call add(seen, tokens) first")
        whole = Heads(
            [
                head
                for layer, (name, sums) in enumerate(self._whole.items())
                for head in sums.heads(layer, name)
            ]
        )
        values = {name: np.stack(columns, axis=1) for name, columns in self._values.items()}
        return Atlas(values, self._texts, whole)

    def _keep(self, measured: Mapping[str, LayerSums], text: list[Any]) -> None:
        for name, sums in measured.items():
            self._whole[name] = self._whole[name] + sums if name in self._whole else sums
        heads = [head for name, sums in measured.items() for head in sums.heads(0, name)]
        for name, columns in self._values.items():
            of = (head.shares[name] if name in SHARES else getattr(head, name) for head in heads)
            columns.append(np.array([*of]))
        self._texts.append(text)


def _of_row(allowed: Tensor | None, at: slice) -> Tensor | None:
    return allowed if allowed is None or len(allowed) == 1 else allowed[at]


def _without_padding(
    numbers: Tensor, texts: list[list[str]] | None, padding: Tensor | None, row: int
) -> list[Any]:
    """The tokens of one text, as they were given."""
    own = numbers[row].tolist() if texts is None else texts[row]
    if padding is None:
        return own
    return [token for token, real in zip(own, padding[row].tolist(), strict=True) if real]
