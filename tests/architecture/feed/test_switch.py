"""Switch: capacity, drops in sequence order, the residual of a dropped token, the balance loss."""

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab.architecture.feed.switch import grouped, naive, route
from attnlab.core.charges import charged
from attnlab.core.experts import Experts, balance, feed
from attnlab.core.probe import record

B, N, DIM, HIDDEN, E = 2, 13, 5, 7, 3


def weights(experts=E, dtype=torch.float64):
    sizes = [(experts, HIDDEN, DIM), (experts, HIDDEN), (experts, DIM, HIDDEN), (experts, DIM)]
    torch.manual_seed(0)
    return Experts(*(torch.randn(size, dtype=torch.float64).to(dtype) for size in sizes))


def towards(*experts):
    """A sequence whose tokens point to these experts, and the router that reads it."""
    x = torch.full((1, len(experts), DIM), 0.1, dtype=torch.float64)
    for i, e in enumerate(experts):
        x[0, i, e] = 2.0 + i / 10
    return x, torch.eye(E, DIM, dtype=torch.float64)


def built(**options):
    torch.manual_seed(1)
    return attnlab.build("switch", dim=DIM, hidden=HIDDEN, **options).double()


def test_each_token_is_computed_by_its_most_probable_expert_times_that_probability():
    x, W_r = torch.randn(B, N, DIM, dtype=torch.float64), torch.randn(E, DIM, dtype=torch.float64)
    own, out = weights(), grouped(x, W_r, weights(), capacity=None)
    for b in range(B):
        for i in range(N):
            p = (W_r @ x[b, i]).softmax(0)
            e = int(p.argmax())
            torch.testing.assert_close(out[b, i], p[e] * feed(x[b, i], *(w[e] for w in own)))


def test_the_last_tokens_of_a_full_expert_are_dropped_and_get_zeros():
    x, W_r = towards(0, 0, 1, 0, 0, 0, 2, 0)  # 8 tokens: int(8 · 1.25 / 3) = 3 places
    with record() as notes:
        out = naive(x, W_r, weights(), capacity=1.25)
    assert notes["capacity"][0].tolist() == [3]
    assert notes["experts"][0][0, :, 0].tolist() == [0, 0, 1, 0, -1, -1, 2, -1]
    assert notes["chosen"][0][0, :, 0].tolist() == [0, 0, 1, 0, 0, 0, 2, 0]
    assert notes["dropped"][0][0, :, 0].nonzero().flatten().tolist() == [4, 5, 7]
    assert notes["load"][0].tolist() == [[3, 1, 1]]
    assert (out[0, [4, 5, 7]] == 0).all()
    assert (out[0, [0, 1, 2, 3, 6]] != 0).any(-1).all()


def test_padding_takes_no_place_wherever_it_stands():
    x, W_r = towards(0, 0, 1, 0, 0, 0, 2, 0)
    real = torch.tensor([[False, True, True, False, True, True, True, True]])
    out = grouped(x, W_r, weights(), capacity=1.25, padding=real)
    torch.testing.assert_close(
        out[:, real[0]], grouped(x[:, real[0]], W_r, weights(), capacity=1.25)
    )
    assert (out[:, ~real[0]] == 0).all()


@pytest.mark.parametrize("tokens", [1, 2, 7, 49])
@pytest.mark.parametrize("capacity", [0.1, 1.0, 1.25, 2.0])
def test_an_expert_has_room_for_the_int_of_the_formula_and_for_one(tokens, capacity):
    x, W_r = towards(*[0] * tokens)
    with record() as notes:
        naive(x, W_r, weights(), capacity=capacity)
    assert notes["load"][0][0, 0] == min(tokens, max(1, int(tokens * capacity / E)))


def test_one_expert_is_the_layer_itself():
    layer = built(experts=1)
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    one = [layer.expand.weight, layer.expand.bias, layer.contract.weight, layer.contract.bias]
    torch.testing.assert_close(layer(x), feed(x, *(w[0] for w in one)))


def test_an_expert_that_nobody_takes_gets_a_gradient_of_zeros():
    x, W_r = towards(0, 0, 1, 1)
    own = Experts(*(w.requires_grad_() for w in weights()))
    grouped(x, W_r, own, capacity=None).sum().backward()
    for w in own:
        assert (w.grad[2] == 0).all()
        assert (w.grad[:2] != 0).any()


def test_the_balance_loss_is_1_if_uniform_and_E_if_collapsed():
    uniform = torch.full((1, 6, E), 1 / E)
    alike = torch.arange(6).remainder(E)[None, :, None]
    torch.testing.assert_close(balance(uniform, alike), torch.tensor(1.0))
    one = F.one_hot(torch.zeros(1, 6, dtype=torch.int64), E).float()
    torch.testing.assert_close(balance(one, torch.zeros(1, 6, 1, dtype=torch.int64)), one.sum() / 2)


