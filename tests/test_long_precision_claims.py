"""Thousands of tokens in half precision: what a layer carries is not rounded to it.

A sum that is kept in bfloat16 stops growing at 256 times its terms. Every mechanism that decodes
reads 3,000 tokens, at once and 10 by 10, and is compared with itself in float64; one that keeps all
keys, and so has no sum to carry, reads 500.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.core.card import Card
from tests.test_claims import CARDS, module_forms

DIM, HEADS, PIECE = 16, 2, 10
LASTS: dict[str, tuple[str, Any, Any]] = {
    "block_recurrent": ("update.gate.bias", ..., 6.0),
    "brc": ("biases", 1, 8.0),
    "gru": ("biases", 1, 8.0),
    "lstm": ("biases", slice(2), torch.tensor([[-8.0], [8.0]])),
    "nbrc": ("biases", 1, 8.0),
    "rwkv": ("decay", ..., -9.0),
}
"""The parameter (and where in it) by which a state is a sum of thousands of tokens."""
ROUNDED = {"lightning": 8}
"""Queries, keys and values that are rounded as sums and again by their function: each of the two
moves outputs by 2.2 to 3.5 units, if all else is computed in float64."""
CHOOSES = {"deepseek_sparse", "memorizing_transformer", "routing_transformer"}
"""Of keys that score alike they choose others in half precision; the mean is the same."""


def built(card: Card, **form: str) -> nn.Module:
    more = {"max_len": 4096} if "max_len" in card.option_names() else {}
    layer = attnlab.build(card.name, dim=DIM, heads=HEADS, causal=True, **more, **form).eval()
    if card.name in LASTS:
        name, where, value = LASTS[card.name]
        with torch.no_grad():
            layer.get_parameter(name)[where] = value
    return layer


DECODES = [card for card in CARDS if card.causal != "never" and hasattr(built(card), "step")]


def tensors(state: Any) -> list[Tensor]:
    parts = state if isinstance(state, tuple) else ()
    return [state] if isinstance(state, Tensor) else [x for part in parts for x in tensors(part)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("card", DECODES, ids=lambda card: card.name)
@torch.no_grad()
def test_thousands_of_tokens_in_half_precision(card: Card, dtype: torch.dtype) -> None:
    layer = built(card).to(dtype)
    x = (1 + 0.5 * torch.randn(1, 3000, DIM)).to(dtype)
    few, more = ([part.shape for part in tensors(layer.step(x[:, :n])[1])] for n in (8, 16))
    x = x if few == more else x[:, :500]
    exact = copy.deepcopy(layer).double()(x.double())
    near(card, layer(x), exact)
    state, parts = None, []
    for piece in x.split(PIECE, dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    near(card, torch.cat(parts, dim=1), exact)
    if {"form": "recurrent"} in module_forms(card):
        recurrent = built(card, form="recurrent").to(dtype)
        recurrent.load_state_dict(layer.state_dict())
        near(card, recurrent(x), exact)


def near(card: Card, out: Tensor, exact: Tensor) -> None:
    """Each output within 4 units in the last place of the largest (or as ``ROUNDED`` says), and
    within half of one the mean of the last 200, in which roundings cancel and what a state has lost
    does not."""
    unit = torch.finfo(out.dtype).eps * exact.abs().max()
    away = out.double() - exact
    assert away[:, -200:].mean(dim=1).abs().max() <= unit / 2
    if card.name not in CHOOSES:
        assert away.abs().max() <= ROUNDED.get(card.name, 4) * unit
