"""Layers of other packages, built with the widths that ours have, for timing in the same run.

Each adapter gives the package's module and a function from (1, n, dim) to its output. What a
package computes for a query is often more than what the query sees: `work` says so.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.suggest import choose
from attnlab.mechanisms.learned.sinkhorn.blocks import ITERATIONS

Layer = Callable[[Tensor], Tensor]
Made = tuple[nn.Module, Layer]


@dataclass(frozen=True)
class Peer:
    """A package's layer beside one of our mechanisms; `make(n, dim, heads)` builds it.

    `imports` is the module that must be there; `work` says which keys a query of the layer sees,
    and of which keys products are computed.
    """

    name: str
    imports: str
    mechanism: str
    make: Callable[[int, int, int], Made]
    work: str

    @property
    def missing(self) -> str:
        """Why it cannot be built; empty where it can."""
        if find_spec(self.imports):
            return ""
        return f"{self.imports} is not installed: pip install 'attnlab[peers]'"


def linformer(n: int, dim: int, heads: int, *, k: int) -> Made:
    """E and F shared by the heads; its output has a bias."""
    from linformer import LinformerSelfAttention

    layer = LinformerSelfAttention(dim, n, k=k, heads=heads)
    return layer, layer


def longformer(n: int, dim: int, heads: int, *, window: int) -> Made:
    """Three projections; three more for global tokens, of which there are none."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        attention_window=[window],
        attention_probs_dropout_prob=0.0,
    )
    layer, real = LongformerSelfAttention(config, 0), torch.zeros(1, n)

    def call(x: Tensor) -> Tensor:
        none = real > 0
        out: Tensor = layer(
            x,
            attention_mask=real,
            is_index_masked=none,
            is_index_global_attn=none,
            is_global_attn=False,
        )[0]
        return out

    return layer, call


def big_bird(n: int, dim: int, heads: int, *, block: int, random: int) -> Made:
    """The sparse layer in training mode; in evaluation its random blocks are all block 0."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdModel,
    )

    config = BigBirdConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        block_size=block,
        num_random_blocks=random,
        max_position_embeddings=n,
        attention_probs_dropout_prob=0.0,
    )
    layer = BigBirdBlockSparseAttention(config).train()
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, n), block)
    names = ("from_blocked_mask", "band_mask", "from_mask", "to_mask")
    known = dict(zip(names, masks, strict=True))
    known["to_blocked_mask"] = known["from_blocked_mask"]

    def call(x: Tensor) -> Tensor:
        out: Tensor = layer(x, **known)[0]
        return out

    return layer, call


def reformer(n: int, dim: int, heads: int, *, chunk: int, rounds: int, causal: bool = True) -> Made:
    from reformer_pytorch.reformer_pytorch import LSHSelfAttention

    layer = LSHSelfAttention(dim, heads=heads, bucket_size=chunk, n_hashes=rounds, causal=causal)
    return layer, layer


def sinkhorn(n: int, dim: int, heads: int, *, block: int, iterations: int | None) -> Made:
    """Blocks are scored by products of their means, without a network; its output has a bias."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

    layer = SinkhornSelfAttention(
        dim, block, n, heads=heads, non_permutative=False, sinkhorn_iter=iterations or ITERATIONS
    )
    return layer, layer


def local_attention(n: int, dim: int, heads: int, *, window: int) -> Made:
    """Blocks of half a window, each with its two neighbours; queries and keys are rotated."""
    from local_attention import LocalMHA

    layer = LocalMHA(
        dim=dim, window_size=window // 2, dim_head=dim // heads, heads=heads, causal=False,
        exact_windowsize=True,
    )  # fmt: skip
    return layer, layer


