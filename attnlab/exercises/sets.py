"""Checks of lesson 32: equal counts of pairs, a pool, a mixture's likelihood, a Perceiver."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- equal counts of pairs

check_equal_pairs = NumberExercise(
    "Is it the n at which 32 inducing points compare as many pairs as full attention?",
    right=2 * 32,
    unit="members",
    mistakes={
        32: "The set passes the inducing points twice: they attend to it, and it attends to them.",
        1024: "That is 32². Solve 2 · 32 · n = n².",
        16: "That is half of 32. Solve 2 · 32 · n = n².",
        128: "Only two attentions are made: 2 · 32 · n pairs, not 4 · 32 · n.",
    },
)


# ---- a pool


def _pool(
    seed: Tensor, x: Tensor, real: Tensor, *, scaled: bool = True, padding: str = "hidden"
) -> Tensor:
    """The members weighed by one seed; every keyword is a mistake."""
    scores = x @ seed / (math.sqrt(len(seed)) if scaled else 1)
    if padding == "hidden":
        scores = scores.masked_fill(~real, -torch.inf)
    elif padding == "score 0":
        scores = scores * real
    weights = scores.softmax(0)
    return (weights * real if padding == "weight 0" else weights) @ x


def _pool_cases() -> Iterator[Arguments]:
    seed, x, chance = random_tensors((5,), (7, 5), (7,), seed=32)
    yield {"seed": seed, "x": x, "real": chance > -0.5}


check_pool = Exercise(
    """Is one vector made of a set? `pool(seed, x, real)`.

    `seed` is (d,), `x` (n, d), `real` (n,), True at real members; it returns (d,).
    """,
    right=_pool,
    cases=_pool_cases,
    axes="d",
    mistakes={
        but(padding="all"): "The padded members have weights: their scores must be −∞.",
        but(padding="score 0"): (
            "A score of 0 still has a weight after the softmax. The scores of padding must be −∞."
        ),
        but(padding="weight 0"): (
            "The weights of padding were removed after the softmax, so the others no longer sum to "
            "1."
        ),
        but(scaled=False): "The scores are not divided by √d.",
        (lambda s, x, r: x[r].mean(0)): (
            "That is the mean of the members: the seed has no influence."
        ),
        (lambda s, x, r: x[r].amax(0)): "That is the maximum of each number over the members.",
    },
    praise="The order of the members does not matter, and padding does not count.",
)


# ---- the log likelihood of a mixture


def _likelihood(
    x: Tensor, weights: Tensor, means: Tensor, widths: Tensor, *,
    weighed: bool = True, variances: bool = False, constant: bool = True, power: float = 2,
    of_logs: bool = False,
) -> Tensor:  # fmt: skip
    """log p of each point; every keyword is a mistake."""
    widths = widths.sqrt() if variances else widths
    away = ((x[:, None] - means) / widths).abs()
    normal = -(away**power) / 2 - widths.log() - (math.log(2 * math.pi) / 2 if constant else 0)
    each = normal.sum(-1)
    if of_logs:
        return (weights * each).sum(-1)
    return (each + (weights.log() if weighed else 0)).logsumexp(-1)


def _log_likelihood_cases() -> Iterator[Arguments]:
    x, weights, means, widths = random_tensors((7, 2), (3,), (3, 2), (3, 2), seed=33)
    yield {"x": x, "weights": weights.softmax(0), "means": means, "widths": widths.exp()}


check_log_likelihood = Exercise(
    """Is it log p of each point? `log_likelihood(x, weights, means, widths)`.

    `x` is (n, 2), `weights` (k,), `means` and standard deviations `widths` (k, 2); it returns (n,).
    """,
    right=_likelihood,
    cases=_log_likelihood_cases,
    axes="n",
    mistakes={
        but(of_logs=True): (
            "That is the weighted sum of the logarithms. The mixture is a sum of densities: the "
            "logarithm comes last."
        ),
        but(weighed=False): "The weights of the clusters are missing.",
        but(variances=True): "The widths are standard deviations, not variances.",
        but(constant=False): "The constant log √(2π) of each axis is missing.",
        but(power=1): "The distance in units of the width must be squared.",
    },
    praise="It is the logarithm of a sum over the clusters, one number for each point.",
)


# ---- a Perceiver


def _block(
    x: Tensor, y: Tensor, matrices: Tensor, real: Tensor | None = None, *,
    residual: bool = True, scaled: bool = True, over: int = 1, hidden: float = -torch.inf,
) -> Tensor:  # fmt: skip
    """x (k, d) attends to y (m, d)."""
    q, k, v = x @ matrices[0], y @ matrices[1], y @ matrices[2]
    scores = q @ k.mT / (math.sqrt(q.shape[-1]) if scaled else 1)
    if real is not None:
        scores = scores.masked_fill(~real, hidden)
    weights = scores.softmax(over)
    return weights @ v + (x if residual else 0)


def _perceive(
    x: Tensor, real: Tensor, latents: Tensor, query: Tensor,
    encode: Tensor, process: Tensor, decode: Tensor, *,
    masked: bool = True, processed: str = "latents", decoded: str = "latents", one: bool = False,
    residual: bool = True, scaled: bool = True, over: int = 1, hidden: float = -torch.inf,
) -> Tensor:  # fmt: skip
    """Encode, process, decode; every keyword is a mistake."""
    if one:
        process = decode = encode
    block = partial(_block, residual=residual, scaled=scaled)
    z = block(latents, x, encode, real if masked else None, over=over, hidden=hidden)
    if processed == "latents":
        z = block(z, z, process)
    elif processed == "inputs":
        z = block(z, x, process, real)
    elif processed == "start":
        z = block(z, latents, process)
    if decoded == "mean":
        return z.mean(0)
    if decoded == "start":
        return block(query[None], latents, decode)[0]
    if decoded == "inputs":
        return block(query[None], x, decode, real)[0]
    return block(query[None], z, decode)[0]


_OVER_LATENTS = "The first softmax runs over the latents. It runs over the inputs."


def _perceive_cases() -> Iterator[Arguments]:
    x, chance, latents, query = random_tensors((11, 5), (11,), (3, 5), (5,), seed=37)
    given = {"x": x, "real": chance > -0.5, "latents": latents, "query": query}
    matrices = random_tensors(*[(3, 5, 5)] * 3, seed=38)
    given |= dict(zip(("encode", "process", "decode"), matrices, strict=True))
    yield given


check_perceive = Exercise(
    """Is it encode, process, decode? `perceive(x, real, latents, query, encode, process, decode)`.

    `x` is (n, d), `real` (n,), `latents` (l, d), `query` (d,); the last three are (3, d, d), the
    matrices that make queries, keys and values. It returns (d,).
    """,
    right=_perceive,
    cases=_perceive_cases,
    axes="d",
    mistakes={
        but(masked=False): "The padded inputs have weights in the first attention.",
        but(decoded="inputs"): (
            "The query attends to the inputs. It attends to the latents, which have read them."
        ),
        but(decoded="start"): (
            "The query attends to the latents as they were at the beginning. It attends to them "
            "after they have read the inputs and each other."
        ),
        but(processed="none"): (
            "The query attends to the latents before they have attended to each other: the middle "
            "block is missing, or its result is not used."
        ),
        but(processed="inputs"): (
            "The middle block reads the inputs once more. There the latents attend to each other."
        ),
        but(processed="start"): (
            "In the middle block the keys and values are made of the latents as they were before "
            "they read the inputs."
        ),
        but(residual=False): "What attends is not added to what it takes.",
        but(scaled=False): "The scores are not divided by √d.",
        but(one=True): "The matrices of `encode` are used in all three blocks.",
        but(over=0): (_OVER_LATENTS),
        but(over=0, hidden=-1e9): (_OVER_LATENTS),
        but(decoded="mean"): "That is the mean of the latents: the query is not used.",
    },
    praise="All that the query reads of 11 inputs has passed three latents.",
)