def test_the_balance_loss_counts_before_dropping_and_without_padding():
    x, W_r = towards(0, 0, 1, 0, 0, 0, 2, 0)
    tight, roomy = (route(x, W_r, capacity) for capacity in (0.4, None))
    assert (tight.experts < 0).any()
    torch.testing.assert_close(
        balance(tight.router, tight.chosen), balance(roomy.router, roomy.chosen)
    )
    real = torch.arange(8)[None] < 5
    padded, short = route(x, W_r, None, real), route(x[:, :5], W_r, None)
    torch.testing.assert_close(
        balance(padded.router, padded.chosen), balance(short.router, short.chosen)
    )


def test_the_balance_is_charged_while_training_and_moves_the_router_alone():
    layer = built(balance=0.5, jitter=0.0)
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    with charged() as charges:
        layer.eval()(x)
        assert charges.total() is None
        layer.train()(x)
    routing = layer.route(x, None)
    torch.testing.assert_close(charges.total(), 0.5 * balance(routing.router, routing.chosen))
    charges.total().backward()
    moved = {name for name, p in layer.named_parameters() if p.grad is not None}
    assert moved == {"router.weight"}
    with charged() as charges:
        built(balance=0.0)(x)
    assert charges.total() is None


def test_without_its_gate_the_router_would_have_no_gradient():
    x, W_r = towards(0, 1, 2, 0)
    W_r.requires_grad_()
    routing = route(x, W_r)
    assert not routing.experts.dtype.is_floating_point
    assert routing.gates.requires_grad
    torch.testing.assert_close(routing.gates, routing.router.amax(-1, keepdim=True))


def test_jitter_reaches_the_router_only():
    """With capacity for all and the same choices, the output differs in the gates alone."""
    layer = built(experts=2, jitter=0.3, capacity=None).train()
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    with record() as notes:
        out = layer(x)
    routing = layer.eval().route(x, None)
    assert not torch.allclose(notes["gates"][0], routing.gates)
    same = (notes["experts"][0] == routing.experts)[..., 0]
    clean = layer(x) / routing.gates * notes["gates"][0]
    torch.testing.assert_close(out[same], clean[same])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_forms_agree_in_lower_precisions(dtype):
    torch.manual_seed(2)
    x, W_r = torch.randn(B, N, DIM).to(dtype), torch.randn(E, DIM).to(dtype)
    given = [t.requires_grad_() for t in (x, W_r, *weights(dtype=dtype))]
    outs = [form(x, W_r, Experts(*given[2:]), capacity=1.0) for form in (naive, grouped)]
    assert outs[1].dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(*outs, rtol=tolerance, atol=tolerance)
    gradients = [torch.autograd.grad(out.float().square().sum(), given) for out in outs]
    for one, other in zip(*gradients, strict=True):
        scale = one.abs().max().item()
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * scale)


# ---- bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capacity": 0}, "capacity should be above 0, got 0.0: experts without room drop every"),
        ({"evaluation_capacity": -1.0}, "evaluation_capacity should be above 0"),
        ({"experts": 0}, "experts should be at least 1"),
        ({"jitter": 1.0}, "jitter should be at least 0 and below 1"),
        ({"balance": -0.1}, "balance should be at least 0"),
        ({"form": "fast"}, "form"),
    ],
)
def test_what_no_layer_can_be_built_from_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        built(**options)


def test_a_router_without_an_answer_is_refused_and_padding_may_be_nan():
    layer, x = built().eval(), torch.randn(B, N, DIM, dtype=torch.float64)
    x[1, 4] = torch.nan
    with pytest.raises(ValueError, match="for 1 tokens, the first in sequence 1 at position 4"):
        layer(x)
    assert layer(x, padding=x.isfinite().all(-1)).isfinite().all()


# ---- in models


def model(**options):
    torch.manual_seed(0)
    given = {"dim": 8, "layers": 2, "heads": 2, "hidden": 7, "max_len": 16, "feed": "switch"}
    return attnlab.TinyTransformer(11, **given, feed_options=options).eval()


def test_a_later_token_changes_nothing_in_a_decoder_though_capacity_is_scarce():
    tiny, tokens = model(experts=3, evaluation_capacity=0.5), torch.randint(11, (4, 9))
    later = tokens.clone()
    later[:, 5:] = (later[:, 5:] + 1) % 11
    torch.testing.assert_close(tiny(later)[:, :5], tiny(tokens)[:, :5])


def test_a_decoder_steps_where_no_capacity_is_set_and_reads_again_elsewhere():
    tokens = torch.randint(11, (2, 9))
    free, limited = model(evaluation_capacity=None), model()
    assert free.steps_incrementally
    state = None
    for i in range(9):
        logits, state = free.step(tokens[:, i : i + 1], state)
        torch.testing.assert_close(logits, free(tokens)[:, i])
    assert not limited.steps_incrementally
    with pytest.raises(ValueError, match="experts without a capacity"):
        limited.step(tokens[:, :1])


def test_padding_of_a_model_takes_no_place():
    torch.manual_seed(0)
    tiny = attnlab.TinyTransformer(
        11, dim=8, layers=1, heads=2, max_len=16, kind="classifier", classes=3, feed="switch",
        feed_options={"experts": 2, "evaluation_capacity": 1.0},
    ).eval()  # fmt: skip
    tokens = torch.randint(11, (2, 9))
    real = torch.arange(9).expand(2, 9) < 5
    torch.testing.assert_close(tiny(tokens, padding=real), tiny(tokens[:, :5]))
