"""The map that each feature map implies, beside its formula."""

import pytest
import torch

from attnlab.lens import kernel_maps
from attnlab.lens.kernel_maps import KINDS, Choice, approximate, speed
from attnlab.mechanisms.kernelized import linear, performer

N, D = 11, 5


def made(n=N, m=N, d=D, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return scale * q, scale * torch.randn(m, d, generator=generator, dtype=torch.float64)


# ---- maps


def directly(name, q, k, choice, seen):
    """Weights of each kind from its formula, in plain products."""
    x, y = (z * q.shape[-1] ** -0.25 for z in (q, k))
    rows = choice.rows(q.shape[-1])
    phi = {
        "elu": lambda x: torch.where(x > 0, x + 1, x.exp()),
        "relu": lambda x: x.clamp(min=0),
        "dpfp": lambda x: linear.dpfp_features(x, choice.nu(x.shape[-1])),
        "positive": lambda x: (x @ rows.mT - x.square().sum(-1, keepdim=True) / 2).exp(),
        "relu random": lambda x: (x @ rows.mT).clamp(min=0),
        "trigonometric": lambda x: performer.trigonometric_features(x, rows),
    }
    if name == "softmax":
        scores = (x @ y.mT).exp()
    elif name == "hyperbolic":
        scores = torch.cosh((x[:, None] + y[None]) @ rows.mT).mean(-1)
        scores = scores * (-x.square().sum(-1)[:, None] / 2 - y.square().sum(-1) / 2).exp()
    else:
        pair = (q, k) if name in ("elu", "relu", "dpfp") else (x, y)
        scores = phi[name](pair[0]) @ phi[name](pair[1]).mT
    scores = scores * seen
    return scores / scores.sum(-1, keepdim=True)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_each_map_is_that_of_its_formula(name, causal):
    q, k = made()
    choice = Choice(name, 13, orthogonal=False, seed=3)
    result = approximate(q, k, choice, causal=causal)
    seen = torch.ones(N, N, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    wanted = directly(name, q, k, choice, seen).nan_to_num()
    torch.testing.assert_close(result.map, wanted, rtol=1e-9, atol=1e-9)
    truth = directly("softmax", q, k, choice, seen)
    torch.testing.assert_close(result.exact, truth)
    assert result.error == pytest.approx((wanted - truth).abs().sum(-1).mean().item() / 2)


@pytest.mark.parametrize("name", KINDS)
def test_temperature_divides_the_logits(name):
    q, k = made()
    warm = approximate(q, k, Choice(name, 7, temperature=2.5), causal=True)
    scaled = approximate(q / 2.5**0.5, k / 2.5**0.5, Choice(name, 7), causal=True)
    torch.testing.assert_close(warm.map, scaled.map)
    logits = q @ k.mT / 2.5 / D**0.5
    hidden = ~torch.ones(N, N, dtype=torch.bool).tril()
    torch.testing.assert_close(warm.exact, logits.masked_fill(hidden, -1e99).softmax(-1))


def test_more_features_come_nearer():
    q, k = made(scale=0.7)
    errors = [approximate(q, k, Choice("positive", r), causal=True).error for r in (7, 2003)]
    assert errors[1] < errors[0] / 3


def test_negative_denominators_are_counted():
    q, k = made(17, 17, scale=3)
    result = approximate(q, k, Choice("trigonometric", 5), causal=True)
    rows = Choice("trigonometric", 5).rows(D)
    x, y = (performer.trigonometric_features(z * D**-0.25, rows) for z in (q, k))
    assert result.negative == int(((x @ y.mT).tril().sum(-1) < 0).sum()) > 0


def test_large_logits_overflow_nothing():
    q, k = made(scale=60)
    for name in KINDS:
        result = approximate(q, k, Choice(name, 7), causal=True)
        assert result.map.isfinite().all(), name


def test_rows_without_weight_are_counted():
    q = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    k = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert approximate(q, k, Choice("relu"), causal=True).empty == 1


def test_fewer_queries_are_the_last():
    q, k = made(3, 11)
    whole = approximate(torch.cat((k[:8], q)), k, Choice("positive", 7), causal=True)
    last = approximate(q, k, Choice("positive", 7), causal=True)
    torch.testing.assert_close(last.map, whole.map[8:])


def test_the_number_of_features_is_that_of_the_map():
    q, _ = made()
    choice = Choice("dpfp", 33)
    assert choice.count(D) == linear.dpfp_features(q, choice.nu(D)).shape[-1] == 30
    assert Choice("dpfp", 4096).nu(D) == 2 * D - 1
    assert Choice("hyperbolic", 7).count(D) == 14
    assert Choice("softmax").count(D) is None


@pytest.mark.parametrize("name", [name for name in KINDS if name != "softmax"])
def test_what_is_timed_is_the_mechanism(name, monkeypatch):
    """The timed calls are run for their results: the map's output and the exact one."""
    results = {}

    def listen(calls, _count):
        results.update({key: call() for key, call in calls.items()})
        return original(calls, 1)

    original = kernel_maps._rounds
    monkeypatch.setattr(kernel_maps, "_rounds", listen)
    assert speed(Choice(name, 13), D, 29, causal=True).own > 0
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, kernel_maps.HEADS, 29, D, generator=generator)
    for head in range(kernel_maps.HEADS):
        maps = approximate(q[0, head], k[0, head], Choice(name, 13), causal=True)
        for key, map in (("own", maps.map), ("exact", maps.exact)):
            near = {"rtol": 1e-2, "atol": 1e-2} if name == "trigonometric" else {}
            torch.testing.assert_close(results[key][0, head], map.float() @ v[0, head], **near)
