"""The heads of a model, their kinds by a stated rule, as a table and in clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice

SHARES: Mapping[str, str] = {
    "previous": "previous token",
    "next": "next token",
    "same": "same token",
    "first": "first token",
    "delimiter": "delimiter",
    "duplicate": "duplicate token",
    "induction": "induction",
}
"""The name of each share, and the kind of a head with a large one."""
KINDS = (*SHARES.values(), "positional", "mixed")
LEAST, TIMES, QUERIES, EXPLAINED, ALL_BUT_EXPLAINED = 0.4, 2.0, 20, 0.5, 0.9
_BY_TOKEN = ("duplicate", "induction")
STATISTICS = ("entropy", "normalised_entropy", "distance")


@dataclass(frozen=True, eq=False)
class Head:
    """One head and what was measured.

    ``shares``, ``uniform`` and ``queries`` have the names of ``SHARES``: the head's share, that of
    uniform attention, and the number of queries over which both are means. A share without any
    query is NaN. ``entropy`` (nats), ``normalised_entropy`` and ``distance`` (tokens) are those of
    ``attnlab.lens.heads``.
    """

    layer: int
    name: str
    head: int
    shares: Mapping[str, float]
    uniform: Mapping[str, float]
    queries: Mapping[str, int]
    positional: float
    entropy: float
    normalised_entropy: float
    distance: float
    delimiter_from_others: float = float("nan")
    """The share that goes to delimiters from all other tokens; NaN where tokens are no texts."""
    delimiter_from_delimiters: float = float("nan")
    """The same from delimiters, which often attend to each other."""

    @property
    def kind(self) -> str:
        """One of ``KINDS``, by the rule at the top of this file."""
        beyond = {name: self.shares[name] - self.uniform[name] for name in self._large()}
        if beyond:
            return SHARES[max(beyond, key=lambda name: (round(beyond[name], 9), -_order(name)))]
        return "positional" if self.positional >= EXPLAINED else "mixed"

    def _large(self) -> list[str]:
        return [
            name
            for name, share in self.shares.items()
            if share >= max(LEAST, TIMES * self.uniform[name])
            and self.queries[name] >= QUERIES
            and not (name in _BY_TOKEN and self.positional >= ALL_BUT_EXPLAINED)
        ]


def _order(name: str) -> int:
    return list(SHARES).index(name)


class Heads(Sequence[Head]):
    """The heads of a model in order of layers; made by ``find_heads`` or ``HeadFinder``."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = tuple(heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __getitem__(self, which: Any) -> Any:
        return self._heads[which]

    def of_kind(self, kind: str) -> list[tuple[int, int]]:
        """(layer, head) of every head of a kind of ``KINDS``."""
        check_choice("kind", kind, KINDS)
        return [(head.layer, head.head) for head in self if head.kind == kind]

    @property
    def kinds(self) -> dict[tuple[int, int], str]:
        """(layer, head) → kind, as ``QueryKeySpace(kinds=…)`` takes it."""
        return {(head.layer, head.head): head.kind for head in self}

    def statistics(self, layer: int) -> dict[str, np.ndarray]:
        """Each share, ``positional``, entropies and distance: name → (h,), float64, of a layer."""
        last = self._heads[-1].layer
        layer = check_integer("layer", layer, at_least=0)
        if layer > last:
            raise ValueError(f"layer should be from 0 to {last}, got {layer}")
        heads = [head for head in self if head.layer == layer]
        return {
            name: np.array([_numbers(head)[name] for head in heads]) for name in _numbers(heads[0])
        }

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per head: layer, head, kind, the shares, those of uniform attention (as
        "previous, uniform"), positional, entropies, distance, and the module's name."""
        return [
            {
                "layer": head.layer,
                "head": head.head,
                "kind": head.kind,
                **_numbers(head),
                **{f"{name}, uniform": share for name, share in head.uniform.items()},
                "name": head.name,
            }
            for head in self
        ]

    def features(self) -> dict[str, np.ndarray]:
        """What ``clusters`` compares: name → (heads,)."""
        return {
            name: np.array([_numbers(head)[name] for head in self]) for name in _numbers(self[0])
        }

    def clusters(
        self,
        count: int,
        *,
        method: str = "agglomerative",
        extra: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Which of ``count`` clusters each head belongs to: (heads,) whole numbers from 0.

        Heads are compared by ``features()`` and by ``extra`` (name → one number per head), each
        less its mean and divided by its standard deviation; a feature that is the same for all
        heads is left out, and a share that could not be measured counts as the mean. ``method`` is
        "agglomerative" (Ward's linkage) or "k-means", which draws its starts from ``seed``. Both
        are scikit-learn's. Clusters are numbered in the order in which heads come first.
        """
        check_choice("method", method, ("agglomerative", "k-means"))
        count = check_integer("count", count, at_least=1)
        if count > len(self):
            raise ValueError(
                f"count should be at most {len(self)}, the number of heads, got {count}"
            )
        points = _standardised(self.features() | self._extra(extra))
        if method == "k-means":
            from sklearn.cluster import KMeans

            found = KMeans(count, n_init=10, random_state=seed).fit_predict(points)
        elif count == len(self):
            found = np.arange(count)
        else:
            from sklearn.cluster import AgglomerativeClustering

            found = AgglomerativeClustering(count).fit_predict(points)
        firsts = list(dict.fromkeys(found.tolist()))
        return np.array([firsts.index(label) for label in found.tolist()])

    def _extra(self, extra: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        if extra is None:
            return {}
        if not isinstance(extra, Mapping):
            raise TypeError(
                f"extra should map names to one number per head, got {type(extra).__name__}"
            )
        columns = {}
        for name, column in extra.items():
            try:
                columns[f"extra {name}"] = found = np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"extra[{name!r}] should hold numbers; {error}") from None
            if found.shape != (len(self),) or not np.isfinite(found).all():
                raise ValueError(
                    f"extra[{name!r}] should hold {len(self)} finite numbers, one per head, got "
                    f"shape {found.shape}"
                )
        return columns

    def __repr__(self) -> str:
        """A plain table. A share that counts by the rule is marked with *. Shares of keys that no
        query may attend to, such as the next token of a causal model, are left out."""
        return "\n".join(_table(self._heads))


def _numbers(head: Head) -> dict[str, float]:
    return {
        **head.shares,
        "positional": head.positional,
        **{name: getattr(head, name) for name in STATISTICS},
    }


def _standardised(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """(heads, features), mean 0 and deviation 1 each; without those that are the same for all."""
    columns = []
    for column in features.values():
        known = np.isfinite(column)
        if known.any() and np.ptp(column[known]) > 1e-9:
            centred = np.where(known, column - column[known].mean(), 0)
            columns.append(centred / centred.std())
    heads = len(next(iter(features.values())))
    return np.stack(columns, axis=1) if columns else np.zeros((heads, 1))


def _table(heads: Sequence[Head]) -> list[str]:
    shown = [name for name in SHARES if any(head.uniform[name] > 0 for head in heads)]
    width = max(len("kind"), *(len(head.kind) for head in heads))
    lines = [
        f"layer head  {'kind':{width}}" + "".join(f"{name:>11}" for name in shown) + " positional"
    ]
    for head in heads:
        large = head._large()
        shares = (f"{head.shares[n]:10.2f}{'*' if n in large else ' '}" for n in shown)
        place = f"{head.layer:5} {head.head:4}  {head.kind:{width}}"
        lines.append(f"{place}{''.join(shares)}{head.positional:11.2f}")
    even = {n: np.nanmean([head.uniform[n] for head in heads]) for n in shown}
    lines.append(f"{'uniform':12}{'':{width}}" + "".join(f"{even[n]:10.2f} " for n in shown))
    return lines
