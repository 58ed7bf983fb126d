"""Mixtures of experts: ``grouped`` gives what the loop gives in every precision."""

import pytest
import torch

from attnlab import catalog
from attnlab.core.experts import COMPUTE
from attnlab.core.shapes import regrouped
from attnlab.testing.mechanisms import Sizes, gradients, inputs, required, variants

NAMES = ("switch", "gshard", "expert_choice", "modality_experts")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", NAMES)
def test_the_forms_agree_in_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    card = catalog.card(name)
    naive, grouped = (card.forms[each] for each in COMPUTE)
    torch.manual_seed(0)
    sizes = Sizes(b=2, n=29, dim=5, f=7, E=3)
    made = [x.requires_grad_() for x in inputs(naive, sizes, dtype)]
    given = regrouped(naive, dict(zip(required(naive), made, strict=True)))
    padding = torch.arange(29).expand(2, 29) % 5 > 0
    for variant in variants(card):
        options = {"padding": padding, **card.arguments(naive, variant)}
        outs = [form(**given, **options) for form in (naive, grouped)]
        assert outs[0].dtype == outs[1].dtype == dtype
        torch.testing.assert_close(*outs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        for one, other in zip(*(gradients(out, made) for out in outs), strict=True):
            close = TOLERANCE[dtype] * max(1.0, one.abs().max().item())
            torch.testing.assert_close(other, one, rtol=0, atol=close)
