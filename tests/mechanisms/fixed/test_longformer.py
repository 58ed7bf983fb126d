"""Longformer: its window, its limits, its counts, its global tokens, and the layer of others."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab.core import patterns
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.layout import layout
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.longformer import (
    CARD,
    FORMS,
    EncoderDecoder,
    GlobalRows,
    LongformerAttention,
    LongformerOptions,
)

Form = Callable[..., Tensor]
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
GLOBAL = (11, 0, 3)  # not in order, on purpose


def made(h: int = 3, n: int = 17) -> list[Tensor]:
    return [torch.randn(2, h, n, e, dtype=torch.float64) for e in (5, 5, 7)]


def pattern(*, causal: bool = False, **options: Any) -> Pattern:
    step = options.get("dilation", 1)
    heads = max(1, len(step)) if isinstance(step, tuple) else 1
    return LongformerOptions(**options).pattern(causal=causal, heads=heads)


def of_global(q: Tensor, k: Tensor, v: Tensor, at: Sequence[int] = GLOBAL) -> GlobalRows:
    return GlobalRows(tuple(at), q[:, :, list(at)], k, v)


def pairs(n: int, w: int, step: int = 1, chosen: Sequence[int] = (), causal: bool = False) -> int:
    """Counted by the definition, pair by pair."""
    i, j = torch.arange(n)[:, None], torch.arange(n)
    near = ((i - j).abs() <= w // 2 * step) & ((i - j) % step == 0)
    of_global = torch.isin(i, torch.tensor(chosen)) | torch.isin(j, torch.tensor(chosen))
    return int(((near | of_global) & ((j <= i) | (not causal))).sum())


def test_rows_by_hand() -> None:
    assert pattern(window=4).row(5, 11).tolist() == [3, 4, 5, 6, 7]  # w + 1 keys, w/2 a side
    assert pattern(window=4, causal=True).row(5, 11).tolist() == [3, 4, 5]
    assert pattern(window=4, dilation=3).row(5, 13).tolist() == [2, 5, 8, 11]
    chosen = pattern(window=2, global_positions=(0, 7))
    assert chosen.row(4, 11).tolist() == [0, 3, 4, 5, 7]
    assert chosen.row(7, 11).tolist() == list(range(11))


# ---- identities: L1


@forms
def test_a_window_of_everything_is_full_attention(form: Form) -> None:
    q, k, v = made(n=13)
    torch.testing.assert_close(form(q, k, v, mask=pattern(window=24)), full.naive(q, k, v))
    mask = patterns.causal()
    expected = full.naive(q, k, v, mask=mask)
    torch.testing.assert_close(form(q, k, v, mask=pattern(window=24, causal=True)), expected)
    assert not torch.allclose(form(q, k, v, mask=pattern(window=22)), full.naive(q, k, v))


@forms
def test_equal_projections_are_the_masked_softmax(form: Form) -> None:
    q, k, v = made()
    mask = pattern(window=4, global_positions=GLOBAL)
    expected = full.naive(q, k, v, mask=mask)
    torch.testing.assert_close(form(q, k, v, mask=mask), expected)
    out = form(q, k, v, mask=mask, global_rows=of_global(q, k, v))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(("n", "w"), [(7, 2), (23, 6), (23, 44)])
def test_pairs_of_the_papers_window(n: int, w: int) -> None:
    radius = w // 2
    assert pattern(window=w).count(n) == n * (w + 1) - radius * (radius + 1)
    expected = n * (radius + 1) - radius * (radius + 1) // 2
    assert pattern(window=w, causal=True).count(n) == expected


@pytest.mark.parametrize("chosen", [(0,), (0, 1, 2), (5,), (2, 3, 11), (0, 12)])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("n", [13, 14, 41])
def test_pairs_with_global_tokens(chosen: tuple[int, ...], step: int, n: int) -> None:
    seen = pattern(window=6, dilation=step, global_positions=chosen)
    counted = pairs(n, 6, step, chosen)
    assert seen.dense(n).sum() == seen.count(n) == counted
    if chosen == tuple(range(len(chosen))) and step == 1:
        g = len(chosen)
        assert counted == g * n + (n - g) * g + pattern(window=6).count(n - g)


def test_pairs_of_heads_that_differ() -> None:
    seen = pattern(window=4, dilation=(1, 2, 5))
    for n in (3, 7, 31):
        assert seen.dense(n).sum() == sum(pairs(n, 4, step) for step in (1, 2, 5))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", CARD.variants, ids=str)
def test_pairs_of_the_variants(options: dict[str, int], causal: bool) -> None:
    seen = pattern(causal=causal, **options)
    for n in (1, 2, 3, 7, 16, 31, 64, 97):
        counted = pairs(n, options["window"], options.get("dilation", 1), causal=causal)
        assert seen.dense(n).sum() == seen.count(n) == counted, n


@pytest.mark.parametrize("step", [1, 2])
def test_layers_carry_it_further(step: int) -> None:
    seen, n = pattern(window=6, dilation=step), 41
    reached = patterns.receptive_field(seen, n, 3, residual=False).after[-1]
    assert torch.equal(reached, pattern(window=3 * 6, dilation=step).dense(n))
    far = 3 * 3 * step  # L·w/2 steps to either side
    assert reached[20].nonzero().squeeze(-1).tolist() == [*range(20 - far, 21 + far, step)]
    through = patterns.receptive_field(pattern(window=6, global_positions=(0,)), n, 2)
    assert through.complete
    assert through.layers == 2


def test_blocked_pays_for_its_pairs() -> None:
    n = 4096
    for options in ({"dilation": 1}, {"dilation": 8}, {"global_positions": (0, 1000)}):
        seen = pattern(window=128, **options)  # type: ignore[arg-type]
        assert layout(seen, n, n).pairs < 3 * seen.count(n) < n * n / 4


# ---- heads and dilation


@forms
def test_each_head_has_its_own_dilation(form: Form) -> None:
    q, k, v = made()
    out = form(q, k, v, mask=pattern(window=4, dilation=(1, 3, 1)))
    for head, step in enumerate((1, 3, 1)):
        mask = patterns.dilated(2, step)
        expected = full.naive(q, k, v, mask=mask)[:, head]
        torch.testing.assert_close(out[:, head], expected)


# ---- global tokens


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padded", [False, True])
def test_forms_agree_on_global_tokens(dtype: torch.dtype, padded: bool) -> None:
    inputs = [*made(), *of_global(*made())[1:]]
    padding = patterns.padding(torch.rand(2, 17) > 0.4 if padded else None)
    mask = patterns.both(pattern(window=4, dilation=(1, 2, 3), global_positions=GLOBAL), padding)
    exact = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}[dtype]
    outs, grads = [], []
    for form, kind in ((FORMS["naive"], torch.float64), (FORMS["blocked"], dtype)):
        x = [each.to(dtype).to(kind).requires_grad_() for each in inputs]
        out = form(*x[:3], mask=mask, global_rows=GlobalRows(GLOBAL, *x[3:]))
        outs.append(out.double())
        direction = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        grads.append(torch.autograd.grad((out * direction.to(kind)).sum(), x))
    torch.testing.assert_close(outs[1], outs[0], rtol=exact, atol=exact)
    for mine, theirs in zip(grads[1], grads[0], strict=True):
        tolerance = exact * max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine.double(), theirs, rtol=exact, atol=tolerance)


@forms
def test_global_projections_serve_the_rows_of_global_tokens_alone(form: Form) -> None:
    q, k, v = made()
    mask = pattern(window=4, global_positions=GLOBAL)
    local = form(q, k, v, mask=mask)
    out = form(q, k, v, mask=mask, global_rows=of_global(*made()))
    others = [i for i in range(17) if i not in GLOBAL]
    assert torch.equal(out[:, :, others], local[:, :, others])
    assert not torch.isclose(out[:, :, list(GLOBAL)], local[:, :, list(GLOBAL)]).any()
    ask, look, take = made()
    rows = full.naive(ask[:, :, list(GLOBAL)], look, take)
    out = form(q, k, v, mask=mask, global_rows=of_global(ask, look, take))
    torch.testing.assert_close(out[:, :, list(GLOBAL)], rows)


def module(**options: Any) -> LongformerAttention:
    layer = attnlab.build("longformer", dim=12, heads=3, **options)
    assert isinstance(layer, LongformerAttention)
    return layer.double()


@pytest.mark.parametrize("form", FORMS)
def test_a_new_module_has_equal_projections(form: str) -> None:
    layer = module(form=form, window=4, global_positions=GLOBAL, bias=True)
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    q, k, v = layer.heads.project(x)
    expected = layer.heads.merge(full.naive(q, k, v, mask=layer.pattern))
    torch.testing.assert_close(layer(x), expected)
    (layer(x)[:, [0, 5]] ** 2).sum().backward()
    for linear in (layer.query_global, layer.key_global, layer.value_global):
        assert linear.weight.grad is not None
        assert (linear.weight.grad != 0).any()
    assert layer.query_global.weight is not layer.heads.query.weight


@pytest.mark.parametrize("form", FORMS)
def test_a_module_with_global_tokens_keeps_the_claims(form: str) -> None:
    """The card's variants may all be causal, so that what is claimed is shown here."""
    layer = module(form=form, window=4, global_positions=(3, 0))
    layer.query_global.weight.data.normal_()
    x = torch.randn(2, 11, 12, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(11) < torch.tensor([[11], [7]])
    out = layer(x, padding)
    torch.testing.assert_close(out[1, :7], layer(x[1:, :7])[0])
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), layer(x))
    kept = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    again = checkpoint(layer, x, use_reentrant=False).square().sum()
    for mine, theirs in zip(
        torch.autograd.grad(again, [x, *layer.parameters()]), kept, strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_its_map_is_the_softmax_over_the_pattern(form: str) -> None:
    layer = module(form=form, window=4, dilation=(1, 2, 3))
    x = torch.randn(2, 13, 12, dtype=torch.float64)
    q, k, _ = layer.heads.project(x)
    scores = (q @ k.mT / 2).masked_fill(~layer.pattern.dense(13), -torch.inf)
    mixing = mixing_matrix(layer, x)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, scores.softmax(-1), rtol=1e-6, atol=1e-6)
    chosen = module(form=form, window=2, global_positions=(5,))
    assert not mixing_matrix(chosen, x).exact  # two value projections: one set of one-hots lies
    assert ((mixing_matrix(chosen, x).matrix > 0) == chosen.pattern.dense(13)).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("form", FORMS)
