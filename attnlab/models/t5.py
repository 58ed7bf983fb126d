r"""T5 as options of a ``TinyTransformer``: its sizes, its first weights, and those of Transformers.

T5 is an encoder-decoder that departs from the Transformer of 2017 in six places, each of which is
an option that any model here can have:

| of T5 | as an option |
| --- | --- |
| RMSNorm in front of each sublayer, nothing added to it | ``join="pre_norm"``, ``norm="rms_norm"``, ``epsilon=1e-6`` |
| scores without $1/\sqrt d$, in cross-attention too | ``attention_options={"scale": 1.0}`` |
| learned biases of 32 buckets of distances, in self-attention alone; one table for all layers of a stack | ``positions="t5_bias"`` |
| ReLU, no biases in any product | ``feed_options={"curve": "relu", "bias": False}`` |
| heads whose widths need not add up to the width of the stream (3B, 11B) | ``attention_options={"head_dim": 128}`` |
| the table of tokens is the output matrix too, and its logits are divided by $\sqrt{dim}$ | ``tie=True``, ``logit_scale=dim ** -0.5`` |

Version 1.1 (``gated=True``) has a gated GELU with three matrices in the place of ReLU with two, and
an output matrix of its own whose logits are not divided.

What $1/\sqrt d$ does elsewhere, the first weights do here: entries of $W_Q$ begin with a variance
of $1/(dim \cdot d)$, so a score begins with a variance of 1. The table begins with a variance of 1,
and the division by $\sqrt{dim}$ gives its logits the same.

``build``              a new T5, with the first weights of the released code.
``from_transformers``  the same model as one of Hugging Face's, with copies of its weights.

Departures.
- dropout, where it is asked for, is that of a ``TinyTransformer``: not on attention weights and not
  inside the feed-forward layer
- padding takes no position, so distances are those between real tokens; where padding comes last,
  as T5 has it, nothing differs
- an output matrix of its own begins with entries of variance 1 / dim, which is 1 in Transformers

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, sections 2.1 and 3.7.
Shazeer. GLU Variants Improve Transformer. 2020, arXiv:2002.05202, for version 1.1.
"""  # noqa: E501

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.integers import check_integer
from attnlab.core.options import Options, Size
from attnlab.mechanisms.positions.t5_bias import BucketBiases
from attnlab.models.tiny import TinyTransformer

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class T5Options(Options):
    """The sizes of a T5; the defaults are those of T5-Small.

    dim, layers: width of the stream, and layers of the encoder; the decoder has as many.
    heads, head_dim: heads of each attention, and the width of each.
    hidden: width of the feed-forward layers.
    gated: version 1.1: gated GELU, and an output matrix of its own.
    max_len: the longest text. No weight depends on it.
    buckets, max_distance: of the position biases.
    """

    dim: Size = 512
    layers: Size = 6
    heads: Size = 8
    head_dim: Size = 64
    hidden: Size = 2048
    gated: bool = False
    max_len: Size = 512
    buckets: Size = 32
    max_distance: Size = 128

    def model(self) -> dict[str, Any]:
        """The options of a ``TinyTransformer`` that is a T5 of this size."""
        relu = {"feed": "mlp", "feed_options": {"curve": "relu", "bias": False}}
        gelu = {"feed": "gated", "feed_options": {"gate": "gelu_tanh"}}
        return {
            "kind": "encoder_decoder",
            "dim": self.dim,
            "layers": self.layers,
            "heads": self.heads,
            "hidden": self.hidden,
            "max_len": self.max_len,
            "attention_options": {"scale": 1.0, "head_dim": self.head_dim},
            "positions": "t5_bias",
            "position_options": {"buckets": self.buckets, "max_distance": self.max_distance},
            "join_options": {"norm": "rms_norm", "shrink": False, "epsilon": EPSILON},
            "tie": not self.gated,
            "logit_scale": 1.0 if self.gated else self.dim**-0.5,
            **(gelu if self.gated else relu),
        }


VOCABULARY = 32_128
"""Rows of the released tables of tokens: 32,000 pieces, 100 sentinels and 28 unused ones."""

SIZES: Mapping[str, T5Options] = {
    "small": T5Options(),
    "base": T5Options(dim=768, layers=12, heads=12, hidden=3072),
    "large": T5Options(dim=1024, layers=24, heads=16, hidden=4096),
    "3b": T5Options(dim=1024, layers=24, heads=32, head_dim=128, hidden=16_384),
    "11b": T5Options(dim=1024, layers=24, heads=128, head_dim=128, hidden=65_536),
    "v1.1 small": T5Options(dim=512, layers=8, heads=6, hidden=1024, gated=True),
    "v1.1 base": T5Options(dim=768, layers=12, heads=12, hidden=2048, gated=True),
    "v1.1 large": T5Options(dim=1024, layers=24, heads=16, hidden=2816, gated=True),
    "v1.1 xl": T5Options(dim=2048, layers=24, heads=32, hidden=5120, gated=True),
    "v1.1 xxl": T5Options(dim=4096, layers=24, heads=64, hidden=10_240, gated=True),
}
"""The sizes of the paper (section 3.7), and those that were released as version 1.1."""


