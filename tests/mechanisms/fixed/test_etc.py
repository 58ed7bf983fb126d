"""ETC: the sum pair by pair, its four pieces, labels, structure, limits, and no n × n tensor."""

from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.patterns import Pattern
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.bigbird import BigBirdOptions
from attnlab.mechanisms.fixed.etc import FORMS, ETCAttention, ETCOptions, blocked, naive

NAMED = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
SIZES = ETCOptions(global_tokens=3, radius=2, segment=4)
OWN_ONLY = ETCOptions(global_tokens=3, radius=2, segment=4, own_only=True)


def pattern(**options: Any) -> Pattern:
    return ETCOptions(**options).pattern()


def made(n: int, labels: int = 9, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    shapes = {"q": (2, 3, n, 5), "k": (2, 3, n, 5), "v": (2, 3, n, 11), "labels": (3, labels, 5)}
    shapes |= {"global_keys": (2, 3, n, 5), "global_values": (2, 3, n, 11)}
    return {name: torch.randn(s, dtype=torch.float64).to(dtype) for name, s in shapes.items()}


def part_of(n: int, tokens: int) -> Tensor:
    return torch.randint(-1, tokens, (2, n))


def pair_by_pair(x: dict[str, Tensor], own: list[int], row: int, i: int, t: int, radius: int):
    """The output of position i of one sequence of the batch: a loop over what it may see."""
    q, k, v, labels = x["q"][row], x["k"][row], x["v"][row], x["labels"]
    if i < t:
        k, v = x["global_keys"][row], x["global_values"][row]
    clip, scores, values = (labels.shape[1] - 5) // 2, [], []
    for j in range(q.shape[1]):
        if i >= t and j >= t and abs(i - j) > radius:
            continue
        label = max(-clip, min(clip, j - i)) + clip
        if i >= t and j < t:
            label = 2 * clip + (1 if own[i] == j else 2)
        if i < t and j >= t:
            label = 2 * clip + (3 if own[j] == i else 4)
        key = k[:, j] + labels[:, label]
        scores.append((q[:, i] * key).sum(-1) / q.shape[-1] ** 0.5)
        values.append(v[:, j])
    weights = torch.softmax(torch.stack(scores, dim=-1), dim=-1)
    return (weights[..., None] * torch.stack(values, dim=1)).sum(1)


@NAMED
def test_pair_by_pair(form) -> None:
    x, own = made(13), part_of(13, 3)
    out = form(**x, options=SIZES, part_of=own)
    for row in range(2):
        for i in range(13):
            expected = pair_by_pair(x, own[row].tolist(), row, i, t=3, radius=2)
            torch.testing.assert_close(out[row, :, i], expected)


@pytest.mark.parametrize("own_only", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=["64", "32", "16"]
)
def test_blocked_is_naive_with_labels_and_all(dtype: torch.dtype, own_only: bool) -> None:
    """Values, and the gradients of queries, keys, values and labels, the global ones' too."""
    tolerance = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}[dtype]
    padding = torch.arange(23) < torch.tensor([[23], [17]])
    for block, radius, tokens, labels in ((3, 2, 3, 9), (5, 7, 2, 5), (None, 40, 0, 7)):
        x = {name: value.requires_grad_() for name, value in made(23, labels, dtype).items()}
        exact = {name: value.detach().double().requires_grad_() for name, value in x.items()}
        own = part_of(23, tokens) if tokens else None
        options = ETCOptions(global_tokens=tokens, radius=radius, own_only=own_only, segment=4)
        chosen = {"options": options, "part_of": own, "padding": padding}
        out, expected = blocked(**x, **chosen, block=block), naive(**exact, **chosen)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        direction = torch.randn(out.shape, dtype=torch.float64)
        used = [name for name in x if tokens or "global" not in name]
        mine = torch.autograd.grad((out * direction.to(dtype)).sum(), [x[name] for name in used])
        theirs = torch.autograd.grad((expected * direction).sum(), [exact[name] for name in used])
        for name, a, b in zip(used, mine, theirs, strict=True):
            scale = tolerance * max(1.0, b.abs().max().item())
            torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=scale, msg=name)


@NAMED
def test_no_global_tokens_and_a_wide_radius_are_full_attention(form) -> None:
    x = made(13)
    q, k, v = x["q"], x["k"], x["v"]
    out = form(q, k, v, options=ETCOptions(global_tokens=0, radius=12))
    torch.testing.assert_close(out, full.naive(q, k, v))
    out = form(q, k, v, options=ETCOptions(global_tokens=0, radius=11))
    assert not torch.allclose(out, full.naive(q, k, v))
    out = form(q, k, v, options=ETCOptions(global_tokens=13))
    torch.testing.assert_close(out, full.naive(q, k, v))