def test_it_is_hugging_faces_layer(form: str) -> None:
    longformer = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    config = longformer.LongformerConfig(
        hidden_size=12,
        num_attention_heads=3,
        attention_window=[4],
        attention_probs_dropout_prob=0.0,
        num_hidden_layers=1,
    )
    theirs = longformer.LongformerSelfAttention(config, 0).double().eval()
    mine = module(form=form, window=4, global_positions=(7, 2), bias=True)
    mine.heads.output.weight.data = torch.eye(12, dtype=torch.float64)
    mine.heads.output.bias.data.zero_()
    for name in ("query", "key", "value"):
        getattr(mine.heads, name).load_state_dict(getattr(theirs, name).state_dict())
        ours = getattr(mine, f"{name}_global")
        ours.load_state_dict(getattr(theirs, f"{name}_global").state_dict())
    x = torch.randn(2, 16, 12, dtype=torch.float64)
    padding = torch.arange(16) < torch.tensor([[16], [13]])
    said = torch.zeros(2, 16).masked_fill(~padding, -10000.0)
    said[:, [2, 7]] = 10000.0
    expected = theirs(
        x,
        attention_mask=said,
        is_index_masked=said < 0,
        is_index_global_attn=said > 0,
        is_global_attn=True,
    )[0]
    torch.testing.assert_close(mine(x, padding)[padding], expected[padding], rtol=1e-5, atol=1e-5)