def build(vocab: int, sizes: T5Options | None = None, *, dropout: float = 0.0) -> TinyTransformer:
    """A new T5, whose first weights are drawn as in the released code.

    vocab: tokens in all. ``sizes`` are those of T5-Small unless given.
    """
    vocab = check_integer("vocab", vocab, at_least=1)
    if sizes is not None and not isinstance(sizes, T5Options):
        raise TypeError(
            f"sizes should be T5Options, such as SIZES['base'], got a {type(sizes).__name__}"
        )
    model = TinyTransformer(vocab, **(sizes or T5Options()).model(), dropout=dropout)
    draw(model)
    return model


@torch.no_grad()
def draw(model: TinyTransformer) -> None:
    """First weights of the variances of the released code, from PyTorch's generator, in place."""
    dim = model.dim
    for part in model.modules():
        if isinstance(part, Heads):
            d = part.head_dim
            part.query.weight.normal_(std=(dim * d) ** -0.5)
            for each in (part.key, part.value):
                each.weight.normal_(std=dim**-0.5)
            part.output.weight.normal_(std=(part.heads * d) ** -0.5)
        elif isinstance(part, BucketBiases):
            part.weight.normal_(std=dim**-0.5)
        elif isinstance(part, nn.Embedding):
            part.weight.normal_()
        elif isinstance(getattr(part, "contract", None), nn.Linear):
            for each in part.children():
                if isinstance(each, nn.Linear):
                    each.weight.normal_(std=each.in_features**-0.5)
    if model.output is not None:
        model.output.weight.normal_(std=dim**-0.5)


# ---- from Transformers


def from_transformers(model: Any, *, max_len: int = 512) -> TinyTransformer:
    """A T5 with copies of the weights of a ``T5ForConditionalGeneration`` of Transformers, in the
    same dtype, on the same device, and in the same mode.

    Raises TypeError for another model; ValueError where it has what no T5 here has: stacks of
    different depths, another curve.
    """
    if type(model).__name__ != "T5ForConditionalGeneration":
        raise TypeError(
            "from_transformers takes a T5ForConditionalGeneration of Transformers, "
            f"got a {type(model).__name__}"
        )
    o = model.config
    if o.num_decoder_layers != o.num_layers:
        raise ValueError(
            "encoder and decoder should have as many layers as each other, got "
            f"num_layers={o.num_layers} and num_decoder_layers={o.num_decoder_layers}"
        )
    if o.feed_forward_proj not in ("relu", "gated-gelu"):
        raise ValueError(
            "feed_forward_proj should be 'relu' (T5) or 'gated-gelu' (version 1.1), got "
            f"{o.feed_forward_proj!r}"
        )
    if o.layer_norm_epsilon != EPSILON:
        raise ValueError(
            f"layer_norm_epsilon should be {EPSILON:g}, that of every released T5, got "
            f"{o.layer_norm_epsilon!r}"
        )
    sizes = T5Options(
        dim=o.d_model, layers=o.num_layers, heads=o.num_heads, head_dim=o.d_kv, hidden=o.d_ff,
        gated=o.feed_forward_proj == "gated-gelu", max_len=max_len,
        buckets=o.relative_attention_num_buckets, max_distance=o.relative_attention_max_distance,
    )  # fmt: skip
    tied = model.lm_head.weight is model.shared.weight
    scale = o.d_model**-0.5 if o.scale_decoder_outputs else 1.0
    given = {**sizes.model(), "tie": tied, "logit_scale": scale}
    made = TinyTransformer(o.vocab_size, **given)
    made.to(model.shared.weight.device, model.shared.weight.dtype)
    made.load_state_dict(_renamed(model.state_dict(), made.state_dict(), gated=sizes.gated))
    return made.train(model.training)


def _renamed(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], *, gated: bool) -> Any:
    """Their tensors by our names; a table that several layers share here has a name in each."""
    return {name: theirs[_name(name, gated=gated)] for name in ours}


_HEADS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_ENDS = {"embedding": "shared.weight", "output": "lm_head.weight"}


def _name(ours: str, *, gated: bool) -> str:
    """The name in Transformers of one of our tensors."""
    parts = ours.split(".")
    side = parts[0]
    if side in _ENDS:
        return _ENDS[side]
    if parts[1] == "norm":
        return f"{side}.final_layer_norm.weight"
    layer, what = f"{side}.block.{parts[2]}.layer", parts[3]
    last = 2 if side == "decoder" else 1
    number = {"attention": 0, "cross": 1, "feed_forward": last}[what.removesuffix("_residual")]
    if what.endswith("_residual"):
        return f"{layer}.{number}.layer_norm.weight"
    if what == "feed_forward":
        of_gated = {"opens": "wi_0", "expand": "wi_1", "contract": "wo"}
        own = (of_gated if gated else {"expand": "wi", "contract": "wo"})[parts[4]]
        return f"{layer}.{number}.DenseReluDense.{own}.weight"
    if parts[5] == "positions":  # the table of the first layer
        return f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    attention = "EncDecAttention" if what == "cross" else "SelfAttention"
    return f"{layer}.{number}.{attention}.{_HEADS[parts[5]]}.weight"
