"""Parameter counts that Switch Transformers print, beside what the same models count here."""

import torch

from attnlab import catalog
from attnlab.models.published import Count
from attnlab.models.tiny import TinyTransformer

SWITCH = {16: 1100, 32: 2000, 64: 3800, 128: 7400, 256: 14_700}
"""Experts in each layer that has some → millions of parameters: Fedus, Zoph and Shazeer
(JMLR 2022, arXiv:2101.03961), table 7, of sparse models that are distilled into T5-Base (223
million). It lists sizes without numbers of experts; these are the powers of 2 that give them."""

SOURCE = "arXiv:2101.03961, table 7"
DIM, HIDDEN, LAYERS, VOCABULARY = 768, 3072, 12, 32_128


def switch_counts() -> list[Count]:
    """T5-Base (12 + 12 layers, printed with 223 million) in which every second feed-forward layer
    is a mixture of experts.

    All rows come out as printed, to a tenth of a billion. The exact numbers differ from those of
    the released models: T5 has no biases, here 3,840 for each expert among others; its distances
    have 768 learned biases, here positions are sinusoidal.
    """
    with torch.device("meta"):
        dense = TinyTransformer(
            VOCABULARY, dim=DIM, layers=LAYERS, heads=12, hidden=HIDDEN, kind="encoder_decoder",
            positions="sinusoidal", max_len=512,
        )  # fmt: skip
        feed = catalog.build("mlp", dim=DIM, hidden=HIDDEN)
        rest = _size(dense) - LAYERS * _size(feed)
        sizes = {
            experts: _size(catalog.build("switch", dim=DIM, hidden=HIDDEN, experts=experts))
            for experts in SWITCH
        }
    return [
        Count(f"Switch, {experts} experts", rest + LAYERS * sizes[experts], printed, SOURCE)
        for experts, printed in SWITCH.items()
    ]


def _size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
