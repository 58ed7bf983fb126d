"""X-MoE's router: cosines in few dimensions, as an option of the layers that have a router."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core.charges import charged
from attnlab.core.experts import CosineRouter, probabilities
from attnlab.core.probe import record
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.copying import Copying
from attnlab.train import fit

B, N, DIM, E, R = 2, 11, 6, 5, 3
PAGES = ("switch", "gshard", "expert_choice")


def router() -> tuple[Tensor, CosineRouter]:
    torch.manual_seed(1)
    return torch.randn(B, N, DIM, dtype=torch.float64), CosineRouter(DIM, E, R).double()


def scores(x: Tensor, made: CosineRouter) -> Tensor:
    rows, directions = made.reads(x)
    return rows @ directions.mT


def layer(page: str, **options: object) -> torch.nn.Module:
    torch.manual_seed(1)
    given = {"dim": DIM, "hidden": 7, "experts": E, "router": "cosine", "rank": R}
    return catalog.build(page, **given | options).double()


def test_scores_are_cosines_divided_by_the_temperature() -> None:
    x, made = router()
    with torch.no_grad():
        made.log_temperature.fill_(math.log(0.07))
    for e in range(E):
        wanted = F.cosine_similarity(made.reduce(x), made.directions[e], dim=-1) / 0.07
        torch.testing.assert_close(scores(x, made)[..., e], wanted)
    assert scores(x, made).abs().max() <= 1 / 0.07


def test_lengths_of_tokens_and_of_directions_do_not_matter() -> None:
    x, made = router()
    before = scores(x, made)
    with torch.no_grad():
        made.directions.mul_(torch.arange(1, E + 1)[:, None])
    torch.testing.assert_close(scores(7 * x, made), before)


def test_a_gradient_reaches_all_of_it_and_none_goes_along_a_token() -> None:
    """Each token's gradient is orthogonal to W x after W, and lies in the R rows of W."""
    x, made = router()
    x.requires_grad_()
    p = probabilities(*made.reads(x), None)
    grads = torch.autograd.grad(p[..., 0].sum(), [x, *made.parameters()])
    assert all((grad != 0).any() for grad in grads)
    along = (grads[0] * x).sum(-1)
    torch.testing.assert_close(along, torch.zeros_like(along))
    assert torch.linalg.matrix_rank(grads[0].flatten(0, 1)) == R


@pytest.mark.parametrize("page", PAGES)
def test_both_forms_are_equal_in_values_and_gradients(page: str) -> None:
    x, found = router()[0], []
    for form in ("naive", "grouped"):
        one = layer(page, form=form).eval()
        out = one(x)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(one.parameters()))])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("page", PAGES)
def test_padding_has_no_influence(page: str) -> None:
    x, one = router()[0], layer(page).eval()
    real = (torch.arange(N) < 7).expand(B, N)
    hidden = x.masked_fill(~real[..., None], torch.nan)
    torch.testing.assert_close(one(hidden, padding=real)[:, :7], one(x[:, :7]))


@pytest.mark.parametrize("page", PAGES)
def test_the_router_computes_in_float32_at_least(page: str) -> None:
    x, one = router()[0].bfloat16(), layer(page).bfloat16().eval()
    with record() as notes:
        assert one(x).dtype == torch.bfloat16
    assert notes.last("router").dtype == torch.float32
    torch.testing.assert_close(notes.last("router").sum(-1), torch.ones(B, N))


def test_it_trains_in_a_model_and_the_temperature_too() -> None:
    task = Copying(4, 6)
    options = {"experts": 3, "router": "cosine"}
    torch.manual_seed(0)
    model = TinyTransformer(
        **task.model_options(), dim=16, layers=1, heads=2, feed="switch", feed_options=options
    )
    own = model.decoder.blocks[0].feed_forward.router
    before = own.log_temperature.item()
    history = fit(model, task, 60, learning_rate=1e-2, progress=False)
    losses = history.column("loss")
    assert sum(losses[-10:]) < sum(losses[:10])
    assert own.log_temperature.item() != before
    assert own.directions.shape == (3, 16)


def test_the_balance_is_charged_as_with_a_linear_router() -> None:
    one = layer("switch").train()
    with charged() as charges:
        one(router()[0])
    assert [name for name, _ in charges.items] == ["balance"]


def test_a_rank_without_the_router_that_has_one_is_refused() -> None:
    for page in PAGES:
        with pytest.raises(ValueError, match="rank=3 is for router='cosine'"):
            catalog.build(page, dim=DIM, rank=3)
        with pytest.raises(ValueError, match="router"):
            catalog.build(page, dim=DIM, router="cosines")
