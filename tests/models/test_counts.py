"""Counts against formulas written out by hand, and against PyTorch's own counter."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnlab.models.counts import count

N, DIM, HIDDEN, LAYERS, VOCAB = 19, 12, 48, 2, 29
NORM = 2 * DIM
# Four projections, and the two products of attention with the full n × n matrix.
ATTENTION = 2 * N * 4 * DIM * DIM + 2 * N * N * 2 * DIM
FEED_FORWARD = 2 * N * 2 * DIM * HIDDEN


def rows_of(model):
    return {row.part: row for row in count(model, N)}


@pytest.mark.parametrize(
    ("attention", "form"),
    [("full", "naive"), ("full", "fused"), ("flash", "tiled")],
)
def test_language_model_by_hand(make, attention, form):
    rows = rows_of(make(attention=attention, attention_options={"form": form}))
    attention, feed_forward = (
        rows["decoder.blocks.1.attention"],
        rows["decoder.blocks.1.feed_forward"],
    )
    assert attention.flops == ATTENTION
    assert attention.parameters == 4 * DIM * DIM + NORM
    assert feed_forward.flops == FEED_FORWARD
    assert feed_forward.parameters == 2 * DIM * HIDDEN + HIDDEN + DIM + NORM
    assert rows["embedding"][1:] == (VOCAB * DIM, 0)
    assert rows["positions"][1:] == (23 * DIM, 0)
    assert rows["output"][1:] == (0, 2 * N * DIM * VOCAB)
    assert rows["decoder.norm"][1:] == (NORM, 0)
    assert rows["total"].flops == LAYERS * (ATTENTION + FEED_FORWARD) + 2 * N * DIM * VOCAB


@pytest.mark.parametrize("kind", ["language_model", "classifier", "encoder_decoder"])
@pytest.mark.parametrize(("tie", "norm"), [(True, "pre"), (False, "post")])
def test_equals_the_real_parameters_and_the_counter(make, kind, tie, norm):
    model = make(kind, tie=tie, norm=norm, attention_options={"form": "naive"})
    for module in model.modules():  # cross-attention too, so that the counter sees every product
        if getattr(module, "form", None) == "fused":
            module.attend = type(module)(12, 2, form="naive").attend
    rows = count(model, N)
    tokens = torch.randint(VOCAB, (1, N))
    source = tokens if kind == "encoder_decoder" else None
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(tokens, source=source)
    assert rows[-1].part == "total"
    assert rows[-1].parameters == sum(p.numel() for p in model.parameters())
    assert rows[-1].flops == counter.get_total_flops()
    assert sum(r.flops for r in rows[:-1]) == rows[-1].flops
    assert sum(r.parameters for r in rows[:-1]) == rows[-1].parameters
    assert rows_of(make(kind, tie=tie, norm=norm))["total"] == rows[-1], "fused counts as naive"


def test_features_and_cross_attention_have_their_rows(make):
    rows = rows_of(make("classifier", features=5, classes=7))
    assert rows["embedding"][1:] == (5 * DIM + DIM, 2 * N * 5 * DIM)
    assert rows["output"][1:] == (7 * DIM + 7, 2 * DIM * 7)
    rows = rows_of(make("encoder_decoder"))
    assert rows["decoder.blocks.0.cross"][1:] == (4 * DIM * DIM + NORM, ATTENTION)
    assert rows["encoder.blocks.0.attention"].flops == ATTENTION


def test_a_shared_matrix_counts_once(make):
    model = make()
    first, second = (block.attention.heads for block in model.decoder.blocks)
    second.query.weight = first.query.weight
    rows = {row.part: row.parameters for row in count(model, N)}
    assert rows["decoder.blocks.1.attention"] == 3 * DIM * DIM + NORM
    assert rows["total"] == sum(p.numel() for p in model.parameters())


class Noisy(nn.Module):
    """A mechanism that draws."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return x + torch.randn_like(x)


def test_counting_leaves_no_trace(make):
    model = make(attention=Noisy).train()
    model.decoder.blocks[1].eval()
    before = torch.random.get_rng_state()
    count(model, N)
    assert model.training
    assert model.decoder.blocks[0].training
    assert not model.decoder.blocks[1].training
    assert torch.equal(before, torch.random.get_rng_state())


def test_refuses_a_length_the_model_cannot_take(make):
    with pytest.raises(ValueError, match="max_len"):
        count(make(), 24)
    with pytest.raises(ValueError, match="n = 0"):
        count(make(), 0)
    for n, words in ((1.5, "n should be a whole number"), (True, "n should be a whole number")):
        with pytest.raises(TypeError, match=words):
            count(make(), n)
    with pytest.raises(ValueError, match="n should be at least 0, got -1"):
        count(make(), -1)
    with pytest.raises(TypeError, match="model should be a TinyTransformer, got a NoneType"):
        count(None, N)


def test_a_factorized_embedding_and_complex_words_are_counted(make):
    rows = rows_of(make(embedding_rank=5))
    assert rows["embedding"][1:] == (VOCAB * 5 + 5 * DIM + DIM, 2 * N * 5 * DIM)
    assert rows["output"][1:] == (0, 2 * N * 5 * (DIM + VOCAB))
    rows = rows_of(make(positions="complex"))
    assert rows["embedding"].parameters == VOCAB * DIM
