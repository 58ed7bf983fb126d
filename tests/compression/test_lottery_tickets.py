"""The mask that training finds on the values that it began with, and its control."""

import itertools

import pytest
import torch
from torch import nn

import attnlab
from attnlab.compression.lottery_tickets import LotteryTickets, share_left, under_masks_of
from attnlab.compression.matrices import count, mask_on


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 3))


def train(module: nn.Module, steps: int = 30) -> None:
    x = torch.randn(64, 7, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        loss = (module(x) - torch.sin(3 * x[:, :3])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


N = 13 * 7 + 3 * 13


def masks(module: nn.Module) -> torch.Tensor:
    found = [mask_on(module[at]) for at in (0, 2)]
    return torch.cat([torch.ones(0, dtype=bool) if m is None else m.mask.flatten() for m in found])


def test_a_ticket_has_its_first_values_and_zeros() -> None:
    first = network()
    *_, ticket = LotteryTickets(0.4, 3, train=train).tickets(first)
    for at in (0, 2):
        mask = mask_on(ticket[at]).mask
        assert torch.equal(ticket[at].weight, first[at].weight * mask)
        assert torch.equal(ticket[at].bias, first[at].bias)
    assert int(masks(ticket).sum()) == count(N, 0.6**3)


def test_masks_of_later_rounds_lie_in_those_of_earlier_ones() -> None:
    found = LotteryTickets(0.3, 5, train=train).tickets(network())
    assert len(found) == 6
    each = [masks(ticket) for ticket in found[1:]]
    assert all((a | ~b).all() for a, b in itertools.pairwise(each))
    assert [int(m.sum()) for m in each] == [count(N, 0.7**r) for r in range(1, 6)]


def test_training_moves_what_is_left_alone() -> None:
    ticket = LotteryTickets(0.6, train=train)(network())
    before = [ticket[at].weight.clone() for at in (0, 2)]
    train(ticket)
    for at, was in zip((0, 2), before, strict=True):
        mask = mask_on(ticket[at]).mask
        assert (ticket[at].weight[~mask] == 0).all()
        assert (ticket[at].weight[mask] != was[mask]).float().mean() > 0.9


def test_the_mask_is_found_by_training_not_by_the_first_values() -> None:
    first = network()
    trained = LotteryTickets(0.6, train=lambda m: train(m, 200))(first)
    at_once = LotteryTickets(0.6)(first)
    assert not torch.equal(masks(trained), masks(at_once))


def test_a_ticket_is_set_back_to_a_later_step() -> None:
    first, later = network(), network()
    train(later, 4)
    ticket = LotteryTickets(0.5, 2, train=train, start=later)(first)
    mask = mask_on(ticket[0]).mask
    assert torch.equal(ticket[0].weight, later[0].weight * mask)
    assert not torch.equal(later[0].weight, first[0].weight)


def test_the_control_has_the_mask_and_other_values() -> None:
    ticket = LotteryTickets(0.5, train=train)(network())
    fresh = under_masks_of(ticket, network(seed=9))
    assert torch.equal(masks(fresh), masks(ticket))
    mask = mask_on(ticket[0]).mask
    assert torch.equal(fresh[0].weight, network(seed=9)[0].weight * mask)
    fresh[0].parametrizations.weight[0].mask.zero_()  # each has masks of its own
    assert masks(ticket).any()


def test_bert_cuts_tenths_of_the_original_weights() -> None:
    left = [share_left(0.1, rounds, "original") for rounds in range(11)]
    assert left == pytest.approx([1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0], abs=1e-12)
    of_the_rest = [1 - b / a for a, b in itertools.pairwise(left[:10])]
    assert of_the_rest == pytest.approx([1 / (10 - k) for k in range(9)])
    tickets = LotteryTickets(0.1, 9, of="original").tickets(network())
    assert [int(masks(t).sum()) for t in tickets[1:]] == [N * k // 10 for k in range(9, 0, -1)]


def test_nothing_given_is_changed() -> None:
    first = network()
    before = {name: x.clone() for name, x in first.state_dict().items()}
    LotteryTickets(0.5, 2, train=train)(first)
    assert all(torch.equal(x, before[name]) for name, x in first.state_dict().items())


def test_bad_calls_are_sentences() -> None:
    ticket = LotteryTickets()(network())
    for wrong, words in (
        (lambda: LotteryTickets(rate=2.0), "rate should be a share from 0 to 1"),
        (lambda: LotteryTickets(rounds=-1), "rounds"),
        (lambda: LotteryTickets(train="long"), "train should be"),
        (lambda: LotteryTickets(start=nn.Linear(3, 3))(network()), "differ in names or shapes"),
        (lambda: under_masks_of(ticket, attnlab.build("mlp", dim=3)), "differ in names or shapes"),
        (lambda: LotteryTickets()(nn.Tanh()), "has no linear layer"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            wrong()
