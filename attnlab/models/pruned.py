"""A trained model with fewer of its layers.

Layers that were trained to do without their neighbours (``depth="layer_drop"``) can be taken out
without training again; others want some more training afterwards.
"""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from attnlab.core.integers import check_integer
from attnlab.models import parts
from attnlab.models.layers import Stack
from attnlab.models.options import Options
from attnlab.models.tiny import TinyTransformer, check_model

PER_LAYER = ("attention", "attention_options")


def pruned(model: TinyTransformer, kept: Sequence[int]) -> TinyTransformer:
    """A copy that has the layers ``kept`` alone, counted from 1, in the order of the model.

    An encoder-decoder keeps the same layers of both. The copy computes what the model computes with
    ``depth="layer_drop", depth_options={"kept": kept}``. A ValueError where layers share their
    parameters, or the depth has parameters of its own.
    """
    check_model(model)
    model = getattr(model, "_orig_mod", model)
    chosen = _checked(kept, model.config["layers"])
    smaller = copy.deepcopy(model)
    smaller.config = _config(model.config, chosen)
    for stack in (part for part in smaller.children() if isinstance(part, Stack)):
        _refuse(stack, model.config["depth"])
        stack.blocks = nn.ModuleList(stack.blocks[number - 1] for number in chosen)
        stack.depth = parts.depth(Options(**smaller.config)).train(stack.training)
    return smaller


def _checked(kept: Sequence[int], layers: int) -> list[int]:
    chosen = sorted({check_integer("each of kept", number, at_least=1) for number in kept})
    if not chosen or chosen[-1] > layers:
        raise ValueError(
            f"kept should name some of the {layers} layers, counted from 1, got {list(kept)}"
        )
    return chosen


def _config(config: dict[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
    own = copy.deepcopy(config) | {"layers": len(chosen)}
    for name in PER_LAYER:
        if isinstance(own[name], list):
            own[name] = [own[name][number - 1] for number in chosen]
    if own["depth_options"]:
        own["depth_options"].pop("kept", None)
    return own


def _refuse(stack: Stack, depth: str) -> None:
    if len({id(block) for block in stack.blocks}) < len(stack.blocks) or any(
        True for _ in stack.depth.parameters()
    ):
        raise ValueError(
            f"depth={depth!r} has layers that belong together, so none can be taken out; train a "
            "model with fewer layers"
        )
