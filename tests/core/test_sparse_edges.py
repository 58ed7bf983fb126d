"""Sparse forms at their edges: lengths, copies, autocast, dropout of heads, second derivatives."""

import shutil
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.core import patterns as p
from attnlab.core.sparse.auto import SHORT_GPU, auto, choose
from attnlab.core.sparse.blocked import blocked
from attnlab.core.sparse.flex import flex
from attnlab.core.sparse.layout import Batch, layout


def inputs(n: int, m: int, e: int = 16, b: int = 2, h: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(b, h, *rest) for rest in ((n, 16), (m, 16), (m, e))]


def test_queries_without_a_place_are_refused() -> None:
    """The queries are the last positions: more of them than keys have none to stand at."""
    made = inputs(7, 5)
    with pytest.raises(ValueError, match="7 queries cannot stand last among 5 keys"):
        blocked(*made, p.full())
    with torch.no_grad(), pytest.raises(ValueError, match="7 queries cannot stand last"):
        flex(*made, p.full())
    long = inputs(701, 601, h=1)
    expected = F.scaled_dot_product_attention(*long)
    torch.testing.assert_close(auto(*long, p.full()), expected)


def test_half_precision_under_autocast_is_summed_in_float32() -> None:
    """Forward and backward alike: a product that autocast rounds would not match its gradient."""
    q, k, v = inputs(97, 97, 11)
    made = [x.bfloat16().float().requires_grad_() for x in (q * 4, k, v)]
    wanted = blocked(*made, p.local(9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = blocked(*made, p.local(9))
    torch.testing.assert_close(out, wanted)
    direction = torch.randn_like(wanted)
    grads, expected = (torch.autograd.grad(x, made, direction) for x in (out, wanted))
    torch.testing.assert_close(grads, expected)


def test_heads_that_see_differently_drop_different_weights() -> None:
    n = 61
    q = k = torch.zeros(1, 2, n, 16)
    v = torch.eye(n).expand(1, 2, n, n)
    pattern = p.per_head(p.local(20), p.local(20) | p.local(19))
    kept = blocked(q, k, v, pattern, dropout=0.5)[:, :, p.local(20).dense(n)] > 0
    assert 0.4 < (kept[:, 0] == kept[:, 1]).float().mean() < 0.6


def test_second_derivatives_are_refused_not_left_out() -> None:
    made = [x.requires_grad_() for x in inputs(7, 7)]
    out = blocked(*made, p.local(2))
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(out.sum(), made, create_graph=True)


def test_no_sequences_are_nothing_to_attend() -> None:
    made = [x.requires_grad_() for x in inputs(7, 7, 11, b=0)]
    out = blocked(*made, p.local(2))
    assert out.shape == (0, 3, 7, 11)
    assert [g.shape for g in torch.autograd.grad(out.sum(), made)] == [x.shape for x in made]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, while it compiles
@pytest.mark.skipif(
    not shutil.which("g++") or torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="no C++ compiler, or no AVX2",
)
def test_flex_takes_one_padding_for_all_sequences() -> None:
    torch.manual_seed(2)
    made, padded = inputs(131, 131, h=1), p.local(9) & p.padding(torch.rand(1, 131) > 0.3)
    with torch.no_grad():
        torch.testing.assert_close(flex(*made, padded), blocked(*made, padded))


def test_patterns_that_differ_between_sequences_are_not_for_flex() -> None:
    n = SHORT_GPU + 53
    pattern = p.document(torch.arange(n) // torch.tensor([[7], [13]]))
    with torch.no_grad(), pytest.raises(ValueError, match="differs between sequences; use blocked"):
        flex(*inputs(n, n), pattern)
    elsewhere = [x.to("meta") for x in inputs(n, n)]
    choice = choose(*elsewhere, pattern)
    assert choice.form == "blocked"
    assert "differs between sequences" in choice.why
    assert choose(*elsewhere, p.local(3)).form == "flex"


def test_heads_may_differ_in_padding_and_documents() -> None:
    made = inputs(13, 13)
    real = torch.arange(13)[None] < torch.tensor([[13], [9]])
    ids = torch.stack((torch.arange(13) // 5, torch.arange(13) // 4))
    pattern = p.per_head(p.causal() & p.padding(real), p.local(2), p.document(ids))
    mask = pattern.dense(13)
    assert mask.shape == (2, 3, 13, 13)
    for head, own in enumerate((p.causal() & p.padding(real), p.local(2), p.document(ids))):
        assert torch.equal(mask[:, head], own.dense(13).expand(2, 1, 13, 13)[:, 0])
    expected = F.scaled_dot_product_attention(*made, attn_mask=mask)
    torch.testing.assert_close(blocked(*made, pattern), expected)


def test_a_layout_of_documents_is_put_together_for_each_sequence() -> None:
    ids = torch.stack((torch.arange(37) // 5, torch.arange(37) // 11))
    pattern = p.document(ids) & p.causal()
    assert torch.equal(layout(pattern, 37, 37, 8).dense(), pattern.dense(37))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: p.blocks(2.5), "size of a block should be a whole number, got 2.5"),
        (lambda: p.local(1).shifted(0.5), "starts should be a whole number, got 0.5"),
        (lambda: blocked(*inputs(7, 7), p.full(), block=2.5), "block should be a whole number"),
        (lambda: blocked(*inputs(7, 7), p.full(), block=0), "block should be at least 1, got 0"),
        (lambda: layout(p.full(), 7, 7, 3.5), "block should be a whole number or None, got 3.5"),
        (lambda: p.receptive_field([], 7, 2), "pattern of at least one layer, got none"),
        (lambda: p.local(1).receptive_field(7, 2.5), "layers should be a whole number, got 2.5"),
        (lambda: p.listed(torch.tensor([[0, 1], [-2, 1]])), "lists key -2, but its 2 rows"),
        (lambda: p.listed(torch.tensor([[0, 2], [-1, 1]])), "lists key 2, but its 2 rows"),
        (lambda: p.random(2, "a"), "seed should be a whole number, got 'a'"),
        (lambda: p.random(2, among=3), "among should be a pattern to draw from, got 3"),
        (lambda: p.per_head(p.full(), 3), "takes patterns, got 3 for head 1"),
        (lambda: p.per_head(p.per_head(p.full())), "pattern of head 0 is itself for several"),
        (lambda: p.local_2d([3], 1), "should have 2 dimensions, got the shape"),
        (lambda: p.read("local_2d([3], 1)"), "should have 2 dimensions, got the shape"),
        (lambda: p.read("random(3, among=[1])"), "random: among should be a pattern"),
        (lambda: p.read("axial(3, 1)"), "axial: .* shape"),
    ],
)
def test_wrong_arguments_are_refused_in_sentences(call: Callable[[], object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_a_query_that_sees_nothing_is_named() -> None:
    made = inputs(9, 9)
    with pytest.warns(
        UserWarning, match=r"query 0 \(and 1 more\) attends to nothing, so .*~local\(1\)"
    ):
        blocked(*made, (~p.local(1)).causal())
    with pytest.warns(
        UserWarning, match="query 0 attends to nothing in head 1, so its output is zero"
    ):
        out = blocked(*made, p.per_head(p.causal(), p.causal() & ~p.local(0), p.causal()))
    assert not out[:, 1, 0].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocked(*made, (~p.local(1)).causal(), allow_fully_masked=True)
        real = torch.zeros(2, 9, dtype=torch.bool)
        blocked(*made, p.causal() & p.padding(real))  # what is missing there, padding took


def test_a_warning_points_to_the_call() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocked(*inputs(5, 5), ~p.full())
    assert [warning.filename for warning in caught] == [__file__]


def test_heads_come_back_in_their_places() -> None:
    """Heads that see alike are attended together, here 0 and 3, 1, 2."""
    torch.manual_seed(0)
    made = [torch.randn(1, 4, 13, 16) for _ in range(3)]
    alike = p.local(1)
    pattern = p.per_head(alike, p.causal(), p.strided(3), alike)
    wanted = F.scaled_dot_product_attention(*made, attn_mask=pattern.dense(13))
    torch.testing.assert_close(blocked(*made, pattern), wanted)


def test_two_paddings_are_both_honoured() -> None:
    made = inputs(13, 13)
    first = torch.arange(13)[None] < torch.tensor([[13], [9]])
    second = torch.arange(13)[None] >= torch.tensor([[2], [0]])
    pattern = p.padding(first) & p.local(20) & p.padding(second)
    wanted = F.scaled_dot_product_attention(*made, attn_mask=(first & second)[:, None, None])
    torch.testing.assert_close(blocked(*made, pattern), wanted)


@pytest.mark.parametrize("e", [16, 11], ids=["kernel", "equation"])
def test_scale_is_the_callers(e: int) -> None:
    made = [x.requires_grad_() for x in inputs(13, 13, e)]
    out = blocked(*made, p.causal(), scale=0.7)
    wanted = F.scaled_dot_product_attention(*made, is_causal=True, scale=0.7)
    torch.testing.assert_close(out, wanted)
    direction = torch.randn_like(wanted)
    grads, expected = (torch.autograd.grad(x, made, direction) for x in (out, wanted))
    torch.testing.assert_close(grads, expected)


def test_gradients_of_a_much_seen_key_are_summed_in_float32() -> None:
    """Every block adds to them: in bfloat16, small parts would be lost beside the sum."""
    torch.manual_seed(0)
    made = [torch.rand(1, 1, 2048, 16).bfloat16() for _ in range(3)]
    pattern = p.places([0], of="column") | p.local(0)
    grads = []
    for dtype in (torch.bfloat16, torch.float32):
        leaves = [x.to(dtype).requires_grad_() for x in made]
        out = blocked(*leaves, pattern, block=8)
        grads.append(torch.autograd.grad(out, leaves, torch.ones_like(out))[2][0, 0, 0].float())
    torch.testing.assert_close(*grads, rtol=1e-2, atol=0)


def test_pieces_are_taken_from_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch of one, heads split from one width: index_select would copy all for each piece."""
    taken = []
    for name in ("take_queries", "take_keys"):
        take = getattr(Batch, name)

        def look(batch: Batch, x: Tensor, take: Callable[..., Tensor] = take) -> Tensor:
            taken.append(x.is_contiguous())
            return take(batch, x)

        monkeypatch.setattr(Batch, name, look)
    made = torch.randn(3, 1, 64, 5, 16).transpose(2, 3).requires_grad_()
    out = blocked(*made, (p.local(2) | p.strided(3)).causal(), block=8)
    out.transpose(1, 2).flatten(2).square().sum().backward()
    assert len(taken) > 20
    assert all(taken)
