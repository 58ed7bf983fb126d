"""Perceiver IO: its block by the equation, and what the order of things does not change."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.mechanisms.latents.perceiver_io import Block, PerceiverIO, PerceiverIOOptions

DIM, HEADS = 12, 3


def made(form: str = "fused", **options: object) -> PerceiverIO:
    torch.manual_seed(0)
    layer = attnlab.build("perceiver_io", dim=DIM, heads=HEADS, form=form, **options)
    assert isinstance(layer, PerceiverIO)
    nn.init.normal_(layer.latents)  # far from each other
    return layer.double().eval()


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def block_by_hand(block: Block, x: Tensor, y: Tensor) -> Tensor:
    """The block of one x (n, dim) and y (m, dim), by PyTorch's own attention layer."""
    heads = block.heads
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([heads.query.weight, heads.key.weight, heads.value.weight])
        )
        theirs.out_proj.weight.copy_(heads.output.weight)
    normed = {
        name: lambda z, norm=norm: F.layer_norm(z, (DIM,), norm.weight, norm.bias)
        for name, norm in block.norms.items()
    }
    keys = normed["y"](y)
    taken = theirs(normed["x"](x), keys, keys)[0]
    a = x + taken if block.residual else taken
    into, _, out = block.mlp
    hidden = F.gelu(normed["mlp"](a) @ into.weight.T + into.bias)
    return a + hidden @ out.weight.T + out.bias


@pytest.mark.parametrize("form", ["naive", "fused"])
@pytest.mark.parametrize("residual", [True, False])
def test_it_encodes_processes_and_decodes(form: str, residual: bool) -> None:
    layer = made(form, latents=5, depth=2, widening=2, residual=residual)
    x, queries = random(2, 7, DIM), random(2, 3, DIM, seed=2)
    out = layer(x, queries=queries)
    for row in range(2):
        z = block_by_hand(layer.encode, layer.latents, x[row])
        for block in layer.process:
            z = block_by_hand(block, z, z)
        torch.testing.assert_close(out[row], block_by_hand(layer.decode, queries[row], z))


def test_the_order_of_inputs_and_of_latents_does_not_matter() -> None:
    layer, x, queries = made(latents=5), random(2, 11, DIM), random(2, 3, DIM, seed=2)
    out = layer(x, queries=queries)
    torch.testing.assert_close(layer(x[:, torch.randperm(11)], queries=queries), out)
    with torch.no_grad():
        layer.latents.copy_(layer.latents[torch.randperm(5)])
    torch.testing.assert_close(layer(x, queries=queries), out)


def test_an_output_depends_on_its_own_query_only() -> None:
    layer, x, queries = made(), random(2, 11, DIM), random(2, 5, DIM, seed=2)
    out = layer(x, queries=queries)
    torch.testing.assert_close(layer(x, queries=queries[:, 3:4]), out[:, 3:4])
    other = queries.clone()
    other[:, :3] = 9
    torch.testing.assert_close(layer(x, queries=other)[:, 3:], out[:, 3:])


def test_without_queries_the_inputs_ask() -> None:
    layer, x = made(), random(2, 7, DIM)
    torch.testing.assert_close(layer(x), layer(x, queries=x))


def test_padded_inputs_change_nothing() -> None:
    layer, x = made(), random(2, 7, DIM)
    padding = torch.arange(7) < torch.tensor([[4], [7]])
    alone = layer(x[:1, :4])
    torch.testing.assert_close(layer(x, padding)[:1, :4], alone)
    nan = x.masked_fill(~padding[..., None], torch.nan)
    torch.testing.assert_close(layer(nan, padding, queries=x)[0], layer(x, padding, queries=x)[0])


def test_what_does_not_fit_is_refused() -> None:
    layer = made()
    with pytest.raises(ValueError, match="dim is 8, expected 12 as in `x`"):
        layer(random(2, 7, DIM), queries=random(2, 3, 8))
    with pytest.raises(ValueError, match="depth"):
        PerceiverIOOptions(depth=-1)
    with pytest.raises(ValueError, match="depth should be at most 1000, got 1,001"):
        PerceiverIOOptions(depth=1001)
    assert repr(made(depth=0)).startswith(f"PerceiverIO(\n  dim={DIM}, depth=0, form='fused'")
