"""MobileBERT's layer and embedding: Hugging Face's, with their weights; identities; counts."""

import pytest
import torch
from torch import nn

from attnlab.models.mobilebert import (
    MOBILE,
    TEACHER,
    TINY,
    Layer,
    MobileBERT,
    MobileBERTOptions,
    Trigrams,
)

SMALL = MobileBERTOptions(dim=14, inside=6, heads=2, hidden=11, feeds=3)
VARIANTS = {
    "mobile": SMALL,
    "tiny": MobileBERTOptions(dim=14, inside=6, heads=2, hidden=11, feeds=2, reads="bottleneck"),
    "normed": MobileBERTOptions(
        dim=14, inside=6, heads=2, hidden=11, feeds=1, norm="layer", curve="gelu"
    ),
    "teacher": MobileBERTOptions(
        dim=14, inside=26, heads=2, hidden=22, feeds=1, reads="stream", norm="layer"
    ),
}
PADDING = torch.arange(7) < torch.tensor([[7], [4]])


def drawn(module: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    return module.double()


def theirs_of(sizes: MobileBERTOptions) -> nn.Module:
    modeling = pytest.importorskip("transformers.models.mobilebert.modeling_mobilebert")
    config = modeling.MobileBertConfig(
        vocab_size=19, hidden_size=sizes.dim, embedding_size=5, num_hidden_layers=1,
        num_attention_heads=sizes.heads, intermediate_size=sizes.hidden,
        intra_bottleneck_size=sizes.inside, num_feedforward_networks=sizes.feeds,
        hidden_act=sizes.curve,
        key_query_shared_bottleneck=sizes.reads == "shared", max_position_embeddings=9,
        use_bottleneck_attention=sizes.reads == "bottleneck",
        normalization_type={"none": "no_norm", "layer": "layer_norm"}[sizes.norm],
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5,
        attn_implementation="eager",
    )  # fmt: skip
    return drawn(modeling.MobileBertModel(config, add_pooling_layer=False)).eval()


def copied(sizes: MobileBERTOptions, theirs: nn.Module) -> Layer:
    """Our layer with the weights of theirs."""
    ours, block = Layer(sizes).double(), theirs.encoder.layer[0]
    heads, out = block.attention.self, block.attention.output
    feeds = [*getattr(block, "ffn", ()), None]
    pairs = [
        (ours.into, block.bottleneck.input.dense),
        (ours.into_norm, block.bottleneck.input.LayerNorm),
        (ours.query, heads.query), (ours.key, heads.key), (ours.value, heads.value),
        (ours.output, out.dense), (ours.attention_norm, out.LayerNorm),
        (ours.out, block.output.bottleneck.dense),
        (ours.out_norm, block.output.bottleneck.LayerNorm),
    ]  # fmt: skip
    for i, feed in enumerate(feeds):
        last = feed is None
        pairs += [
            (ours.expand[i], (block if last else feed).intermediate.dense),
            (ours.contract[i], (block if last else feed).output.dense),
            (ours.feed_norms[i], (block if last else feed).output.LayerNorm),
        ]
    if sizes.reads == "shared":
        pairs += [
            (ours.shared, block.bottleneck.attention.dense),
            (ours.shared_norm, block.bottleneck.attention.LayerNorm),
        ]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    return ours


@pytest.mark.parametrize("name", ["mobile", "tiny", "normed"])
def test_a_layer_is_hugging_faces(name: str) -> None:
    """Its teacher is left out: there the bottleneck is not narrower, and the code has no switch
    for queries from a stream of another width."""
    theirs = theirs_of(VARIANTS[name])
    ours, x = copied(VARIANTS[name], theirs), torch.randn(2, 7, 14, dtype=torch.float64)
    bias = torch.zeros(2, 1, 1, 7).double().masked_fill(~PADDING[:, None, None], -torch.inf)
    expected = theirs.encoder.layer[0](x.masked_fill(~PADDING[..., None], 0), bias)
    torch.testing.assert_close(ours(x, PADDING)[PADDING], expected[PADDING])


def test_the_embedding_is_hugging_faces() -> None:
    theirs = theirs_of(SMALL).embeddings
    ours = Trigrams(19, 14, 5, 9, 2, "none").double()
    for mine, other in (
        (ours.tokens, theirs.word_embeddings),
        (ours.three, theirs.embedding_transformation),
        (ours.positions, theirs.position_embeddings),
        (ours.types, theirs.token_type_embeddings),
        (ours.norm, theirs.LayerNorm),
    ):
        mine.load_state_dict(other.state_dict())
    tokens, types = torch.randint(19, (2, 7)), torch.randint(2, (2, 7))
    torch.testing.assert_close(ours(tokens, types=types), theirs(tokens, types))


def test_a_layer_that_adds_nothing_is_the_identity() -> None:
    """W_out = 0, γ = 1, β = 0 of the last NoNorm."""
    layer = drawn(Layer(SMALL))
    for p, value in ((layer.out.weight, 0), (layer.out.bias, 0)):
        nn.init.constant_(p, value)
    nn.init.ones_(layer.out_norm.weight)
    nn.init.zeros_(layer.out_norm.bias)
    x = torch.randn(2, 7, 14, dtype=torch.float64)
    assert torch.equal(layer(x), x)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_layer_knows_no_order_and_padding_changes_nothing(name: str) -> None:
    layer = drawn(Layer(VARIANTS[name]))
    x, order = torch.randn(2, 7, 14, dtype=torch.float64), torch.randperm(7)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])
    short = layer(x[1:, :4])
    filled = x.masked_fill(~PADDING[..., None], torch.nan)
    torch.testing.assert_close(layer(filled, PADDING)[1:, :4], short)


