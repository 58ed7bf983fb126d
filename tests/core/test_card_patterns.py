"""Every pattern that a mechanism attends under is read from its own code."""

from typing import Any

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.patterns import Pattern, read
from attnlab.core.probe import record
from attnlab.core.sparse.attention import PatternOptions
from tests.test_claims import extra_inputs

BOTH = [False, True]
VARIANTS = [
    pytest.param(card, variant, causal, id=f"{card.name}-{at}-{'causal' if causal else 'all'}")
    for card in attnlab.cards()
    if card.mixes
    for at, variant in enumerate(({}, *card.variants))
    for causal in BOTH
    if card.causal != ("never" if causal else "always")
]


def patterns_of(module: nn.Module, card: Any) -> list[Pattern]:
    """What the module attends under: the masks that it notes, and what it keeps."""
    with record() as notes:
        module(torch.randn(2, 30, 12), **extra_inputs(card, torch.ones(2, 30, dtype=torch.bool)))
    kept = [value for part in module.modules() for value in vars(part).values()]
    noted = [value for _, value in notes]
    return [value for value in (*kept, *noted) if isinstance(value, Pattern)]


@pytest.mark.parametrize(("card", "variant", "causal"), VARIANTS)
def test_the_code_of_a_mechanisms_pattern_is_read(
    card: Any, variant: dict[str, Any], causal: bool
) -> None:
    chosen = {name: value for name, value in variant.items() if name in card.option_names()}
    module = attnlab.build(card.name, dim=12, heads=6, causal=causal, **chosen)
    found = patterns_of(module, card)
    assert found or not issubclass(card.options, PatternOptions)
    for pattern in found:
        assert read(pattern.code) == read(pattern.key) == pattern
