"""Factorized embedding: its forms, its counts (identity U5), ALBERT's own, and what is refused."""

import pytest
import torch
from torch import Tensor

from attnlab.core.card import letters
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.positions.factorized import (
    CARD,
    FORMS,
    FactorizedEmbedding,
    FactorizedOptions,
    break_even,
)

B, N, V, R, DIM = 2, 7, 23, 5, 11
OPTIONS = {
    "bare": FactorizedOptions(vocab=V, rank=R),
    "positions": FactorizedOptions(vocab=V, rank=R, max_len=13),
    "norm": FactorizedOptions(vocab=V, rank=R, norm=True),
    "albert": FactorizedOptions(vocab=V, rank=R, max_len=13, norm=True),
}
by_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
by_form = pytest.mark.parametrize("form", FORMS)


def made(options: FactorizedOptions, form: str = "lookup") -> FactorizedEmbedding:
    torch.manual_seed(3)
    layer = FactorizedEmbedding(DIM, form=form, options=options).double()  # type: ignore[arg-type]
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def drawn(*shape: int, below: int = V) -> Tensor:
    return torch.randint(below, shape)


def numbers(layer: torch.nn.Module) -> int:
    return sum(p.numel() for p in layer.parameters())


@by_options
def test_forms_are_equal_in_values_and_gradients(options: FactorizedOptions) -> None:
    tokens = drawn(B, N)
    layers = [made(options, form) for form in FORMS]
    outs = [layer(tokens) for layer in layers]
    torch.testing.assert_close(outs[1], outs[0])
    grads = [
        torch.autograd.grad(out.square().sum(), list(layer.parameters()))
        for out, layer in zip(outs, layers, strict=True)
    ]
    for mine, theirs in zip(*grads, strict=True):
        assert (theirs != 0).any()
        torch.testing.assert_close(mine, theirs)


@by_form
def test_bare_it_is_a_table_of_rank_r(form: str) -> None:
    layer = made(OPTIONS["bare"], form)
    every = torch.arange(V)[None]
    table = layer.table @ layer.projection + layer.bias
    torch.testing.assert_close(layer(every)[0], table)
    assert torch.linalg.matrix_rank(table - layer.bias) == R


@by_form
def test_positions_and_norm_come_before_the_projection(form: str) -> None:
    layer, tokens = made(OPTIONS["albert"], form), drawn(B, N)
    assert layer.positions is not None
    assert layer.norm is not None
    narrow = layer.table[tokens] + layer.positions[:N]
    centred = narrow - narrow.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    expected = (normed * layer.norm[0] + layer.norm[1]) @ layer.projection + layer.bias
    torch.testing.assert_close(layer(tokens), expected)


@by_form
def test_positions_may_be_given(form: str) -> None:
    layer, tokens = made(OPTIONS["positions"], form), drawn(B, N)
    for at in (torch.arange(N), torch.arange(N).expand(B, N)):
        torch.testing.assert_close(layer(tokens, at), layer(tokens))
    later = layer(tokens, torch.arange(N)[None].expand(B, N) + 6)
    assert layer.positions is not None
    gap = (layer.positions[6 : 6 + N] - layer.positions[:N]) @ layer.projection
    torch.testing.assert_close(later - layer(tokens), gap.expand(B, N, DIM))


def test_the_output_through_the_same_factors() -> None:
    layer, x = made(OPTIONS["bare"]), torch.randn(B, N, DIM, dtype=torch.float64)
    table = layer.table @ layer.projection
    torch.testing.assert_close(layer.logits(x), x @ table.mT)
    assert layer.logits(x[0, 0]).shape == (V,)


@by_form
def test_the_narrow_vectors_are_noted(form: str) -> None:
    layer, tokens = made(OPTIONS["bare"], form), drawn(B, N)
    with record() as notes:
        layer(tokens)
    torch.testing.assert_close(notes["narrow"][0], layer.table[tokens])


@by_options
def test_module_compiles_whole(options: FactorizedOptions) -> None:
    layer, tokens = made(options), drawn(B, N)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), layer(tokens))


# ---- counts


def test_numbers_of_albert_base() -> None:
    """V r + r dim against V dim, with ALBERT's 30,000 words of width 128 and a model of 768."""
    with torch.device("meta"):
        layer = FactorizedEmbedding(768)
    assert layer.table.numel() + layer.projection.numel() == 3_938_304
    assert numbers(layer) == 3_938_304 + 768
    assert 30000 * 768 == 23_040_000


