"""A new document begins in one row of a batch: its state is that of the beginning, others go on."""

import pytest
import torch

import attnlab


@pytest.mark.parametrize("name", ["s4d", "selective_scan", "h3", "gss", "retention"])
def test_a_row_whose_document_ended_begins_anew(name: str) -> None:
    layer = attnlab.build(name, dim=8, heads=2, causal=True).double().eval()
    before, after = torch.randn(2, 2, 7, 8, dtype=torch.float64)
    _, state = layer.step(before)
    out, _ = layer.step(after, state.cleared(torch.tensor([True, False])))
    torch.testing.assert_close(out[:1], layer.step(after[:1])[0])
    torch.testing.assert_close(out[1:], layer.step(after, state)[0][1:])
    with pytest.raises(ValueError, match="one bool for each of the 2 sequences"):
        state.cleared(torch.tensor([True]))
