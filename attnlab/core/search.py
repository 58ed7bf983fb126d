"""Search by dot product: which of many keys have the largest with a query?

``nearest`` searches keys of several sequences and heads, ``Lookup`` does so many times, and an
``Index`` holds the keys of one. Exact search compares a query with all keys, in PyTorch. An
approximate one compares it with coarse codes of the keys first, and with the keys themselves for
the best of those; ``recall`` says how many of the true neighbours a search has found.

Codes are those of faiss (Douze et al., The Faiss Library, 2024, arXiv:2401.08281), the extra
``search``, which is imported where it is used. It searches in float32, on the processor.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.shapes import Keys, Queries, checked
from attnlab.core.tracing import is_abstract

Search = Literal["exact", "approximate"]
NOTHING = -1
"""In place of a position, where there are fewer keys than neighbours were asked for."""
AT_ONCE = 1 << 21  # scores: few enough for a processor's cache
LARGEST = 1e15  # its square, times any width, is a float32
FEWEST = 640  # keys from which codes are learned: 40 for each of 16


class Found(NamedTuple):
    """The k best keys of each query, best first: dot products and positions."""

    scores: Float[Tensor, "... n k"]
    positions: Int[Tensor, "... n k"]


@checked
def nearest(
    q: Queries, keys: Keys, neighbours: Size, *,
    seen: Bool[Tensor, "b m"] | None = None, search: Search = "exact",
) -> Int[Tensor, "b h n k"]:  # fmt: skip
    """The positions of the k keys with the largest dot product, best first; k is ``neighbours``,
    or m where there are fewer keys.

    Keys that are not ``seen`` are not found; in place of those that are lacking, and for a query
    that holds NaN, stands −1. No gradient: a choice has none. ValueError for a seen key with NaN.
    """
    _refuse_nan(keys if seen is None else keys.masked_fill(~seen[:, None, :, None], 0))
    return Lookup(keys, seen=seen, search=search).nearest(q, neighbours)


# ---- exact


def _best(q: Tensor, keys: Tensor, k: int, seen: Tensor | None) -> Found:
    """The k best keys (…, m, d) for queries (…, n, d), searched in parts of the keys."""
    m, rows = keys.shape[-2], max(1, q[..., 0].numel())
    step = max(4096, AT_ONCE // rows)
    found: Found | None = None
    for start in range(0, max(1, m), step):
        with no_autocast(q.device):
            scores = upcast(q) @ upcast(keys[..., start : start + step, :]).mT
        if seen is not None:
            scores = scores.masked_fill(~seen[..., start : start + step], -torch.inf)
        best, positions = _largest(scores, min(k, scores.shape[-1]))
        here = Found(best, positions + start)
        found = here if found is None else _merged(found, here, k)
    assert found is not None
    lacking = ~(found.scores > -torch.inf)  # NaN is not
    return Found(found.scores, found.positions.masked_fill(lacking, NOTHING))


def _largest(scores: Tensor, k: int) -> Found:
    """``scores.topk(k)``. The k largest are in the k groups with the largest maxima, so that only
    these groups are sorted."""
    m = scores.shape[-1]
    size = math.isqrt(m // max(1, k))
    if size < 4:
        return Found(*scores.topk(k, dim=-1))
    groups = m // size
    maxima = scores[..., : groups * size].unflatten(-1, (size, groups)).amax(dim=-2)
    chosen = maxima.topk(k, dim=-1, sorted=False).indices
    members = torch.arange(size, device=scores.device) * groups
    candidates = (chosen[..., None, :] + members[:, None]).flatten(-2)
    rest = torch.arange(groups * size, m, device=scores.device).expand(*chosen.shape[:-1], -1)
    candidates = torch.cat([candidates, rest], dim=-1)
    best, at = scores.gather(-1, candidates).topk(k, dim=-1)
    return Found(best, candidates.gather(-1, at))


def _merged(one: Found, other: Found, k: int) -> Found:
    scores, positions = (torch.cat(both, dim=-1) for both in zip(one, other, strict=True))
    best, at = scores.topk(min(k, scores.shape[-1]), dim=-1)
    return Found(best, positions.gather(-1, at))


# ---- many searches of the same keys


@dataclass(frozen=True, kw_only=True)
class Codes(Options):
    """How keys are coded for an approximate search: 4 bits for every two numbers.

    ``candidates``  times k: for how many keys with the best codes the dot product is computed.
    ``lists``       into how many lists k-means divides the keys; without lists a query is compared
                    with the codes of all keys.
    ``probed``      how many of the lists a query is compared with.

    More candidates and more probed lists find more of the true neighbours, and take longer. Lists
    help where keys lie in clusters; directions drawn at random have none.
    """

    candidates: Size = 8
    lists: Count = 0
    probed: Count = 0

    def check(self) -> None:
        if bool(self.lists) != bool(self.probed) or self.probed > self.lists:
            raise ValueError(
                "lists and probed belong together, and no more lists are probed than there are, "
                f"got lists={self.lists} and probed={self.probed}"
            )

    def refuse(self, m: int, d: int) -> None:
        """A ValueError for m keys of width d that cannot be coded."""
        if d % 2:
            raise ValueError(
                f"codes are of the numbers of a key in pairs, and the width {d} is odd; search "
                "exactly"
            )
        fewest = max(FEWEST, 40 * self.lists)
        if m < fewest:
            raise ValueError(
                f"codes are learned from at least {fewest:,} keys, got {m:,}; search so few exactly"
                + (", or make fewer lists" if self.lists else "")
            )


class Index:
    """Keys (m, d) that can be asked, many times, for those nearest to a query.

    Without ``codes`` it compares with every key, on their device, and holds no more than the keys.
    With codes it holds a copy of 4·m·d bytes and m·d/4 bytes of codes.
    """

    @checked
    def __init__(self, keys: Float[Tensor, "m d"], codes: Codes | None = None) -> None:
        _refuse_nan(keys)
        self.keys, self.codes, self.size = keys.detach(), codes, len(keys)
        self._coded: Any = None if codes is None else _coded(self.keys, codes)

    @checked
    def search(self, queries: Float[Tensor, "n d"], neighbours: Size) -> Found:
        """The ``neighbours`` best keys of each query, or all keys where there are fewer."""
        width = self.keys.shape[1]
        if queries.shape[1] != width:
            raise ValueError(
                f"the index holds keys of width {width}, but the queries have width "
                f"{queries.shape[1]}; search with queries of the same width"
            )
        k = min(neighbours, self.size)
        if self._coded is None or self.codes is None:
            return _best(queries.detach(), self.keys, k, None)
        index = self._coded[0]
        index.k_factor = min(self.codes.candidates, -(-self.size // k))  # no more than there are
        scores, positions = index.search(_numbers("queries", queries), k)
        home = queries.device
        return Found(torch.from_numpy(scores).to(home), torch.from_numpy(positions).to(home))


def _coded(keys: Tensor, codes: Codes) -> tuple[Any, ...]:
    """faiss's index, and those that it refers to without owning them."""
    faiss, numbers = _faiss(), _numbers("keys", keys)
    m, d = numbers.shape
    codes.refuse(m, d)
    product = faiss.METRIC_INNER_PRODUCT
    if codes.lists:
        centres = faiss.IndexFlatIP(d)
        inner = faiss.IndexIVFPQFastScan(centres, d, codes.lists, d // 2, 4, product)
        inner.by_residual, inner.nprobe, inner.cp.niter = False, codes.probed, 10
    else:
        centres, inner = None, faiss.IndexPQFastScan(d, d // 2, 4, product)
    index = faiss.IndexRefineFlat(inner)
    index.train(numbers[:: max(1, m // max(256 * 64, 64 * codes.lists))])
    index.add(numbers)
    return index, inner, centres


class Lookup:
    """Keys (b, h, m, d), to be asked many times for those nearest to queries, of the same sequence
    and head; those that are not ``seen`` (b, m) are not found.

    With an approximate ``search`` each sequence and head has an index of its own. Where there are
    fewer than 640 keys, or their width is odd, the search is exact all the same.
    """

    def __init__(
        self, keys: Tensor, *, seen: Tensor | None = None, search: Search = "exact"
    ) -> None:
        self.keys, self.seen, self.search = keys.detach(), seen, search
        self._indexes = [self._of(b) for b in range(len(keys))] if search == "approximate" else None

    def _of(self, b: int) -> tuple[Tensor, list[Index]] | None:
        """The positions of the keys of a sequence that are seen, and an index for each head."""
        m, d = self.keys.shape[2:]
        here = torch.arange(m, device=self.keys.device)
        here = here if self.seen is None else here[self.seen[b]]
        if len(here) < FEWEST or d % 2:
            return None
        return here, [Index(keys[here], Codes()) for keys in self.keys[b]]

    def nearest(self, q: Tensor, neighbours: int) -> Int[Tensor, "b h n k"]:
        """As the function ``nearest``; without any key k is 0."""
        q, k = q.detach(), min(neighbours, self.keys.shape[2])
        if self._indexes is None:
            seen = None if self.seen is None else self.seen[:, None, None]
            return _best(q, self.keys, k, seen).positions
        found = q.new_full((*q.shape[:3], k), NOTHING, dtype=torch.int64)
        for b, of_sequence in enumerate(self._indexes):
            if of_sequence is None:
                seen = None if self.seen is None else self.seen[b]
                found[b] = _best(q[b], self.keys[b], k, seen).positions
                continue
            here, indexes = of_sequence
            for h, index in enumerate(indexes):
                coded = _within(q[b, h]).all(-1)  # a padded token may hold anything
                positions = index.search(q[b, h].masked_fill(~coded[:, None], 0), k).positions
                found[b, h, :, : positions.shape[1]] = here[positions]
                if not bool(coded.all()):
                    exact = _best(q[b, h, ~coded], index.keys, positions.shape[1], None).positions
                    lacking = exact == NOTHING
                    found[b, h, ~coded, : exact.shape[1]] = here[exact].masked_fill(
                        lacking, NOTHING
                    )
        return found


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


def _within(x: Tensor) -> Tensor:
    return x.abs() <= LARGEST


def _refuse_nan(keys: Tensor) -> None:
    if not is_abstract(keys) and bool(keys.isnan().any()):
        raise ValueError("some of the keys hold NaN, which is near to nothing; leave them out")


def _numbers(name: str, x: Tensor) -> Any:
    """As a contiguous array of float32 on the processor. faiss ends the process where its sums of
    squares are not finite."""
    if x.is_meta or not bool(_within(x).all()):
        raise ValueError(
            f"an approximate search needs numbers within ±{LARGEST:.0e}, and the {name} "
            f"{'are on meta, without any' if x.is_meta else 'have others'}; search exactly"
        )
    return x.detach().to("cpu", torch.float32).contiguous().numpy()


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "an approximate search needs the package faiss-cpu: pip install 'attnlab[search]'"
        ) from error
    return faiss
