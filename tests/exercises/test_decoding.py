"""Lesson 02's checks: the bytes of a cache, grouped-query attention that decodes with one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlab.exercises import check_grouped_layer
from tests.exercises.frame import answers_to

Parts = tuple[Tensor, ...]


def by_heads(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, h: int, g: int,
    keys: Tensor, values: Tensor, *,
    key_head: Callable[[int, int, int], int] = lambda a, g, h: a * g // h,
    mask: Callable[[int, int], Tensor] = lambda n, m: torch.ones(n, m).tril(m - n).bool(),
    scale: Callable[[int, int], float] = lambda d, dim: d**-0.5,
    merge: Callable[[list[Tensor]], Tensor] = lambda heads: torch.cat(heads, -1),
    cut: Callable[[Tensor, int, int], Tensor] = lambda y, a, d: y[:, a * d : (a + 1) * d],
    order: int = 1, axis: int = -1,
) -> Parts:  # fmt: skip
    """One head after the other, with slices."""
    n, d = len(x), wq.shape[-1] // h
    cached = []
    for w, old in ((wk, keys), (wv, values)):
        new = torch.stack([cut(x @ w, c, d) for c in range(g)])
        cached.append(torch.cat([old, new][::order], 1))
    k, v = cached
    heads = []
    for a in range(h):
        c = key_head(a, g, h)
        scores = cut(x @ wq, a, d) @ k[c].T * scale(d, x.shape[-1])
        weights = scores.masked_fill(~mask(n, k.shape[1]), -torch.inf).softmax(axis).nan_to_num()
        heads.append(weights @ v[c])
    return merge(heads) @ wo, k, v


def by_sdpa(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, h: int, g: int,
    keys: Tensor, values: Tensor,
) -> Parts:  # fmt: skip
    q, k, v = ((x @ w).view(len(x), -1, 5).transpose(0, 1) for w in (wq, wk, wv))
    k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    mask = torch.ones(len(x), k.shape[1]).tril(keys.shape[1]).bool()
    out = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(x), -1) @ wo, k, v


def made(**changes: Any) -> Callable[..., Parts]:
    return lambda *given: by_heads(*given, **changes)


def scrambled(y: Tensor, a: int, d: int) -> Tensor:
    return y.reshape(-1, len(y), d)[a]


def exchanged(*given: Any) -> Parts:
    y, keys, values = by_heads(*given)
    return y, values, keys


def forward_only(*given: Any) -> Parts:
    y, keys, values = by_heads(*given)
    new = len(given[0])
    return y, keys[:, -new:], values[:, -new:]


def reversed_cache(place: int) -> Callable[..., Parts]:
    def layer(*given: Any) -> Parts:
        parts = list(by_heads(*given))
        parts[place] = by_heads(*given, order=-1)[place]
        return tuple(parts)

    return layer


def reshaped_cache(place: int) -> Callable[..., Parts]:
    def layer(*given: Any) -> Parts:
        parts = list(by_heads(*given))
        parts[place] = by_heads(*given, cut=scrambled)[place]
        return tuple(parts)

    return layer


WRONG = {
    "reshape": ("split by a reshape", made(cut=scrambled)),
    "joined": ("joined without", made(merge=lambda s: torch.stack(s).reshape(len(s[0]), -1))),
    "tiled": ("tiled 0, 1, 0, 1", made(key_head=lambda a, g, h: a % g)),
    "top left": ("aligned at the top left", made(mask=lambda n, m: torch.ones(n, m).tril().bool())),
    "no mask": ("Nothing is masked", made(mask=lambda n, m: torch.ones(n, m).bool())),
    "strict": (
        "do not attend to themselves",
        made(mask=lambda n, m: torch.ones(n, m).tril(m - n - 1).bool()),
    ),
    "no past": (
        "cached keys are not attended to",
        made(mask=lambda n, m: torch.ones(n, m).tril(m - n).triu(0).bool()
             & (torch.arange(m) >= m - n)),
    ),
    "new first": ("new keys stand before", made(order=-1)),
    "no scale": ("not scaled", made(scale=lambda d, dim: 1.0)),
    "dim": ("scaled by the model width", made(scale=lambda d, dim: dim**-0.5)),
    "axis": ("runs over the queries", made(axis=-2)),
    "keys reversed": ("The new keys are put before", reversed_cache(1)),
    "values reversed": ("The new values are put before", reversed_cache(2)),
    "exchanged": ("`keys` holds the values", exchanged),
    "keys reshaped": ("The cached keys are split", reshaped_cache(1)),
    "values reshaped": ("The cached values are split", reshaped_cache(2)),
    "new only": ("Wrong shape: `keys`", forward_only),
    "one": ("gave one tensor", lambda *given: by_heads(*given)[0]),
    "none": ("`return`", lambda *given: None),
}  # fmt: skip


TestGroupedLayer = answers_to(
    [(check_grouped_layer, solution) for solution in [by_heads, by_sdpa]],
    [(check_grouped_layer, WRONG)],
)


def test_the_values_hold_the_keys(refuses: Callable) -> None:
    def twice(*given: Any) -> Parts:
        y, keys, _ = by_heads(*given)
        return y, keys, keys

    refuses(check_grouped_layer(twice), "`values` holds the keys")
