"""The attention of models that were not written here: where it stands, and what its weights are.

Known are ``nn.MultiheadAttention``, and of Transformers GPT-2, BERT and Llama. Each is read into a
``Source``: projections as (out, in) matrices with the heads one after the other, as
``attnlab.core.heads`` has them, whatever layout the library stores.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn


class Projection(NamedTuple):
    """A linear map: (out, in), and what it adds, if anything."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Source:
    """What one attention module was built with.

    ``scale`` multiplies its scores; ``causal`` is None where the module does not know it. ``then``
    is what it does after its output projection, ``rotary`` whether it is given rotary positions.
    ``joined`` is the module beside it that holds its output projection, as in BERT.
    """

    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    causal: bool | None
    parts: Mapping[str, Projection]
    dropout: float = 0.0
    then: nn.Module = field(default_factory=nn.Identity)
    rotary: bool = False
    joined: nn.Module | None = None


class Found(NamedTuple):
    """A module of attention: its address in the model, itself, and the module that holds it."""

    name: str
    module: nn.Module
    parent: nn.Module


def attention_of(model: nn.Module) -> Iterator[Found]:
    """The self-attention that is known here, wherever it stands; cross-attention is passed over."""
    for address, parent in model.named_modules(remove_duplicate=False):
        for name, child in parent._modules.items():
            crosses = getattr(child, "is_cross_attention", False) or (
                isinstance(parent, nn.TransformerDecoderLayer) and name == "multihead_attn"
            )
            if type(child).__name__ in READERS and not crosses:
                yield Found(f"{address}.{name}".lstrip("."), child, parent)


def source_of(found: Found) -> Source:
    """What is to be taken over; a ValueError where the module does what no layer here does."""
    return READERS[type(found.module).__name__](found.module, found.parent)


def _of_torch(module: Any, _: nn.Module) -> Source:
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "replace takes over nn.MultiheadAttention with keys and values of the width of its "
            "queries, without add_bias_kv and add_zero_attn"
        )
    weights = module.in_proj_weight.chunk(3)
    added = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    pairs = zip(("query", "key", "value"), weights, added, strict=True)
    parts = {name: Projection(weight, bias) for name, weight, bias in pairs}
    parts["output"] = _linear(module.out_proj)
    heads, d = module.num_heads, module.head_dim
    return Source(module.embed_dim, heads, heads, d, d**-0.5, None, parts, module.dropout)


def _of_gpt2(module: Any, _: nn.Module) -> Source:
    weights, added = module.c_attn.weight.T.chunk(3), module.c_attn.bias.chunk(3)  # a Conv1D
    pairs = zip(("query", "key", "value"), weights, added, strict=True)
    parts = {name: Projection(weight, bias) for name, weight, bias in pairs}
    parts["output"] = Projection(module.c_proj.weight.T, module.c_proj.bias)
    return Source(
        module.embed_dim, module.num_heads, module.num_heads, module.head_dim, module.scaling,
        module.is_causal, parts, module.attn_dropout.p, module.resid_dropout,
    )  # fmt: skip


def _of_bert(module: Any, parent: Any) -> Source:
    parts = {name: _linear(getattr(module, name)) for name in ("query", "key", "value")}
    parts["output"] = _linear(parent.output.dense)
    heads, d = module.num_attention_heads, module.attention_head_size
    return Source(
        module.query.in_features, heads, heads, d, module.scaling, module.is_causal, parts,
        module.dropout.p, joined=parent.output,
    )  # fmt: skip


def _of_llama(module: Any, _: nn.Module) -> Source:
    linears = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    parts = {name: _linear(getattr(module, own)) for name, own in linears.items()}
    heads = module.q_proj.out_features // module.head_dim
    return Source(
        module.q_proj.in_features, heads, heads // module.num_key_value_groups, module.head_dim,
        module.scaling, module.is_causal, parts, module.attention_dropout, rotary=True,
    )  # fmt: skip


def _linear(module: nn.Module) -> Projection:
    if not isinstance(module, nn.Linear):
        raise ValueError(
            f"replace copies the weights of nn.Linear, and this projection is a "
            f"{type(module).__name__}; load the model without quantisation or adapters"
        )
    return Projection(module.weight, module.bias)


READERS: dict[str, Callable[[Any, Any], Source]] = {
    "MultiheadAttention": _of_torch,
    "GPT2Attention": _of_gpt2,
    "BertSelfAttention": _of_bert,
    "LlamaAttention": _of_llama,
}
"""The class that is known → how it is read."""
