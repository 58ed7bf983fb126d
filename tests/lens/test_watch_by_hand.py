"""watch on attention that is written out, in the many ways people write it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.lens.watch import watch

B, H, N, M, D, E = 2, 3, 5, 7, 4, 6
BLOCKED = torch.ones(N, M, dtype=torch.bool).triu(2)


class Run(nn.Module):
    """A model that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def matmul(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D)
    scores = scores.masked_fill(BLOCKED, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def in_place(q, k, v):
    scores = q @ k.mT
    scores /= D**0.5
    scores.masked_fill_(BLOCKED[None], -1e9)
    return scores.softmax(-1).matmul(v)


def in_place_through_a_view(q, k, v):
    scores = torch.matmul(q, k.mT)
    scores.view(B * H, N, M).mul_(D**-0.5).masked_fill_(BLOCKED, -math.inf)
    return scores.softmax(-1).matmul(v)


def indexed(q, k, v):
    scores = q @ k.mT * D**-0.5
    scores[BLOCKED.expand_as(scores)] = -math.inf
    return torch.matmul(nn.Softmax(dim=-1)(scores), v)


def added(q, k, v):
    scores = (q * D**-0.5) @ k.mT
    mask = torch.zeros(N, M, dtype=q.dtype).masked_fill(BLOCKED, torch.finfo(q.dtype).min)
    return torch.softmax(mask + scores, -1) @ v


def where(q, k, v):
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k) * D**-0.5
    scores = torch.where(~BLOCKED, scores, torch.finfo(q.dtype).min)
    return torch.einsum("bhnm,bhme->bhne", F.softmax(scores, dim=3), v)


def where_method(q, k, v):
    scores = (q @ k.mT * D**-0.5).where(~BLOCKED, torch.tensor(-math.inf, dtype=q.dtype))
    return scores.softmax(dim=-1) @ v


def length_first_einsum(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = torch.einsum("bnhd,bmhd->bnmh", q, k) * D**-0.5
    scores = scores.masked_fill(BLOCKED[..., None], -math.inf)
    out = torch.einsum("bnmh,bmhe->bnhe", scores.softmax(dim=2), v)
    return out.transpose(1, 2)


def keys_first(q, k, v):
    scores = k @ q.mT * D**-0.5
    weights = scores.masked_fill(BLOCKED.T, -math.inf).softmax(dim=-2)
    return weights.mT @ v


def batches_of_heads(q, k, v):
    q, k, v = (t.reshape(B * H, -1, t.shape[-1]) for t in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) * D**-0.5
    scores = scores.view(B, H, N, M).masked_fill(BLOCKED, -math.inf).view(B * H, N, M)
    return torch.bmm(F.softmax(scores, dim=-1), v).view(B, H, N, E)


def heads_told_by_the_result_only(q, k, v):
    q, k, v = (t.reshape(B * H, -1, t.shape[-1]) for t in (q, k, v))
    bias = torch.zeros(N, M, dtype=q.dtype).masked_fill(BLOCKED, -math.inf).expand(B * H, N, M)
    weights = torch.baddbmm(bias, q, k.mT, alpha=D**-0.5).softmax(-1)
    out = torch.bmm(weights, v).transpose(0, 1).reshape(N, B, H * E)
    return out.view(N, B, H, E).permute(1, 2, 0, 3)


def with_dropout_and_casts(q, k, v):
    scores = (q @ k.mT).float() * D**-0.5
    weights = F.softmax(scores.masked_fill(BLOCKED, -math.inf), dim=-1, dtype=torch.float64)
    return F.dropout(weights.type_as(v), 0.0, training=True) @ v


WAYS = [
    matmul, in_place, in_place_through_a_view, indexed, added, where, where_method,
    length_first_einsum, keys_first, batches_of_heads, heads_told_by_the_result_only,
    with_dropout_and_casts,
]  # fmt: skip


def tensors(g=H):
    return (
        torch.randn(B, H, N, D, dtype=torch.float64),
        torch.randn(B, g, M, D, dtype=torch.float64),
        torch.randn(B, g, M, E, dtype=torch.float64),
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_gives_the_same_record(way, attend):
    q, k, v = tensors()
    model = Run(way)
    with watch(model) as seen:
        out = model(q, k, v)
    (record,) = seen
    weights, mixed = attend(q, k, v, ~BLOCKED, D**-0.5)
    tolerance = 1e-6 if way is with_dropout_and_casts else 1e-12
    assert torch.allclose(out, mixed, atol=tolerance)  # the test's own attention is right
    assert torch.equal(out, model(q, k, v))
    assert record.form == "softmax"
    assert record.shape == (B, H, N, M)
    assert torch.allclose(record.queries, q, atol=1e-15)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.values, v)
    assert torch.equal(record.mask.expand(B, H, N, M), ~BLOCKED.expand(B, H, N, M))
    assert record.scale == pytest.approx(D**-0.5)
    assert record.bias is None
    assert torch.allclose(record.weights, weights, atol=tolerance)


def test_grouped_queries_in_five_axes(attend):
    def grouped(q, k, v):
        q = q.unflatten(1, (3, 2))
        weights = (q @ k[:, :, None].mT * D**-0.5).softmax(-1)
        return (weights @ v[:, :, None]).flatten(1, 2)

    q = torch.randn(B, 6, N, D, dtype=torch.float64)
    _, k, v = tensors(g=3)
    model = Run(grouped)
    with watch(model) as seen:
        model(q, k, v)
    record = seen[0]
    assert torch.equal(record.queries, q)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.values, v)
    assert torch.allclose(record.weights, attend(q, k, v, None, D**-0.5)[0], atol=1e-12)


