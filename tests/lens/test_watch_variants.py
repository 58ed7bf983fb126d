"""watch on attention that departs from the usual: sinks, talking heads, slots, odd layouts."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.lens.watch import watch

B, H, N, M, D, E = 2, 3, 5, 7, 4, 6
SCALE = D**-0.5
BLOCKED = torch.ones(N, M, dtype=torch.bool).triu(2)


class Run(nn.Module):
    """A model that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def tensors(n=N):
    return (
        torch.randn(B, H, n, D, dtype=torch.float64),
        torch.randn(B, H, M, D, dtype=torch.float64),
        torch.randn(B, H, M, E, dtype=torch.float64),
    )


def watched(function, *args):
    model = Run(function)
    expected = model(*args)
    with watch(model) as seen:
        out = model(*args)
    assert torch.equal(out, expected)
    return seen, out


def merged(x):
    """(b, n, h·e), the layout in which a model holds its heads."""
    return x.transpose(1, 2).flatten(2)


# ---- heads before the batch


def split_and_cat(q, k, v):
    q, k, v = (torch.cat(x.split(x.shape[-1] // H, dim=2), dim=0) for x in (q, k, v))
    out = torch.bmm(F.softmax(torch.bmm(q, k.mT) * SCALE, dim=-1), v)
    return torch.cat(out.split(B, dim=0), dim=2)


def chunk_and_cat(q, k, v):
    q, k, v = (torch.cat(torch.chunk(x, H, dim=-1), dim=0) for x in (q, k, v))
    out = F.softmax(q @ k.mT * SCALE, dim=-1) @ v
    return torch.cat(torch.chunk(out, H, 0), -1)


def stacked(q, k, v):
    q, k, v = (x.unflatten(2, (H, -1)).permute(2, 0, 1, 3).flatten(0, 1) for x in (q, k, v))
    out = (q @ k.mT * SCALE).softmax(-1) @ v
    return torch.stack(out.view(H, B, N, E).unbind(0), dim=2).flatten(2)


def viewed(q, k, v):
    q, k, v = (x.unflatten(2, (H, -1)).permute(2, 0, 1, 3).flatten(0, 1) for x in (q, k, v))
    out = (q @ k.mT * SCALE).softmax(-1) @ v
    return out.view(H, B, N, E).permute(1, 2, 0, 3).reshape(B, N, H * E)


def four_axes(q, k, v):
    q, k, v = (x.unflatten(2, (H, -1)).permute(2, 0, 1, 3) for x in (q, k, v))
    out = torch.einsum("hbnm,hbme->hbne", torch.einsum("hbnd,hbmd->hbnm", q, k)
                       .mul(SCALE).softmax(-1), v)  # fmt: skip
    return out.permute(1, 2, 0, 3).flatten(2)


def projected(q, k, v):
    q, k, v = (x.unflatten(2, (H, -1)).permute(2, 0, 1, 3) for x in (q, k, v))
    out = (q @ k.mT * SCALE).softmax(-1) @ v
    eye = torch.eye(H * E, dtype=v.dtype).unflatten(0, (H, E))
    return torch.einsum("hbne,hef->bnf", out, eye)


def fused(q, k, v):
    q, k, v = (x.unflatten(2, (H, -1)).permute(2, 0, 1, 3) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).permute(1, 2, 0, 3).flatten(2)


@pytest.mark.parametrize(
    "way",
    [split_and_cat, chunk_and_cat, stacked, viewed, four_axes, projected, fused],
    ids=lambda way: way.__name__,
)
def test_heads_merged_before_the_batch(way, attend):
    q, k, v = tensors()
    weights, mixed = attend(q, k, v, None, SCALE)
    (record,), out = watched(way, *map(merged, (q, k, v)))
    assert torch.allclose(out, merged(mixed), atol=1e-12)
    assert record.shape == (B, H, N, M)
    assert torch.equal(record.queries, q)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.values, v)
    assert torch.allclose(record.weights, weights, atol=1e-12)


def test_a_result_flattened_whole_tells_nothing_of_heads():
    q, k, v = tensors(n=1)
    (record,), _ = watched(lambda *qkv: F.scaled_dot_product_attention(*qkv).flatten(), q, k, v)
    assert record.shape == (B, H, 1, M)


def test_heads_without_a_batch(attend):
    q, k, v = (x[0] for x in tensors())

    def unbatched(q, k, v):
        return ((q @ k.mT).softmax(-1) @ v).transpose(0, 1).reshape(N, H * E)

    (record,), _ = watched(unbatched, q, k, v)
    assert record.shape == (1, H, N, M)
    assert torch.equal(record.queries[0], q)


# ---- columns that share the softmax


def sinks_after(q, k, v):
    scores = q @ k.mT * SCALE
    scores = scores + torch.zeros(N, M, dtype=q.dtype).masked_fill(BLOCKED, -math.inf)
    scores = torch.cat([scores, SINKS.expand(B, H, N, 1)], dim=-1)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return F.dropout(F.softmax(scores, dim=-1)[..., :-1], 0.0) @ v


def sinks_before(q, k, v):
    scores = torch.where(BLOCKED, -math.inf, q @ k.mT * SCALE)
    scores = torch.concat((SINKS.expand(B, H, N, 1), scores), dim=3)
    return scores.softmax(-1).narrow(-1, 1, M) @ v


SINKS = torch.randn(1, H, 1, 1, dtype=torch.float64)


@pytest.mark.parametrize("way", [sinks_after, sinks_before], ids=lambda way: way.__name__)
def test_attention_sinks(way):
    q, k, v = tensors()
    (record,), out = watched(way, q, k, v)
    powers = (q @ k.mT * SCALE).masked_fill(BLOCKED, -math.inf).exp()
    weights = powers / (powers.sum(-1, keepdim=True) + SINKS.exp())
    assert torch.allclose(out, weights @ v, atol=1e-12)
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.mask.expand(record.shape), ~BLOCKED.expand(record.shape))
    assert record.scale == pytest.approx(SCALE)
    assert record.bias is None
    assert "beside 1 sink" in repr(record)


def test_a_slice_that_is_not_the_keys_is_not_recorded():
    def wrong(q, k, v):
        scores = torch.cat([q @ k.mT, SINKS.expand(B, H, N, 1)], dim=-1)
        return scores.softmax(-1)[..., 1:] @ v

    seen, _ = watched(wrong, *tensors())
    assert len(seen) == 0


# ---- heads mixed with one another


@pytest.mark.parametrize("by", ["einsum", "linear", "conv2d", "matmul"])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_talking_heads(by, when):
    first, second = torch.randn(2, H, H, dtype=torch.float64)

    def talk(x, w):
        if by == "einsum":
            return torch.einsum("bhnm,gh->bgnm", x, w)
        if by == "linear":
            return F.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2)
        if by == "conv2d":
            return F.conv2d(x, w[:, :, None, None])
        return (w @ x.flatten(2)).view(x.shape)

    def mixed(q, k, v):
        x = q @ k.mT * SCALE
        x = talk(x, first) if when != "after" else x
        x = x.softmax(-1)
        return (talk(x, second) if when != "before" else x) @ v

    q, k, v = tensors()
    (record,), _ = watched(mixed, q, k, v)
    x = q @ k.mT * SCALE
    x = (torch.einsum("gh,bhnm->bgnm", first, x) if when != "after" else x).softmax(-1)
    x = torch.einsum("gh,bhnm->bgnm", second, x) if when != "before" else x
    assert torch.allclose(record.weights, x, atol=1e-12)
    assert torch.equal(record.queries, q)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.values, v)
    if when != "after":
        assert record.scale is None
        assert "talking heads" in repr(record)


