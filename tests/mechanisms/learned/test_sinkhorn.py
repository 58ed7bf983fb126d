"""Sinkhorn: the equations pair by pair, its limits (R3), and the leak of column sums."""

import math
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.sinkhorn import (
    FORMS,
    SinkhornAttention,
    SinkhornOptions,
    SortNetwork,
    gumbel,
    pooled,
    sinkhorn,
)

BATCH, H, N, D, E, BLOCK = 2, 3, 14, 5, 7, 4  # the fourth block has two tokens
REAL = torch.arange(N) < torch.tensor([[N], [7]])

by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
padded = pytest.mark.parametrize("padding", [None, REAL], ids=["whole", "padded"])
joins = pytest.mark.parametrize("join", ["concat", "sorted", "sum"])


def made(n: int = N, blocks: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    shapes = ((BATCH, H, n, D), (BATCH, H, n, D), (BATCH, H, n, E), (BATCH, H, blocks, blocks))
    q, k, v, scores = (torch.randn(s, dtype=torch.float64) for s in shapes)
    return q, k, v, sinkhorn(scores, 6)


def softmax_sum(q: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """What a query takes from pairs of keys and values."""
    powers = [torch.exp(q @ k / math.sqrt(D)) for k, _ in pairs]
    return sum(p * v for p, (_, v) in zip(powers, pairs, strict=True)) / sum(powers)


def one_query(
    i: int, head: tuple[Tensor, ...], real: int, causal: bool, join: str, budget: int | None
) -> Tensor:
    """The output at i of one head, key by key; ``real`` tokens count."""
    q, k, v, sort = head
    own = i // BLOCK
    brought: list[tuple[Tensor, Tensor]] = []
    for row in [own] if budget is None else range(min(budget, -(-real // BLOCK))):
        for place in range(BLOCK):
            earlier = range(row) if causal else range(len(sort))
            from_ = [(j, j * BLOCK + place) for j in earlier if j * BLOCK + place < real]
            if from_:
                mixed = [sum(sort[row, j] * x[at] for j, at in from_) for x in (k, v)]
                brought.append((mixed[0], mixed[1]))
    last = min(real, i + 1 if causal else own * BLOCK + BLOCK)
    near = [(k[j], v[j]) for j in range(own * BLOCK, last)]
    kinds = {"concat": [brought + near], "sorted": [brought], "sum": [brought, near]}[join]
    return sum((softmax_sum(q[i], pairs) for pairs in kinds if pairs), 0 * v[0])


@pytest.mark.parametrize(
    ("causal", "budget"), [(False, None), (True, None), (False, 2), (False, 9)]
)
@joins
@padded
@by_form
def test_pair_by_pair(
    form: Callable[..., Tensor], padding: Tensor | None, join: str, causal: bool, budget: int | None
) -> None:
    made_up = made()
    options = SinkhornOptions(block=BLOCK, join=join, budget=budget)
    out = form(*made_up, causal=causal, padding=padding, options=options)
    real = [N] * BATCH if padding is None else padding.sum(-1).tolist()
    for b in range(BATCH):
        for h in range(H):
            head = tuple(x[b, h] for x in made_up)
            for i in range(real[b]):
                expected = one_query(i, head, real[b], causal, join, budget)
                torch.testing.assert_close(out[b, h, i], expected)


# ---- R3: limits


def hard(order: list[int]) -> Tensor:
    """The permutation that brings block order[i] to block i."""
    return torch.eye(len(order), dtype=torch.float64)[order].expand(BATCH, H, -1, -1)


@by_form
def test_a_hard_permutation_is_attention_to_permuted_blocks(form: Callable[..., Tensor]) -> None:
    q, k, v, _ = made(12)
    order = [2, 0, 1]
    out = form(q, k, v, hard(order), options=SinkhornOptions(block=4, join="sorted"))
    block = torch.arange(12) // 4
    mask = torch.tensor(order)[block][:, None] == block
    torch.testing.assert_close(out, full.naive(q, k, v, mask=mask))
    both = form(q, k, v, hard(order), options=SinkhornOptions(block=4))
    expected = full.naive(q, k, v, mask=mask | (block[:, None] == block))
    torch.testing.assert_close(both, expected)


@by_form
def test_the_identity_is_attention_inside_of_blocks(form: Callable[..., Tensor]) -> None:
    q, k, v, _ = made(12)
    block = torch.arange(12) // 4
    expected = full.naive(q, k, v, mask=block[:, None] == block)
    out = form(q, k, v, hard([0, 1, 2]), options=SinkhornOptions(block=4, join="sorted"))
    torch.testing.assert_close(out, expected)
    twice = form(q, k, v, hard([0, 1, 2]), options=SinkhornOptions(block=4, join="sum"))
    torch.testing.assert_close(twice, 2 * expected)


@padded
@by_form
def test_one_block_is_full_attention(form: Callable[..., Tensor], padding: Tensor | None) -> None:
    q, k, v, _ = made()
    real = torch.ones(BATCH, N, dtype=torch.bool) if padding is None else padding
    out = form(q, k, v, hard([0]), padding=padding, options=SinkhornOptions(block=20))
    expected = full.naive(q, k, v, mask=real[:, None, None])
    of_real = real[:, None, :, None].expand_as(out)
    torch.testing.assert_close(out[of_real], expected[of_real])


@by_form
def test_sortcut_of_all_blocks_is_full_attention(form: Callable[..., Tensor]) -> None:
    q, k, v, _ = made(12)
    options = SinkhornOptions(block=4, join="sorted", budget=3)
    torch.testing.assert_close(form(q, k, v, hard([2, 0, 1]), options=options), full.naive(q, k, v))
    first = form(
        q, k, v, hard([2, 0, 1]), options=SinkhornOptions(block=4, join="sorted", budget=1)
    )
    expected = full.naive(q, k[:, :, 8:], v[:, :, 8:])
    torch.testing.assert_close(first, expected)


@joins
def test_weights_are_the_map_of_the_output(join: str) -> None:
    q, k, v, sort = made()
    with record() as notes:
        out = FORMS["naive"](q, k, v, sort, options=SinkhornOptions(block=BLOCK, join=join))
    weights = notes.last("weights")
    assert weights.shape == (BATCH, H, N, N)
    torch.testing.assert_close(weights @ v, out)
    torch.testing.assert_close(notes.last("permutation"), sort)


# ---- Sinkhorn's normalisation


def test_the_matrix_becomes_doubly_stochastic() -> None:
    scores = 3 * torch.randn(H, 6, 6, dtype=torch.float64)
    off = [(sinkhorn(scores, i).sum(-1) - 1).abs().max().item() for i in (1, 5, 20, 200)]
    assert off[0] > off[1] > off[2] > off[3]
    assert off[3] < 1e-6
    for iterations in (1, 5):
        columns = sinkhorn(scores, iterations).sum(-2)
        torch.testing.assert_close(columns, torch.ones_like(columns))
    rows = sinkhorn(scores, 3, columns=False)
    torch.testing.assert_close(rows, scores.softmax(-1))


def test_a_constant_changes_nothing() -> None:
    scores = torch.randn(6, 6, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(scores + 5, 4), sinkhorn(scores, 4))
    by_row = scores + torch.randn(6, 1, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(by_row, 4), sinkhorn(scores, 4))


def test_a_low_temperature_gives_the_best_permutation() -> None:
    """The one whose scores have the largest sum, and that is not the largest of each row."""
    scores = torch.tensor([[3.0, 2.0, 0.0], [2.9, 0.0, 0.0], [0.0, 1.0, 1.0]])
    found = sinkhorn(scores / 0.02, 500)
    torch.testing.assert_close(found, torch.eye(3)[[1, 0, 2]], atol=1e-2, rtol=0)
    assert scores.argmax(-1).tolist() != [1, 0, 2]


def test_what_is_not_allowed_is_zero_and_never_nan() -> None:
    scores = (1000 * torch.randn(2, 5, 5)).requires_grad_()
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    allowed = real[..., None] & real[..., None, :]
    found = sinkhorn(scores, 5, allowed=allowed)
    assert (found[~allowed] == 0).all()
    (gradient,) = torch.autograd.grad(found.square().sum(), scores)
    assert gradient.isfinite().all()
    torch.testing.assert_close(found[1, :3, :3], sinkhorn(scores[1, :3, :3], 5))


# ---- causality


def causal_mask(blocks: int) -> Tensor:
    return torch.ones(blocks, blocks, dtype=torch.bool).tril(-1)


def test_column_sums_leak_the_future_and_rows_do_not() -> None:
    """The scores of the last block change; with columns, rows before it do."""
    scores = torch.randn(6, 6, dtype=torch.float64)
    other = scores.clone()
    other[5] += torch.randn(6, dtype=torch.float64)
    for columns in (True, False):
        before, after = (
            sinkhorn(x, 5, allowed=causal_mask(6), columns=columns) for x in (scores, other)
        )
        same = torch.isclose(before, after)[:5].all()
        assert bool(same) is not columns
    assert (sinkhorn(scores, 5, allowed=causal_mask(6), columns=False).triu() == 0).all()


def test_the_leak_reaches_the_output() -> None:
    """Of a causal form that is given a matrix normalised by columns; the layer gives it none."""
    ours = layer(causal=True)
    x = torch.randn(1, 16, 12, dtype=torch.float64)
    other = x.clone()
    other[:, 12:] = 5 * torch.randn(1, 4, 12, dtype=torch.float64)
    leaks = []
    for columns in (True, False):
        outs = []
        for sequence in (x, other):
            scores = ours.network(pooled(sequence, BLOCK, causal=True))
            sort = sinkhorn(scores, 8, allowed=causal_mask(4), columns=columns)
            heads = ours.heads.project(sequence)
            outs.append(FORMS["blocked"](*heads, sort, causal=True, options=ours.options))
        leaks.append(not torch.allclose(outs[0][:, :, :12], outs[1][:, :, :12]))
    assert leaks == [True, False]
    torch.testing.assert_close(ours(x)[:, :12], ours(other)[:, :12])


def test_the_causal_network_is_told_the_past_alone() -> None:
    x = torch.randn(BATCH, 11, D, dtype=torch.float64)
    expected = torch.stack([x[:, : start + 1].sum(1) for start in (0, 4, 8)], dim=1)
    torch.testing.assert_close(pooled(x, 4, causal=True), expected)
    real = torch.arange(11) < torch.tensor([[11], [6]])
    sums = pooled(x, 4, padding=real)
    torch.testing.assert_close(sums[1, 1], x[1, 4:6].sum(0))
    assert (sums[1, 2] == 0).all()


# ---- the layer


def layer(**options: object) -> SinkhornAttention:
    torch.manual_seed(1)
    causal = bool(options.pop("causal", False))
    chosen = SinkhornOptions(block=BLOCK, max_len=40, **options)  # type: ignore[arg-type]
    return SinkhornAttention(12, 2, causal=causal, options=chosen).double().eval()


def test_noise_is_for_training() -> None:
    x = torch.randn(BATCH, N, 12, dtype=torch.float64)
    ours = layer()
    assert torch.equal(ours(x), ours(x))
    ours.train()
    assert not torch.equal(ours(x), ours(x))
    quiet = layer(noise=False)
    assert torch.equal(quiet.train()(x), quiet.eval()(x))


def test_noise_is_that_of_gumbel() -> None:
    torch.manual_seed(0)
    drawn = gumbel((200_000,))
    assert abs(drawn.mean() - 0.57722) < 0.01
    assert abs(drawn.var() - math.pi**2 / 6) < 0.02


def test_temperature_divides_scores() -> None:
    x = torch.randn(BATCH, N, 12, dtype=torch.float64)
    ours = layer(temperature=0.5)
    scores = ours.network(pooled(x, BLOCK))
    torch.testing.assert_close(ours.permutation(x), sinkhorn(scores / 0.5, 8))


def test_the_sort_network_by_hand() -> None:
    """Two layers with a ReLU; a shorter sequence has the first places of each head."""
    network = SortNetwork(2, 3, 5)
    with torch.no_grad():
        network.hidden.weight.copy_(torch.eye(2))
        network.hidden.bias.zero_()
        network.places.weight.copy_(torch.arange(30.0).view(15, 2))
        network.places.bias.copy_(100 * torch.arange(15.0))
    sums = torch.tensor([[[1.0, -7.0], [0.0, 2.0]]])
    first, second = 2 * torch.arange(15), 2 * (2 * torch.arange(15) + 1)  # of (1, 0) and (0, 2)
    found = torch.stack([first, second]) + 100 * torch.arange(15)
    torch.testing.assert_close(
        network(sums)[0], found.view(2, 3, 5).transpose(0, 1)[..., :2].float()
    )


def test_parameters_of_the_sort_network() -> None:
    found = sum(p.numel() for p in SortNetwork(12, 3, 5).parameters())
    assert found == 12 * 13 + 13 * 3 * 5


@by_form
def test_of_a_permutation_for_more_blocks_the_first_count(form: Callable[..., Tensor]) -> None:
    """A network has an output for each block of the longest sequence."""
    q, k, v, sort = made(blocks=7)
    found = form(q, k, v, sort, options=SinkhornOptions(block=BLOCK))
    torch.testing.assert_close(
        found, form(q, k, v, sort[..., :4, :4], options=SinkhornOptions(block=BLOCK))
    )


def test_wrong_options_and_lengths_are_refused() -> None:
    q, k, v, sort = made()
    with pytest.raises(ValueError, match="temperature divides the scores"):
        SinkhornOptions(temperature=0.0)
    with pytest.raises(ValueError, match="iterations should be at most 10,000, got 10,001"):
        SinkhornOptions(iterations=10_001)
    with pytest.raises(ValueError, match="SortCut cannot be causal"):
        layer(budget=2, causal=True)
    with pytest.raises(ValueError, match="11 blocks, but the sort network was made for 10"):
        layer()(torch.randn(1, 41, 12, dtype=torch.float64))
    for form in FORMS.values():
        with pytest.raises(ValueError, match="14 positions make 7 blocks of 2"):
            form(q, k, v, sort, options=SinkhornOptions(block=2))
        with pytest.raises(ValueError, match="SortCut cannot be causal"):
            form(q, k, v, sort, causal=True, options=SinkhornOptions(block=BLOCK, budget=1))


# ---- the package


@pytest.fixture
def package() -> Iterator[object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("sinkhorn_transformer.sinkhorn_transformer")


def test_the_package_normalises_alike(package: object) -> None:
    scores = torch.randn(3, 6, 6)
    expected = package.sinkhorn_sorting_operator(scores, 7)  # type: ignore[attr-defined]
    torch.testing.assert_close(sinkhorn(scores, 7), expected)


def test_the_package_takes_sorted_keys_for_sorted_values(package: object) -> None:
    """Where keys and values are the same, it computes what we do."""
    q, k, v, sort = (x.float() for x in made(12, 3))
    v = v[..., :D]
    theirs = package.SinkhornAttention(4, D * H, D, H, 12).eval()  # type: ignore[attr-defined]
    theirs.sort_net.forward = lambda *_, **__: sort.flatten(0, 1)
    options = SinkhornOptions(block=4)
    for form in FORMS.values():
        torch.testing.assert_close(form(q, k, k, sort, options=options), theirs(q, k, k))
        assert not torch.allclose(form(q, k, v, sort, options=options), theirs(q, k, v), atol=1e-2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_sortcut_leaves_blocks_of_padding_out(form: Callable[..., Tensor]) -> None:
    """Two real blocks, a budget of three: as if the sequence ended with its last real block."""
    torch.manual_seed(3)
    layer = (
        SinkhornAttention(12, 3, options=SinkhornOptions(block=2, max_len=12, budget=3))
        .double()
        .eval()
    )
    x, padding = torch.randn(2, 12, 12, dtype=torch.float64), torch.arange(12).expand(2, -1) < 4
    q, k, v = layer.heads.project(x, padding=padding)
    given = {"padding": padding, "options": layer.options}
    out = form(q, k, v, layer.permutation(x, padding), **given)
    q, k, v = layer.heads.project(x[:, :4])
    alone = form(q, k, v, layer.permutation(x[:, :4]), options=layer.options)
    torch.testing.assert_close(out[:, :, :4], alone)


def test_iterations_of_a_causal_layer_are_refused() -> None:
    with pytest.raises(
        ValueError, match="normalises each row once and no columns, so iterations=3"
    ):
        SinkhornAttention(12, 3, causal=True, options=SinkhornOptions(iterations=3))