# ---- decoding


@pytest.mark.parametrize(("dilation", "kept"), [(1, [20, 21, 22]), (2, list(range(17, 23)))])
def test_decoding_remembers_half_a_window(dilation: int, kept: list[int]) -> None:
    layer = module(window=6, dilation=dilation, causal=True)
    x = torch.randn(2, 29, 12, dtype=torch.float64)
    state, parts = None, []
    for piece in x.split([7, 1, 1, 11, 1, 2, 1, 5], dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
        if state.length == 23:
            assert state.places.tolist() == kept
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x))


# ---- LED


def test_encoder_decoder_reads_through_windows_and_writes_in_full() -> None:
    layer = EncoderDecoder(12, 3, module(window=2)).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    source = torch.randn(2, 17, 12, dtype=torch.float64, requires_grad=True)
    real = torch.arange(17) < torch.tensor([[17], [11]])
    out = layer(x, context=source, context_padding=real)
    torch.testing.assert_close(layer(x[1:], context=source[1:, :11])[0], out[1])
    read, grad = torch.autograd.grad(out[:, 2].sum(), (x, source))
    assert (read[:, 3:] == 0).all()
    assert (read[:, :3] != 0).all()
    assert (grad[real] != 0).all()
    assert (grad[~real] == 0).all()