def test_a_projection_of_the_keys_is_no_talking_head():
    w = torch.randn(M, M, dtype=torch.float64)
    seen, _ = watched(lambda q, k, v: F.linear(q @ k.mT, w).softmax(-1) @ v, *tensors())
    assert len(seen) == 0


# ---- other ways to write a softmax and a product


def torch_max(q, k, v):
    scores = q @ k.mT * SCALE
    scores = scores + torch.zeros(N, M, dtype=q.dtype).masked_fill(BLOCKED, -math.inf)
    scores = torch.max(scores, torch.tensor(torch.finfo(q.dtype).min))
    return scores.view(B * H, N, M).softmax(-1).view(B, H, N, M) @ v


def clamped(q, k, v):
    scores = (q @ k.mT * SCALE).masked_fill(BLOCKED, -math.inf)
    return scores.clamp(min=torch.finfo(q.dtype).min).softmax(-1) @ v


def log_softmax(q, k, v):
    scores = (q @ k.mT * SCALE).masked_fill(BLOCKED, -math.inf)
    return F.log_softmax(scores, dim=-1).exp() @ v


def log_softmax_of_views(q, k, v):
    scores = (q @ k.mT * SCALE).masked_fill(BLOCKED, -math.inf)
    return torch.exp(scores.log_softmax(-1).flatten(0, 1)).view(B, H, N, M) @ v