def performer(n: int, dim: int, heads: int) -> Made:
    with warnings.catch_warnings():  # it compares versions by distutils, gone from Python 3.12
        warnings.simplefilter("ignore", DeprecationWarning)
        from performer_pytorch import SelfAttention
    with redirect_stdout(StringIO()):  # it prints what CUDA extensions it has not
        layer = SelfAttention(dim, heads=heads, dim_head=dim // heads)
    return layer, layer


def linear_attention(n: int, dim: int, heads: int) -> Made:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    layer = SelfAttention(dim, heads)
    return layer, layer


def x_transformers(n: int, dim: int, heads: int) -> Made:
    from x_transformers.x_transformers import Attention

    layer = Attention(dim, dim_head=dim // heads, heads=heads, flash=True)
    return layer, lambda x: _first(layer(x))


def projected(dim: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Made:
    """Four projections around a function of queries, keys and values, each (b, n, h, d)."""
    layer = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in "qkvo"})

    def call(x: Tensor) -> Tensor:
        q, k, v = (layer[name](x).unflatten(-1, (heads, -1)) for name in "qkv")
        out: Tensor = layer["o"](attend(q, k, v).flatten(2))
        return out

    return layer, call


def entmax(n: int, dim: int, heads: int) -> Made:
    """The package has the function only; four projections are added."""
    from entmax import entmax15

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out: Tensor = entmax15(q @ k.mT / math.sqrt(dim // heads), dim=-1) @ v
        return out.transpose(1, 2)

    return projected(dim, heads, attend)


def _first(out: Any) -> Tensor:
    found: Tensor = out[0] if isinstance(out, tuple) else out
    return found


def _with(adapter: Callable[..., Made], mechanism: str, **names: str) -> Callable[..., Made]:
    """The adapter, given those options that our mechanism has by default: theirs → our name."""

    def make(n: int, dim: int, heads: int) -> Made:
        from attnlab import catalog

        options = catalog.card(mechanism).options()
        return adapter(
            n, dim, heads, **{own: getattr(options, ours) for own, ours in names.items()}
        )

    return make


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "x-transformers", "x_transformers", "full", x_transformers,
            "all n keys seen and computed, by PyTorch's fused attention",
        ),
        Peer(
            "local-attention", "local_attention", "longformer",
            _with(local_attention, "longformer", window="window"),
            "w + 1 keys seen, 1.5 w computed; queries and keys are rotated",
        ),
        Peer(
            "Hugging Face Longformer", "transformers", "longformer",
            _with(longformer, "longformer", window="window"),
            "w + 1 keys seen, 2 w computed; no output projection",
        ),
        Peer(
            "Hugging Face BigBird", "transformers", "bigbird",
            _with(big_bird, "bigbird", block="block", random="random"),
            "the same blocks seen and computed; no output projection",
        ),
        Peer(
            "linformer", "linformer", "linformer", _with(linformer, "linformer", k="k"),
            "all n keys seen in k sums, which are computed",
        ),
        Peer(
            "performer-pytorch", "performer_pytorch", "performer", performer,
            "all n keys seen in sums over d log d random features, as ours",
        ),
        Peer(
            "linear-attention-transformer", "linear_attention_transformer", "linear",
            linear_attention,
            "all n keys seen in sums; softmax of queries over their width, of keys over the length",
        ),
        Peer(
            "reformer-pytorch", "reformer_pytorch", "reformer",
            _with(lambda *a, **k: reformer(*a, **k, causal=False), "reformer", chunk="chunk",
                  rounds="rounds"),
            "in each round two chunks of keys seen and computed; n is a multiple of two chunks",
        ),
        Peer(
            "sinkhorn-transformer", "sinkhorn_transformer", "sinkhorn",
            _with(sinkhorn, "sinkhorn", block="block", iterations="iterations"),
            "the sorted and the own block seen and computed",
        ),
        Peer(
            "entmax", "entmax", "entmax", entmax,
            "all n keys seen and computed, a sort of each row; α = 1.5",
        ),
    )
}  # fmt: skip


def peer(name: str) -> Peer:
    """The peer of that name; an unknown one is answered with the nearest."""
    return choose("peer", name, PEERS)
