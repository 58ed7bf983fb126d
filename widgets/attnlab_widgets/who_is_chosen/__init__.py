"""Which keys do learned patterns choose, and how much of the attention do they find?

    WhoIsChosen()                                        # an example in the plane
    WhoIsChosen(queries, keys, tokens)                   # (n, d) each, of one head
    WhoIsChosen(vectors)                                 # shared queries and keys, as in Reformer
    WhoIsChosen.of(seen, tokens)                         # what watched layers chose themselves

The same queries and keys under hashing (Reformer), clustering (Routing Transformer), sorting
(Sparse Sinkhorn) and the exact top-k: the pairs that each chooses, the share of the heaviest
weights that are among them, and the pairs whose score is computed. ``attnlab.lens.choices`` defines
them. Everything is computed on the page, so a saved file stays alive.

What MoBA, NSA and DeepSeek's sparse attention chose while ``attnlab.watch`` recorded them opens as
``LayerChoices``.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_list, check_number
from attnlab.core.arrays import numbers
from attnlab.core.integers import check_integer
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens import choices
from attnlab.lens.choices import Choice
from attnlab.mechanisms.learned.reformer import unit
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error
from attnlab_widgets.base import Choice as OneOf
from attnlab_widgets.layer_choices import LayerChoices
from attnlab_widgets.who_is_chosen.picture import picture

MOST_TOKENS, MOST_WIDTH, MOST_ROUNDS, MOST_BUCKETS, MOST_CLUSTERS = 64, 256, 8, 16, 16
WAYS = {
    "weight": "Exact top-k",
    "hashing": "Hashing (Reformer)",
    "clustering": "Clustering (Routing)",
    "sorting": "Sorting (Sinkhorn)",
}
_EXAMPLE = 32


class WhoIsChosen(BaseWidget):
    """Pairs that four mechanisms choose from the same queries and keys.

    ``queries``   (n, d), at most 64 tokens of width 256; an example in the plane unless given
    ``keys``      (n, d); without them the queries at length 1, as in Reformer, and no token attends
                  to itself
    ``tokens``    n names; the positions unless given
    ``causal``    whether a query attends to itself and earlier keys only
    ``top``       k: recall is counted among the k heaviest keys of each query
    ``buckets``   of a hash, an even number from 2 to 16; ``rounds`` of hashing, 1 to 8
    ``turn``      degrees by which the matrix of the hash is turned
    ``clusters``  of k-means, 1 to 16; each takes n / clusters queries and keys
    ``block``     length of the blocks that are sorted, 1 to n
    ``query``     the token that is read out
    ``order``     "text", or "groups": rows and columns by bucket, cluster and block
    ``seed``      of the hash's matrices and of k-means' starting points

    All but the vectors, the tokens and the seed can be set; ``moved`` holds by how much a query was
    dragged in the plane.
    """

    _esm = STATIC / "who_is_chosen.js"

    tokens: Any = Checked(read_only=True).tag(sync=True)
    causal = traitlets.Bool(False).tag(sync=True)
    top = traitlets.Int(8).tag(sync=True)
    buckets = traitlets.Int(8).tag(sync=True)
    rounds = traitlets.Int(2).tag(sync=True)
    turn = traitlets.Float(0.0).tag(sync=True)
    clusters = traitlets.Int(4).tag(sync=True)
    block = traitlets.Int(4).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    moved = traitlets.Dict().tag(sync=True)
    order = OneOf(("text", "groups"), "text").tag(sync=True)
    _queries = traitlets.Bytes().tag(sync=True)
    _keys = traitlets.Bytes().tag(sync=True)
    _axes = traitlets.Bytes().tag(sync=True)
    _rotations = traitlets.Bytes().tag(sync=True)
    _starts: Any = traitlets.List().tag(sync=True)
    _most_buckets = traitlets.Int(MOST_BUCKETS).tag(sync=True)

    def __init__(
        self,
        queries: Any = None,
        keys: Any = None,
        tokens: Sequence[Any] | None = None,
        *,
        causal: bool = False,
        top: int | None = None,
        buckets: int = 8,
        rounds: int = 2,
        turn: float = 0.0,
        clusters: int = 4,
        block: int = 4,
        query: int = 0,
        order: str = "text",
        seed: int = 0,
        theme: str = "auto",
    ) -> None:
        if queries is None and (keys is not None or tokens is not None):
            raise ValueError("`keys` and `tokens` belong to `queries`: give the queries, too")
        made = torch.Generator().manual_seed(check_integer("seed", seed, at_least=0))
        q = _vectors("queries", _example(made) if queries is None else queries)
        k = None if keys is None else _vectors("keys", keys)
        if k is not None and k.shape != q.shape:
            raise ValueError(f"`keys` should be of shape {q.shape}, as the queries, got {k.shape}")
        n, d = q.shape
        given = range(n) if tokens is None else check_list("tokens", tokens)
        names = [visible(token) for token in given]
        if len(names) != n:
            raise ValueError(f"`tokens` should name {n} tokens, got {len(names)}")
        rotations = torch.randn(MOST_ROUNDS, d, MOST_BUCKETS // 2, generator=made)
        points = n if k is None else 2 * n
        self._drawn = rotations.numpy().astype("<f4")
        super().__init__(
            _queries=q.tobytes(),
            _keys=b"" if k is None else k.tobytes(),
            _axes=_axes(q, k).tobytes(),
            _rotations=self._drawn.tobytes(),
            _starts=torch.randperm(points, generator=made)[:MOST_CLUSTERS].tolist(),
            theme=theme,
        )
        self.set_trait("tokens", names)
        wanted = {"causal": causal, "top": min(8, n) if top is None else top, "buckets": buckets}
        wanted |= {"rounds": rounds, "turn": turn, "clusters": min(clusters, n), "order": order}
        for name, value in (wanted | {"block": min(block, n), "query": query}).items():
            setattr(self, name, value)

    @staticmethod
    def of(seen: Any, tokens: Sequence[Any] | None = None, **given: Any) -> LayerChoices:
        """What the layers of ``seen``, which ``attnlab.watch`` recorded, chose for themselves."""
        return LayerChoices(seen, tokens, **given)

    # What follows from the state

    @property
    def shared(self) -> bool:
        """Whether queries and keys are the same vectors."""
        return not self._keys

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Queries and keys (n, d) in float64, as dragged; shared keys are queries at length 1."""
        q, axes = self._read(self._queries), self._read(self._axes)
        for token, by in self.moved.items():
            q[int(token)] += axes @ torch.tensor(by, dtype=torch.float64)
        return q, unit(q) if self.shared else self._read(self._keys)

    def weights(self) -> Tensor:
        """(n, n): the weights of full attention."""
        return choices.full_weights(*self.vectors(), self._allowed())

    @staticmethod
    def ways() -> dict[str, str]:
        """The ways to choose, by what ``choice`` calls them → their titles."""
        return dict(WAYS)

    def choice(self, way: str) -> Choice:
        """What "weight" (exact top-k), "hashing", "clustering" or "sorting" chooses."""
        q, k = self.vectors()
        allowed = self._allowed()
        if way == "weight":
            return choices.by_weight(self.weights(), allowed, top=self.top)
        if way == "hashing":
            return choices.by_hashing(q, k, allowed, self.rotations())
        if way == "clustering":
            starts = torch.tensor(self._starts[: self.clusters])
            width = math.ceil(len(q) / self.clusters)
            return choices.by_clustering(
                q, None if self.shared else k, allowed, starts, width=width
            )
        if way == "sorting":
            return choices.by_sorting(q, k, allowed, block=self.block, causal=self.causal)
        raise ValueError(f"a way to choose is one of {', '.join(WAYS)}, got {way!r}")

    def recall(self, way: str) -> float:
        """The share of the heaviest weights that a way finds, on the mean over the queries."""
        return choices.recall(self.weights(), self.choice(way).chosen, top=self.top)

    def rotations(self) -> Tensor:
        """(rounds, d, buckets / 2): the matrices of the hash, turned."""
        R = torch.from_numpy(self._drawn.astype("float64"))[: self.rounds, :, : self.buckets // 2]
        angle = torch.tensor(math.radians(self.turn), dtype=torch.float64)
        even, odd = R[:, 0::2], R[:, 1::2]
        pairs = odd.shape[1]  # with an odd width the last direction stays
        turned = R.clone()
        turned[:, 0 : 2 * pairs : 2] = angle.cos() * even[:, :pairs] - angle.sin() * odd
        turned[:, 1::2] = angle.sin() * even[:, :pairs] + angle.cos() * odd
        return turned

    def description(self) -> str:
        """What is seen, in a sentence or two."""
        found = "; ".join(
            f"{title} {100 * self.recall(way):.0f} % with {self.choice(way).pairs:,} pairs"
            for way, title in WAYS.items()
        )
        return f"Of the weight of each query's {self.heaviest}, each way finds: {found}."

    @property
    def heaviest(self) -> str:
        """The keys among which recall is counted, in words."""
        return "heaviest key" if self.top == 1 else f"{self.top} heaviest keys"

    def still(self) -> Drawing:
        """The four maps, with what each finds and computes."""
        return picture(self)

    def __repr__(self) -> str:
        return f"WhoIsChosen: {self.description()}"

    def _allowed(self) -> Tensor:
        return choices.allowed_pairs(len(self.tokens), causal=self.causal, shared=self.shared)

    def _read(self, data: bytes) -> Tensor:
        values = np.frombuffer(data, "<f4").astype("float64")
        wide = 2 if data is self._axes else self._drawn.shape[1]
        return torch.from_numpy(values.reshape(-1, wide))

    # What may be set

    @traitlets.validate("top", "block", "query", "clusters", "rounds")
    def _in_range(self, proposal: Any) -> int:
        n, value, name = len(self.tokens), proposal["value"], proposal["trait"].name
        least = 0 if name == "query" else 1
        most = {"rounds": MOST_ROUNDS, "clusters": min(MOST_CLUSTERS, n), "query": n - 1}
        if not least <= value <= most.get(name, n):
            wanted = f"`{name}` should be {least} to {most.get(name, n)}"
            raise traitlets.TraitError(f"{wanted}, got {value}")
        return int(value)

    @traitlets.validate("buckets")
    def _even(self, proposal: Any) -> int:
        value = proposal["value"]
        if value % 2 or not 2 <= value <= MOST_BUCKETS:
            wanted = f"`buckets` should be an even number from 2 to {MOST_BUCKETS}"
            raise traitlets.TraitError(f"{wanted}, for x and −x have different ones, got {value}")
        return int(value)

    @traitlets.validate("turn")
    def _angle(self, proposal: Any) -> float:
        return as_trait_error(check_number, "turn", proposal["value"])

    @traitlets.validate("moved")
    def _drags(self, proposal: Any) -> dict[str, list[float]]:
        return as_trait_error(_moved, proposal["value"], len(self.tokens))


def _moved(moved: dict[Any, Any], n: int) -> dict[str, list[float]]:
    found = {}
    for token, by in moved.items():
        if str(token) not in map(str, range(n)):
            raise ValueError(f"`moved` has tokens 0 to {n - 1} as its keys, got {token!r}")
        by = numbers("moved", by, "2").tolist()
        if len(by) != 2:
            raise ValueError(f"`moved` holds two coordinates a token, got {len(by)}")
        found[str(token)] = by
    return found


def _vectors(name: str, given: Any) -> np.ndarray:
    found = numbers(name, given, "n d")
    n, d = found.shape
    if n < 2 or n > MOST_TOKENS or d > MOST_WIDTH:
        raise ValueError(
            f"`{name}` should be 2 to {MOST_TOKENS} vectors of width at most {MOST_WIDTH}, (n, d), "
            f"got {found.shape}; choose a part of the sequence"
        )
    return found.astype("<f4")


def _example(made: torch.Generator) -> Tensor:
    """Four directions in the plane; tokens near one direction come in runs of four, each twice."""
    direction = torch.tensor([0, 1, 2, 3, 1, 0, 3, 2]).repeat_interleave(_EXAMPLE // 8)
    angles = direction * (math.pi / 2) + 0.35
    angles = angles + 0.28 * torch.randn(_EXAMPLE, generator=made)
    long = 6 + 1.5 * torch.randn(_EXAMPLE, generator=made)
    return long[:, None] * torch.stack((angles.cos(), angles.sin()), dim=1)


def _axes(q: np.ndarray, k: np.ndarray | None) -> np.ndarray:
    """(d, 2): the plane in which the vectors are drawn: their two largest singular directions."""
    d = q.shape[1]
    if d <= 2:
        return np.eye(d, 2, dtype="<f4")
    points = q if k is None else np.concatenate((q, k))
    directions = np.linalg.svd(points.astype("float64"), full_matrices=False)[2][:2]
    return directions.T.astype("<f4", order="C")
