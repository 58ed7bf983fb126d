"""Checks of lesson 02: the bytes of a cache, and grouped-query attention that decodes with one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    Parts,
    check_arguments_and_dtype,
    expect_tensors,
    part_faults,
    random_tensors,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict

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


def _changed(place: int, **changes: Any) -> Callable[..., Tensor]:
    return lambda *given: _layer(*given, **changes)[place]


_OUT_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The heads are split by a reshape without a transpose, so that one head gets parts of "
        "several positions: (n, heads, d) first, then exchange n and heads.",
        _changed(0, split=_reshaped),
    ),
    (
        "The heads are joined without a transpose: from (h, n, d) first to (n, h, d).",
        _changed(0, join=lambda out: out.reshape(out.shape[1], -1)),
    ),
    (
        "The key heads are tiled 0, 1, 0, 1, …: query head a uses key head ⌊a g / h⌋, so the order "
        "is 0, 0, …, 1, 1, ….",
        _changed(0, share=_tiled),
    ),
    (
        "The mask is aligned at the top left, as if the new tokens came first. They come after the "
        "cached ones and may attend to all of these: `tril(m)`.",
        _changed(0, diagonal=0),
    ),
    (
        "Nothing is masked: a new token must not attend to the new tokens after it.",
        _changed(0, diagonal=10**6),
    ),
    (
        "New tokens do not attend to themselves: the mask is one too strict.",
        lambda *given: _changed(0, diagonal=given[-1].shape[1] - 1)(*given),
    ),
    (
        "The cached keys are not attended to: the scores must cover the cache and the new tokens.",
        lambda *given: _changed(0, first=given[-1].shape[1])(*given),
    ),
    (
        "The new keys stand before the cached ones: append them at the end.",
        _changed(0, newest_first=True),
    ),
    ("The scores are not scaled: multiply them by 1/√d.", _changed(0, scale=1.0)),
    (
        "The scores are scaled by the model width: d is the width of one head.",
        lambda *given: _changed(0, scale=given[0].shape[-1] ** -0.5)(*given),
    ),
    (
        "The softmax runs over the queries; the weights of a query sum to one, `dim=-1`.",
        _changed(0, axis=-2),
    ),
)


def _cached_mistaken(place: int, name: str) -> tuple[KnownMistake, ...]:
    other = "keys" if name == "values" else "values"
    return (
        (
            f"The new {name} are put before the cached ones: append them at the end.",
            _changed(place, newest_first=True),
        ),
        (
            f"`{name}` holds the {other}: return the output, then the keys, then the values.",
            _changed(3 - place),
        ),
        (
            f"The cached {name} are split by a reshape without a transpose.",
            _changed(place, split=_reshaped),
        ),
    )


_LAYER_MISTAKEN = (_OUT_MISTAKEN, _cached_mistaken(1, "keys"), _cached_mistaken(2, "values"))


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


@returns_verdict
def check_grouped_layer(function: Function) -> str:
    """Is it grouped-query attention with a cache?

    `layer(x, Wq, Wk, Wv, Wo, h, g, keys, values) -> (y, keys, values)`: `x` (n, dim) are new
    tokens, `Wq` (dim, h · d), `Wk` and `Wv` (dim, g · d), `Wo` (h · d, dim); `keys` and `values`
    (g, m, d) are the cache, which comes back with m + n positions. Called with n = 3, m = 4, then
    with n = 1, m = 7 and with n = 5 and an empty cache; h = 6, g = 2, d = 5, dim = 11.
    """
    names, shapes = ("y", "keys", "values"), ("n dim", "g m+n d", "g m+n d")
    for n, m in ((3, 4), (1, 7), (5, 0)):
        given = _inputs(n, m)
        truth = _layer(*given.values())
        parts = expect_tensors(run(function, given), names, shapes, truth)
        faults = part_faults(parts, truth, given, names, _LAYER_MISTAKEN)
        if faults:
            raise Mistake(faults[0])
    check_arguments_and_dtype(lambda *args: function(*args)[0], given)  # type: ignore[index]
    return "Whole text or one token at a time: the layer gives the same, and its cache has g heads."
