"""What layers add to the loss: kept only while it is collected, and learned from by ``fit``."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnlab.core.charges import charge, charged
from attnlab.tasks import task
from attnlab.train import fit


class Charging(nn.Module):
    """A language model whose weight θ is in no logit: it charges θ²/2."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)
        self.theta = nn.Parameter(torch.tensor(3.0))
        self.checkpoint = False

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        x: Tensor = self.table(tokens)
        if self.checkpoint:
            again: Tensor = checkpoint(self._charging, x, use_reentrant=False)
            return again
        return self._charging(x)

    def _charging(self, x: Tensor) -> Tensor:
        charge("theta", self.theta.square() / 2)
        return x.sin()


def test_a_charge_is_kept_inside_a_block_alone() -> None:
    charge("before", torch.ones(()))
    with charged() as charges:
        assert charges.total() is None
        charge("a", torch.tensor(2.0))
        with charged() as inner:
            charge("b", torch.tensor(5.0))
        charge("c", torch.tensor(1.0))
    charge("after", torch.ones(()))
    assert [name for name, _ in charges.items] == ["a", "c"]
    assert charges.total() == 3
    assert inner.total() == 5


def test_a_charge_without_a_gradient_is_refused() -> None:
    with charged():
        with pytest.raises(ValueError, match="'ponder' has no gradient here"), torch.no_grad():
            charge("ponder", torch.ones(()))
        with pytest.raises(ValueError, match="a charge should be a scalar"):
            charge("ponder", torch.ones(2))


@pytest.mark.parametrize("options", [{}, {"accumulate": 4}, {"gradient_checkpointing": True}])
def test_fit_learns_from_charges_as_from_a_mean(options: dict[str, Any]) -> None:
    """The gradient of θ²/2 is θ, however the batch is cut and whatever is computed again."""
    problem = task("copying", symbols=5, items=5)
    model = Charging(problem.model_options()["vocab"])
    found: list[Tensor] = []
    model.theta.register_hook(found.append)
    history = fit(model, problem, 1, batch_size=8, clip=None, progress=False, **options)
    torch.testing.assert_close(torch.stack(found).sum(), torch.tensor(3.0))
    assert history.rows[0]["loss"] < 4  # that of the task alone
