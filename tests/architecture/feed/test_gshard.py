"""GShard: two experts of each token, first choices first, gates that sum to 1."""

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab.architecture.feed.gshard import grouped, route
from attnlab.core.experts import Experts, balance, feed
from attnlab.core.probe import record

DIM, HIDDEN, E = 5, 7, 4


def towards(*pairs):
    """A sequence whose tokens point to these experts, first and second, and its router."""
    x = torch.zeros(1, len(pairs), DIM, dtype=torch.float64)
    for i, (first, second) in enumerate(pairs):
        x[0, i, first], x[0, i, second] = 3.0, 2.0
    return x, torch.eye(E, DIM, dtype=torch.float64)


def weights():
    sizes = [(E, HIDDEN, DIM), (E, HIDDEN), (E, DIM, HIDDEN), (E, DIM)]
    torch.manual_seed(0)
    return Experts(*(torch.randn(size, dtype=torch.float64) for size in sizes))


def test_the_output_is_the_sum_of_two_experts_whose_gates_sum_to_1():
    torch.manual_seed(0)
    x, W_r = torch.randn(2, 6, DIM, dtype=torch.float64), torch.randn(E, DIM, dtype=torch.float64)
    own, out = weights(), grouped(x, W_r, weights(), capacity=None)
    routing = route(x, W_r, None)
    torch.testing.assert_close(routing.gates.sum(-1), torch.ones(2, 6, dtype=torch.float64))
    p = (x[1, 3] @ W_r.mT).softmax(-1)
    best, both = p.topk(2)
    made = [feed(x[1, 3], *(w[e] for w in own)) for e in both.tolist()]
    torch.testing.assert_close(out[1, 3], (best[0] * made[0] + best[1] * made[1]) / best.sum())


def test_all_first_choices_are_placed_before_any_second():
    """5 tokens, 4 experts: 2 ⌈5/4⌉ = 4 places. Expert 0 is the second choice of the first two and
    the first choice of the last three: it has one place left for a second choice."""
    x, W_r = towards((1, 0), (1, 0), (0, 2), (0, 2), (0, 3))
    routing = route(x, W_r)
    assert routing.experts[0].tolist() == [[1, 0], [1, -1], [0, 2], [0, 2], [0, 3]]
    assert routing.chosen[0, 1].tolist() == [1, 0]
    assert routing.gates[0, 1, 0] < 1  # of a lone expert, too


def test_a_later_token_takes_the_place_of_an_earlier_one_and_decoders_refuse():
    x, W_r = towards((1, 0), (1, 0), (2, 3), (2, 3), (3, 2))
    later, _ = towards((1, 0), (1, 0), (0, 2), (0, 2), (0, 3))
    assert not torch.equal(route(x, W_r).experts[0, :2], route(later, W_r).experts[0, :2])
    with pytest.raises(ValueError, match="feed='gshard' cannot stand in a decoder: the first"):
        attnlab.TinyTransformer(11, dim=8, layers=1, heads=2, feed="gshard")
    free = {"capacity": None, "evaluation_capacity": None}
    tiny = attnlab.TinyTransformer(
        11, dim=8, layers=1, heads=2, max_len=9, feed="gshard", feed_options=free
    ).eval()
    tokens = torch.randint(11, (2, 9))
    logits, _ = tiny.step(tokens)
    torch.testing.assert_close(logits, tiny(tokens)[:, -1])


def test_a_second_choice_is_used_where_twice_its_gate_is_above_the_draw():
    x, W_r = towards((0, 1), (0, 1), (2, 3))
    second = route(x, W_r).gates[0, :, 1]
    draws = (2 * second + torch.tensor([0.01, -0.01, -0.01]))[None]
    routing = route(x, W_r, chance=draws)
    assert routing.experts[0].tolist() == [[0, -1], [0, 1], [2, 3]]
    assert routing.chosen[0, 0].tolist() == [0, -1]
    with record() as notes:
        route(x, W_r, chance=draws)
    assert not notes["dropped"][0].any()


def test_a_weak_second_choice_is_used_as_often_as_twice_its_gate():
    torch.manual_seed(0)
    layer = attnlab.build("gshard", dim=DIM, experts=E, capacity=None).train()
    x = torch.randn(1, 1, DIM).expand(1, 4000, DIM)
    with record() as notes:
        layer(x)
    used = (notes["experts"][0][0, :, 1] >= 0).float().mean()
    torch.testing.assert_close(used, 2 * notes["gates"][0][0, 0, 1], atol=0.03, rtol=0)


def test_the_balance_loss_of_switch_is_E_squared_times_that_of_gshard():
    torch.manual_seed(0)
    p = torch.randn(1, 9, E, dtype=torch.float64).softmax(-1)
    chosen = p.topk(2).indices
    f = F.one_hot(chosen[0, :, 0], E).double().mean(0)
    gshard = (f * p[0].mean(0)).mean()
    torch.testing.assert_close(balance(p, chosen), E**2 * gshard)


def test_two_choices_need_two_experts():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        attnlab.build("gshard", dim=DIM, experts=1)
    x, _ = towards((0, 1))
    one = Experts(*(w[:1] for w in weights()))
    with pytest.raises(ValueError, match="each token chooses 2 experts"):
        grouped(x, torch.ones(1, DIM, dtype=torch.float64), one)


def test_padding_takes_no_place_wherever_it_stands():
    x, W_r = towards((1, 0), (1, 0), (0, 2), (0, 2), (0, 3), (0, 1), (0, 1))
    real = torch.tensor([[True, True, True, False, True, False, True]])
    out = grouped(x, W_r, weights(), capacity=1.0, padding=real)
    torch.testing.assert_close(
        out[:, real[0]], grouped(x[:, real[0]], W_r, weights(), capacity=1.0)
    )
