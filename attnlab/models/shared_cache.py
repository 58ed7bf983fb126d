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
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.positions import Rotation, positions_of
from attnlab.core.probe import note

Caches: TypeAlias = dict[int, KeyValueCache]
"""The number of a layer → its keys and values, during one call of a stack."""


class QueryHeads(Heads):
    """Heads with queries and an output alone, made of those of a layer."""

    def __init__(self, heads: Heads) -> None:
        nn.Module.__init__(self)
        self.dim, self.heads, self.kv_heads = heads.dim, heads.heads, heads.kv_heads
        self.head_dim, self.value_dim = heads.head_dim, heads.value_dim
        self.query, self.output, self.positions = heads.query, heads.output, heads.positions

    @property
    def value(self) -> Any:  # what ``Heads`` asks for device and dtype
        return self.query

    def queries(self, x: Tensor, *, padding: Tensor | None = None, start: int = 0) -> Tensor:
        """(b, n, dim) → (b, h, n, d), turned where the layer has a rotation."""
        self.check_input(x, "x")
        q = self.split(self.query(zero_nonfinite_padding(x, padding)), self.head_dim)
        if isinstance(self.positions, Rotation):
            at = positions_of(x.shape[1], x.device, padding=padding, start=start)
            q = self.positions.queries(q, at)
        return q


class SharedCacheAttention(Layer):
    """Dense attention whose keys and values are shared: (b, n, dim) → (b, n, dim).

    Layer ``number`` attends to the keys and values of layer ``source``. Both find them in
    ``caches``, where the layer that makes them puts them.
    """

    shares_cache = True

    def __init__(self, attention: DenseAttention, number: int, source: int) -> None:
        super().__init__()
        self.number, self.source = number, source
        own = attention.heads
        self.heads: Any = own if number == source else QueryHeads(own)
        self.attend, self.causal = attention.attend, attention.causal

    def forward(
        self, x: Tensor, padding: Tensor | None = None, *, caches: Caches | None = None
    ) -> Tensor:
        """What each token takes from the others; ``padding`` (b, n) is True at real tokens."""
        if self.number == self.source:
            q, k, v = self.heads.project(x, padding=padding)
            if caches is not None:
                caches[self.number] = KeyValueCache(k, v)
        else:
            k, v = self._found(caches)
            q = note("queries", self.heads.queries(x, padding=padding))
            note("keys", k)
            note("values", v)
        mask = note("mask", patterns.visible(self.causal, padding))
        bias = self.heads.bias(q.shape[2], k.shape[2], padding)
        return self._merged(q, k, v, mask, bias)

    def step(
        self, x: Tensor, state: KeyValueCache | None = None, *, caches: Caches | None = None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """The next t tokens. The state of a layer that reads another's cache is None."""
        self.heads.refuse_step(self.causal)
        if self.number == self.source:
            q, k, v = self.heads.project(x, start=0 if state is None else state.length)
            state = KeyValueCache.extended(state, k, v)
            if caches is not None:
                caches[self.number] = state
            k, v = state
        else:
            k, v = self._found(caches)
            q = note("queries", self.heads.queries(x, start=k.shape[2] - x.shape[1]))
        note("keys", k)
        note("values", v)
        bias = self.heads.bias(q.shape[2], k.shape[2])
        return self._merged(q, k, v, note("mask", patterns.causal()), bias), state

    def _found(self, caches: Caches | None) -> KeyValueCache:
        if caches is None or self.source not in caches:
            raise ValueError(
                f"layer {self.number} attends to the keys and values of layer {self.source}: call "
                "the model, not this layer alone"
            )
        return caches[self.source]

    def _merged(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any) -> Tensor:
        given = {} if bias is None else {"bias": bias}
        out: Tensor = self.heads.merge(self.attend(q, k, v, mask=mask, **given))
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
    usual = isinstance(attention, DenseAttention) and type(attention.heads) is Heads
    if not usual or type(attention)._attend is not DenseAttention._attend:  # type: ignore[attr-defined]
        raise ValueError(
            f"layer {number} is to share a cache, and attention={name!r} has no keys and values "
            "that another layer could attend to; take 'full' or 'multi_query' for these layers"
        )


def _check_equal(attentions: Sequence[Any], number: int, source: int) -> None:
    ours, theirs = attentions[number].heads, attentions[source].heads
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