def test_one_key_head_for_all(attend):
    def shared(q, k, v):
        weights = torch.einsum("bhnd,bmd->bhnm", q, k[:, 0]).softmax(-1)
        return torch.einsum("bhnm,bme->bhne", weights, v[:, 0])

    q, k, v = tensors(g=1)
    model = Run(shared)
    with watch(model) as seen:
        model(q, k, v)
    assert torch.equal(seen[0].keys, k)
    assert torch.equal(seen[0].values, v)
    assert torch.equal(seen[0].queries, q)
    assert torch.allclose(seen[0].weights, attend(q, k, v, None, 1.0)[0], atol=1e-12)


def test_bias_temperature_and_soft_cap(attend):
    bias = torch.randn(H, N, M, dtype=torch.float64)
    temperature = torch.rand(H, 1, 1, dtype=torch.float64) + 0.5

    def biased(q, k, v):
        return (q @ k.mT * temperature + 2 * bias).softmax(-1) @ v

    q, k, v = tensors()
    model = Run(biased)
    with watch(model) as seen:
        model(q, k, v)
    assert torch.equal(seen[0].scale[0], temperature)
    assert torch.allclose(seen[0].bias[0], 2 * bias, atol=1e-15)
    weights, _ = attend(q, k, v, None, temperature, 2 * bias)
    assert torch.allclose(seen[0].weights, weights, atol=1e-12)

    model = Run(lambda q, k, v: ((q @ k.mT / 5).tanh() * 5).softmax(-1) @ v)
    with watch(model) as seen:
        model(q, k, v)
    assert seen[0].scale is None
    assert seen[0].bias is None
    assert "tanh" in repr(seen[0])
    expected = ((q @ k.mT / 5).tanh() * 5).softmax(-1)
    assert torch.equal(seen[0].weights, expected)


def test_weights_are_those_that_mix_the_values():
    """A head mask after the softmax counts, dropout does not."""
    keep = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None, None]

    def masked_heads(q, k, v):
        weights = (q @ k.mT).softmax(-1) * keep
        return F.dropout(weights, 0.5) @ v

    q, k, v = tensors()
    model = Run(masked_heads)
    with watch(model) as seen:
        model(q, k, v)
    assert seen[0].dropout == 0.5
    assert torch.equal(seen[0].weights, (q @ k.mT).softmax(-1) * keep)


