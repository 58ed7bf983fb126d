"""Checks of lesson 18: how many keys are read, chosen blocks, their worth, merged parts."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- how many keys NSA reads

LAST, STRETCH, STRIDE, BLOCK, COUNT, WINDOW = 65_535, 32, 16, 64, 16, 512
_MEANS = (LAST + 1 - STRETCH) // STRIDE + 1
_READ = _MEANS + COUNT * BLOCK + WINDOW

check_keys_read = NumberExercise(
    "Is it the number of keys that the query at position 65,535 reads, means included?",
    right=_READ,
    tolerance=0,
    unit="keys",
    mistakes={
        _READ + 1: (
            "One mean too many: the stretch that begins at 65,520 is not complete at 65,535."
        ),
        COUNT * BLOCK + WINDOW: "The means are keys, too: the query is compared with each of them.",
        _MEANS + COUNT + WINDOW: "A selected block has 64 keys, and 16 of them are selected.",
        _MEANS + COUNT * BLOCK: "The window of the last 512 keys is missing.",
        (LAST + 1) // STRETCH + COUNT * BLOCK + WINDOW: (
            "That is one mean every 32 tokens. A stretch of 32 begins every 16."
        ),
        LAST + 1: "That is what dense attention reads.",
    },
)


# ---- MoBA's choice


def _chosen(
    q: Tensor, k: Tensor, block: int, count: int, *,
    own: bool = True, beside: int = 0, past: bool = True, by: str = "mean", largest: bool = True,
) -> Tensor:  # fmt: skip
    """The own block and the earlier ones of the largest scores; every keyword is a mistake."""
    blocks = k.unflatten(0, (-1, block))
    if by == "mean":
        scores = q @ blocks.mean(1).T
    elif by == "largest":
        scores = (q @ k.T).unflatten(1, (-1, block)).amax(2)
    else:
        scores = q @ blocks[:, 0].T
    number, at = torch.arange(len(blocks)), torch.arange(len(q))[:, None] // block
    scores = scores if largest else -scores
    if past:
        scores = scores.masked_fill(number >= at if own else number > at, -torch.inf)
    wanted = count + beside - (1 if own else 0)
    order = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    chosen = (order < wanted) & (scores > -torch.inf)
    return chosen | (number == at) if own else chosen


check_chosen_blocks = Exercise(
    """Which blocks does each query read? `chosen_blocks(q, k, block, count)`.

    `q`, `k` (n, d) of one head; `block` divides n. A query reads its own block and, of the blocks
    before it, the count − 1 whose mean key has the largest product with it, or all if there are
    fewer. It returns (n, n / block), True where a block is read.
    """,
    right=_chosen,
    cases=drawn([31, 32], q=[(24, 5), (15, 3)], k=[(24, 5), (15, 3)], block=[4, 3], count=[3, 2]),
    axes="n blocks",
    mistakes={
        but(own=False): (
            "The own block has to win its place by its mean, which is a mean of the future as "
            "well. It is always read, and takes no part in the comparison."
        ),
        but(beside=1): "That is one block too many: the own block is one of the `count`.",
        but(past=False): "Blocks after the query are compared, too: mask them before the choice.",
        but(by="largest"): "Blocks are compared by their largest product. MoBA takes the mean key.",
        but(by="first"): "Blocks are compared by their first key. MoBA takes the mean key.",
        but(largest=False): "Those are the blocks with the smallest products.",
        (lambda q, k, block, count: _chosen(q, k, block, 1)): "Only the own block is read.",
    },
    praise="Before the choice the query meets keys of other blocks as parts of a mean alone.",
)


# ---- NSA's worth of a block


def _worth(
    p: Tensor, stretch: int, stride: int, block: int, *,
    shift: int = 1, sign: int = -1, weighed: bool = True, mean: bool = False,
) -> Tensor:  # fmt: skip
    """Equation 9, with blocks and stretches counted from 0; every keyword is a mistake."""
    blocks = ((p.shape[1] - 1) * stride + stretch) // block
    found = p.new_zeros(len(p), blocks)
    for j in range(blocks):
        for m in range(block // stride):
            for r in range(stretch // stride if weighed else 1):
                i = block // stride * (j + shift) - shift + sign * (m + r)
                if 0 <= i < p.shape[1]:
                    found[:, j] += p[:, i]
    return found / (block // stride) if mean else found


def _literal(p: Tensor, stretch: int, stride: int, block: int) -> Tensor:
    return _worth(p, stretch, stride, block, shift=0)


def _weights_of_stretches() -> Iterator[Arguments]:
    for seed, rows, stretches, stretch, stride, block in (
        (33, 3, 15, 8, 4, 16),
        (34, 2, 9, 6, 2, 4),
    ):
        (scores,) = random_tensors((rows, stretches), seed=seed)
        yield {"p": scores.softmax(1), "stretch": stretch, "stride": stride, "block": block}


check_worth = Exercise(
    """What is each block worth? `block_worth(p, stretch, stride, block)`.

    `p` (n, stretches): the weights of the stretches; stretch i has the tokens from i · stride on,
    `stretch` of them. Block j has those from j · block on, `block` of them; as many blocks as are
    covered whole. `stride` divides `stretch` and `block`. It returns (n, blocks): for each block
    the sum of p_i times the number of tokens that stretch i shares with it, divided by the stride.
    """,
    right=_worth,
    cases=_weights_of_stretches,
    axes="n blocks",
    mistakes={
        _literal: (
            "That is equation 9 with blocks counted from 0, and nearly the worth of the block "
            "before: with stretches and blocks counted from 0, block j ends with stretch "
            "block / stride · (j + 1) − 1."
        ),
        but(sign=1): "The sum runs forward from the end of the block, so it leaves it.",
        but(weighed=False): (
            "Each stretch counts once. One that lies in the block with several of its strides "
            "counts as often."
        ),
        but(mean=True): "That is divided by the number of strides of a block once more.",
    },
    praise="So a stretch that lies in two blocks is worth something to both.",
)


# ---- merging the parts of one softmax


def _merged_parts(
    outs: Tensor, lses: Tensor, *, weighed: bool = True, exponential: bool = True,
    divided: bool = True, over: int = 0,
) -> Tensor:  # fmt: skip
    """Parts weighed by their sums of exponentials; every keyword is a mistake."""
    most = lses.amax(0, keepdim=True)
    share = (lses - most).exp() if exponential else lses
    if not weighed:
        share = torch.ones_like(share)
    total = share.sum(over, keepdim=True) if divided else (-most).exp()
    return ((share / total)[..., None] * outs).sum(0)


def _parts() -> Iterator[Arguments]:
    for seed, raised in ((35, 0.0), (36, 900.0)):
        outs, lses = random_tensors((3, 5, 2), (3, 5), seed=seed)
        lses[1, :2] = -torch.inf  # a part without keys
        outs[1, :2] = 0
        yield {"outs": outs, "lses": lses + raised}


check_merged_parts = Exercise(
    """Is it one softmax over the keys of all parts? `merged(outs, lses)`.

    `outs` (parts, n, e): what each query has read of the keys of each part, with a softmax over
    this part alone. `lses` (parts, n): the logarithm of the sum of the exponentials of its scores,
    −∞ for a part that it has not chosen, and sometimes near 900. It returns (n, e).
    """,
    right=_merged_parts,
    cases=_parts,
    axes="n e",
    mistakes={
        but(weighed=False): "That is the mean of the parts. A part with larger scores weighs more.",
        (
            lambda outs, lses: outs.sum(0)
        ): "That is the sum of the parts: its weights sum to more than 1.",
        but(over=1): "The shares of one query sum to 1 over the parts, not over the queries.",
        (lambda outs, lses: (lses.exp() / lses.exp().sum(0))[..., None].mul(outs).sum(0)): (
            "The exponential of 900 is infinite. Subtract the largest of each query first, or use "
            "softmax."
        ),
        (lambda outs, lses: outs.gather(0, lses.argmax(0)[None, :, None].expand(1, -1, 2))[0]): (
            "Only the part with the largest sum is read."
        ),
    },
    praise="A softmax over the parts, of their log-sum-exps: so no part has to know the others.",
)


# ---- all of NSA


def _nsa(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor, stretch: int, stride: int, block: int,
    count: int, window: int, *,
    forced: bool = True, complete: bool = True, wider: int = 0, shared: bool = False,
    scaled: bool = True, summed: bool = True, beside: int = 0,
) -> Tensor:  # fmt: skip
    """Three branches under their masks; every keyword is a mistake."""
    n = len(q)
    at, begins = torch.arange(n)[:, None], torch.arange(0, n - stretch + 1, stride)
    root = q.shape[1] ** 0.5 if scaled else 1.0

    def read(keys: Tensor, allowed: Tensor) -> Tensor:
        return (q @ keys.T / root).masked_fill(~allowed, -torch.inf).softmax(1).nan_to_num()

    means = [x.unfold(0, stretch, stride).mean(-1) for x in (k, v)]
    shares = read(means[0], begins + (stretch - 1 if complete else 0) <= at)
    blocks, own = torch.arange(n // block), at // block
    overlap = (torch.minimum(begins[:, None] + stretch, (blocks + 1) * block)
               - torch.maximum(begins[:, None], blocks * block)).clamp(min=0)  # fmt: skip
    value = shares @ overlap.to(shares) / stride
    if forced:
        always = (blocks == 0) | (blocks == own) | (blocks == own - 1)
        value = value.masked_fill(always, torch.inf)
    value = value.masked_fill(blocks > own, -torch.inf)
    order = value.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    chosen = (order < count + beside) & (value > -torch.inf)
    back = at - torch.arange(n)
    selected = chosen.repeat_interleave(block, dim=1) & (back >= 0)
    near = (back >= 0) & (back < window + wider)
    if shared:
        gates = gates / gates.sum(1, keepdim=True)
    if not summed:
        return gates[:, 1:2] * (read(k, selected | near) @ v) + gates[:, :1] * (shares @ means[1])
    parts = (shares @ means[1], read(k, selected) @ v, read(k, near) @ v)
    return sum(gates[:, c : c + 1] * part for c, part in enumerate(parts))  # type: ignore[return-value]


def _gated() -> Iterator[Arguments]:
    for seed, sizes in ((37, (8, 4, 8, 4, 5)), (38, (4, 4, 4, 5, 3))):
        q, k, v, gates = random_tensors((48, 5), (48, 5), (48, 2), (48, 3), seed=seed)
        named = dict(zip(("stretch", "stride", "block", "count", "window"), sizes, strict=True))
        yield {"q": 2 * q, "k": k, "v": v, "gates": gates.sigmoid(), **named}


check_nsa = Exercise(
    """Is it NSA for one head? `nsa(q, k, v, gates, stretch, stride, block, count, window)`.

    `q`, `k` (n, d), `v` (n, e); `gates` (n, 3) between 0 and 1 weigh what each query reads of the
    means of the stretches that are complete, of the tokens of `count` blocks, and of the last
    `window` tokens. The first block, the own one and the one before are among the `count`; the
    others are worth most by the shared tokens. `stride` divides `stretch` and `block`, `block`
    divides n. Where no stretch is complete, the first part is 0. It returns (n, e).
    """,
    right=_nsa,
    cases=_gated,
    axes="n e",
    mistakes={
        but(forced=False): (
            "The first block, the own one and the one before are always read. They are here read "
            "only where their means win."
        ),
        but(beside=1): "That is one block too many: those that are always read are among `count`.",
        but(complete=False): (
            "A query reads means of stretches that have only begun: they contain its future."
        ),
        but(wider=1): "The window has one key too many: the own one is among the `window`.",
        but(shared=True): "The gates are divided by their sum. Each is a number of its own.",
        but(scaled=False): "The scores are not divided by √d.",
        but(summed=False): (
            "Blocks and window share one softmax. Each branch has its own, and its own gate."
        ),
    },
    praise="Means show where to look, blocks show the tokens, and the window the last ones.",
)