@NAMED
def test_labels_of_zero_are_the_mask_of_bigbird(form) -> None:
    """BigBird's ETC with blocks of one position: a window of 2·radius + 1."""
    x = made(17)
    q, k, v = x["q"], x["k"], x["v"]
    blocks = BigBirdOptions(block=1, window=5, random=0, global_blocks=0, global_tokens=3)
    seen = blocks.pattern()
    assert torch.equal(SIZES.pattern().dense(17), seen.dense(17))
    expected = full.naive(q, k, v, mask=seen)
    torch.testing.assert_close(form(q, k, v, options=SIZES), expected)
    torch.testing.assert_close(form(q, k, v, options=SIZES, labels=0 * x["labels"]), expected)
    assert not torch.allclose(form(q, k, v, options=SIZES, labels=x["labels"]), expected)


def test_own_only_by_hand() -> None:
    """Two global tokens, runs of two long ones; the last global token takes the rest."""
    seen = pattern(global_tokens=2, radius=0, segment=2, own_only=True).dense(7).int().tolist()
    assert seen == [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 1, 0, 0, 0],
        [0, 1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0, 1, 0],
        [0, 1, 0, 0, 0, 0, 1],
    ]


def test_segments_cover_what_they_allow() -> None:
    seen = pattern(global_tokens=3, radius=1, segment=4, own_only=True).sized(19)
    dense = seen.dense(19)
    for top in range(19):
        for height in (1, 3, 6):
            rows = range(top, min(19, top + height))
            for left in range(6):
                columns = range(left, left + 1 + left % 3)
                cover = seen.cover(rows, columns)
                block = dense[rows.start : rows.stop, columns.start : columns.stop]
                assert cover is None or (block == cover).all()
    assert seen.cover(range(3, 7), range(0, 1)) is True
    assert seen.cover(range(8, 11), range(0, 1)) is False


@NAMED
def test_sentences_of_each_sequence(form) -> None:
    """``part_of`` tells the runs of ``segment``, or anything else; −1 sees no global token."""
    x = made(13)
    q, k, v, labels = x["q"], x["k"], x["v"], x["labels"]
    runs = torch.tensor([-1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]).expand(2, -1)
    chosen = {"labels": labels, "options": OWN_ONLY}
    out = form(q, k, v, **chosen, part_of=runs)
    torch.testing.assert_close(out, form(q, k, v, **chosen))
    nobody = form(q, k, v, **chosen, part_of=torch.full((2, 13), -1))
    long = ETCOptions(global_tokens=0, radius=2)
    alone = form(q[:, :, 3:], k[:, :, 3:], v[:, :, 3:], labels=labels, options=long)
    torch.testing.assert_close(nobody[:, :, 3:], alone)


def test_no_tensor_grows_with_the_square() -> None:
    """Extra memory, forward and backward, is linear in n."""
    peaks = {}
    for form in (naive, blocked):
        for n in (512, 1024):
            shapes = ((1, 2, n, 8),) * 3
            x = [torch.randn(s, requires_grad=True) for s in shapes]
            labels = torch.randn(2, 9, 8, requires_grad=True)
            few = ETCOptions(global_tokens=4, radius=8)
            call = lambda q, k, v, a, f=form, o=few: f(q, k, v, labels=a, options=o)  # noqa: E731
            counted = count(call, *x, labels, backward=True)
            peaks[form.__name__, n] = counted.peak_bytes
            assert (counted.largest_tensor.elements < n**2 / 4) == (form is blocked)
    assert peaks["naive", 1024] > 3.5 * peaks["naive", 512]
    assert peaks["blocked", 1024] < 2.2 * peaks["blocked", 512]


@pytest.mark.parametrize("form", FORMS)
def test_mixing_matrix_is_the_softmax_with_labels(form: str) -> None:
    layer = ETCAttention(12, 3, SIZES, form=form, clip=2).double()
    layer.labels.data *= 50  # as large as a key
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    q, k, v = layer.heads.project(x)
    with record() as notes:
        naive(q, k, v, labels=layer.labels, options=SIZES)
    mixing = mixing_matrix(layer, x)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, notes["weights"][0], rtol=0, atol=1e-6)


def test_the_mask_is_noted_with_padding_and_sentences() -> None:
    layer = ETCAttention(12, 3, OWN_ONLY)
    padding, own = torch.rand(2, 13) > 0.3, part_of(13, 3)
    with record() as notes:
        layer(torch.randn(2, 13, 12), padding, part_of=own)
    seen = notes["mask"][0].dense(13)
    assert seen.shape == (2, 1, 13, 13)
    l2g = (own[:, 3:, None] == torch.arange(3)) & padding[:, None, :3]
    assert torch.equal(seen[:, 0, 3:, :3], l2g)
    assert torch.equal(seen[:, 0, 0], padding)


