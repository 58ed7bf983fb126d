"""Tickets: what the arms begin with, and what their rows say of rates and budgets."""

import torch

from attnlab.compression.lottery_tickets import LotteryTickets, share_left
from attnlab.compression.matrices import linear_layers, mask_on
from attnlab.experiments import stored, tickets
from attnlab.experiments.tickets import Begins

FEW = 2


def masks(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {name: mask_on(layer) for name, layer in linear_layers(module).items()}
    return {name: each.mask for name, each in found.items() if each is not None}


def values(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name.replace("parametrizations.weight.original", "weight"): x.clone()
            for name, x in module.named_parameters()}  # fmt: skip


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(x, other[name]) for name, x in one.items())


def test_a_ticket_has_its_own_first_values_and_the_control_has_new_ones() -> None:
    first = values(tickets.build("dense", 1))
    begun = {kind: tickets.start(Begins(kind, 2, 1, FEW)) for kind in tickets.KINDS}
    assert same(values(begun["ticket"]), first)
    assert same(values(begun["shuffled"]), first)
    assert not same(values(begun["fresh"]), first)
    assert not same(values(begun["rewound"]), first)
    assert same(masks(begun["fresh"]), masks(begun["ticket"]))


def test_shuffled_masks_leave_as_many_of_each_matrix_at_other_places() -> None:
    ticket, shuffled = (
        masks(tickets.start(Begins(kind, 1, 1, FEW))) for kind in ("ticket", "shuffled")
    )
    assert {n: int(m.sum()) for n, m in ticket.items()} == {
        n: int(m.sum()) for n, m in shuffled.items()
    }
    assert not same(ticket, shuffled)


def test_masks_lie_in_each_other_and_leave_what_they_say() -> None:
    one, two = (masks(tickets.start(Begins("ticket", rounds, 1, FEW))) for rounds in (1, 2))
    assert all((one[name] | ~two[name]).all() for name in one)
    after_one = tickets.trained(Begins("ticket", 1, 1, FEW))
    assert same(masks(LotteryTickets(tickets.CUT, 2)(after_one)), two)
    for rounds, found in ((1, one), (2, two)):
        N = sum(mask.numel() for mask in found.values())
        left = sum(int(mask.sum()) for mask in found.values())
        assert abs(left - share_left(tickets.CUT, rounds) * N) < 1


def test_what_is_cut_does_not_move_and_a_training_is_made_once() -> None:
    begins = Begins("ticket", 1, 1, FEW)
    made = tickets.trained(begins)
    assert made is tickets.trained(begins)
    for layer in linear_layers(made).values():
        mask = mask_on(layer)
        assert mask is not None
        assert (layer.weight[~mask.mask] == 0).all()
    model, _ = tickets.train("ticket, 60.0 % left", 1, steps=FEW)
    assert same(dict(model.state_dict()), dict(made.state_dict()))
    assert model is not made


def test_the_rate_is_the_best_of_those_tried_with_the_dense_model() -> None:
    found = stored("80_tickets.json", "tickets")
    dense = {rate: found[f"dense at {rate:g}; loss, tried once"] for rate in tickets.RATES}
    assert min(dense, key=lambda rate: dense[rate]) == tickets.RATE
    assert found["dense; loss; seed 0"] == dense[tickets.RATE]
