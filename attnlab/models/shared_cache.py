r"""Layers that attend to the keys and values of an earlier layer: ``TinyTransformer(cache_of=…)``.

A layer l makes queries of its own input, and takes keys and values from the layer s(l) ≤ l:

$$o_l = \mathrm{attend}(x_l W^q_l,\; x_{s(l)} W^k_{s(l)},\; x_{s(l)} W^v_{s(l)})$$

Only layers with s(l) = l have matrices for keys and values, and only they keep a cache.

``cache_of=[0, 0, 2, 2]``   every second layer shares (CLA, cross-layer attention).
``cache_of=[0, 1, 2, 2]``   with ``attention=["streaming", "streaming", "full", "full"]``: the lower
                            half keeps a window, the upper half shares one cache (YOCO).

The keys are kept as the layer s(l) has turned them, so both layers need the same positions.

Departures. YOCO makes the keys and values of the upper half by a norm and two matrices of their
own, from what the lower half gives. Here they are those of the first layer of the upper half, whose
norm and matrices read the same vectors.

Brandon, Mishra, Nrusimha, Panda, Ragan-Kelley. Reducing Transformer Key-Value Cache Size with
Cross-Layer Attention. NeurIPS 2024, arXiv:2405.12981. Sun, Dong, Zhu, Huang, Wang, Ma, Zhang, Wang,
Wei. You Only Cache Once: Decoder-Decoder Architectures for Language Models. NeurIPS 2024,
arXiv:2405.05254.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.cache import KeyValueCache
from attnlab.core.layer import Layer
from attnlab.core.probe import note, unheard

Caches: TypeAlias = dict[int, KeyValueCache]
"""The number of a layer → its keys and values, during one call of a stack."""


class NoProjection(nn.Module):
    """Stands where a layer makes no keys, or no values: zeros as wide as they would be."""

    def __init__(self, query: nn.Module, width: int) -> None:
        super().__init__()
        self.width, self._query = width, (query,)  # in a tuple it is no second part of the layer

    @property
    def weight(self) -> Tensor:
        """What ``Heads`` asks for device and dtype."""
        found: Tensor = self._query[0].weight  # type: ignore[assignment]
        return found

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], self.width)


class SharedCacheAttention(Layer):
    """Dense attention whose keys and values are shared: (b, n, dim) → (b, n, dim).

    Layer ``number`` attends to the keys and values of layer ``source``. Both find them in
    ``caches``, where the layer that makes them puts them. What else a layer has, such as norms of
    its queries, gates or a sink, is its own.
    """

    shares_cache = True

    def __init__(self, attention: DenseAttention, number: int, source: int) -> None:
        super().__init__()
        self.number, self.source, self.attention = number, source, attention
        if number != source:
            heads: Any = attention.heads
            heads.key = NoProjection(heads.query, heads.kv_heads * heads.head_dim)
            heads.value = NoProjection(heads.query, heads.kv_heads * heads.value_dim)
            if hasattr(heads, "key_norm"):
                heads.key_norm = nn.Identity()

    @property
    def heads(self) -> Any:
        """The heads of the layer."""
        return self.attention.heads

    def forward(
        self, x: Tensor, padding: Tensor | None = None, *, caches: Caches | None = None
    ) -> Tensor:
        """What each token takes from the others; ``padding`` (b, n) is True at real tokens."""
        q, k, v = self._projected(x, padding=padding)
        if self.number != self.source:
            k, v = self._found(caches)
        elif caches is not None:
            caches[self.number] = KeyValueCache(k, v)
        mask = patterns.visible(self.attention.causal, padding)
        bias = self.heads.bias(q.shape[2], k.shape[2], padding)
        return self._merged(q, k, v, mask, bias)

    def step(
        self, x: Tensor, state: KeyValueCache | None = None, *, caches: Caches | None = None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """The next t tokens. The state of a layer that reads another's cache is None."""
        self.heads.refuse_step(self.attention.causal)
        if self.number == self.source:
            q, k, v = self._projected(x, start=0 if state is None else state.length)
            state = KeyValueCache.extended(state, k, v)
            if caches is not None:
                caches[self.number] = state
            k, v = state
        else:
            k, v = self._found(caches)
            q, _, _ = self._projected(x, start=k.shape[2] - x.shape[1])
        bias = self.heads.bias(q.shape[2], k.shape[2])
        return self._merged(q, k, v, patterns.causal(), bias), state

    def _projected(self, x: Tensor, **given: Any) -> tuple[Tensor, Tensor, Tensor]:
        with unheard():  # the keys that are attended to are noted
            q, k, v = self.heads.project(x, **given)
        return q, k, v

    def _found(self, caches: Caches | None) -> KeyValueCache:
        if caches is None or self.source not in caches:
            raise ValueError(
                f"layer {self.number} attends to the keys and values of layer {self.source}: call "
                "the model, not this layer alone"
            )
        return caches[self.source]

    def _merged(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any) -> Tensor:
        note("queries", q[..., : k.shape[-1]])  # gates may stand behind them
        note("keys", k)
        note("values", v)
        note("mask", mask)
        out: Tensor = self.heads.merge(self.attention._attend(q, k, v, mask, bias))
        return out

    def extra_repr(self) -> str:
        return f"layer={self.number}, cache_of={self.source}"