def test_dropout_in_place_does_not_spoil_the_weights():
    def spoiled(q, k, v):
        weights = (q @ k.mT).softmax(-1)
        return F.dropout(weights, 0.5, inplace=True) @ v

    q, k, v = tensors()
    model = Run(spoiled)
    with watch(model) as seen:
        model(q, k, v)
    assert torch.equal(seen[0].weights, (q @ k.mT).softmax(-1))


def test_what_is_not_attention_is_not_recorded():
    def others(q, k, v):
        logits = (q @ k.mT).softmax(-1)  # never mixes anything
        linear = q.softmax(-1) @ (k.softmax(-2).mT @ v)  # linear attention: no product inside
        gate = (q[:, 0] @ torch.randn(D, 11, dtype=q.dtype)).softmax(-1)
        experts = torch.einsum("bnk,bnke->bne", gate, torch.randn(B, N, 11, E, dtype=q.dtype))
        return logits, linear, experts

    model = Run(others)
    with watch(model) as seen:
        model(*tensors())
    assert len(seen) == 0


def test_one_batch_and_one_query():
    def decode(q, k, v):
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        return (torch.bmm(q, k.mT).softmax(-1) @ v).view(1, H, 1, E)

    q, k, v = (t[:1] for t in tensors())
    model = Run(decode)
    with watch(model) as seen:
        model(q[:, :, :1], k, v)
    assert seen[0].shape == (1, H, 1, M)
    assert torch.equal(seen[0].keys, k)


def test_empty_rows_stay_what_the_model_made_of_them():
    def rows(q, k, v):
        return (q @ k.mT).masked_fill(torch.ones(N, M, dtype=torch.bool), -math.inf).softmax(-1) @ v

    model = Run(rows)
    with watch(model) as seen:
        model(*tensors())
    assert seen[0].weights.isnan().all()
    assert not seen[0].mask.any()


def test_dropout_of_scores_is_reported():
    def dropped(q, k, v):
        return F.dropout(q @ k.mT, 0.5).softmax(-1) @ v

    model = Run(dropped)
    with watch(model) as seen:
        model(*tensors())
    assert "through dropout" in repr(seen[0])
    assert seen[0].scale is None


@pytest.mark.parametrize("whole", [True, False])
def test_scores_written_into_a_buffer(whole):
    """Into all of it: these are the scores. By an index: whose rows they are is not known."""

    def buffered(q, k, v):
        scores = torch.empty(B, H, N, M, dtype=q.dtype)
        scores[:, :, slice(None) if whole else torch.randperm(N)] = q @ k.mT
        return scores.softmax(-1) @ v

    model = Run(buffered)
    with watch(model) as seen:
        model(*tensors())
    assert len(seen) == whole


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("packing", ["four axes", "five axes"])
def test_query_heads_below_one_another_in_the_rows(packing, fused, n):
    """Heads that share a key head may stand in the rows: (b, g, r·n, d) for (b, g·r, n, d)."""

    class Grouped(nn.Module):
        def forward(self, q, k, v):
            if packing == "four axes":
                q = q.reshape(2, 2, 2 * n, 3)
            else:
                q = q.transpose(1, 2).unflatten(2, (2, 2)).permute(0, 2, 3, 1, 4).flatten(2, 3)
            if fused:
                out = F.scaled_dot_product_attention(q, k, v)
            else:
                out = (q @ k.mT * 3**-0.5).softmax(-1) @ v
            return out.view(2, 2, 2, n, 3).permute(0, 3, 1, 2, 4).reshape(2, n, 12)

    q, k, v = torch.randn(2, 4, n, 3), torch.randn(2, 2, 7, 3), torch.randn(2, 2, 7, 3)
    with watch(model := Grouped()) as seen:
        model(q, k, v)
    (record,) = seen
    if packing == "five axes" and n == 1:  # nothing but the result shows it, and that not surely
        assert "perhaps they are heads" in record.doubt
        return
    assert (record.shape, record.doubt) == ((2, 4, n, 7), None)
    assert torch.equal(record.queries, q)
    expected = (q @ k.repeat_interleave(2, 1).mT * 3**-0.5).softmax(-1)
    assert torch.allclose(record.weights, expected, atol=1e-6)