def test_encoder_decoder_is_three_attentions() -> None:
    layer = EncoderDecoder(12, 3, module(window=4, global_positions=(0,))).double()
    x, source = (torch.randn(2, n, 12, dtype=torch.float64) for n in (5, 17))

    def attend(heads: Any, y: Tensor, other: Tensor | None, mask: Any) -> Tensor:
        return heads.merge(full.naive(*heads.project(y, other), mask=mask))

    read = source + attend(layer.encoder.heads, source, None, layer.encoder.pattern)
    written = x + attend(layer.decoder.heads, x, None, patterns.causal())
    expected = written + attend(layer.cross.heads, written, read, None)
    torch.testing.assert_close(layer(x, context=source), expected)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, context=source), expected)


def test_a_tiny_transformer_can_be_an_led() -> None:
    def attention(dim: int, heads: int, causal: bool) -> Any:
        if causal:
            return attnlab.build("full", dim=dim, heads=heads, causal=True)
        return attnlab.build("longformer", dim=dim, heads=heads, window=4, global_positions=(0,))

    model = attnlab.TinyTransformer(
        7, dim=12, heads=3, layers=2, kind="encoder_decoder", attention=attention
    )
    expected = pattern(window=4, global_positions=(0,))
    assert [block.attention.pattern for block in model.encoder.blocks] == [expected] * 2
    tokens, source = torch.randint(7, (2, 5)), torch.randint(7, (2, 17))
    other = source.clone()
    other[:, 16] = (source[:, 16] + 1) % 7
    out = model(tokens, source=source)
    assert out.shape == (2, 5, 7)
    assert not torch.isclose(model(tokens, source=other), out).all(-1).any()  # the end is read


# ---- wrong arguments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 5}, "total w, half of it to each side .* even and at least 2, got 5"),
        ({"window": 0}, "at least 2, got 0"),
        ({"window": -2}, "at least 2, got -2"),
        ({"dilation": 0}, "dilation should be at least 1, got 0"),
        ({"dilation": ()}, "a step to 0 heads, but there are"),
        ({"causal": True, "global_positions": (0,)}, "a causal Longformer has no global tokens"),
        ({"global_positions": (-1,)}, "global positions count from the start"),
        ({"global_positions": (2, 0, 2)}, r"named twice: \[2, 0, 2\]"),
    ],
)
def test_wrong_options_are_answered_in_sentences(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pattern(**options)
    with pytest.raises(ValueError, match=said):
        module(**options)


@forms
def test_wrong_global_rows_are_answered_in_sentences(form: Form) -> None:
    q, k, v = made()
    mask, rows = pattern(global_positions=(0,)), of_global(q, k, v, (0,))
    with pytest.raises(TypeError, match="missing 2 required"):
        GlobalRows((0,), q[:, :, :1])  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"has 2 queries; .*=\[0\], which are 1"):
        form(q, k, v, mask=mask, global_rows=rows._replace(queries=q[:, :, :2]))
    with pytest.raises(ValueError, match="for whole sequences, got 3 queries, 17 keys"):
        form(q[:, :, :3], k, v, mask=mask, global_rows=rows)
    with pytest.raises(ValueError, match="d is 4, expected 5"):
        form(q, k, v, mask=mask, global_rows=rows._replace(keys=k[..., :4]))
    with pytest.raises(ValueError, match="position 17 is outside of a sequence of 17"):
        form(q, k, v, mask=pattern(global_positions=(17,)))
    with pytest.raises(ValueError, match="for 2 heads, but there are 3"):
        form(q, k, v, mask=pattern(dilation=(1, 2)))


def test_other_wrong_calls() -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    with pytest.raises(ValueError, match="global position 5 is outside of a sequence of 5: 0 … 4"):
        module(global_positions=(0, 5))(x)
    with pytest.raises(ValueError, match="gives a step to 2 heads, but there are 3"):
        module(dilation=(1, 2))
    with pytest.raises(ValueError, match="causal=True"):
        module().step(x[:, :1])
    with pytest.raises(TypeError, match="window should be a whole number, got '4'"):
        module(window="4")


def test_led_is_found_by_its_name() -> None:
    assert attnlab.card("led") is CARD
