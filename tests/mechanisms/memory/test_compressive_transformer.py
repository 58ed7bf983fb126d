"""Compressive Transformer: the algorithm by lists, its limits, both losses, cuts, documents."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.core.relative import sinusoids
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.memory import transformer_xl
from attnlab.mechanisms.memory.compressive_transformer import (
    FORMS,
    CompressiveOptions,
    CompressiveTransformer,
    by_segments,
)
from tests.mechanisms.memory import segments

B, N, DIM, HEADS = 2, 25, 12, 3
WAYS = ("mean", "max", "convolution", "dilated", "most_used")
SMALL = CompressiveOptions(segment=4, memory=4, compressed=5, rate=2)
by_way = pytest.mark.parametrize("way", WAYS)
by_form = pytest.mark.parametrize("form", FORMS)


def layer(
    way: str = "mean", options: CompressiveOptions = SMALL, **more: bool
) -> CompressiveTransformer:
    torch.manual_seed(1)
    made = CompressiveTransformer(
        DIM, HEADS, options=replace(options, compression=way, **more)
    ).double()
    torch.nn.init.normal_(made.u), torch.nn.init.normal_(made.t)
    return made


def tokens(n: int = N, b: int = B) -> Tensor:
    return torch.randn(b, n, DIM, dtype=torch.float64)


# ---- the algorithm


def squeezed(module: CompressiveTransformer, old: list[Tensor], used: list[float]) -> list[Tensor]:
    """One segment by the words of the paper: vectors of width dim in, fewer of them out."""
    rate, way = module.options.rate, module.options.compression
    groups = [old[i : i + rate] for i in range(0, len(old) - rate + 1, rate)]
    if way == "mean":
        return [sum(group) / rate for group in groups]
    if way == "max":
        return [torch.stack(group).max(dim=0).values for group in groups]
    if way == "most_used":
        best = sorted(range(len(old)), key=lambda i: -used[i])[: len(old) // rate]
        return [old[i] for i in sorted(best)]
    weight, bias = module.kernel.weight, module.kernel.bias
    zero, found = torch.zeros_like(old[0]), []
    for start in range(0, len(old) - rate + 1, rate):
        out = bias
        for tap in range(rate):
            at = start + tap if way == "convolution" else start + 2 * tap - (rate - 1) // 2
            out = out + weight[:, :, tap] @ (old[at] if 0 <= at < len(old) else zero)
        found.append(out)
    return found


@torch.no_grad()
def by_lists(module: CompressiveTransformer, x: Tensor) -> Tensor:
    """One sequence, token by token: three lists of inputs."""
    o, heads = module.options, module.heads
    short: list[Tensor] = []
    memory: list[Tensor] = []
    segment: list[Tensor] = []
    used: list[float] = []
    outs = []
    for token in x:
        segment.append(token)
        rows = torch.stack([*short, *memory, *segment])[None]
        q, k, v = (each[0] for each in heads.project(rows))
        mixed = []
        given = torch.zeros(len(rows[0]), dtype=torch.float64)
        for h in range(HEADS):
            scores = []
            for j in range(len(rows[0])):
                distance = len(rows[0]) - 1 - j
                r = module.weight[h] @ sinusoids(torch.tensor([distance]), DIM)[0]
                s = (q[h, -1] + module.u[h]) @ k[h, j] + (q[h, -1] + module.t[h]) @ r
                scores.append(s / math.sqrt(DIM // HEADS))
            weights = torch.stack(scores).softmax(0)
            given += weights
            mixed.append(weights @ v[h])
        outs.append(heads.output(torch.cat(mixed)))
        used = [was + float(g) for was, g in zip(used, given[len(short) :], strict=False)]
        if len(segment) == o.segment:
            memory, used, segment = memory + segment, used + [0.0] * o.segment, []
            if len(memory) > o.memory:
                short += squeezed(module, memory[: o.segment], used[: o.segment])
                short = short[-o.compressed :]
                memory, used = memory[o.segment :], used[o.segment :]
    return torch.stack(outs)


@by_way
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        CompressiveOptions(segment=3, memory=6, compressed=2, rate=2),
        CompressiveOptions(segment=5, memory=5, compressed=9, rate=3),
    ],
    ids=str,
)
def test_the_algorithm_by_lists(way: str, options: CompressiveOptions) -> None:
    module, x = layer(way, options), tokens(b=1)
    expected = by_lists(module, x[0])
    for name in FORMS:
        module.form = name
        torch.testing.assert_close(module(x)[0], expected)
    if way == "most_used":  # not what the first of each window would give
        regular = _with_regular_places(module, x)
        assert not torch.allclose(module(x), regular)


def _with_regular_places(module: CompressiveTransformer, x: Tensor) -> Tensor:
    mean = CompressiveTransformer(DIM, HEADS, options=replace(module.options, compression="mean"))
    mean.load_state_dict(module.state_dict())
    out: Tensor = mean.double()(x)
    return out


@pytest.mark.parametrize("way", ["max", "dilated"])
def test_forms_agree_in_gradients(way: str) -> None:
    """Of the two that are no variant of the claims."""
    module, x = layer(way, task_gradient=way == "dilated"), tokens()
    found = []
    for name in FORMS:
        module.form = name
        found.append(torch.autograd.grad(module(x).square().sum(), list(module.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


# ---- limits


@pytest.mark.parametrize("way", ["mean", "max", "most_used"])
@by_form
def test_at_rate_one_it_is_transformer_xl(way: str, form: str) -> None:
    """M1: with a memory of M + k."""
    options = CompressiveOptions(segment=4, memory=8, compressed=4, rate=1)
    module, x = layer(way, options), tokens()
    module.form = form
    longer = transformer_xl.TransformerXL(
        DIM, HEADS, options=transformer_xl.TransformerXLOptions(segment=4, memory=12)
    ).double()
    longer.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(x), longer(x))
    shorter = transformer_xl.TransformerXL(
        DIM, HEADS, options=transformer_xl.TransformerXLOptions(segment=4, memory=8)
    ).double()
    shorter.load_state_dict(module.state_dict())
    assert not torch.allclose(module(x), shorter(x))


@by_way
def test_it_reaches_memory_and_rate_times_compressed_back(way: str) -> None:
    """A token further back than M + s k before its segment has no influence, the last such has."""
    module, x = layer(way), tokens(29, 1)
    last = module(x)[0, 28]  # the first of a segment: 14 of its past are within reach
    before = x.clone()
    before[:, :14] = torch.randn(14, DIM)
    if way != "most_used":  # whose places were chosen by what earlier tokens attended to
        torch.testing.assert_close(module(before)[0, 28], last)
    nearest = x.clone()
    nearest[:, 14:16] = torch.randn(2, DIM) * 3
    assert (module(nearest)[0, 28] - last).abs().max() > 1e-4 or way == "most_used"


# ---- gradients


@by_way
@by_form
def test_no_gradient_enters_what_is_remembered(way: str, form: str) -> None:
    module = layer(way)
    module.form = form
    x = tokens().requires_grad_()
    out = module(x)[:, 20:24].square().sum()
    of_x, of_value = torch.autograd.grad(out, [x, module.heads.value.weight])
    assert (of_x[:, :20] == 0).all()
    assert (of_x[:, 20:24] != 0).any(-1).all()
    own = module.heads.value
    fresh = x.detach()[:, 20:24]
    alone = torch.autograd.grad(
        module.step(fresh, module.step(x[:, :20].detach())[1])[0].square().sum(), own.weight
    )[0]
    torch.testing.assert_close(alone, of_value)  # keys and values of the memories are made anew


@pytest.mark.parametrize("way", ["convolution", "dilated"])
def test_each_loss_trains_its_own_part(way: str) -> None:
    """Both sides: the reconstruction loss reaches the convolution alone, the task all but it."""
    module, x = layer(way), tokens().requires_grad_()
    everything = dict(module.named_parameters(), x=x)
    own = {"kernel.weight", "kernel.bias"}
    for loss, reached in (
        (module.reconstruction_loss(x), own),
        (module(x).square().sum(), set(everything) - own),
    ):
        found = torch.autograd.grad(loss, list(everything.values()), allow_unused=True)
        there = {n for n, g in zip(everything, found, strict=True) if g is not None and g.any()}
        assert there == reached
    both = layer(way, task_gradient=True)
    of_task = torch.autograd.grad(both(x).square().sum(), [both.kernel.weight, x])
    assert of_task[0].any()
    assert (torch.autograd.grad(both(x)[:, 20:24].sum(), x)[0][:, :20] == 0).all()


def test_the_reconstruction_loss_by_hand() -> None:
    """‖attn(h, old) - attn(h, new)‖, h the segment after the memory of the old one."""
    module, x = layer("convolution"), tokens(17)
    losses = []
    for b in range(B):
        for start in (0, 4, 8):
            old, h = x[b, start : start + 4], x[b, start + 4 + 4 - 4 : start + 8]
            new = torch.stack(squeezed(module, list(old), []))
            read = []
            for rows in (old, new):
                q, k, v = module.heads.project(h[None], rows[None])
                scores = q @ k.mT / math.sqrt(DIM // HEADS)
                read.append(scores.softmax(-1) @ v)
            losses.append((read[0] - read[1]).square().sum().sqrt())
    torch.testing.assert_close(module.reconstruction_loss(x), sum(losses) / len(losses))


def test_the_reconstruction_loss_can_be_learned() -> None:
    module, x = layer("convolution"), tokens(80)
    optimizer = torch.optim.Adam(module.kernel.parameters(), lr=0.01)
    before = module.reconstruction_loss(x).item()
    for _ in range(60):
        optimizer.zero_grad()
        module.reconstruction_loss(x).backward()
        optimizer.step()
    assert module.reconstruction_loss(x).item() < 0.8 * before
    lossless = layer(options=CompressiveOptions(segment=4, memory=4, compressed=5, rate=1))
    assert lossless.reconstruction_loss(x).item() < 1e-10


def test_padding_is_not_compressed() -> None:
    """In the loss, too: the real tokens of a shorter sequence alone give the same."""
    module, x = layer("max"), tokens(24)
    padding = torch.arange(24) < torch.tensor([[24], [20]])
    noisy = torch.where(padding[..., None], x, torch.nan)
    found = module.reconstruction_loss(noisy, padding)
    parts = [module.reconstruction_loss(x[:1]) * 5, module.reconstruction_loss(x[1:, :20]) * 4]
    torch.testing.assert_close(found, sum(parts) / 9)  # segments that have a memory to lose


# ---- segments and documents


@by_way
@pytest.mark.parametrize("sizes", [[N], [1] * N, [2, 7, 1, 13, 2]], ids=str)
def test_any_cut_gives_the_same(way: str, sizes: list[int]) -> None:
    learned = way in ("convolution", "dilated")
    segments.a_cut_gives_the_same(layer(way, task_gradient=learned), tokens(), sizes)


@by_way
def test_the_state_is_bounded_and_can_be_saved(way: str) -> None:
    state = segments.the_state_is_bounded_and_can_be_saved(layer(way), tokens(60))
    assert [part.shape[1] for part in state] == [5, 4, 2, 11, 4]


@by_way
def test_documents_do_not_read_each_other(way: str) -> None:
    """Not through vectors that were compressed from two documents, either."""
    module, x = layer(way), tokens(30)
    ended = torch.tensor([True, False])
    other = x.clone()
    other[0, :10] = torch.randn(10, DIM)
    mine, theirs = (
        module.step(x[:, 10:], module.step(y[:, :10])[1].cleared(ended))[0] for y in (x, other)
    )
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(mine[1], module(x[1:])[0, 10:])


# ---- in a model


def test_a_model_trains_in_segments_and_generates_from_its_state() -> None:
    options = {"segment": 4, "memory": 4, "compressed": 2, "rate": 2}
    given = {"attention_options": options, "positions": "none"}
    cut, whole = (segments.model("compressive_transformer", **given) for _ in range(2))
    torch.testing.assert_close(segments.losses(cut, segment=4), segments.losses(whole))
    segments.it_generates_from_its_state(cut)


@by_way
def test_the_map_goes_across_both_memories(way: str) -> None:
    """What a compressed vector receives stands at the first input of its window; where it is made
    before the projection, in columns of its own at the end."""
    module, x = layer(way), tokens(N, 1)
    module.form = "naive"
    with record() as notes, torch.no_grad():
        module(x)
    weights = notes.last("weights")
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, HEADS, N).double())
    found = mixing_matrix(module, x)
    assert found.exact
    columns = N if module.options.linear else N + 2 * (N // 4)
    assert found.matrix.shape == (1, HEADS, N, columns)
    short = weights[0, :, 24, 10:16]  # of 24 its five compressed vectors begin at 10, 12, …, 18
    if way != "most_used":
        assert (short[:, ::2] > 0).all()
        assert (short[:, 1::2] == 0).all()
    if way == "mean":
        spread = short[:, ::2].repeat_interleave(2, dim=1) / 2
        torch.testing.assert_close(found.matrix[0, :, 24, 10:16], spread)
    if not module.options.linear:
        at_the_end = found.matrix[0, :, 24, N + 5 : N + 8]
        torch.testing.assert_close(at_the_end, short[:, ::2])


# ---- refusals


def test_what_makes_no_sense_is_refused() -> None:
    for wrong, words in (
        ({"segment": 8, "memory": 4}, "memory=4 should be a multiple of segment=8"),
        ({"segment": 4, "memory": 6}, "memory=6 should be a multiple of segment=4"),
        ({"segment": 4, "memory": 4, "rate": 5}, "rate=5 should be at most segment=4"),
        ({"task_gradient": True}, "'mean' has nothing that a task_gradient could train"),
    ):
        with pytest.raises(ValueError, match=words):
            CompressiveOptions(**wrong)
    with pytest.raises(ValueError, match="which inputs are most used is known only while"):
        layer("most_used").reconstruction_loss(tokens())
    with pytest.raises(ValueError, match=r"memory \+ segment = 8; give a longer x"):
        layer().reconstruction_loss(tokens(7))
    module = layer()
    _, state = module.step(tokens())
    with pytest.raises(
        ValueError, match="compressed holds 5 vectors, but that of this layer at most 4"
    ):
        layer(options=replace(SMALL, compressed=4)).step(tokens(), state)
    with pytest.raises(ValueError, match="state's usage is of shape"):
        module.step(tokens(), state._replace(usage=state.usage[:, 1:]))


@pytest.mark.parametrize("room", [1, 400, 10**9], ids=["one", "some", "all"])
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        CompressiveOptions(segment=4, memory=8, compressed=3, rate=3),
        CompressiveOptions(segment=3, memory=3, compressed=40, rate=1),
        CompressiveOptions(segment=40, memory=40, compressed=5, rate=2),
    ],
    ids=str,
)
def test_segments_together_are_segments_one_by_one(
    options: CompressiveOptions, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU computes many segments in one call: the same values and gradients."""
    for way in ("mean", "convolution"):
        of_task = {"task_gradient": True} if way == "convolution" else {}
        made = layer(way, options, **of_task)
        segments.together_gives_the_same(monkeypatch, by_segments, made, tokens(), room)


def test_the_most_used_are_known_only_after_the_segments_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So they are read one after the other on every device."""
    monkeypatch.setattr(by_segments, "on_cpu", lambda x: False)
    monkeypatch.setattr(by_segments, "_together", None)
    made, x = layer("most_used"), tokens()
    torch.testing.assert_close(made(x)[:1], by_lists(made, x[0])[None])
