"""The experiment `selection`, small: what is constant, what is scored, and stored rows."""

import pytest
import torch
from torch import Tensor, nn

from attnlab.experiments import selection
from attnlab.experiments.selection import LAYERS, Constant, Copier, problem, right, train
from attnlab.lens.mixing import mixing_matrix
from attnlab.tasks import UNSCORED


class Says(nn.Module):
    """Scores that choose what ``answer`` gives for each position."""

    def __init__(self, answer) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.one_hot(self.answer(tokens), 10)


def copied(tokens: Tensor) -> Tensor:
    """The next symbol among the first 16 places, after the separator."""
    out = torch.zeros_like(tokens)
    out[:, 16:] = tokens[:, :16][tokens[:, :16] < 8].view(-1, 4)
    return out


def test_scores_count_symbols() -> None:
    task = problem("random")
    assert right(Says(copied), task) == 100
    assert right(Says(lambda tokens: copied(tokens) * 0), task) == pytest.approx(12.5, abs=4)
    assert right(Says(lambda tokens: copied(tokens) * (tokens == 9)), task) == pytest.approx(
        25 + 0.75 * 12.5, abs=4
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_reads_no_answer_from_the_future(layer: str) -> None:
    torch.manual_seed(0)
    model = Copier(layer).eval()
    tokens = problem("random").batch("train", 3, seed=0).inputs
    changed = tokens.clone()
    changed[:, 11:] = 5
    torch.testing.assert_close(model(tokens)[:, :11], model(changed)[:, :11])


@pytest.mark.parametrize(("layer", "fixed"), [("selective scan, constant", True),
                                              ("selective scan", False)])  # fmt: skip
def test_the_map_of_constants_depends_on_distances_alone(layer: str, fixed: bool) -> None:
    torch.manual_seed(0)
    made = selection._layer(layer).eval().double()
    assert isinstance(made.select, Constant) == fixed
    found = mixing_matrix(made, torch.randn(2, 7, selection.DIM).double())
    assert found.exact
    shifted = found.matrix[..., 1:, 1:] - found.matrix[..., :-1, :-1]
    assert bool(shifted.abs().max() < 1e-12) == fixed


def test_training_lowers_the_loss_and_the_same_seed_gives_the_same() -> None:
    found = []
    for elsewhere in (3, 4):  # a seed that must not matter
        torch.manual_seed(elsewhere)
        found.append(train("together", "s4d", 0, updates=15))
    for mine, theirs in zip(found[0].parameters(), found[1].parameters(), strict=True):
        assert torch.equal(mine, theirs)
    batch = problem("together").batch("validation", 100, seed=1)
    torch.manual_seed(0)
    losses = [
        nn.functional.cross_entropy(
            model(batch.inputs).flatten(0, 1), batch.targets.flatten(), ignore_index=UNSCORED
        )
        for model in (Copier("s4d").eval(), found[0])
    ]
    assert losses[1] < losses[0]