def sums(q, k, v):
    scores = (q[:, :, :, None] * SCALE * k[:, :, None]).sum(-1)
    weights = scores.masked_fill(BLOCKED, -math.inf).softmax(-1)
    return (weights[..., None] * v[:, :, None]).sum(dim=-2)


def sums_the_other_way(q, k, v):
    scores = torch.sum(k.unsqueeze(2) * q.unsqueeze(3), dim=4) * SCALE
    weights = scores.masked_fill(BLOCKED, -math.inf).softmax(-1)
    return torch.sum(v.unsqueeze(2) * weights.unsqueeze(-1), 3)


def sum_then_product(q, k, v):
    scores = (q[:, :, :, None] * k[:, :, None]).sum(-1, keepdim=True).squeeze(-1) * SCALE
    return scores.masked_fill(BLOCKED, -math.inf).softmax(-1) @ v


def by_keyword(q, k, v):
    scores = torch.matmul(input=q, other=k.mT) * SCALE
    scores = torch.masked_fill(input=scores, mask=BLOCKED, value=-math.inf)
    weights = F.dropout(input=torch.softmax(input=scores, dim=-1), p=0.0)
    return torch.matmul(input=weights, other=v)


def shifted(q, k, v):
    scores = (q @ k.mT * SCALE).masked_fill(BLOCKED, -math.inf)
    return (scores - scores.amax(-1, keepdim=True)).softmax(-1) @ v


