"""NSA: the three branches by loops, the worth of blocks, its limits, decoding."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.chosen_blocks import NOTHING
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.nsa import FORMS, NSAttention, in_pieces
from attnlab.mechanisms.learned.nsa.stretches import NSAOptions, choose, compressed, worth
from attnlab.mechanisms.positions.rope import RotaryPositions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
OPTIONS = NSAOptions(stretch=4, stride=2, block=4, chosen=4, window=3)
D, E = 5, 7


def made(h: int = 4, g: int = 2, n: int = 29, m: int = 29) -> tuple[Tensor, ...]:
    shapes = ((2, h, n, D), (2, g, m, D), (2, g, m, E), (2, h, n, 3))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def gates(*open_: bool) -> Tensor:
    """Before σ: branches that are open, and closed ones."""
    return torch.tensor([1e4 if each else -1e4 for each in open_], dtype=torch.float64)


def mean_of(q: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    powers = [math.exp(float(q @ k) / math.sqrt(D)) for k, _ in pairs]
    return sum(p * v for p, (_, v) in zip(powers, pairs, strict=True)) / sum(powers)


def by_loops(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, o: NSAOptions):
    """The last query of the heads of a group: q (r, d), gate (r, 3); its blocks and outputs."""
    t = len(k) - 1
    stretches = [range(i, i + o.stretch) for i in range(0, t + 2 - o.stretch, o.stride)]
    means = [(k[list(s)].mean(0), v[list(s)].mean(0)) for s in stretches]
    worth = dict.fromkeys(range(t // o.block + 1), 0.0)
    for one in q:
        powers = [math.exp(float(one @ mean) / math.sqrt(D)) for mean, _ in means]
        for s, power in zip(stretches, powers, strict=True):
            for j in s:
                if j // o.block in worth:
                    worth[j // o.block] += power / sum(powers) / o.stride
    always = {0, t // o.block, max(t // o.block - 1, 0)}
    rest = sorted(worth.keys() - always, key=lambda b: (-worth[b], b))
    blocks = always | set(rest[: max(0, o.chosen - len(always))])
    outs = []
    for one, g in zip(q, gate.sigmoid(), strict=True):
        selected = [(k[j], v[j]) for j in range(t + 1) if j // o.block in blocks]
        near = [(k[j], v[j]) for j in range(max(0, t + 1 - o.window), t + 1)]
        out = g[1] * mean_of(one, selected) + g[2] * mean_of(one, near)
        outs.append(out + g[0] * mean_of(one, means) if means else out)
    return blocks, torch.stack(outs)


@each_form
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "padded"])
def test_each_form_is_three_branches_by_loops(form, holes: bool) -> None:
    q, k, v, gate = made(n=27)
    real = torch.ones(2, 29, dtype=torch.bool)
    if holes:
        real[0, [0, 1, 5, 11]], real[1, 20:] = False, False
    with record() as notes:
        out = form(q, k, v, gate, padding=real if holes else None, options=OPTIONS)
    for s, a, i in itertools.product(range(2), range(2), range(2, 29)):
        rows, kept = slice(2 * a, 2 * a + 2), [j for j in range(i + 1) if real[s, j]]
        found = {b for b in notes.last("blocks")[s, a, i - 2].tolist() if b != NOTHING}
        if not real[s, i]:
            assert (out[s, rows, i - 2] == 0).all()
            assert not found
            continue
        given = q[s, rows, i - 2], k[s, a, kept], v[s, a, kept], gate[s, rows, i - 2]
        blocks, expected = by_loops(*given, OPTIONS)
        assert found == blocks
        torch.testing.assert_close(out[s, rows, i - 2], expected)


@each_form
@pytest.mark.parametrize(
    ("open_", "more"),
    [
        ((True, False, False), {"stretch": 1, "stride": 1}),
        ((False, True, False), {"chosen": 8}),
        ((False, False, True), {"window": 29}),
    ],
    ids=["compressed", "selected", "window"],
)
def test_each_branch_can_be_full_attention(form, open_, more) -> None:
    """Stretches of one token; all blocks; a window of the whole text."""
    q, k, v, gate = made()
    options = NSAOptions(**{"stretch": 4, "stride": 2, "block": 4, "chosen": 4, "window": 3} | more)
    found = form(q, k, v, gates(*open_).expand_as(gate), options=options)
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    torch.testing.assert_close(found, full.naive(q, k, v, mask=patterns.causal()))


@pytest.mark.parametrize("options", [NSAOptions(chosen=5, window=64), OPTIONS], ids=["64", "4"])
def test_a_text_of_many_pieces_gives_the_equation(options: NSAOptions) -> None:
    """In values and gradients; the pieces end within blocks, and two heads share keys."""
    inputs = [x.requires_grad_() for x in made(n=1300, m=1300)]
    inputs[2] = inputs[2][..., :D]  # one width, as the kernel of long blocks wants it
    found, dense = (FORMS[form](*inputs, options=options) for form in ("blocked", "naive"))
    torch.testing.assert_close(found, dense)
    along = torch.randn_like(found)
    for mine, its in zip(
        *(torch.autograd.grad((x * along).sum(), inputs) for x in (found, dense)), strict=True
    ):
        torch.testing.assert_close(mine, its)
    with pytest.raises(RuntimeError, match="has first derivatives only"):
        torch.autograd.grad(
            in_pieces.compress_and_choose(*inputs[:1], *inputs[1:3], options)[0].sum(),
            inputs[0], create_graph=True,
        )  # fmt: skip


@pytest.mark.parametrize("n", [3, 4, 5, 1100])
def test_pieces_choose_what_all_weights_choose(n: int) -> None:
    """The same blocks in the same order, and what the stretches give, also of the first queries,
    which read none."""
    q, k, v, _ = made(n=n, m=n)
    means, at = [OPTIONS.means(x) for x in (k, v)], torch.arange(n)[None, None, :, None]
    begins = OPTIONS.begins(n, q.device)
    assert in_pieces.takes(q, len(begins), n, None) == (n >= OPTIONS.stretch)
    if n < OPTIONS.stretch:
        return
    out, chosen = in_pieces.compress_and_choose(q, *means, OPTIONS)
    shares = compressed(q, means[0], at, begins, None, OPTIONS)
    torch.testing.assert_close(out, shares @ means[1].repeat_interleave(2, dim=1))
    assert torch.equal(chosen, choose(shares, at, 2, n, OPTIONS))


def test_the_worth_of_blocks_is_the_double_sum() -> None:
    """With l = 32, s = 16 and l' = 64, counted from 0: stretch 4j − 1 + m + r, 0 ≤ m < 4, r < 2,
    for the block j; a stretch that lies in block 1 is worth nothing to block 2."""
    options = NSAOptions(chosen=3)
    shares = torch.rand(1, 1, 1, 20, dtype=torch.float64)
    assert options.overlap(shares).tolist() == [1, 2, 2, 2, 1]
    found, of = worth(shares, 4, options)[0, 0, 0], shares[0, 0, 0]
    for j in range(4):
        begins = range(4 * (j + 1) - 1 - 4, 4 * (j + 1))
        printed = sum(of[4 * (j + 1) - 1 - m - r] for m in range(4) for r in range(2)
                      if 4 * (j + 1) - 1 - m - r >= 0)  # fmt: skip
        shared = sum(
            of[i] * len(set(range(16 * i, 16 * i + 32)) & set(range(64 * j, 64 * j + 64))) / 16
            for i in begins if i >= 0
        )  # fmt: skip
        torch.testing.assert_close(found[j], printed)
        torch.testing.assert_close(found[j], shared)


def test_counted_from_0_the_printed_equation_values_the_block_before() -> None:
    """Stretch 5 has the tokens 80 to 111, which are in block 1, tokens 64 to 127. Equation 9 of the
    paper, p[4 j − m − r] with j from 0, gives it to block 2."""
    alone = torch.zeros(1, 1, 1, 20, dtype=torch.float64)
    alone[..., 5] = 1
    assert worth(alone, 5, NSAOptions())[0, 0, 0].tolist() == [0, 2, 0, 0, 0]
    printed = [sum(float(alone[0, 0, 0, 4 * j - m - r]) for m in range(4) for r in range(2)
                   if 0 <= 4 * j - m - r < 20) for j in range(5)]  # fmt: skip
    assert printed == [0, 0, 2, 0, 0]
    own = torch.tensor(330).expand(1, 1, 1, 1)
    best = choose(alone, own, 1, 336, NSAOptions(chosen=4))
    assert set(best.flatten().tolist()) == {0, 1, 4, 5}


def test_how_many_rows_a_query_reads() -> None:
    """The paper's setting at the last of 65,536 tokens: 4,095 means, 1,024 selected, 512 last."""
    o = NSAOptions()
    means = len(range(0, 65_536 - o.stretch + 1, o.stride))
    assert means + o.chosen * o.block + o.window == 5631


@each_form
def test_it_is_linear_in_its_gates(form) -> None:
    q, k, v, gate = made()
    parts = [form(q, k, v, gates(*(i == j for j in range(3))).expand_as(gate), options=OPTIONS)
             for i in range(3)]  # fmt: skip
    expected = sum(gate.sigmoid()[..., i : i + 1] * part for i, part in enumerate(parts))
    torch.testing.assert_close(form(q, k, v, gate, options=OPTIONS), expected)


def test_a_step_at_a_time_with_rotated_keys_is_the_whole() -> None:
    layer = NSAttention(12, 3, options=OPTIONS, positions=RotaryPositions(12, 3)).double()
    x = torch.randn(2, 29, 12, dtype=torch.float64)
    whole, state, parts = layer(x), None, []
    for piece in x.split([5, *24 * [1]], dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_wrong_calls() -> None:
    for wrong, words in (
        ({"stride": 3}, "stride=3 should divide stretch=32 and block=64"),
        ({"chosen": 2}, "chosen should be at least 3, got 2"),
        ({"window": 0}, "window should be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            attnlab.build("nsa", dim=12, heads=3, causal=True, **wrong)
