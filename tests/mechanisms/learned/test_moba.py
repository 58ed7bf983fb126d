"""MoBA: the loop over blocks, its limits, what the choice depends on, tiles and their merging."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.chosen_blocks import NOTHING, by_tiles, largest, seen, tiled
from attnlab.core.chunks import cut
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.moba import FORMS, MoBAOptions, MoBAttention
from attnlab.mechanisms.positions.rope import RotaryPositions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
BLOCK, CHOSEN = 3, 3
OPTIONS = MoBAOptions(block=BLOCK, chosen=CHOSEN)


def made(h: int = 3, g: int = 3, n: int = 17, m: int = 17) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, h, n, 5), (2, g, m, 5), (2, g, m, 7))
    q, k, v = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return q, k, v


def one_query(q: Tensor, k: Tensor, v: Tensor) -> tuple[set[int], Tensor]:
    """The blocks of the last of some tokens, and what it takes of their keys."""
    i = len(k) - 1
    scores = {
        b: sum(float(q @ k[j]) for j in range(b * BLOCK, (b + 1) * BLOCK)) / BLOCK
        for b in range(i // BLOCK)
    }
    blocks = {i // BLOCK, *sorted(scores, key=lambda b: (-scores[b], b))[: CHOSEN - 1]}
    powers = {
        j: math.exp(float(q @ k[j]) / math.sqrt(5)) for j in range(i + 1) if j // BLOCK in blocks
    }
    return blocks, sum(p * v[j] for j, p in powers.items()) / sum(powers.values())


@each_form
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "padded"])
def test_each_form_is_the_loop_over_blocks(form, holes: bool) -> None:
    """The queries are the last 13 of 17 positions; two heads share keys; real tokens count."""
    q, k, v = made(h=4, g=2, n=13)
    real = torch.ones(2, 17, dtype=torch.bool)
    if holes:
        real[0, [0, 1, 5, 11]], real[1, 9:] = False, False
    with record() as notes:
        out = form(q, k, v, padding=real if holes else None, options=OPTIONS)
    for s, a, i in itertools.product(range(2), range(4), range(4, 17)):
        kept = [j for j in range(i + 1) if real[s, j]]
        found = notes.last("blocks")[s, a, i - 4].tolist()
        if not real[s, i]:
            assert (out[s, a, i - 4] == 0).all()
            assert set(found) == {NOTHING}
            continue
        blocks, expected = one_query(q[s, a, i - 4], k[s, a // 2, kept], v[s, a // 2, kept])
        assert {b for b in found if b != NOTHING} == blocks
        assert found[0] == (len(kept) - 1) // BLOCK
        torch.testing.assert_close(out[s, a, i - 4], expected)


@each_form
@pytest.mark.parametrize(("block", "chosen"), [(3, 6), (3, 99), (17, 1), (64, 3)])
def test_where_all_blocks_are_chosen_it_is_full_attention(form, block: int, chosen: int) -> None:
    """In values and gradients; also where a block is longer than the text."""
    inputs = [x.requires_grad_() for x in made()]
    along = torch.randn(2, 3, 17, 7, dtype=torch.float64)
    found = form(*inputs, options=MoBAOptions(block=block, chosen=chosen))
    dense = full.naive(*inputs, mask=patterns.causal())
    torch.testing.assert_close(found, dense)
    for mine, its in zip(
        *(torch.autograd.grad((x * along).sum(), inputs) for x in (found, dense)), strict=True
    ):
        torch.testing.assert_close(mine, its)


def by_kernel(out: Tensor) -> bool:
    """Whether PyTorch's kernel computed the blocks, a few steps before this output."""
    steps, names = [out.grad_fn], ""
    for _ in range(6):
        steps = [step for one in steps if one for step, _ in one.next_functions]
        names += str(steps)
    return "_ByKernel" in names


