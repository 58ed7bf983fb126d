"""Three layers of chance on the same tokens: MoBA, NSA and DeepSeek's sparse attention."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from attnlab.catalog import build
from attnlab.lens.watch import watch
from attnlab_widgets.layer_choices import LayerChoices

_TOKENS, _DIM = 32, 16
_LAYERS: dict[str, dict[str, Any]] = {
    "moba": {"block": 4, "chosen": 3},
    "nsa": {"stretch": 4, "stride": 2, "block": 4, "chosen": 4, "window": 4, "kv_heads": 1},
    "deepseek_sparse": {"chosen": 8},
}


def example(tokens: Sequence[str] | None = None, n: int = _TOKENS) -> LayerChoices:
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        layers = nn.ModuleDict(
            {
                name: build(name, dim=_DIM, heads=2, causal=True, **options)
                for name, options in _LAYERS.items()
            }
        )
        x = 3 * torch.randn(1, n, _DIM)
    with torch.no_grad(), watch(layers) as seen:
        for layer in layers.values():
            layer(x)
    return LayerChoices(seen, tokens)


def hostile(words: Sequence[str]) -> LayerChoices:
    return example([*words] * 3, 3 * len(words))
