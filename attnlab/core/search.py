"""Search by dot product: which of many keys have the largest with a query?

``nearest`` searches all keys exactly, in PyTorch or by faiss's exact index. An ``Index`` is built
once for keys that many queries will ask for; the approximate one compares each query with coarse
codes of the keys first, and with the keys themselves for the best of those. ``recall`` says how
many of the true neighbours a search has found.

faiss (Douze et al., The Faiss Library, 2024, arXiv:2401.08281) is the extra ``search``; it is
imported where it is used. It searches in float32, on the processor.
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.options import Size
from attnlab.core.precision import wide
from attnlab.core.shapes import Keys, Queries, checked

Search = Literal["torch", "faiss"]
NOTHING = -1
"""In place of a position, where there are fewer keys than neighbours were asked for."""


class Found(NamedTuple):
    """The k best keys of each query, best first: dot products and positions."""

    scores: Float[Tensor, "n k"]
    positions: Int[Tensor, "n k"]


@checked
def nearest(
    q: Queries, keys: Keys, neighbours: Size, *,
    seen: Bool[Tensor, "b m"] | None = None, search: Search = "torch",
) -> Int[Tensor, "b h n k"]:  # fmt: skip
    """The positions of the k keys with the largest dot product, best first; k is ``neighbours``,
    or m where there are fewer keys.

    Keys that are not ``seen`` are not found; in place of those that are lacking stands −1. No
    gradient: a choice has none.
    """
    k = min(neighbours, keys.shape[2])
    with torch.no_grad():
        if search == "faiss":
            return _by_faiss(q, keys, k, seen)
        scores = wide(q) @ wide(keys).mT
        if seen is not None:
            scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
        best, positions = scores.topk(k, dim=-1)
        return positions.masked_fill(best == -torch.inf, NOTHING)


def _by_faiss(q: Tensor, keys: Tensor, k: int, seen: Tensor | None) -> Tensor:
    """A flat index for each sequence and head."""
    found = torch.full((*q.shape[:3], k), NOTHING)
    for b in range(len(q)):
        here = torch.arange(keys.shape[2]) if seen is None else seen[b].cpu().nonzero()[:, 0]
        for h in range(q.shape[1] if len(here) else 0):
            index = Index(keys[b, h][here.to(keys.device)])
            positions = index.search(q[b, h], min(k, len(here))).positions.cpu()
            found[b, h, :, : positions.shape[1]] = here[positions]
    return found.to(q.device)


class Index:
    """Keys (m, d) that can be asked, many times, for those nearest to a query.

    ``kind="exact"`` compares with every key and holds 4·m·d bytes. ``kind="approximate"`` also has
    a code of 4 bits for every two numbers of a key (m·d/4 bytes), compares with the codes alone,
    and with the keys themselves for the ``candidates``·k best.
    """

    @checked
    def __init__(
        self, keys: Float[Tensor, "m d"], kind: Literal["exact", "approximate"] = "exact", *,
        candidates: Size = 8,
    ) -> None:  # fmt: skip
        faiss = _faiss()
        numbers = _numbers(keys)
        m, d = numbers.shape
        self.kind, self.size, self.device = kind, m, keys.device
        if kind == "exact":
            self._index: Any = faiss.IndexFlatIP(d)
        else:
            _refuse_small(m, d)
            codes = faiss.IndexPQFastScan(d, d // 2, 4, faiss.METRIC_INNER_PRODUCT)
            self._index = faiss.IndexRefineFlat(codes)
            self._index.k_factor = candidates
            self._index.train(numbers[: 256 * 64])
            self._parts = codes  # the index above refers to it without owning it
        self._index.add(numbers)

    @checked
    def search(self, queries: Float[Tensor, "n d"], neighbours: Size) -> Found:
        """The ``neighbours`` best keys of each query, or all keys where there are fewer."""
        wanted = _numbers(queries)
        if wanted.shape[1] != self._index.d:
            raise ValueError(
                f"the index holds keys of width {self._index.d}, but the queries have width "
                f"{wanted.shape[1]}; search with queries of the same width"
            )
        scores, positions = self._index.search(wanted, min(neighbours, self.size))
        home = queries.device
        return Found(torch.from_numpy(scores).to(home), torch.from_numpy(positions).to(home))


def recall(found: Int[Tensor, "... k"], exact: Int[Tensor, "... k"]) -> float:
    """The share of the ``exact`` neighbours that are among the ``found`` ones of the same query."""
    if found.shape[:-1] != exact.shape[:-1]:
        raise ValueError(
            f"both should hold neighbours of the same queries, got shapes {tuple(found.shape)} and "
            f"{tuple(exact.shape)}"
        )
    real = exact != NOTHING
    hit = (exact[..., :, None] == found[..., None, :]).any(-1) & real
    return float(hit.sum() / real.sum().clamp(min=1))


def _numbers(x: Tensor) -> Any:
    """As a contiguous array of float32 on the processor."""
    return x.detach().to("cpu", torch.float32).contiguous().numpy()


def _refuse_small(m: int, d: int) -> None:
    if d % 2:
        raise ValueError(
            f"the approximate index codes the numbers of a key in pairs, and the width {d} is odd; "
            "take kind='exact'"
        )
    if m < 640:
        raise ValueError(
            f"the approximate index learns its codes from at least 640 keys, got {m}; for so few "
            "take kind='exact'"
        )


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "a search by faiss needs the package faiss-cpu: pip install 'attnlab[search]'"
        ) from error
    return faiss
