"""What each system trains: what a gradient reaches, and what stays as it is bit for bit."""

import copy

import pytest
import torch
from torch import Tensor, nn

from attnlab.lens.probes import linear_probe
from attnlab.systems.image_gpt import image_states
from attnlab.train import fit
from tests.systems.built import SYSTEMS, System, image_gpt


@pytest.fixture(params=SYSTEMS)
def system(request) -> System:
    torch.manual_seed(0)
    made = SYSTEMS[request.param]()
    made.objective.fitted(made.model)
    return made


def parameters(system: System) -> dict[str, nn.Parameter]:
    """Of the model, and what its objective learns, each by its name."""
    both = nn.ModuleDict({"model": system.model, "objective": system.objective})
    return {n.removeprefix("model."): p for n, p in both.named_parameters()}


def state(system: System) -> dict[str, Tensor]:
    """All parameters and buffers, those that are not saved too."""
    both = nn.ModuleDict({"model": system.model, "objective": system.objective})
    found = [*both.named_parameters(), *both.named_buffers()]
    return {n.removeprefix("model."): copy.deepcopy(x.detach()) for n, x in found}


def reached(system: System) -> set[str]:
    """The names of all that is learned; of keys the bias moves the scores of a row alike, so that
    no gradient can be asked of it."""
    still = (*system.frozen, *system.unused)
    return {n for n in parameters(system) if not n.startswith(still) and "key.bias" not in n}


def test_a_gradient_reaches_all_that_is_trained_and_nothing_else(system):
    batch = system.task.batch("train", 30, seed=1)
    loss, scored = system.objective(system.model.train(), batch, torch.Generator().manual_seed(0))
    (loss / scored).backward()
    given = parameters(system)
    assert all(n.startswith(system.frozen) for n, p in given.items() if not p.requires_grad)
    assert not any(p.requires_grad for n, p in given.items() if n.startswith(system.frozen))
    assert all(p.grad is None for n, p in given.items() if n.startswith(system.frozen))
    flows = {n for n, p in given.items() if p.grad is not None and p.grad.any()}
    assert {n for n in flows if "key.bias" not in n} == reached(system)


def test_training_moves_what_is_trained_and_nothing_else_by_one_bit(system):
    before = state(system)
    fit(
        system.model, system.task, 3, objective=system.objective, batch_size=12,
        learning_rate=1e-2, weight_decay=0.1, seed=0, progress=False, device="cpu",
    )  # fmt: skip
    after = state(system)
    assert after.keys() == before.keys()
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert {n for n in moved if "key.bias" not in n} == reached(system)
    assert not any(n.startswith(system.frozen) for n in moved)


def test_a_probe_of_image_gpt_leaves_it_as_it_is():
    """States hold no gradient, and neither a weight nor the mode of the model changes."""
    torch.manual_seed(0)
    made = image_gpt()
    before = state(made)
    batch = made.task.batch("train", 60, seed=0)
    states = image_states(made.model.train(), batch.inputs)
    again = image_states(made.model, batch.inputs)
    assert torch.equal(states, again)  # dropout is off while it is read
    assert not states.requires_grad
    assert made.model.training
    answers = linear_probe(states[1, :40], torch.arange(40) % 2, states[1, 40:])
    assert answers.shape == (20,)
    after = state(made)
    assert all(torch.equal(before[n], after[n]) for n in before)
    assert all(p.grad is None for p in made.model.parameters())
