"""Set Transformer: its blocks by the printed equations, and the symmetries of sets."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.core.latents import naive
from attnlab.mechanisms.latents.set_transformer import (
    ISAB,
    MAB,
    PMA,
    SAB,
    SetTransformerOptions,
)

DIM, HEADS = 12, 3


def mab_by_hand(block: MAB, x: Tensor, y: Tensor) -> Tensor:
    """MAB(X, Y) of one pair of sets (n, dim) and (m, dim), by the equation, head by head."""
    q, k, v = x @ block.heads.query.weight.T, y @ block.heads.key.weight.T, block.heads.value(y)
    heads = []
    for part in range(HEADS):
        own = slice(4 * part, 4 * part + 4)
        rows = [torch.stack([query @ key / 4**0.5 for key in k[:, own]]) for query in q[:, own]]
        heads.append(torch.stack([row.exp() / row.exp().sum() for row in rows]) @ v[:, own])
    h = F.layer_norm(x + torch.cat(heads, -1) @ block.heads.output.weight.T, (DIM,))
    linear = block.feed_forward[0]
    return F.layer_norm(h + (h @ linear.weight.T + linear.bias).clamp(min=0), (DIM,))


def made(kind: type[nn.Module], **options: object) -> nn.Module:
    torch.manual_seed(0)
    return kind(DIM, HEADS, **options).double().eval()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("form", ["naive", "fused"])
def test_blocks_are_those_of_the_paper(form: str) -> None:
    x, y = random(2, 5, DIM), random(2, 7, DIM)
    mab, sab = made(MAB, form=form), made(SAB, form=form)
    isab, pma = made(ISAB, form=form), made(PMA, seeds=2, form=form)
    rff = pma.feed_forward[0]
    for row in range(2):
        torch.testing.assert_close(mab(x, y)[row], mab_by_hand(mab, x[row], y[row]))
        torch.testing.assert_close(sab(x)[row], mab_by_hand(sab.block, x[row], x[row]))
        read = mab_by_hand(isab.reading, isab.inducing, x[row])
        torch.testing.assert_close(isab(x)[row], mab_by_hand(isab.answering, x[row], read))
        fed = (x[row] @ rff.weight.T + rff.bias).clamp(min=0)
        torch.testing.assert_close(pma(x)[row], mab_by_hand(pma.block, pma.seeds, fed))


@pytest.mark.parametrize("kind", [SAB, ISAB])
def test_permuting_the_members_permutes_the_outputs(kind: type[nn.Module]) -> None:
    layer, x = made(kind), random(2, 11, DIM)
    order = torch.randperm(11)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])
    assert not torch.allclose(layer(x[:, order]), layer(x))


def test_pooling_does_not_depend_on_the_order() -> None:
    model = nn.Sequential(made(ISAB), made(SAB), made(PMA, seeds=3))
    x, order = random(2, 11, DIM), torch.randperm(11)
    torch.testing.assert_close(model(x[:, order]), model(x))
    assert model(x).shape == (2, 3, DIM)


def test_padded_members_are_not_counted() -> None:
    x, padding = random(2, 11, DIM), torch.arange(11) < torch.tensor([[7], [4]])
    for kind in (SAB, ISAB):
        layer = made(kind)
        for row, count in ((0, 7), (1, 4)):
            alone = layer(x[row : row + 1, :count])[0]
            torch.testing.assert_close(layer(x, padding)[row, :count], alone)
    pool = made(PMA)
    torch.testing.assert_close(pool(x, padding)[1], pool(x[1:, :4])[0])


def test_a_set_without_members_is_refused_where_it_is_pooled() -> None:
    padding = torch.tensor([[True, False], [False, False]])
    with pytest.raises(ValueError, match="set 1 has no members"):
        made(PMA)(random(2, 2, DIM), padding)
    assert made(ISAB)(random(2, 2, DIM), padding).isfinite().all()


def test_without_normalisation_there_is_none() -> None:
    assert not any(isinstance(part, nn.LayerNorm) for part in made(MAB, norm=False).modules())
    layer = attnlab.build("isab", dim=DIM, heads=HEADS, norm=False, inducing=2)
    assert repr(layer).startswith("ISAB(\n  inducing=2, norm=False, form='fused'")
    assert layer.options == SetTransformerOptions(inducing=2, norm=False)


def test_the_inducing_points_limit_what_a_set_can_pass() -> None:
    """Without residual and feed-forward the map from values to outputs has rank l at most."""
    q, k, v = random(1, 1, 11, 16), random(1, 1, 11, 16), torch.eye(11, 16)[None, None].double()
    i = random(1, 1, 3, 16)
    assert torch.linalg.matrix_rank(naive(q, i, k, v)[0, 0]) == 3