def check_sources(cache_of: Sequence[int], layers: int) -> None:
    """A ValueError unless each layer takes its own cache, or one that an earlier layer keeps."""
    if len(cache_of) != layers:
        raise ValueError(
            f"cache_of says for each layer whose keys and values it attends to, so it needs "
            f"{layers} numbers, got {len(cache_of)}"
        )
    for number, source in enumerate(cache_of):
        if not 0 <= source <= number:
            raise ValueError(
                f"layer {number} can attend to the keys and values of layers 0 to {number}, and "
                f"cache_of gives it layer {source}"
            )
        if cache_of[source] != source:
            raise ValueError(
                f"cache_of gives layer {number} the cache of layer {source}, which keeps none: it "
                f"attends to that of layer {cache_of[source]} itself"
            )


def shared(
    attentions: Sequence[nn.Module], cache_of: Sequence[int], names: Sequence[object]
) -> list[nn.Module]:
    """The attention modules of a stack, those that share a cache as ``SharedCacheAttention``."""
    made = list(attentions)
    for number, source in enumerate(cache_of):
        if cache_of.count(source) == 1:
            continue
        for layer in {number, source}:
            _check_layer(attentions[layer], layer, names[layer])
        _check_equal(attentions, number, source)
        made[number] = SharedCacheAttention(attentions[number], number, source)  # type: ignore[arg-type]
    return made


def _check_layer(attention: nn.Module, number: int, name: object) -> None:
    if not isinstance(attention, DenseAttention) or not attention.one_softmax:
        raise ValueError(
            f"layer {number} is to share a cache, and attention={name!r} does not make its weights "
            "by one softmax of queries times keys that another layer could make; take 'full', "
            "'multi_query', 'qk_norm', 'soft_cap', 'sink' or 'gated_attention' for these layers"
        )


def _check_equal(attentions: Sequence[Any], number: int, source: int) -> None:
    ours, theirs = attentions[number].heads, attentions[source].heads
    if type(ours) is not type(theirs):
        kinds = (type(attentions[each]).__name__ for each in (source, number))
        raise ValueError(
            f"layers {source} and {number} share one cache, so their keys should be made alike, "
            f"got {' and '.join(kinds)}"
        )
    if ours.kv_heads != theirs.kv_heads:
        raise ValueError(
            f"layers {source} and {number} share one cache, so they should have as many key/value "
            f"heads, got {theirs.kv_heads} and {ours.kv_heads}"
        )
    if ours.positions is not theirs.positions:
        raise ValueError(
            f"layers {source} and {number} share one cache, whose keys are turned once, so their "
            "positions should be the same"
        )