@pytest.mark.parametrize(("n", "block", "chosen"), [(331, 64, 3), (700, 65, 20), (150, 150, 2)])
def test_the_kernel_of_long_blocks_gives_the_equation(n: int, block: int, chosen: int) -> None:
    """In values and gradients; the last block is not full, and early queries have fewer blocks."""
    inputs = [torch.randn(2, 3, n, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    options = MoBAOptions(block=block, chosen=chosen)
    found, dense = (FORMS[form](*inputs, options=options) for form in ("blocked", "naive"))
    assert by_kernel(found)
    torch.testing.assert_close(found, dense)
    along = torch.randn_like(found)
    for mine, its in zip(
        *(torch.autograd.grad((x * along).sum(), inputs) for x in (found, dense)), strict=True
    ):
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("threads", [1, 3])
def test_heads_that_share_their_choice_and_threads_that_share_a_block(threads: int) -> None:
    """The first block of 1,700 tokens is divided among the threads, which are not as many as
    divide it; scores of hundreds make the exponentials of what was not chosen overflow."""
    before = torch.get_num_threads()
    q, k, v = (torch.randn(2, h, 1701, 8, dtype=torch.float64) for h in (4, 2, 2))
    q[:, :, 1600:] *= 100
    at = torch.arange(1701)[None, None]
    others = torch.where(at // 64 > 1, 0, NOTHING).expand(2, 2, 1701)
    chosen = torch.stack(((at // 64).expand(2, 2, 1701), others), dim=-1)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    try:
        torch.set_num_threads(threads)
        found = by_tiles(q, cut(k, 64), cut(v, 64), at, chosen)
        mask = seen(chosen, at[0], None, 64).repeat_interleave(2, dim=1)
        dense = full.naive(q, *(x.repeat_interleave(2, dim=1) for x in (k, v)), mask=mask)
        assert by_kernel(found)
        torch.testing.assert_close(found, dense)
        along = torch.randn_like(found)
        for mine, its in zip(
            *(torch.autograd.grad((x * along).sum(), inputs) for x in (found, dense)), strict=True
        ):
            torch.testing.assert_close(mine, its)
    finally:
        torch.set_num_threads(before)


def test_a_transform_is_shown_pytorch_s_functions() -> None:
    q, k, v = (torch.randn(1, 1, 200, 8, dtype=torch.float64) for _ in range(3))
    options = MoBAOptions(block=64, chosen=2)
    mine, its = (
        torch.func.grad(lambda q, form=form: form(q, k, v, options=options).square().sum())(q)
        for form in FORMS.values()
    )
    torch.testing.assert_close(mine, its)


def test_the_kernel_is_for_whole_texts_and_first_derivatives() -> None:
    q, k, v = (torch.randn(1, 1, 200, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    options = MoBAOptions(block=64, chosen=2)
    real = torch.arange(200)[None] != 5
    for given in ({"padding": real}, {}):
        late = q if given else q[:, :, 150:]
        found, dense = (FORMS[x](late, k, v, options=options, **given) for x in FORMS)
        assert not by_kernel(found)
        torch.testing.assert_close(found, dense)
    out = FORMS["blocked"](q, k, v, options=options)
    with pytest.raises(RuntimeError, match="attention to chosen blocks has first derivatives only"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


@each_form
def test_one_block_is_attention_inside_blocks(form) -> None:
    q, k, v = made()
    at = torch.arange(17)
    local = (at[:, None] // BLOCK == at // BLOCK) & (at <= at[:, None])
    found = form(q, k, v, options=MoBAOptions(block=BLOCK, chosen=1))
    torch.testing.assert_close(found, full.naive(q, k, v, mask=local))


@each_form
def test_what_was_chosen_is_noted_as_a_mask(form) -> None:
    q, k, v = made()
    with record() as notes:
        out = form(q, k, v, options=OPTIONS)
    torch.testing.assert_close(full.naive(q, k, v, mask=notes.last("mask")), out)
    assert notes.last("mask").sum(-1).max() == CHOSEN * BLOCK


@each_form
def test_neither_the_own_mean_nor_the_future_has_a_part_in_the_choice(form) -> None:
    """Changing what comes after a token, in its block or later, changes nothing before, to the
    last bit."""
    q, k, v = made()
    with record() as notes:
        out = form(q, k, v, options=OPTIONS)
    for i in (4, 9, 13):
        later = [x.clone() for x in (q, k, v)]
        for x in later:
            x[:, :, i + 1 :] = 100 * torch.randn_like(x[:, :, i + 1 :])
        with record() as again:
            other = form(*later, options=OPTIONS)
        torch.testing.assert_close(other[:, :, : i + 1], out[:, :, : i + 1], rtol=0, atol=1e-12)
        assert torch.equal(*(x.last("blocks")[:, :, : i + 1] for x in (notes, again)))


@each_form
def test_of_equal_scores_the_earlier_block_is_chosen(form) -> None:
    q, k, v = made()
    with record() as notes:
        form(q, torch.ones_like(k), v, options=OPTIONS)
    assert notes.last("blocks")[0, 0, 16].tolist() == [5, 0, 1]


@pytest.mark.parametrize("kinds", [1, 3, 1000])
@pytest.mark.parametrize("k", [1, 2, 5, 9, 20])
def test_the_largest_are_those_of_a_stable_sort(kinds: int, k: int) -> None:
    """Of equal scores the first, −1 in place of −∞, whatever the number of equal ones."""
    scores = torch.randint(kinds, (2, 3, 50, 9)).double()
    scores[torch.rand(scores.shape) < 0.4] = -torch.inf
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    expected = order.masked_fill(values == -torch.inf, NOTHING)[..., :k]
    assert torch.equal(largest(scores, k), expected)


def test_the_choice_follows_the_keys() -> None:
    """A key that a query is like brings its block, wherever it stands."""
    q, k, v = made()
    q[:], k[:] = 0.0, 0.0
    q[:, :, 16, 0] = k[:, :, 7, 0] = 40.0
    out = FORMS["blocked"](q, k, v, options=MoBAOptions(block=BLOCK, chosen=2))
    torch.testing.assert_close(out[:, :, 16], v[:, :, 7])


def test_a_step_at_a_time_with_rotated_keys_is_the_whole() -> None:
    layer = MoBAttention(12, 3, options=OPTIONS, positions=RotaryPositions(12, 3)).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    whole, state, parts = layer(x), None, []
    for piece in x.split([5, *12 * [1]], dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    plain = MoBAttention(12, 3, options=OPTIONS).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert not torch.allclose(plain(x), whole)


def test_what_was_chosen_can_be_watched() -> None:
    """The weights of a record are those of the chosen keys, also by the form without dense ones."""
    layer = MoBAttention(12, 3, options=OPTIONS).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    with attnlab.watch(layer) as seen:
        layer(x)
    (call,) = list(seen)
    torch.testing.assert_close(layer.heads.merge(call.weights @ call.values), layer(x))
    torch.testing.assert_close(call.weights.sum(-1), torch.ones(2, 3, 17, dtype=torch.float64))
    assert (call.weights > 0).sum(-1).max() == CHOSEN * BLOCK


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_pair_stands_in_a_row_of_a_tile_of_its_block(size: int) -> None:
    chosen = torch.randint(-1, 4, (2, 11, 3))
    tiles = tiled(chosen, 4, size)
    assert tiles.queries.shape[2] == size
    used = set()
    for g, i, j in itertools.product(range(2), range(11), range(3)):
        row = int(tiles.rows[g, i, j])
        if chosen[g, i, j] == NOTHING:
            assert row == tiles.queries[g].numel()
            continue
        assert tiles.queries[g].flatten()[row] == i
        assert tiles.blocks[g, row // size] == chosen[g, i, j]
        used.add((g, row))
    assert len(used) == int((chosen != NOTHING).sum())


def test_wrong_calls() -> None:
    q, k, v = made(h=3, g=2)
    for form in FORMS.values():
        with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
            form(q, k, v)
    for name in ("block", "chosen"):
        with pytest.raises(ValueError, match=f"{name} should be at least 1, got 0"):
            attnlab.build("moba", dim=12, heads=3, causal=True, **{name: 0})
    with pytest.raises(ValueError, match="is always causal"):
        attnlab.build("moba", dim=12, heads=3, causal=False)
