"""Checks of lesson 02: the bytes of a cache, and grouped-query attention that decodes with one."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors
from attnlab.exercises.exercise import Mistakes, but
from attnlab.exercises.parts import PartsExercise

# ---- bytes

check_cache_bytes = NumberExercise(
    "Is it the cache of one token, in bytes, with 80 layers and 8 key/value heads of width 128?",
    right=2 * 80 * 8 * 128 * 2,
    unit="bytes",
    mistakes={
        2 * 80 * 64 * 128 * 2: "Only the 8 key/value heads are kept, not the 64 query heads.",
        80 * 8 * 128 * 2: "Half of it: keys and values are kept, and each number takes 2 bytes.",
        2 * 8 * 128 * 2: "That is one layer. Every layer has a cache of its own.",
        2 * 80 * 128 * 2: "That is one key/value head; there are 8.",
    },
)


# ---- a layer with a cache

Step = Callable[[Tensor, int], Tensor]


def _split(y: Tensor, count: int) -> Tensor:
    return y.unflatten(-1, (count, -1)).transpose(0, 1)


def _shared(y: Tensor, heads: int) -> Tensor:
    return y.repeat_interleave(heads // len(y), dim=0)


def _tiled(y: Tensor, heads: int) -> Tensor:
    return y.repeat(heads // len(y), 1, 1)


def _reshaped(y: Tensor, count: int) -> Tensor:
    return y.reshape(count, len(y), -1)


def _joined(out: Tensor) -> Tensor:
    return out.transpose(0, 1).flatten(1)


def _layer(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, h: int, g: int,
    keys: Tensor, values: Tensor, *,
    split: Step = _split, share: Step = _shared, join: Callable[[Tensor], Tensor] = _joined,
    scale: float | None = None, diagonal: int | None = None, first: int = 0, axis: int = -1,
    newest_first: bool = False,
) -> Parts:  # fmt: skip
    """The layer; a known mistake replaces one of the steps.

    `diagonal` is that of the mask, `first` the first of the cached keys that are attended to.
    """
    q, new = split(x @ wq, h), (split(x @ wk, g), split(x @ wv, g))
    order = -1 if newest_first else 1
    k, v = (torch.cat(pair[::order], 1) for pair in zip((keys, values), new, strict=True))
    scores = q @ share(k, h).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    past = keys.shape[1] if diagonal is None else diagonal
    allowed = torch.ones(scores.shape[1:], dtype=torch.bool).tril(past)
    allowed[:, :first] = False
    out = scores.masked_fill(~allowed, -torch.inf).softmax(axis).nan_to_num() @ share(v, h)
    return join(out) @ wo, k, v


def _cached_mistaken(name: str, other: str, place: int) -> Mistakes:
    return {
        but(newest_first=True): (
            f"The new {name} are put before the cached ones: append them at the end."
        ),
        (lambda *given: _layer(*given)[place]): (
            f"`{name}` holds the {other}: return the output, then the keys, then the values."
        ),
        but(split=_reshaped): f"The cached {name} are split by a reshape without a transpose.",
    }


def _inputs(n: int, m: int) -> Arguments:
    dim, h, g, d = 11, 6, 2, 5
    shapes: dict[str, tuple[int, ...]] = {
        "x": (n, dim),
        "Wq": (dim, h * d),
        "Wk": (dim, g * d),
        "Wv": (dim, g * d),
    }
    shapes |= {"Wo": (h * d, dim), "keys": (g, m, d), "values": (g, m, d)}
    given = dict(zip(shapes, random_tensors(*shapes.values(), seed=n), strict=True))
    names = ("x", "Wq", "Wk", "Wv", "Wo", "h", "g", "keys", "values")
    return {name: {**given, "h": h, "g": g}[name] for name in names}


check_grouped_layer = PartsExercise(
    """Is it grouped-query attention with a cache?

    `layer(x, Wq, Wk, Wv, Wo, h, g, keys, values) -> (y, keys, values)`: `x` (n, dim) are new
    tokens, `Wq` (dim, h · d), `Wk` and `Wv` (dim, g · d), `Wo` (h · d, dim); `keys` and `values`
    (g, m, d) are the cache, which comes back with m + n positions. Called with n = 3, m = 4, then
    with n = 1, m = 7 and with n = 5 and an empty cache; h = 6, g = 2, d = 5, dim = 11.
    """,
    right=_layer,
    cases=lambda: [_inputs(n, m) for n, m in ((3, 4), (1, 7), (5, 0))],
    axes={"y": "n dim", "keys": "g m+n d", "values": "g m+n d"},
    of_part={
        "y": {
            but(split=_reshaped): (
                "The heads are split by a reshape without a transpose, so that one head gets "
                "parts of several positions: (n, heads, d) first, then exchange n and heads."
            ),
            but(join=lambda out: out.reshape(out.shape[1], -1)): (
                "The heads are joined without a transpose: from (h, n, d) first to (n, h, d)."
            ),
            but(share=_tiled): (
                "The key heads are tiled 0, 1, 0, 1, …: query head a uses key head ⌊a g / h⌋, so "
                "the order is 0, 0, …, 1, 1, …."
            ),
            but(diagonal=0): (
                "The mask is aligned at the top left, as if the new tokens came first. They come "
                "after the cached ones and may attend to all of these: `tril(m)`."
            ),
            but(diagonal=10**6): (
                "Nothing is masked: a new token must not attend to the new tokens after it."
            ),
            (lambda *given: _layer(*given, diagonal=given[-1].shape[1] - 1)): (
                "New tokens do not attend to themselves: the mask is one too strict."
            ),
            (lambda *given: _layer(*given, first=given[-1].shape[1])): (
                "The cached keys are not attended to: the scores must cover the cache and the new "
                "tokens."
            ),
            but(newest_first=True): (
                "The new keys stand before the cached ones: append them at the end."
            ),
            but(scale=1.0): "The scores are not scaled: multiply them by 1/√d.",
            (lambda *given: _layer(*given, scale=given[0].shape[-1] ** -0.5)): (
                "The scores are scaled by the model width: d is the width of one head."
            ),
            but(axis=-2): (
                "The softmax runs over the queries; the weights of a query sum to one, `dim=-1`."
            ),
        },
        "keys": _cached_mistaken("keys", "values", 2),
        "values": _cached_mistaken("values", "keys", 1),
    },
    praise="Whole text or one token at a time: the layer gives the same, and its cache has g "
    "heads.",
)
