"""Checks of lesson 13: which summaries a query may attend to, means of blocks of tokens, and
transient global attention with its number of keys.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn
from attnlab.exercises.verdict import Function

# ---- which summaries a query may attend to

Rule = Callable[[Tensor, Tensor, int, int], Tensor]  # (i, slot, width, stride) -> mask


def _slots(rule: Rule, count: Callable[[int, int, int], int] | None = None) -> Function:
    """A mask (n, slots) by a rule of positions; ⌈n / stride⌉ slots by default."""

    def mask(n: int, width: int, stride: int) -> Tensor:
        slots = count(n, width, stride) if count else -(-n // stride)
        return rule(torch.arange(n)[:, None], torch.arange(slots)[None], width, stride)

    return mask


def _full_windows(n: int, width: int, stride: int) -> int:
    return max(0, (n - width) // stride + 1)


def _complete(i: Tensor, t: Tensor, width: int, stride: int) -> Tensor:
    return t * stride + width - 1 <= i


check_visible_slots = Exercise(
    """Are these the slots a query may attend to? `visible(n, width, stride) -> (n, slots)`, bool.

    Slot t sums up the positions t·stride … t·stride + width − 1; a causal query i may
    attend to it if none of them comes after i. There are ⌈n / stride⌉ slots. Called with windows
    that touch or overlap, and with lengths that are no multiple of the stride.
    """,
    right=_slots(_complete),
    cases=drawn(n=[13, 11, 17, 7, 5], width=[5, 3, 4, 2, 1], stride=[2, 3, 4, 2, 1]),
    axes="n slots",
    mistakes={
        _slots(lambda i, t, w, s: t * s <= i): (
            "It leaks: a slot is visible as soon as it begins (t·s ≤ i), though it contains tokens "
            "after the query. Wait for its last position, t·s + w − 1."
        ),
        _slots(lambda i, t, w, s: t * s + w - 2 <= i): (
            "It leaks by one: at position t·s + w − 2 the last token of the slot is in the future."
        ),
        _slots(lambda i, t, w, s: t * s + s - 1 <= i): (
            "It leaks where windows overlap: the last position is computed from the stride, t·s + "
            "s − 1, but a window is `width` wide."
        ),
        _slots(lambda i, t, w, s: t * s + w - 1 < i): (
            "One too late: the query at t·s + w − 1 is the slot's own last token and may see it "
            "(≤, not <)."
        ),
        _slots(lambda i, t, w, s: t < i // s): (
            "It waits for the end of the query's own block of `stride` (t < i // s): one too late "
            "where windows touch, and a leak where they overlap. A window is `width` wide."
        ),
        _slots(lambda i, t, w, s: t * s + s + w - 1 <= i): (
            "Too late by a whole slot: it waits for the end of the NEXT window."
        ),
        _slots(_complete, lambda n, w, s: n // s): (
            "The rule is right, but a slot is missing: ⌊n / stride⌋ drops the last one, which is "
            "not full. There are ⌈n / stride⌉."
        ),
        _slots(_complete, _full_windows): (
            "The rule is right, but slots are missing: only full windows are counted. Beyond the "
            "end, windows are filled with zeros, so there are ⌈n / stride⌉ slots."
        ),
        _slots(lambda i, t, w, s: (t >= 0) & (i >= 0)): (
            "All queries see all slots: the first query sees the end of the text."
        ),
        _slots(lambda i, t, w, s: ~_complete(i, t, w, s)): (
            "It is inverted: True means that the query MAY see the slot."
        ),
        _slots(lambda i, t, w, s: t <= i): (
            "It compares slots with positions (t ≤ i), as if a slot were one token. Slot t ends at "
            "t·s + w − 1."
        ),
    },
    praise="A slot is visible from its last position on; the first width − 1 queries see none.",
)


# ---- the means of blocks


def _blocks(x: Tensor, block: int, real: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of the real tokens of each block, (blocks, d), and their number."""
    of = torch.arange(len(x)) // block
    own = (of == torch.arange(-(-len(x) // block))[:, None]) & real
    return own.to(x.dtype) @ x, own.sum(1, keepdim=True)


def _means(x: Tensor, block: int, real: Tensor) -> Tensor:
    sums, counts = _blocks(x, block, real)
    return sums / counts.clamp(min=1)


def _all_tokens(x: Tensor) -> Tensor:
    return torch.ones(len(x), dtype=torch.bool)


def _joined(x: Tensor, block: int, real: Tensor) -> Tensor:
    """As in LongT5: the remainder is added to the last full block."""
    of = (torch.arange(len(x)) // block).clamp(max=len(x) // block - 1)
    own = (of == torch.arange(len(x) // block)[:, None]) & real
    return own.to(x.dtype) @ x / own.sum(1, keepdim=True).clamp(min=1)


def _interleaved(x: Tensor, block: int, real: Tensor) -> Tensor:
    count = -(-len(x) // block)
    own = (torch.arange(len(x)) % count == torch.arange(count)[:, None]) & real
    return own.to(x.dtype) @ x / own.sum(1, keepdim=True).clamp(min=1)


def _last_wide(x: Tensor, block: int, real: Tensor) -> Tensor:
    """The sum of real tokens divided by the number of all tokens, padding included."""
    counts = _blocks(x, block, _all_tokens(x))[1]
    return _blocks(x, block, real)[0] / counts


def _block_means_cases() -> Iterator[Arguments]:
    for n, block, last in ((11, 4, 9), (12, 4, 12), (13, 3, 13), (13, 3, 7)):  # 7: empty blocks
        yield {"x": random_tensors((n, 5))[0], "block": block, "real": torch.arange(n) < last}


check_block_means = Exercise(
    """Are these the means of the blocks? `block_means(x, block, real) -> (blocks, d)`.

    `x` (n, d) is cut into ⌈n / block⌉ blocks, the last one may be shorter; `real` (n,)
    shows which rows are tokens. The mean is over these; a block without any gives zeros.
    """,
    right=_means,
    cases=_block_means_cases,
    axes="blocks d",
    mistakes={
        (lambda x, block, real: _means(x, block, _all_tokens(x))): (
            "Padding is in the mean: where `real` is False there is no token. Leave it out of the "
            "sum and of the count."
        ),
        (
            lambda x, block, real: (
                _blocks(x, block, _all_tokens(x))[0] / _blocks(x, block, real)[1].clamp(min=1)
            )
        ): ("Padding is in the sum, though not in the count: set it to zero before you add."),
        (lambda x, block, real: _blocks(x, block, real)[0] / block): (
            "Each sum is divided by `block`, also where fewer tokens were added, so the mean of a "
            "partial block is too small. Divide by the number of real tokens."
        ),
        _last_wide: "Padding is in the mean: it is left out of the sum, but still counted.",
        (lambda x, block, real: _blocks(x, block, _all_tokens(x))[0] / block): (
            "Padding is in the mean, and so are the zeros after the end: each sum is divided by "
            "`block`."
        ),
        (lambda x, block, real: _means(x, block, real)[: len(x) // block]): (
            "The remainder is dropped: tokens after the last full block are in no summary, so "
            "distant queries cannot see them."
        ),
        _joined: (
            "The remainder is added to the last full block, as in LongT5; here it gets its own "
            "summary."
        ),
        (lambda x, block, real: _blocks(x, block, real)[0] / _blocks(x, block, real)[1]): (
            "A block without a real token divides 0 by 0. Its mean should be zeros: count at least "
            "1."
        ),
        (lambda x, block, real: _blocks(x, block, real)[0]): (
            "These are sums: divide by the number of real tokens."
        ),
        _interleaved: (
            "The blocks do not consist of neighbours: every ⌈n / block⌉-th token is in one block. "
            "Reshape x to (blocks, block, d), not (block, blocks, d)."
        ),
    },
    praise="Every real token is in one mean, and nothing else is.",
)


# ---- the keys of transient global attention

check_transient_keys = NumberExercise(
    "How many keys has a position in the middle: n = 16,384, radius 127, blocks of 16?",
    right=2 * 127 + 1 + 16_384 // 16,
    unit="keys",
    mistakes={
        2 * 127 + 16_384 // 16: "A position attends to itself as well: 2r + 1.",
        127 + 16_384 // 16: "The window has 127 tokens on EACH side.",
        2 * 127 + 1: "That is the window alone; the summaries of all blocks are keys, too.",
        16_384 // 16: "Those are the summaries alone; the window is attended to as well.",
        1263: "The summaries of blocks inside the window are not left out: all of them are keys.",
        16_384: "That is full attention.",
    },
)


# ---- transient global attention


def _transient(
    x: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    radius: int,
    block: int,
    *,
    rest: str = "join",
    norm: str = "rms",
    keys: str = "both",
    softmax: str = "one",
    scale: float = 1.0,
    far_only: bool = False,
    causal: bool = False,
) -> Tensor:
    n, i = len(x), torch.arange(len(x))
    count = -(-n // block) if rest == "own" else n // block
    block_of = i // block if rest == "own" else (i // block).clamp(max=count - 1)
    members = F.one_hot(block_of, count).to(x)
    if rest == "dropped":
        members[count * block :] = 0
    sums = members.mT @ x
    if norm == "rms":
        sums = sums / sums.square().mean(-1, keepdim=True).sqrt()
    elif norm == "length":
        sums = F.normalize(sums, dim=-1, eps=0)
    elif norm == "mean":
        sums = sums / members.sum(0)[:, None]
    near = (i[:, None] - i).abs() <= radius
    far = torch.ones(n, count, dtype=torch.bool)
    if far_only:
        far = (near.to(x) @ members) == 0
    if causal:
        near = near & (i <= i[:, None])
    out = torch.zeros_like(x @ value)
    groups = {"both": [(x, near), (sums, far)], "window": [(x, near)], "summaries": [(sums, far)]}
    if softmax == "one":
        tokens = torch.cat([part for part, _ in groups[keys]])
        mask = torch.cat([part for _, part in groups[keys]], 1)
        return _softmax(x @ query, tokens @ key, mask, scale) @ (tokens @ value)
    for tokens, mask in groups[keys]:
        out = out + _softmax(x @ query, tokens @ key, mask, scale) @ (tokens @ value)
    return out / (2 if softmax == "mean" else 1)


def _softmax(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    return (q @ k.mT * scale).masked_fill(~mask, -torch.inf).softmax(-1)


def _transient_cases() -> Iterator[Arguments]:
    for n, d, radius, block in ((17, 5, 2, 5), (13, 3, 3, 3)):
        x, query, key, value = random_tensors((n, d), (d, d), (d, d), (d, d), seed=n)
        matrices = {"query": query / d, "key": key, "value": value}
        yield {"x": x, **matrices, "radius": radius, "block": block}


check_transient = Exercise(
    """Is it transient global attention? `transient(x, query, key, value, radius, block) -> (n, d)`.

    `x` (n, d) are tokens, `query`, `key`, `value` (d, d) matrices for x @ query. A token attends to
    those at most `radius` away and to the normalised sums of all ⌊n / block⌋ blocks, in one softmax
    without scale. Called with n = 17, d = 5, radius 2 and blocks of 5, and with n = 13 and blocks
    of 3.
    """,
    right=_transient,
    cases=_transient_cases,
    axes="n d",
    mistakes={
        but(norm="none"): (
            "The sums are not normalised: divide each by the root of its mean square."
        ),
        but(norm="mean"): (
            "Those are means of the blocks: add up the tokens of a block and divide by the root of "
            "the sum's mean square."
        ),
        but(norm="length"): (
            "The sums are divided by their length; RMSNorm divides by the root of the mean square, "
            "which is the length divided by √d."
        ),
        but(rest="own"): (
            "The tokens after the last full block form a block of their own. They join the last "
            "full block: there are ⌊n / block⌋ summaries."
        ),
        but(rest="dropped"): (
            "The tokens after the last full block are in no summary. They join the last full block."
        ),
        but(keys="window"): "That is the window alone: the summaries are missing.",
        but(keys="summaries"): "Those are the summaries alone: the window is missing.",
        but(softmax="added"): (
            "Window and summaries have a softmax each, and the outputs are added. One softmax runs "
            "over all keys together."
        ),
        but(softmax="mean"): (
            "Window and summaries have a softmax each, and the mean of the outputs is taken. One "
            "softmax runs over all keys together."
        ),
        but(far_only=True): (
            "The summaries of blocks inside the window are left out. All summaries are keys of all "
            "queries."
        ),
        but(causal=True): (
            "The window ends at the query. This attention is not causal: `radius` tokens on each "
            "side."
        ),
        (lambda x, *given: _transient(x, *given, scale=x.shape[1] ** -0.5)): (
            "The scores are divided by √d. LongT5, like T5, does not divide them."
        ),
        (lambda x, q, k, v, radius, block: _transient(x, q, k, v, radius // 2, block)): (
            "`radius` is taken for the width of the whole window; it counts the tokens on each "
            "side."
        ),
    },
    praise="A window of tokens, and one summary for each block, in one softmax.",
)
