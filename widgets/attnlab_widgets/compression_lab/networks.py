"""What the page of CompressionLab is told of a model: its numbers, and what belongs together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.architecture.depth.plain import Plain
from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join.pre_norm import PreNorm
from attnlab.compression.matrices import linear_layers
from attnlab.core.modes import mode
from attnlab.lens.smaller import cuts_of, units_by_name
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.inputs import Reading
from attnlab.models.tiny import TinyTransformer

ADDED = "+ positions"
"""The name of what positions add to the vectors of tokens; it is no parameter to be cut."""
MASKED = 255
MOST_NUMBERS = 3_000_000
KINDS = ("classifier", "token_classifier", "language_model")


def check_model(model: Any, name: str = "model") -> TinyTransformer:
    """A TypeError or ValueError for a model that the widget cannot take apart."""
    if not isinstance(model, TinyTransformer):
        raise TypeError(
            f"`{name}` should be a TinyTransformer, or the name of a shipped model such as "
            f"'digits', got {type(model).__name__}"
        )
    if model.kind not in KINDS:
        raise ValueError(
            f"`{name}` is of kind {model.kind!r}, which reads two sequences; a language model or a "
            "classifier can be shown"
        )
    numbers = sum(p.numel() for p in model.parameters())
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"`{name}` has {numbers:,} parameters, and the page holds all of them: at most "
            f"{MOST_NUMBERS:,} can be shown"
        )
    cuts_of(model)
    return model


def runs(model: TinyTransformer) -> dict[str, Any] | None:
    """How the page computes the attention maps of a model; None for a model whose maps it leaves to
    Python, as it has more than softmax attention, two-layer networks and pre-norm."""
    stack: Any = model.decoder if model.kind == "language_model" else model.encoder
    table = model.embedding
    plain = type(table) in (nn.Linear, nn.Embedding) and type(stack.depth) is Plain
    blocks: Any = stack.blocks
    if not plain or not all(_standard(block) for block in blocks) or not len(blocks):
        return None
    return {
        "stack": "decoder" if model.kind == "language_model" else "encoder",
        "layers": len(blocks),
        "eps": blocks[0].attention_residual.norm.eps,
    }


def _standard(block: Any) -> bool:
    attention, feed = getattr(block, "attention", None), getattr(block, "feed_forward", None)
    joins = [getattr(block, f"{part}_residual", None) for part in ("attention", "feed_forward")]
    if type(attention) is not FullAttention or type(feed) is not MLP or block.cross is not None:
        return False
    heads = attention.heads
    same = heads.heads == heads.kv_heads and heads.head_dim == heads.value_dim
    norms = all(type(j) is PreNorm and type(j.norm) is nn.LayerNorm for j in joins)
    usual = attention.scale == heads.head_dim**-0.5 and feed.curve == "gelu"
    return same and norms and heads.positions is None and usual and feed.expand.bias is not None


class Packed:
    """Numbers of several networks, one behind the other, each as half precision where it holds
    them exactly."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.at = 0

    def add(self, tensors: Mapping[str, Tensor]) -> tuple[bool, list[Any]]:
        """Whether they are in half precision, and of each its name, its shape and where it
        begins."""
        given = {name: x.detach().cpu().float() for name, x in tensors.items()}
        half = all(torch.equal(x.half().float(), x) for x in given.values())
        told = []
        for name, x in given.items():
            data = x.numpy().astype("<f2" if half else "<f4").tobytes()
            data += bytes(-len(data) % 4)
            told.append([name, list(x.shape), self.at])
            self.parts.append(data)
            self.at += len(data)
        return half, told

    def all(self) -> bytes:
        return b"".join(self.parts)


def told_of(
    name: str, model: TinyTransformer, packed: Packed, example: Tensor, order: Sequence[Any],
    heads: Sequence[int], seeds: Sequence[float] = (),
) -> dict[str, Any]:  # fmt: skip
    """A network as the page knows it; its numbers are added to ``packed``."""
    names = {id(p): each for each, p in model.named_parameters()}
    layers = {
        each: names[id(layer.weight)]
        for each, layer in model.named_modules()
        if type(layer) in (nn.Linear, nn.Embedding)
    }
    linear = [layers[each] for each in linear_layers(model)]
    run = runs(model)
    shown = {each: p for each, p in model.named_parameters() if not each.startswith("positions.")}
    half, tensors = packed.add(shown | ({} if run is None else {ADDED: added(model, example)}))
    units = [
        [kind, [[layers[part], axis, width] for part, axis, width in parts]]
        for kind, _, parts in units_by_name(model)
    ]
    return {
        "name": name,
        "half": half,
        "tensors": tensors,
        "numbers": sum(p.numel() for p in model.parameters()),
        "matrices": linear,
        "tables": [each for each in dict.fromkeys(layers.values()) if each not in linear],
        "units": units,
        "order": [list(head) for head in order],
        "cuts": cuts_of(model),
        "run": run,
        "heads": list(heads),
        "causal": model.kind == "language_model",
        "seeds": list(seeds),
    }


@torch.no_grad()
def added(model: TinyTransformer, x: Tensor) -> Tensor:
    """What positions add to the vectors of an input (1, n, …): (n, dim)."""
    if model.positions is None:
        width = model.dim
        return torch.zeros(x.shape[1], width)
    with mode(model, training=False):
        home = next(model.parameters())
        zeros = torch.zeros(1, x.shape[1], model.dim, device=home.device, dtype=home.dtype)
        positions = Reading.of(model, x.to(home.device)).positions
        found: Tensor = model.positions(zeros, positions)
    return found[0]


def levels_of(maps: Sequence[Tensor], *, causal: bool) -> NDArray[np.uint8]:
    """Maps (h, n, n) of each layer as bytes: 254 · √weight, or 255 where a key comes later."""
    found = []
    for each in maps:
        levels = (254 * each.clamp(0, 1).sqrt()).round().to(torch.uint8)
        if causal:
            later = torch.ones(each.shape[-2:], dtype=torch.bool).triu(1)
            levels = levels.masked_fill(later, MASKED)
        found.append(levels.flatten())
    return torch.cat(found).numpy() if found else np.zeros(0, np.uint8)
