"""Checks of lesson 15: what sorting costs, causal clusters, and a causal layer that sorts."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, as_float64, random_tensors, run
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function

check_sorting_length = NumberExercise(
    "Is it the length at which sorting costs as much as attention, for blocks of 64?",
    right=2 * 64 * 64,
    unit="tokens",
    mistakes={
        128: "That is the number of blocks, n / B = 2 B; the length is B times as large.",
        4096: "That is B²: a query attends to two blocks, 2 B keys, and not to one.",
        16384: "That is 4 B²: the two blocks are already in 2 B.",
        64: "That is the length of a block; n / B = 2 B has to be solved for n.",
    },
)


# ---- causal clusters


def _recent(
    x: Tensor, centroids: Tensor, w: int, *,
    causal: bool = True, bound: str = "recent", itself: bool = True, farthest: bool = False,
) -> Tensor:  # fmt: skip
    likeness = x @ centroids.mT
    own = likeness.argmin(-1) if farthest else likeness.argmax(-1)
    apart = torch.arange(len(x))[:, None] - torch.arange(len(x))
    members = own[:, None] == own
    allowed = members & (apart >= 0) if causal else members
    since = allowed.flip(-1).cumsum(-1).flip(-1)  # members from j up to i
    taken = {
        "recent": since <= w,
        "one more": since <= w + 1,
        "oldest": allowed.cumsum(-1) <= w,
        "positions": apart < w,
        "none": apart == apart,
    }[bound]
    allowed = allowed & taken
    return allowed if itself else allowed & (apart != 0)


def _top_members(x: Tensor, centroids: Tensor, w: int) -> Tensor:
    """A mistake, that of the published decoder: each centroid takes w tokens."""
    chosen = (centroids @ x.mT).topk(min(w, len(x))).indices
    members = torch.zeros(len(centroids), len(x)).scatter(1, chosen, 1.0)
    return (members.mT @ members > 0).tril()


def _recent_members_cases() -> Iterator[Arguments]:
    for n, clusters, w in ((23, 3, 3), (17, 2, 4)):
        x, centroids = random_tensors((n, 5), (clusters, 5), seed=n)
        yield {"x": x, "centroids": centroids, "w": w}


check_recent_members = Exercise(
    """Are these causal clusters? `may_attend(x (n, d), centroids (k, d), w) -> (n, n)`, True = may.

    Each token belongs to the centroid with the largest product, and attends to the w most recent
    members up to and including itself.
    """,
    right=_recent,
    cases=_recent_members_cases,
    axes="n n",
    mistakes={
        _top_members: (
            "Each centroid takes its w best tokens of the whole sequence: a later token can push "
            "an earlier one out. Let each token take its nearest centroid."
        ),
        but(causal=False, bound="none"): "Later members are attended to: it should be causal.",
        but(bound="none"): (
            "All earlier members are attended to: keep the w most recent ones, itself included."
        ),
        but(bound="oldest"): "Those are the w oldest members; the most recent ones are wanted.",
        but(bound="one more"): "One member too many: the token itself is one of the w.",
        but(bound="positions"): (
            "The bound counts positions, i − j < w; it should count members of the cluster."
        ),
        but(itself=False): "No token attends to itself: it is the most recent member.",
        but(farthest=True): (
            "Each token takes the centroid that it is least like: the largest product is wanted."
        ),
        (lambda *given: ~_recent(*given)): "It is inverted: True means that the token may attend.",
    },
    praise="Each token chooses by itself, so no later token changes a cluster.",
)


# ---- the causal layer


def _joined(
    q: Tensor, k: Tensor, v: Tensor, scores: Tensor, block: int, *,
    earlier: int = -1, columns: bool = False, transposed: bool = False, values: bool = True,
    own: bool = True, causal: bool = True, first: bool = False, scale: bool = True,
    softmaxes: int = 1, best: bool = False,
) -> Tensor:  # fmt: skip
    """Every option is a mistake."""
    n, d = q.shape
    count = len(scores)
    may = torch.ones_like(scores).tril(earlier).bool()
    sort = scores.masked_fill(~may, -math.inf).softmax(-1).nan_to_num()
    if columns:
        sort = sort / sort.sum(-2, keepdim=True).clamp(min=1e-9)
    if best:
        sort = (sort == sort.amax(-1, keepdim=True)) * may.to(sort.dtype)
    sort = sort.mT if transposed else sort
    q, k, v = (x.unflatten(0, (count, block)) for x in (q, k, v))
    mixed = [torch.einsum("ij,jtd->itd", sort, x) for x in (k, v)]
    mixed = mixed if values else [mixed[0], v]
    some = (sort.sum(-1) > 0)[:, None, None].expand(count, block, block) | torch.tensor(first)
    past = torch.ones(block, block).tril().bool() | torch.tensor(not causal)
    parts = [(*mixed, some), (k, v, past.expand(count, block, block))]
    parts = parts if own else parts[:1]
    groups = [[part] for part in parts] if softmaxes == 2 else [parts]
    out = torch.zeros_like(q[..., :1] * v)
    for group in groups:
        keys, brought = (torch.cat([part[i] for part in group], 1) for i in (0, 1))
        products = q @ keys.mT * (d**-0.5 if scale else 1)
        allowed = torch.cat([part[2] for part in group], -1)
        out = out + products.masked_fill(~allowed, -math.inf).softmax(-1).nan_to_num() @ brought
    return out.reshape(n, -1)


def _causal_sorting_cases() -> Iterator[Arguments]:
    for n, block in ((15, 3), (8, 4)):
        q, k, v, scores = random_tensors((n, 7), (n, 7), (n, 2), (n // block, n // block), seed=n)
        yield {"q": q, "k": k, "v": v, "scores": scores, "block": block}


def _leak(function: Function, given: Arguments) -> str | None:
    """Names a leak that no known mistake explains: the last block changes an earlier output."""
    block = given["block"]
    other = dict(given)
    for name in ("q", "k", "v"):
        other[name] = torch.cat([given[name][:-block], given[name][-block:] + 1])
    other["scores"] = torch.cat([given["scores"][:-1], -given["scores"][-1:]])
    before, after = (as_float64(run(function, one).value) for one in (given, other))
    if before is None or after is None or torch.equal(before[:-block], after[:-block]):
        return None
    return "Something of the last block changes outputs of the blocks before it: the future leaks."


check_causal_sorting = Exercise(
    """Is it causal attention to sorted blocks? `attend(q, k, v, scores, block) -> (n, e)`.

    `q` and `k` are (n, d), `v` (n, e), `scores` (blocks, blocks). Row i is a softmax over the
    blocks j < i. Called with n = 15 in blocks of 3 and with n = 8 in blocks of 4.
    """,
    right=_joined,
    cases=_causal_sorting_cases,
    axes="n e",
    mistakes={
        but(earlier=10**6): (
            "Later blocks are brought, too: block i may receive the blocks j < i only."
        ),
        but(earlier=0): (
            "A block may receive itself, j ≤ i: the mixture then holds later tokens of its own. "
            "Only j < i is allowed."
        ),
        but(columns=True): (
            "Columns are divided by their sums as well: these run over later rows, which depend on "
            "later tokens. Normalise the rows only."
        ),
        but(causal=False): (
            "Within its own block a query attends to later positions: that part needs a causal "
            "mask."
        ),
        but(first=True): (
            "The first block receives nothing, but its empty keys take weight: mask them."
        ),
        but(transposed=True): "S is transposed: row i says what is brought to block i, Σⱼ Sᵢⱼ Kⱼ.",
        but(values=False): (
            "The values are not sorted: a sorted key needs the value that was mixed with it."
        ),
        but(own=False): (
            "The own block is missing: one softmax runs over the sorted and the own block."
        ),
        but(scale=False): "The scores are not divided by √d.",
        but(softmaxes=2): (
            "Those are two softmaxes, added up: put both blocks of keys into one softmax."
        ),
        but(best=True): (
            "Each block receives the one block with the best score: bring the mixture that the "
            "softmax of its row gives."
        ),
    },
    praise="Earlier blocks, a softmax of each row, and the own block up to the query.",
    explain=_leak,
)