def test_separate_projections_with_equal_weights_are_the_shared_ones() -> None:
    shared = ETCAttention(12, 3, SIZES)
    separate = ETCAttention(12, 3, SIZES, separate=True)
    separate.load_state_dict(shared.state_dict(), strict=False)
    for name, piece in separate.pieces.items():
        piece.load_state_dict(getattr(shared.heads, name.rpartition("_")[2]).state_dict())
    x = torch.randn(2, 13, 12)
    torch.testing.assert_close(separate(x), shared(x))
    assert len(separate.pieces) == 7  # a query, and keys and values of three pieces
    for name, piece in separate.pieces.items():  # each has a place of its own
        before, weight = separate(x), piece.weight.data.clone()
        piece.weight.data += 1
        changed = (separate(x) - before).abs().amax(dim=(0, 2)) > 1e-6
        piece.weight.data = weight
        of_long, of_global = name.startswith("l2"), name.startswith(("g2", "global"))
        assert changed[:3].all() == of_global, name
        assert changed[3:].any() == of_long, name


def test_information_travels_by_the_global_token() -> None:
    """Two layers reach everything; with the neighbourhood alone they do not."""
    assert pattern(global_tokens=1, radius=1).receptive_field(31, 2).complete
    assert not pattern(global_tokens=0, radius=1).receptive_field(31, 2).complete


def test_whole_under_compile_with_sentences() -> None:
    layer = ETCAttention(12, 3, OWN_ONLY)
    x, own = torch.randn(2, 13, 12), part_of(13, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, part_of=own), layer(x, part_of=own))


def test_wrong_arguments_are_answered_in_sentences() -> None:
    x = made(7, labels=8)
    q, k, v = x["q"], x["k"], x["v"]
    for form in FORMS.values():
        with pytest.raises(ValueError, match="number is odd and at least 5: got 8"):
            form(q, k, v, labels=x["labels"])
        with pytest.raises(ValueError, match="radius should be at least 0, got -1"):
            form(q, k, v, options=ETCOptions(radius=-1))
        with pytest.raises(ValueError, match="part_of does nothing without labels"):
            form(q, k, v, part_of=part_of(7, 2))
        own = torch.full((2, 7), 5)
        two = ETCOptions(own_only=True, global_tokens=2)
        with pytest.raises(ValueError, match="global token 5, but there are 2: 0 … 1, or −1"):
            form(q, k, v, part_of=own, options=two)
    with pytest.raises(ValueError, match="block should be at least 1, got 0"):
        blocked(q, k, v, block=0)
    with pytest.raises(ValueError, match="etc cannot be causal: its global tokens"):
        attnlab.build("etc", dim=12, heads=3, causal=True)
    with pytest.raises(ValueError, match="clip should be at least 0, got -2"):
        ETCAttention(12, 3, clip=-2)
    with pytest.raises(ValueError, match="segment should be at least 1, got 0"):
        attnlab.build("etc", dim=12, heads=3, segment=0)


@pytest.mark.parametrize("form", FORMS)
def test_no_sequences_and_no_numbers(form: str) -> None:
    """An empty batch, and the meta device, which has shapes only."""
    layer, own = ETCAttention(12, 3, OWN_ONLY, separate=True, form=form), part_of(13, 3)
    empty = layer(torch.randn(0, 13, 12), torch.ones(0, 13).bool(), part_of=own[:0])
    assert empty.shape == (0, 13, 12)
    x, padding = torch.randn(2, 13, 12, device="meta"), torch.ones(2, 13, device="meta").bool()
    assert layer.to("meta")(x, padding, part_of=own.to("meta")).shape == x.shape


@pytest.mark.parametrize("own_only", [False, True])
def test_pairs_of_any_length(own_only: bool) -> None:
    """g2g and g2l are full; l2g is full or one a token; l2l is a band, cut off at its corners."""
    for t, radius in ((0, 1), (2, 2), (3, 4), (1, 200)):
        seen = pattern(global_tokens=t, radius=radius, segment=3, own_only=own_only)
        for n in (1, 2, 3, 7, 16, 31, 64, 97):
            long = max(0, n - t)
            band = sum(min(long, i + radius + 1) - max(0, i - radius) for i in range(long))
            l2g = long * (min(t, 1) if own_only else min(t, n))
            expected = min(t, n) * n + l2g + band
            assert seen.dense(n).sum() == seen.count(n) == expected, (t, radius, n)
