"""Right inputs for the cards that mix no positions: ways to embed, encode and bias.

They are made from signatures, as those of mechanisms are (``tests/test_claims.py``).
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

import attnlab
from attnlab.core.card import Card
from attnlab.core.options import parameters_of
from attnlab.core.shapes import letters_of
from tests.test_claims import Sizes

NOT_MIXING = [card for card in attnlab.catalog.shelf() if not card.mixes]
VOCAB = 17
SIZES = Sizes(b=2, h=4, g=2, n=7, m=5, d=6, dim=10, p=300, vocab=VOCAB, rows=VOCAB)


def form_inputs(
    card: Card, form: str, given: Mapping[str, Any], dtype: torch.dtype, **lengths: int
) -> dict[str, Any]:
    """What a form takes without a default, tensors and a structure, under the ``given`` options."""
    sizes = Sizes(SIZES | lengths)
    sizes["B"] = getattr(form_options(card, form, given).get("options"), "buckets", 0)
    return drawn(card.forms[form], sizes, dtype)


def form_options(card: Card, form: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the ``given`` options that a form takes; a tensor ``norm`` is no option ``norm``."""
    tensors = letters_of(card.forms[form])
    own = {name: value for name, value in given.items() if name not in tensors}
    return card.arguments(card.forms[form], own)


def layer_inputs(layer: nn.Module, dim: int, heads: int, dtype: torch.dtype) -> dict[str, Any]:
    """Tensors that a scheme built with ``dim`` and ``heads`` is called with."""
    sizes = Sizes(b=2, h=heads, g=heads, n=7, m=5, d=max(dim // heads, 1), dim=dim, vocab=VOCAB)
    return drawn(layer.forward, sizes, dtype)


def drawn(function: Callable[..., Any], sizes: Sizes, dtype: torch.dtype) -> dict[str, Any]:
    """Tensors for the arguments without a default; positions are one row for all."""
    made = {}
    for name, contracts in letters_of(function).items():
        axes = [letter.lstrip("#") for letter in contracts[0].axes if letter != "..."]
        if inspect.signature(function).parameters[name].default is not inspect.Parameter.empty:
            continue
        if name == "tokens":
            made[name] = torch.randint(sizes["vocab"], [sizes[letter] for letter in axes])
        elif contracts[0].kind == "Int":
            made[name] = torch.randperm(sizes[axes[-1]])
        else:
            shape = [int(x) if x.isdigit() else sizes[x] for x in axes]
            made[name] = torch.randn(shape).to(dtype)
    if "structure" in inspect.signature(function).parameters:
        kind = parameters_of(function)["structure"]
        kind = next(iter(typing.get_args(kind)), kind)  # without its None
        made["structure"] = kind.example(torch.ones(sizes["b"], sizes["n"], dtype=torch.bool))
    return made


def build(card: Card, dim: int, heads: int, given: Mapping[str, Any]) -> nn.Module:
    """The scheme of a card, for a causal layer where it is given the choice."""
    own = {name: value for name, value in given.items() if name in card.option_names()}
    vocab = {"vocab": VOCAB} if "vocab" in card.option_names() else {}
    causal = card.causal != "never"
    return attnlab.build(card.name, dim=dim, heads=heads, causal=causal, **(vocab | own))