WAYS = [
    torch_max, clamped, log_softmax, log_softmax_of_views, sums, sums_the_other_way,
    sum_then_product, by_keyword, shifted,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_other_ways_give_the_same_record(way, attend):
    q, k, v = tensors()
    (record,), out = watched(way, q, k, v)
    weights, mixed = attend(q, k, v, ~BLOCKED, SCALE)
    assert torch.allclose(out, mixed, atol=1e-12)
    assert record.shape == (B, H, N, M)
    assert torch.equal(record.queries, q)
    assert torch.equal(record.keys, k)
    assert torch.equal(record.values, v)
    assert torch.equal(record.mask.expand(record.shape), ~BLOCKED.expand(record.shape))
    assert record.scale == pytest.approx(SCALE)
    assert record.bias is None
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert record.doubt is None


def test_one_query_that_pools(attend):
    q, k, v = (x[:, 0] for x in tensors(n=1))

    def pool(q, k, v):
        return ((q * k).sum(-1).softmax(-1)[..., None] * v).sum(1)

    (record,), _ = watched(pool, q, k, v)
    weights, _ = attend(q[:, None], k[:, None], v[:, None], None, 1.0)
    assert record.shape == (B, 1, 1, M)
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert torch.equal(record.keys[:, 0], k)


@pytest.mark.parametrize("order", ["slots first", "inputs first"])
def test_slot_attention(order):
    """Softmax over the slots, then normalised over the inputs (Locatello et al. 2020)."""

    def slots_first(q, k, v):
        weights = (torch.einsum("bid,bjd->bij", q, k) * SCALE).softmax(dim=1) + 1e-8
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return torch.einsum("bjd,bij->bid", v, weights)

    def inputs_first(q, k, v):
        weights = (k @ q.mT * SCALE).softmax(dim=-1) + 1e-8
        weights = weights / weights.sum(dim=1, keepdim=True)
        return weights.mT @ v

    q, k, v = (x[:, 0] for x in tensors())
    (record,), _ = watched(slots_first if order == "slots first" else inputs_first, q, k, v)
    weights = (q @ k.mT * SCALE).softmax(1) + 1e-8
    weights = weights / weights.sum(-1, keepdim=True)
    assert torch.equal(record.queries[:, 0], q)
    assert torch.equal(record.keys[:, 0], k)
    assert torch.equal(record.values[:, 0], v)
    assert torch.allclose(record.weights[:, 0], weights, atol=1e-12)
    assert "softmax over the queries" in repr(record)


def test_logarithms_of_weights_mix_nothing():
    seen, _ = watched(lambda q, k, v: (q @ k.mT).log_softmax(-1) @ v, *tensors())
    assert len(seen) == 0


# ---- how sure a record is


class Lookup(nn.Module):
    """A mixture of learned rows, as in a codebook or a gate over embeddings."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(D, 11))
        self.rows = nn.Parameter(torch.randn(11, E))

    def forward(self, x):
        return (x @ self.gate).softmax(-1) @ self.rows


class Tied(nn.Module):
    """The expected embedding under predicted words."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, D)

    def forward(self, x):
        return (x @ self.words.weight.T).softmax(-1) @ self.words.weight


@pytest.mark.parametrize("make", [Lookup, Tied])
@pytest.mark.parametrize("inference", [True, False])
def test_a_lookup_in_parameters_is_not_recorded(make, inference):
    model = make()
    with torch.inference_mode(inference), watch(model) as seen:
        model(torch.randn(B, N, D))
    assert len(seen) == 0
    assert f"no attention was recognised in {make.__name__}" in repr(seen)


def test_a_lookup_in_a_table_of_unknown_origin_is_in_doubt():
    table, rows = torch.randn(D, 11), torch.randn(11, E)
    seen, _ = watched(lambda x: (x @ table).softmax(-1) @ rows, torch.randn(B, N, D))
    assert "same for every row of the batch" in seen[0].doubt
    assert "in doubt" in repr(seen[0])


def test_learned_keys_with_computed_values_are_in_doubt():
    class Synthesised(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = nn.Parameter(torch.randn(D, N))

        def forward(self, x):
            return (x @ self.keys).softmax(-1) @ x

    model = Synthesised()
    with watch(model) as seen:
        model(torch.randn(B, N, D))
    assert "its keys are parameters" in seen[0].doubt


def test_learned_values_with_computed_keys_are_in_doubt():
    class Classes(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.randn(N, E))

        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ self.rows

    model = Classes()
    with watch(model) as seen:
        model(torch.randn(B, N, D))
    assert "its values are parameters" in seen[0].doubt


def test_learned_queries_are_attention():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Parameter(torch.randn(3, D))

        def forward(self, x):
            return (self.query @ x.mT).softmax(-1) @ x

    model = Pool()
    with watch(model) as seen:
        model(torch.randn(B, N, D))
    assert seen[0].doubt is None
    assert seen[0].shape == (B, 1, 3, N)
