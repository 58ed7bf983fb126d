"""Attention that several processes share is that of one: values, gradients, bytes, work."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from attnlab.parallel import ring, tree, ulysses
from attnlab.parallel.context import _share, shared_attention
from attnlab.parallel.launch import in_processes
from attnlab.parallel.layouts import LAYOUTS, claimed_pairs, counted_pairs, positions, whole
from attnlab.parallel.merge import Partial, attended, merged, nothing

CASES = [
    *itertools.product(("ring", "ulysses"), (True, False), LAYOUTS),
    *itertools.product(("tree",), (False,), LAYOUTS),
]
B, H, G, D, E = 2, 4, 2, 5, 3  # batch, heads of queries and of keys, widths


def tensors(n, dtype=torch.float64, g=G):
    generator = torch.Generator().manual_seed(n)
    sizes = ((H, D), (g, D), (g, E), (H, E))
    return [torch.randn(B, h, n, w, generator=generator, dtype=dtype) for h, w in sizes]


def one_process(q, k, v, d_out, causal):
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=True)
    out.backward(d_out)
    return out.detach(), *(x.grad for x in given)


def all_cases(group, q, k, v, d_out, cases):
    found = []
    for way, causal, layout in cases:
        group.sent.clear()
        group.events.clear()
        found.append(_share(group, way, causal, layout, q, k, v, d_out))
    return found


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_values_gradients_and_bytes(processes):
    """Ring, Ulysses and tree, every layout, causal and not, in one start of the processes."""
    n = 36 if processes == 3 else 32
    cases = [case for case in CASES if case[0] != "ulysses" or H % processes == 0]
    given = tensors(n)
    each = in_processes(all_cases, processes, *given, cases, limit=60)
    for number, (way, causal, layout) in enumerate(cases):
        outs, grads, forward, backward, _ = zip(*(found[number] for found in each), strict=True)
        expected = one_process(*given, causal)
        keys = [whole(list(x), layout) for x in list(zip(*grads, strict=True))[1:]]
        if way == "tree":
            assert all(torch.equal(outs[0], out) for out in outs)
            got = [outs[0], grads[0][0], *keys]
        else:
            queries = whole([g[0] for g in grads], layout)
            got = [whole(list(outs), layout), queries, *keys]
        for mine, exact in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, exact, rtol=1e-12, atol=1e-13)
        for sent_forward, sent_backward in zip(forward, backward, strict=True):
            numbers = [sum(s.numbers for s in sent) for sent in (sent_forward, sent_backward)]
            if way == "ring":
                assert tuple(numbers) == ring.numbers_sent(n, processes, G, D, E, batch=B)
                claimed = ring.bytes_sent(n, processes, G, D, E, torch.float64, batch=B)
                assert sum(s.bytes for s in sent_backward) == claimed[1]
            elif way == "ulysses":
                assert tuple(numbers) == ulysses.numbers_sent(n, processes, H, G, D, E, batch=B)
            elif processes != 3:
                assert numbers[0] == B * tree.numbers_sent(processes, H, E, queries=n)
            assert sum(s.bytes for s in sent_forward) == 8 * numbers[0]


def test_fewer_heads_of_keys_than_processes_and_half_precision():
    """Multi-query attention by Ulysses repeats its one head; bfloat16 goes in and comes out."""
    given = tensors(16, g=1)
    shared = shared_attention(*given[:3], processes=4, way="ulysses", causal=True, d_out=given[3])
    for mine, exact in zip((shared.out, *shared.gradients), one_process(*given, True), strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-12, atol=1e-13)
    sent = [sum(s.numbers for s in sent) for sent in shared.forward]
    assert sent == [ulysses.numbers_sent(16, 4, H, 1, D, E, batch=B)[0]] * 4

    given = tensors(16, torch.bfloat16)
    shared = shared_attention(*given[:3], processes=2, causal=True, d_out=given[3])
    assert shared.out.dtype == torch.bfloat16
    exact = one_process(*(x.double() for x in given), True)
    for mine, other in zip((shared.out, *shared.gradients), exact, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=0.02, atol=0.02)
    claimed = ring.bytes_sent(16, 2, G, D, E, torch.bfloat16, batch=B)
    for sent in zip(shared.forward, shared.backward, strict=True):
        assert tuple(sum(s.bytes for s in way) for way in sent) == claimed


# ---- PyTorch's own ring and order


def pytorchs_ring(group, q, k, v):
    """PyTorch's ring with its kernel for a CPU, which its public API does not reach."""
    import torch.distributed as dist
    from torch.distributed.tensor.experimental._context_parallel import _attention

    def kernel(query, key, value, is_causal=False, **_):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, is_causal
        )

    shards = [x[:, :, positions("zigzag", x.shape[2], group.size)[group.rank]] for x in (q, k, v)]
    own = ring.ring_attention(group, *shards, causal=True, layout="zigzag")
    theirs = _attention._templated_ring_attention(
        dist.group.WORLD, 2, kernel, *shards, is_causal=True
    )
    return own, theirs[0]


def test_the_ring_of_pytorch_is_the_same():
    from torch.distributed.tensor.experimental._context_parallel import _load_balancer

    q, k, *_ = tensors(32, torch.float32, g=H)
    for own, theirs in in_processes(pytorchs_ring, 2, q, k, k):
        torch.testing.assert_close(own, theirs)
    order = _load_balancer._HeadTailLoadBalancer(48, 3, "cpu")._generate_indices()
    assert torch.equal(torch.cat(positions("zigzag", 48, 3)), order.flatten())


# ---- work


@pytest.mark.parametrize("processes", [1, 2, 4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_counted_pairs_are_the_claim(layout, processes):
    n = 8 * processes
    counted = counted_pairs(layout, n, processes)
    assert int(counted.sum()) == n * (n + 1) // 2
    for rank, total in enumerate(counted.sum(1).tolist()):
        assert total == claimed_pairs(layout, n, processes, rank)


def test_zigzag_is_balanced_in_every_step_and_contiguous_is_not():
    zigzag, contiguous = (counted_pairs(layout, 64, 4) for layout in ("zigzag", "contiguous"))
    assert (zigzag == zigzag[:1]).all()
    assert (zigzag[:, 1:] == 2 * 8**2).all()
    assert contiguous[0, 1:].sum() == 0
    share = contiguous.sum(1).max() / contiguous.sum(1).double().mean()
    assert float(share) == pytest.approx(2 - 1 / 4, rel=0.02)
    assert (counted_pairs("striped", 64, 4, causal=False) == 16**2).all()


# ---- the merge


def test_merges_are_associative_commutative_and_have_a_neutral_element():
    q, k, v, _ = tensors(30)
    parts = [attended(q, k[:, :, at], v[:, :, at], None, 0.5) for at in (
        slice(0, 7), slice(7, 18), slice(18, 30),
    )]  # fmt: skip
    exact = attended(q, k, v, None, 0.5)
    one, two, three = parts
    for total in (
        merged(merged(one, two), three),
        merged(one, merged(three, two)),
        merged(nothing(q, v), merged(merged(three, nothing(q, v)), merged(two, one))),
    ):
        torch.testing.assert_close(total, exact)
    mean = (one.out + two.out + three.out) / 3
    assert (mean - exact.out).abs().max() > 0.1
    empty = attended(q, k, v, torch.zeros(30, 30, dtype=torch.bool), 0.5)
    assert (empty.out == 0).all()
    assert (empty.lse == -torch.inf).all()
    none = merged(empty, nothing(q, v))
    assert isinstance(none, Partial)
    assert (none.out == 0).all()