@pytest.mark.parametrize(
    ("dim", "hidden", "expected"),
    [
        (768, 3072, 11_683_584),
        (1024, 4096, 17_683_968),
        (2048, 8192, 58_724_864),
        (4096, 16384, 222_595_584),
    ],
)
def test_numbers_of_whole_alberts(dim: int, hidden: int, expected: int) -> None:
    """The embedding, two token types, one layer for all, and the pooler."""
    with torch.device("meta"):
        embedding = FactorizedEmbedding(dim, options=FactorizedOptions(max_len=512, norm=True))
    types = 2 * 128
    attention = 4 * (dim * dim + dim)
    forward = 2 * dim * hidden + hidden + dim
    norms, pooler = 4 * dim, dim * dim + dim
    assert numbers(embedding) + types + attention + forward + norms + pooler == expected


@pytest.mark.parametrize(("vocab", "dim"), [(30000, 768), (259, 384), (97, 101)])
def test_smaller_up_to_the_break_even(vocab: int, dim: int) -> None:
    rank = int(break_even(vocab, dim))  # no whole number is met exactly here
    factorized = [vocab * r + r * dim for r in (rank, rank + 1)]
    assert factorized[0] < vocab * dim < factorized[1]


def test_it_starts_as_wide_spread_as_an_ordinary_table() -> None:
    torch.manual_seed(0)
    out = FactorizedEmbedding(64, options=FactorizedOptions(vocab=997))(drawn(4, 101, below=997))
    assert out.detach().std() == pytest.approx(0.02, rel=0.05)


def test_albert_itself() -> None:
    """Hugging Face's embedding and projection with our numbers in them."""
    albert = pytest.importorskip("transformers.models.albert", reason="needs transformers")
    ours, tokens = made(OPTIONS["albert"]), drawn(B, N)
    config = albert.AlbertConfig(
        vocab_size=V,
        embedding_size=R,
        hidden_size=DIM,
        max_position_embeddings=13,
        num_attention_heads=1,
        intermediate_size=3,
        hidden_dropout_prob=0,
    )
    theirs = albert.AlbertModel(config).double().eval()
    assert ours.positions is not None
    assert ours.norm is not None
    with torch.no_grad():
        theirs.embeddings.word_embeddings.weight.copy_(ours.table)
        theirs.embeddings.position_embeddings.weight.copy_(ours.positions)
        theirs.embeddings.token_type_embeddings.weight.zero_()
        theirs.embeddings.LayerNorm.weight.copy_(ours.norm[0])
        theirs.embeddings.LayerNorm.bias.copy_(ours.norm[1])
        theirs.encoder.embedding_hidden_mapping_in.weight.copy_(ours.projection.mT)
        theirs.encoder.embedding_hidden_mapping_in.bias.copy_(ours.bias)
        expected = theirs.encoder.embedding_hidden_mapping_in(theirs.embeddings(tokens))
    torch.testing.assert_close(ours(tokens), expected)


# ---- refusals


@by_form
@pytest.mark.parametrize("wrong", [V, -1])
def test_a_word_beyond_the_table_is_refused(form: str, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"tokens should lie in 0 … 22, .*; {wrong} does not"):
        made(OPTIONS["bare"], form)(torch.tensor([[3, wrong]]))


@pytest.mark.parametrize(
    ("options", "call", "said"),
    [
        ("bare", lambda m: m(torch.rand(B, N)), r"`tokens` should be Int\[b n\]"),
        ("bare", lambda m: m(drawn(N)), r"`tokens` should be Int\[b n\]"),
        ("bare", lambda m: m(drawn(B, N), drawn(B, N)), "no positions; build it with max_len"),
        ("positions", lambda m: m(drawn(B, 14)), r"14 positions, but .* max_len=13; build it"),
        ("positions", lambda m: m(drawn(B, N), drawn(B, 5)), r"n is 5, expected 7 as in `tokens`"),
        ("positions", lambda m: m(drawn(B, N), drawn(B, N) + 13), "positions should lie in 0 … 12"),
        ("bare", lambda m: m.logits(torch.rand(B, 3).double()), "width dim=11, got 3"),
    ],
)
def test_what_does_not_fit_is_refused(options: str, call, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=said):
        call(made(OPTIONS[options]))


def test_the_card_promises_what_the_page_says() -> None:
    """Two FLOPs for each multiplication and addition of the projection, and of the table."""
    sizes = dict(zip(letters("n r dim v"), (N, R, DIM, V), strict=True))
    for form in FORMS:
        counted = count(made(OPTIONS["bare"], form), drawn(1, N))
        assert counted.flops == CARD.cost("time", form).subs(sizes)
        assert counted.largest_tensor.elements <= CARD.cost("memory", form).subs(sizes)
