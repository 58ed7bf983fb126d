"""State space duality: a scan whose decay is one number per token is linear attention under a mask,
and what any state lets through has at most its rank."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import attnlab
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence import retention, selective_scan
from attnlab.mechanisms.recurrence.selective_scan import SelectiveScan, SelectiveScanOptions

EVERY = pytest.mark.parametrize("form", selective_scan.FORMS.values(), ids=selective_scan.FORMS)
N = 13


def drawn(dim: int = 5, r: int = 3) -> list[Tensor]:
    """x, log A (one number per channel), steps, B, C and D."""
    torch.manual_seed(1)
    shapes = ((2, N, dim), (dim, 1), (2, N, dim), (2, N, r), (2, N, r), (dim,))
    x, log_A, *rest = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [x, log_A.expand(-1, r), *rest]


def decays(delta: Tensor, A: float) -> Tensor:
    """L of one channel from its steps (n,), as products in plain numbers."""
    L = torch.zeros(len(delta), len(delta), dtype=torch.float64)
    for i in range(len(delta)):
        for j in range(i + 1):
            L[i, j] = math.prod(math.exp(delta[k] * A) for k in range(j + 1, i + 1))
    return L


@EVERY
def test_a_scalar_decay_makes_the_scan_linear_attention_under_a_mask(form) -> None:
    x, log_A, steps, B, C, D = given = drawn()
    out, delta = form(*given), F.softplus(steps)
    for b, channel in ((0, 0), (1, 4)):
        L = decays(delta[b, :, channel], -log_A[channel, 0].exp().item())
        values = delta[b, :, channel] * x[b, :, channel]
        wanted = (L * (C[b] @ B[b].mT)) @ values + D[channel] * x[b, :, channel]
        torch.testing.assert_close(out[b, :, channel], wanted)


@EVERY
@pytest.mark.parametrize("other", retention.FORMS.values(), ids=retention.FORMS)
def test_a_decay_that_never_changes_is_retention(other, form) -> None:
    """Two heads of three channels each; C are the queries, B the keys, the steps times x values."""
    x, _, _, B, C, D = drawn(dim=6, r=4)
    gamma = torch.tensor([31 / 32, 63 / 64], dtype=torch.float64).repeat_interleave(3)
    delta = F.softplus(torch.tensor(0.3, dtype=torch.float64))
    log_A = (-gamma.log() / delta).log()[:, None].expand(-1, 4)
    found = form(x, log_A, torch.full_like(x, 0.3), B, C, torch.zeros_like(D))
    q, k = (each[:, None].expand(-1, 2, -1, -1) for each in (C, B))
    values = (delta * x).unflatten(-1, (2, 3)).transpose(1, 2)
    more = {"options": retention.RetentionOptions(chunk=5)} if other is retention.chunked else {}
    wanted = other(q, k, values, **more)
    torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2))


@EVERY
def test_a_decay_of_one_is_the_causal_sum_of_linear_attention(form) -> None:
    x, log_A, steps, B, C, D = drawn()
    out = form(x, torch.full_like(log_A, -math.inf), steps, B, C, D)
    wanted = (C @ B.mT).tril() @ (F.softplus(steps) * x) + D * x
    torch.testing.assert_close(out, wanted)


@torch.no_grad()
def test_a_layer_with_scalar_decay() -> None:
    torch.manual_seed(2)
    made = SelectiveScan(
        6, options=SelectiveScanOptions(state=3, expand=1, decay="scalar")
    ).double()
    assert made.log_A.shape == (6, 1)
    assert (made.log_A.exp() >= 1).all()
    assert (made.log_A.exp() <= 16).all()
    assert made.log_A.unique().numel() == 6
    x = torch.randn(2, N, 6, dtype=torch.float64)
    found = mixing_matrix(made, x).matrix
    _, _, steps, B, C = made._selected(made.into(x).chunk(2, dim=-1)[0], None)
    delta = F.softplus(steps)
    for b, channel in ((0, 5), (1, 2)):
        L = decays(delta[b, :, channel], -made.log_A[channel, 0].exp().item())
        wanted = L * (C[b] @ B[b].mT) * delta[b, :, channel] + made.skip[channel] * torch.eye(N)
        torch.testing.assert_close(found[b, channel], wanted)


# ---- ranks below the diagonal


def sizes_beyond(rank: int, matrix: Tensor) -> Tensor:
    """Of every block of rows after a place and columns up to it, the singular value after the
    first ``rank`` in units of the largest; blocks of at most that size left out."""
    found = []
    for cut in range(rank + 1, matrix.shape[-1] - rank):
        values = torch.linalg.svdvals(matrix[..., cut:, :cut])
        found.append(values[..., rank] / values[..., 0])
    return torch.stack(found)


def test_the_mask_of_decays_is_one_semiseparable() -> None:
    _, log_A, steps, *_ = drawn()
    L = decays(F.softplus(steps[0, :, 0]), -log_A[0, 0].exp().item())
    assert sizes_beyond(1, L).max() < 1e-12
    assert torch.linalg.matrix_rank(L) == N


@pytest.mark.parametrize(
    ("name", "rank", "given"),
    [
        ("selective_scan", 3, {"state": 3}),
        ("selective_scan", 3, {"state": 3, "decay": "scalar"}),
        ("s4d", 4, {"state": 4, "longest": 0.5}),
        ("s4d", 2, {"state": 4, "initial": "real", "longest": 0.5}),
        ("retention", 4, {}),
    ],
)
def test_no_more_of_the_past_gets_through_than_the_state_holds(
    name: str, rank: int, given: dict[str, object]
) -> None:
    """And that much does: one singular value less is not enough."""
    torch.manual_seed(3)
    layer = attnlab.build(name, dim=8, heads=2, causal=True, **given).double().eval()
    found = mixing_matrix(layer, torch.randn(1, N, 8, dtype=torch.float64))
    assert found.exact
    assert sizes_beyond(rank, found.matrix).max() < 1e-9
    assert sizes_beyond(rank - 1, found.matrix).max() > 1e-7


def test_the_map_of_softmax_attention_has_no_such_bound() -> None:
    torch.manual_seed(3)
    layer = attnlab.build("full", dim=8, heads=2, causal=True).double().eval()
    found = mixing_matrix(layer, torch.randn(1, N, 8, dtype=torch.float64))
    assert sizes_beyond(4, found.matrix).max() > 1e-4
