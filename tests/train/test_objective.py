"""What a model learns from, chosen by a name or given as a module."""

from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.next_token import NextToken
from attnlab.tasks import task
from attnlab.train import CheckpointError, evaluate, fit

COPYING = {"symbols": 5, "items": 5}
QUIET = {"progress": False, "batch_size": 6}


class Hiding(NextToken):
    """Some tokens become 0, and these alone are to be answered."""

    def __init__(self, rate: float = 0.4) -> None:
        super().__init__()
        self.rate, self.seen = rate, []

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

    def prepare(self, batch, generator=None):
        hidden = torch.rand(batch.inputs.shape, generator=generator) < self.rate
        self.seen.append(hidden)
        targets = batch.inputs.masked_fill(~hidden, UNSCORED)
        return replace(batch, inputs=batch.inputs.masked_fill(hidden, 0), targets=targets)


def tiny(problem):
    torch.manual_seed(0)
    return attnlab.TinyTransformer(**problem.model_options(), dim=8, heads=2, layers=1)


def trained(**options):
    problem = task("copying", **COPYING)
    model = tiny(problem)
    return model, fit(model, problem, 3, **{**QUIET, **options}).rows


def equal(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_the_next_token_is_the_default() -> None:
    usual, named, given = (
        trained(**each) for each in ({}, {"objective": "cross_entropy"}, {"objective": NextToken()})
    )
    assert equal(usual[0], named[0])
    assert equal(usual[0], given[0])
    assert [row["loss"] for row in usual[1]] == [row["loss"] for row in named[1]]


def test_what_is_hidden_follows_from_seed_and_step_alone() -> None:
    found = []
    for accumulate in (1, 3):
        objective = Hiding()
        _, rows = trained(objective=objective, accumulate=accumulate)
        found.append(([row["loss"] for row in rows], objective.seen))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.equal(one, other)
    first, second = found[0][1][-2:]
    assert not torch.equal(first, second)
    again = Hiding()
    trained(objective=again, seed=5)
    assert not torch.equal(again.seen[-1], second)


def test_the_loss_counts_the_targets_that_the_objective_asks_for() -> None:
    problem, objective = task("copying", **COPYING), Hiding()
    model = tiny(problem)
    found = evaluate(model, problem, batches=2, batch_size=5, objective=objective)
    assert found.targets == sum(int(hidden.sum()) for hidden in objective.seen)
    assert found != evaluate(model, problem, batches=2, batch_size=5)


@pytest.mark.parametrize(
    ("objective", "error", "words"),
    [
        ("next_tokn", ValueError, "no objective 'next_tokn'; did you mean 'next_token'"),
        ("full", ValueError, "no objective 'full'"),
        (torch.nn.Linear(2, 2), TypeError, "objective should be a name, such as 'next_token'"),
        (None, TypeError, "objective should be a name"),
    ],
)
def test_what_is_no_objective(objective, error, words) -> None:
    with pytest.raises(error, match=words):
        trained(objective=objective)
    problem = task("copying", **COPYING)
    with pytest.raises(error, match=words):
        evaluate(tiny(problem), problem, objective=objective)


def test_segments_are_read_next_token_by_next_token() -> None:
    with pytest.raises(ValueError, match="Hiding asks for something else; leave segment or"):
        trained(objective=Hiding(), segment=3)


def test_a_checkpoint_of_another_objective(tmp_path) -> None:
    problem = task("copying", **COPYING)
    fit(tiny(problem), problem, 1, folder=tmp_path, objective=Hiding(), **QUIET)
    with pytest.raises(CheckpointError, match=r"objective 'Hiding.rate=0.4.' there and None"):
        fit(tiny(problem), problem, 2, folder=tmp_path, **QUIET)
    with pytest.raises(CheckpointError, match=r"objective .*rate=0.4.* there and .*rate=0.5"):
        fit(tiny(problem), problem, 2, folder=tmp_path, objective=Hiding(0.5), **QUIET)
    fit(tiny(problem), problem, 2, folder=tmp_path, objective=Hiding(), **QUIET)
