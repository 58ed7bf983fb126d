"""Checks of lesson 25: bytes of a token, keys of few bits, attention of groups, layers that share a
cache.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- the bytes of a token

check_token_bytes = NumberExercise(
    "Is it what one more token costs, in bytes, in all layers together?",
    right=98_304,
    tolerance=1e-9,
    unit="bytes",
    mistakes={
        49_152: "That counts keys alone, or numbers of one byte: keys and values, two bytes each.",
        393_216: "Queries are not kept: the 32 heads share keys and values of 8 groups.",
        4_096: "That is one layer; all 24 keep keys and values.",
        12_288: "Each of the 8 groups has keys and values of its own.",
        786_432: "Those are bits: 8 of them are a byte.",
        196_608: "A number of 16 bits has two bytes, not four.",
    },
)

# ---- keys rounded channel by channel


def _rounded(
    K: Tensor, bits: int, *, by_token: bool = False, whole: bool = False, floor: bool = False,
    levels: bool = False, zero: bool = False, codes: bool = False,
) -> Tensor:  # fmt: skip
    """Each channel rounded to 2^bits levels; every keyword is a mistake."""
    axis = (0, 1) if whole else 1 if by_token else 0
    least, most = K.amin(axis, keepdim=True), K.amax(axis, keepdim=True)
    if zero:
        least = torch.zeros_like(least)
    step = (most - least) / (2**bits - (0 if levels else 1))
    code = (K - least) / step
    code = code.floor() if floor else code.round()
    return code if codes else least + step * code


def _rounded_cases() -> Iterator[Arguments]:
    (K,) = random_tensors((11, 5), seed=25)
    yield {"K": K, "bits": 2}
    yield {"K": K * torch.tensor([40.0, 1, 1, 1, 1], dtype=K.dtype), "bits": 4}


check_rounded_keys = Exercise(
    """Are keys rounded channel by channel? `rounded(K, bits)`.

    `K` (t, d) are the keys of t tokens. It returns (t, d): the numbers that the codes stand for,
    2^bits different ones in each channel, from its smallest to its largest.
    """,
    right=_rounded,
    cases=_rounded_cases,
    axes="t d",
    mistakes={
        but(by_token=True): (
            "The tokens share a scale, channel by channel: smallest and largest of each column."
        ),
        but(whole=True): "One large channel sets the step of all: each channel has its own.",
        but(floor=True): "That rounds down: the error is up to a whole step, not half of one.",
        but(levels=True): "Between 2^bits levels there are 2^bits − 1 steps.",
        but(zero=True): "Codes begin at the smallest number of the channel, not at 0.",
        but(codes=True): "Those are the codes. Multiply by the step and add the smallest number.",
    },
    praise="An error is at most half a step of its own channel, however large the others are.",
)

# ---- attention of groups


def _grouped(
    q: Tensor, K: Tensor, V: Tensor, *, turned: bool = False, unscaled: bool = False,
    first: bool = False, heads: bool = False,
) -> Tensor:  # fmt: skip
    """One new token with h heads, over g groups; every keyword is a mistake."""
    h, g = len(q), len(K)
    group = torch.arange(h) % g if turned else torch.arange(h) * g // h
    group = torch.zeros(h, dtype=torch.long) if first else group
    scores = torch.einsum("hd,htd->ht", q, K[group]) * (1 if unscaled else q.shape[1] ** -0.5)
    weights = scores.softmax(0 if heads else 1)
    return torch.einsum("ht,hte->he", weights, V[group])


def _grouped_cases() -> Iterator[Arguments]:
    q, K, V = random_tensors((6, 5), (3, 7, 5), (3, 7, 2), seed=26)
    yield {"q": q, "K": K, "V": V}


check_grouped_read = Exercise(
    """Does the new token read the keys and values of its groups? `read(q, K, V)`.

    `q` (h, d) are the queries of one new token, `K` (g, t, d) and `V` (g, t, e) what is kept of
    t tokens. The first h / g heads read group 0, the next ones group 1, and so on. It returns
    (h, e). Called with h = 6, g = 3.
    """,
    right=_grouped,
    cases=_grouped_cases,
    axes="h e",
    mistakes={
        but(turned=True): "Neighbouring heads share a group: head a reads group a g / h, cut off.",
        but(first=True): "All heads read group 0: that is multi-query attention.",
        but(unscaled=True): "The scores are not divided by √d.",
        but(heads=True): "The weights of each head sum to one over the tokens.",
    },
    praise="Six queries read three pairs of keys and values, so that half is kept.",
)

# ---- two layers with one cache


def _two_layers(
    x: Tensor, Wq1: Tensor, Wq2: Tensor, Wk: Tensor, Wv: Tensor, *, own: bool = False,
    open: bool = False, bare: bool = False, same: bool = False, unscaled: bool = False,
    stale: bool = False,
) -> Tensor:  # fmt: skip
    """Cross-layer attention; every keyword is a mistake."""
    past = torch.ones(len(x), len(x), dtype=torch.bool).tril()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * (1 if unscaled else q.shape[1] ** -0.5)
        return (scores if open else scores.masked_fill(~past, -torch.inf)).softmax(-1) @ v

    k, v = x @ Wk, x @ Wv
    y = attend(x @ Wq1, k, v) + (0 if bare else x)
    if own:
        k, v = y @ Wk, y @ Wv
    q = (x if stale else y) @ (Wq1 if same else Wq2)
    return attend(q, k, v) + (0 if bare else y)


def _two_layers_cases() -> Iterator[Arguments]:
    x, *matrices = random_tensors((7, 5), (5, 5), (5, 5), (5, 5), (5, 5), seed=27)
    yield {"x": x, **dict(zip(("Wq1", "Wq2", "Wk", "Wv"), matrices, strict=True))}


check_shared_layers = Exercise(
    """Do two layers attend to one cache? `two_layers(x, Wq1, Wq2, Wk, Wv)`.

    `x` (n, d), all matrices (d, d). Each layer adds its causal attention to what it reads; both
    attend to the keys and values that the first one makes of `x`. It returns (n, d). Called with
    n = 7, d = 5.
    """,
    right=_two_layers,
    cases=_two_layers_cases,
    axes="n d",
    mistakes={
        but(own=True): "The second layer has made keys and values of its own: it keeps a cache.",
        but(open=True): "A token attends to tokens that come after it.",
        but(bare=True): "Each layer adds its attention to what it has read.",
        but(same=True): "The second layer has queries of its own, by Wq2.",
        but(stale=True): "The queries of the second layer are made of what the first has left.",
        but(unscaled=True): "The scores are not divided by √d.",
    },
    praise="Both layers together keep as much as one.",
)