def test_only_the_embedding_knows_order() -> None:
    """By the neighbours of a token, and by positions: without the latter neighbours still tell."""
    model = MobileBERT(19, sizes=SMALL, layers=2, rows=5, max_len=9)
    nn.init.zeros_(model.embedding.positions.weight)
    tokens = torch.tensor([[3, 8, 2, 5]])
    out, turned = model.encode(tokens), model.encode(tokens.flip(1)).flip(1)
    assert not torch.allclose(out, turned)
    rows = model.embedding.three.weight
    with torch.no_grad():
        rows[:, :5] = rows[:, 10:] = 0  # of the next and the previous token
    torch.testing.assert_close(model.encode(tokens), model.encode(tokens.flip(1)).flip(1))


def test_values_read_the_stream_and_queries_do_not() -> None:
    """What the bottlenecks lose reaches a MobileBERT layer's values, and not those of the tiny."""
    for name, reaches in (("mobile", True), ("tiny", False)):
        layer = drawn(Layer(VARIANTS[name]))
        lost = torch.linalg.svd(layer.into.weight)[2][-1]  # W_in · lost = 0
        if hasattr(layer, "shared"):
            layer.shared.load_state_dict(layer.into.state_dict())
        x = torch.randn(1, 5, 14, dtype=torch.float64)
        changed = layer(x + lost) - lost * layer.out_norm.weight
        assert torch.allclose(changed, layer(x)) is not reaches


@pytest.mark.parametrize(
    ("sizes", "count"), [(MOBILE, 842_240), (TINY, 463_232), (TEACHER, 12_076_544)]
)
def test_parameters_of_a_layer(sizes: MobileBERTOptions, count: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in Layer(sizes).parameters()) == count


def test_it_learns_and_refuses_what_it_cannot_read() -> None:
    torch.manual_seed(0)
    model = MobileBERT(5, classes=2, sizes=SMALL, layers=2, rows=5, max_len=9)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    tokens = torch.randint(5, (64, 7))
    labels = (tokens == 3).any(1).long()
    losses = []
    for _ in range(60):
        losses.append(nn.functional.cross_entropy(model(tokens), labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    with pytest.raises(ValueError, match="at most max_len=9 tokens, got 10"):
        model.encode(torch.zeros(1, 10, dtype=torch.long))
    with pytest.raises(ValueError, match="heads should divide inside=6"):
        MobileBERTOptions(inside=6, heads=4)
    with pytest.raises(ValueError, match="built without classes"):
        MobileBERT(5, sizes=SMALL, layers=1)(tokens)
