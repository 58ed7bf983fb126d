"""What ``collect`` keeps: vectors, masks, strongest keys and statistics equal the model's own."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.lens.heads import head_statistics
from attnlab.lens.query_key.collect import Collector, collect
from attnlab.lens.query_key.points import POSITIONS, STRONGEST
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.digits import Digits

B, N, M, HEADS, WIDTH, WORDS = 3, 11, 13, 5, 2, 37
DIM = 70


class Layer(nn.Module):
    """Attention written by hand, with all that a test may want to add to it."""

    def __init__(self, heads, width, *, shared=False, causal=False, bias=None, times=1.0):
        super().__init__()
        self.heads, self.width, self.causal, self.times = heads, width, causal, times
        self.q, self.v = (nn.Linear(DIM, heads * width) for _ in range(2))
        self.k = nn.Linear(DIM, width if shared else heads * width)
        self.out = nn.Linear(heads * width, DIM)
        self.bias = bias

    def split(self, name, x):
        return getattr(self, name)(x).unflatten(-1, (-1, self.width)).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self.split("q", x), self.split("k", x), self.split("v", x)
        k = k.expand(-1, self.heads, -1, -1)
        allowed = None if mask is None else mask[:, None, None, :].bool()
        if self.causal:
            allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if self.bias is not None:
            allowed = self.bias[..., : x.shape[1], : x.shape[1]]
        out = F.scaled_dot_product_attention(q * self.times, k, v, attn_mask=allowed)
        return x + self.out(out.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, *layers, words=WORDS):
        super().__init__()
        self.embedding = nn.Embedding(words, DIM)
        self.layers = nn.ModuleList(layers)

    def forward(self, input_ids, attention_mask=None):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, attention_mask)
        return x


def ids(*shape):
    return torch.randint(1, WORDS, shape)


def read(row):
    return [f"w{int(token)}" for token in row]


def lengths_mask(side):
    """Real tokens of three sequences of different lengths, padded on one side."""
    places = torch.arange(N) if side == "right" else torch.arange(N).flip(0)
    return (places < torch.tensor([[N], [N - 4], [3]])).long()


def same(stored, exact, atol=2e-3):
    exact = exact.detach().numpy()
    assert stored.shape == exact.shape
    assert np.allclose(stored.astype(np.float64), exact, rtol=2e-3, atol=atol)


def all_weights(points, at, sequence):
    """(h, n, m): the softmax over collected scores of what the collected mask allows."""
    layer = points[at]
    found = []
    for head in range(layer.heads):
        scores = torch.from_numpy(layer.scores(sequence, head))
        allowed = torch.from_numpy(layer.allowed(sequence, head))
        found.append(scores.masked_fill(~allowed, -torch.inf).softmax(-1))
    return torch.stack(found)


# ---------------------------------------------------------------------------- vectors and weights


@torch.no_grad()
def test_vectors_are_those_of_the_models_own_projections():
    """Also where heads and widths differ from layer to layer, and all heads share one key."""
    model = Model(Layer(HEADS, 7), Layer(2, 3), Layer(HEADS, 7, shared=True))
    tokens = ids(B, N)
    points = collect(model, [tokens], read)
    x = model.embedding(tokens)
    for layer, found in zip(model.layers, points, strict=True):
        for name, stored in ("q", found.queries), ("k", found.keys):
            own = layer.split(name, x).expand(-1, layer.heads, -1, -1)
            same(stored, own.transpose(0, 1).flatten(1, 2))
        norms = layer.split("v", x).norm(dim=-1).transpose(0, 1).flatten(1)
        assert np.allclose(found.value_norms, norms, rtol=1e-5)
        assert found.scale == pytest.approx(np.full(layer.heads, layer.width**-0.5))
        assert found.queries.dtype == found.keys.dtype == np.float16
        x = layer(x)
    assert [layer.name for layer in points] == ["layers.0", "layers.1", "layers.2"]
    assert points.heads == tuple(
        (at, h) for at, n in enumerate((HEADS, 2, HEADS)) for h in range(n)
    )
    assert points[0].query_tokens is points[0].key_tokens
    assert points.sampled is None


def test_tokens_know_text_sequence_position_and_frequency():
    tokens = torch.tensor([[1, 2, 1], [2, 2, 3]])
    found = collect(Model(Layer(2, 3)), [tokens], read)[0].query_tokens
    assert found.texts == ("w1", "w2", "w1", "w2", "w2", "w3")
    assert found.sequence.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.position.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.frequency.tolist() == [2, 3, 2, 3, 3, 1]
    assert found.sequences == 2
    assert found.of(1) == slice(3, 6)
    assert collect(Model(Layer(2, 3)), [tokens])[0].query_tokens.texts == ("0", "1", "2") * 2


@pytest.mark.parametrize("attention", ["full", "multi_query"])
@pytest.mark.parametrize("positions", ["rope", "learned"])
@torch.no_grad()
def test_scores_of_the_points_give_the_weights_of_the_model(positions, attention):
    """So queries and keys are those after the rotation, and shared keys stand once per head."""
    model = TinyTransformer(
        WORDS, dim=HEADS * 6, heads=HEADS, layers=2, max_len=N, positions=positions,
        attention=attention,
    ).eval()  # fmt: skip
    tokens = ids(B, N)
    points = collect(model, [tokens], read)
    with watch(model) as seen:
        model(tokens)
    for at, record in enumerate(seen):
        assert points[at].keys.shape == (HEADS, B * N, 6)
        assert points[at].outside is None
        for sequence in range(B):
            own = record.weights[sequence]
            assert torch.allclose(all_weights(points, at, sequence), own, atol=2e-3)


def test_rope_turns_queries_and_keys_before_they_are_collected():
    """One token everywhere: its unrotated vectors would be alike."""
    model = TinyTransformer(
        WORDS, dim=HEADS * 6, heads=HEADS, layers=1, max_len=N, positions="rope"
    ).eval()
    keys = collect(model, [torch.full((1, N), 2)])[0].keys.astype(np.float32)
    assert np.abs(keys[:, 1:] - keys[:, :1]).max() > 1e-3
    norms = np.linalg.norm(keys, axis=-1)
    assert np.allclose(norms, norms[:, :1], rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_models_of_other_precisions(dtype):
    model = Model(Layer(HEADS, 7)).to(dtype)
    tokens = ids(B, N)
    found = collect(model, [tokens])[0]
    own = model.layers[0].split("q", model.embedding(tokens))
    same(found.queries, own.transpose(0, 1).flatten(1, 2).float())


@pytest.mark.parametrize(("times", "dtype"), [(1e6, "float32"), (1e-6, "float32"), (1, "float16")])
def test_vectors_that_float16_cannot_hold_are_kept_in_float32(times, dtype):
    model = Model(Layer(HEADS, 7, times=times))
    found = collect(model, [ids(B, N)])[0]
    assert found.queries.dtype == dtype
    assert found.keys.dtype == np.float16
    assert np.isfinite(found.queries).all()
    assert (found.queries != 0).mean() > 0.99


def test_a_head_of_zeros_is_kept():
    layer = Layer(HEADS, 7)
    nn.init.zeros_(layer.q.weight[7:14])
    nn.init.zeros_(layer.q.bias[7:14])
    found = collect(Model(layer), [ids(B, N)])[0]
    assert not found.queries[1].any()
    assert found.queries.dtype == np.float16
    assert np.isfinite(found.statistics["entropy"]).all()


# ------------------------------------------------------------------------------- two texts, images


def encoder_decoder(**options):
    return TinyTransformer(
        WORDS, kind="encoder_decoder", dim=HEADS * 6, heads=HEADS, layers=1, max_len=17, **options
    ).eval()


@torch.no_grad()
def test_an_encoder_and_a_decoder_have_texts_of_their_own():
    model = encoder_decoder()
    tokens, source = ids(B, N), ids(B, M)
    real = torch.arange(M) < torch.tensor([[M], [M - 2], [1]])
    batch = {"tokens": tokens, "source": source, "source_padding": real}
    points = collect(model, [batch], read)
    kinds = {"self": [], "cross": [], "encoder": []}
    for layer in points:
        sizes = len(layer.query_tokens), len(layer.key_tokens)
        named = {(B * N, B * N): "self", (B * N, 2 * M - 1): "cross", (2 * M - 1,) * 2: "encoder"}
        kinds[named[sizes]].append(layer)
    (cross,) = kinds["cross"]
    assert len(kinds["self"]) == len(kinds["encoder"]) == 1
    assert cross.query_tokens is kinds["self"][0].query_tokens
    assert cross.key_tokens is kinds["encoder"][0].key_tokens
    assert list(cross.query_tokens.texts) == [text for row in tokens for text in read(row)]
    kept = [source[row, : int(real[row].sum())] for row in range(B)]
    assert list(cross.key_tokens.texts) == [text for row in kept for text in read(row)]
    assert set(cross.statistics) == {"entropy", "normalised_entropy", "first", "delimiter"}
    # The strongest key of a query in the last sequence is the only one that it has.
    assert (cross.strongest[:, -N:, 0] == 2 * M - 2).all()
    assert (cross.strongest[:, -N:, 1:] == -1).all()
    assert np.allclose(cross.weights[:, -N:, 0], 1)


def test_without_read_both_texts_are_named_by_places():
    batch = {"tokens": ids(B, N), "source": ids(B, M)}
    cross = next(
        x for x in collect(encoder_decoder(), [batch]) if x.queries.shape[1] != x.keys.shape[1]
    )
    assert cross.query_tokens.texts[:N] == tuple(map(str, range(N)))
    assert cross.key_tokens.texts[:M] == tuple(map(str, range(M)))


def test_the_longer_text_of_two_counts_towards_the_most():
    batches = [{"tokens": ids(2, 3), "source": ids(2, 17)} for _ in range(5)]
    points = collect(encoder_decoder(), batches, most=51)
    assert max(len(layer.key_tokens) for layer in points) == 51
    assert points.sampled.startswith("51 of 170 tokens are kept, from 3 of 10 sequences")


def test_patches_of_images_come_with_grid_and_label():
    model = TinyTransformer(
        kind="classifier", features=4, classes=10, dim=HEADS * 6, heads=HEADS, layers=1, max_len=16
    ).eval()
    task = Digits(unit="patches")
    batch = task.batch("validation", B, 0)
    images = torch.rand(B, 8, 8)
    found = collect(model, [batch.inputs], labels=batch.targets, images=images, grid=(4, 4))[
        0
    ].query_tokens
    assert len(found) == B * 16
    assert found.texts[:6] == tuple(
        f"row {i}, column {j}" for i, j in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1))
    )
    assert found.labels == tuple(str(int(label)) for label in batch.targets for _ in range(16))
    assert np.array_equal(found.images, images)
    assert found.grid == (4, 4)


def test_labels_may_differ_from_token_to_token():
    labels = [[f"{row}.{column}" for column in range(N)] for row in range(B)]
    real = lengths_mask("left")
    batch = {"input_ids": ids(B, N), "attention_mask": real}
    found = collect(Model(Layer(2, 3)), [batch], labels=labels)[0].query_tokens
    wanted = [labels[row][column] for row, column in real.nonzero().tolist()]
    assert list(found.labels) == wanted


# ----------------------------------------------------------------- padding, masks, strongest keys


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_is_no_token(side):
    model, real, tokens = Model(Layer(HEADS, 7), Layer(2, 3)), lengths_mask(side), ids(B, N)
    points = collect(model, [{"input_ids": tokens, "attention_mask": real}], read)
    found = points[0]
    assert list(found.query_tokens.texts) == [
        text for row in range(B) for text in read(tokens[row][real[row].bool()])
    ]
    assert found.query_tokens.position.tolist() == [*range(N), *range(N - 4), *range(3)]
    alone = [collect(model, [tokens[row : row + 1, real[row].bool()]], read) for row in range(B)]
    for at in range(2):
        for name in ("queries", "keys", "value_norms", "weights"):
            own = np.concatenate([getattr(one[at], name) for one in alone], axis=1)
            assert np.allclose(getattr(points[at], name), own, atol=2e-3)
    assert found.masks == (None,) * B


def test_a_query_is_not_collected_where_only_padding_is_broken():
    """Rows of padding that may attend to nothing become NaN in many models."""
    model, real, tokens = Model(Layer(HEADS, 7)), lengths_mask("right"), ids(B, N)
    tokens[~real.bool()] = 0
    with torch.no_grad():
        model.embedding.weight[0] = torch.nan
    model.layers[0].v.weight.data.zero_()  # NaN · 0 would reach the real tokens otherwise
    batch = {"input_ids": tokens, "attention_mask": real}
    with watch(model) as seen, torch.no_grad():
        model(**batch)
    collector = Collector()
    collector.add(seen, padding=real)
    assert np.isfinite(collector.points()[0].queries).all()


@torch.no_grad()
def test_strongest_keys_are_the_strongest_of_the_own_sequence():
    model, tokens = Model(Layer(HEADS, 7, causal=True)), ids(B, N)
    found = collect(model, [tokens])[0]
    with watch(model) as seen:
        model(tokens)
    for sequence in range(B):
        own = seen[0].weights[sequence]
        rows = slice(sequence * N, (sequence + 1) * N)
        best = own.topk(STRONGEST, dim=-1)
        assert np.allclose(found.weights[:, rows], best.values, atol=1e-3)
        there = best.values > 0
        stored = torch.from_numpy(found.strongest[:, rows])
        assert torch.equal(stored, torch.where(there, best.indices + sequence * N, -1).int())
        assert (there.sum(-1) == torch.arange(1, N + 1).clamp_max(STRONGEST)).all()


def test_fewer_keys_than_are_kept():
    found = collect(Model(Layer(HEADS, 7)), [ids(B, 3)])[0]
    assert found.strongest.shape == (HEADS, B * 3, STRONGEST)
    assert (found.strongest[..., 3:] == -1).all()
    assert (found.strongest[..., :3] >= 0).all()
    assert not found.weights[..., 3:].any()


def test_masks_of_heads_and_of_sequences():
    """A different mask for each head, and the causal one for all."""
    allowed = torch.rand(1, HEADS, N, N) < 0.5
    allowed |= torch.eye(N, dtype=torch.bool)
    bias = torch.zeros(1, HEADS, N, N).masked_fill(~allowed, -torch.inf)
    points = collect(Model(Layer(HEADS, 7, bias=bias), Layer(2, 3, causal=True)), [ids(B, N)])
    for head in range(HEADS):
        assert np.array_equal(points[0].allowed(1, head), allowed[0, head])
    assert np.array_equal(points[1].allowed(2, 1), np.tril(np.ones((N, N), dtype=bool)))
    assert collect(Model(Layer(2, 3)), [ids(B, N)])[0].allowed(0, 0).all()


@torch.no_grad()
def test_each_sequence_keeps_its_own_mask():
    """Where nobody says that the tokens outside the mask are padding."""
    model, real = Model(Layer(HEADS, 7)), lengths_mask("left").bool()
    with watch(model) as seen:
        model(ids(B, N), real)
    collector = Collector()
    collector.add(seen)
    layer = collector.points()[0]
    for sequence in range(B):
        assert np.array_equal(layer.allowed(sequence, 4), np.tile(real[sequence], (N, 1)))


# ------------------------------------------------------------------------------------- statistics


@torch.no_grad()
def test_mean_attention_by_position():
    model, real, tokens = Model(Layer(HEADS, 7)), lengths_mask("left"), ids(B, N)
    batch = {"input_ids": tokens, "attention_mask": real}
    found = collect(model, [batch])[0].by_position
    with watch(model) as seen:
        model(**batch)
    own = [seen[0].weights[row][:, keep][:, :, keep] for row, keep in enumerate(real.bool())]
    assert found.shape == (HEADS, N, N)
    for i, j in ((0, 0), (2, 1), (5, 6), (10, 10)):
        having = [one[:, i, j] for one in own if one.shape[1] > max(i, j)]
        assert np.allclose(found[:, i, j], torch.stack(having).mean(0), atol=1e-3)
    del batch["attention_mask"]
    short = collect(model, [tokens[:, :3], tokens[:, 3:5]])[0].by_position
    assert np.isfinite(short).all()
    assert short.shape == (HEADS, 3, 3)


def test_mean_attention_by_position_of_long_sequences_is_that_of_the_first():
    found = collect(Model(Layer(2, 3)), [ids(1, POSITIONS + 5)])[0].by_position
    assert found.shape == (2, POSITIONS, POSITIONS)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_statistics_are_those_of_the_same_rows(causal):
    """Of padded sequences of different lengths, in one batch and in several."""
    model, real, tokens = Model(Layer(HEADS, 7, causal=causal)), lengths_mask("right"), ids(B, N)
    given = {"input_ids": tokens} | ({} if causal else {"attention_mask": real})
    with watch(model) as seen:
        model(**given)
    texts = [[*read(row)[:-1], "."] for row in tokens]
    wanted = head_statistics(seen[0].weights, texts, mask=seen[0].mask, padding=real.bool())
    collector = Collector()
    collector.add(seen, texts, padding=real)
    assert_statistics(collector.points()[0].statistics, vars(wanted))


def assert_statistics(found, wanted):
    wanted = {name: each for name, each in wanted.items() if "delimiter_from" not in name}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.allclose(found[name], value, atol=1e-6, equal_nan=True), name


def assert_strongest(x, y):
    """The same keys in the same order, but for keys whose weights are neighbours in float16."""
    steps = -np.diff(x.weights.astype(float), append=0, axis=-1)
    near = steps <= 2 * np.finfo(np.float16).eps * x.weights
    near[..., -1] = True  # the next one is not kept
    tied = near | np.roll(near, 1, axis=-1) & (np.arange(near.shape[-1]) > 0)
    assert (x.strongest == y.strongest)[~tied].all()
    assert (~tied).mean() > 0.5


@torch.no_grad()
def test_several_batches_are_one_batch():
    model, tokens = Model(Layer(HEADS, 7, causal=True), Layer(2, 3)), ids(7, N)
    one = collect(model, [tokens], read, labels=range(7), most=3 * N)
    several = collect(
        model, [tokens[:2], tokens[2:3], tokens[3:]], read, labels=range(7), most=3 * N
    )
    assert one.sampled == several.sampled
    for x, y in zip(one, several, strict=True):
        assert x.query_tokens.texts == y.query_tokens.texts
        assert x.query_tokens.labels == y.query_tokens.labels
        for name in ("queries", "keys", "value_norms", "weights", "by_position"):
            assert np.allclose(getattr(x, name), getattr(y, name), atol=2e-3)
        assert_strongest(x, y)
        assert_statistics(x.statistics, y.statistics)
        assert np.array_equal(x.allowed(2, 0), y.allowed(2, 0))


# --------------------------------------------------------------------------------------- sampling


def test_of_too_many_tokens_whole_sequences_are_drawn():
    model, tokens = Model(Layer(2, 3)), torch.arange(1, 6).repeat_interleave(N).reshape(5, N)
    points = collect(model, [tokens], read, most=2 * N + 3)
    found = points[0].query_tokens
    assert len(found) == 2 * N
    assert found.position.tolist() == [*range(N)] * 2
    assert all(len(set(found.texts[found.of(s)])) == 1 for s in range(2))
    assert points.sampled == (
        f"{2 * N} of {5 * N} tokens are kept, from 2 of 5 sequences, drawn at random (seed 0)."
    )
    draws = {
        collect(model, [tokens], read, most=2 * N, seed=s)[0].query_tokens.texts for s in range(7)
    }
    assert len(draws) > 1
    again = collect(model, [tokens], read, most=2 * N + 3)
    assert again[0].query_tokens.texts == found.texts


def test_every_sequence_is_drawn_equally_often():
    model, tokens = Model(Layer(2, 3)), torch.arange(1, 6)[:, None].expand(5, 2)
    counts = dict.fromkeys(read(range(1, 6)), 0)
    for seed in range(60):
        for text in set(collect(model, [tokens], read, most=4, seed=seed)[0].query_tokens.texts):
            counts[text] += 1
    assert sum(counts.values()) == 120
    assert all(12 < count < 36 for count in counts.values()), counts  # 24 each, ± 3.2 deviations


def test_of_a_sequence_longer_than_the_most_some_tokens_are_kept():
    model = Model(Layer(2, 3, causal=True), words=101)
    tokens = torch.arange(1, 101)[None]
    points = collect(model, [tokens], read, most=17)
    found = points[0]
    position = found.query_tokens.position
    assert len(set(position.tolist())) == len(position) == 17
    assert (np.diff(position) > 0).all()
    assert found.query_tokens.texts == tuple(f"w{p + 1}" for p in position)
    assert np.array_equal(found.allowed(0, 0), position[:, None] >= position)
    assert points.sampled.startswith("17 of 100 tokens are kept, from 1 of 1 sequences")
    own = collect(model, [tokens], read)[0]
    for name in ("queries", "keys", "value_norms"):
        np.testing.assert_allclose(getattr(found, name), getattr(own, name)[:, position], rtol=2e-3)
    assert_statistics(found.statistics, own.statistics)
    twice = [collect(model, batches, read, most=17, seed=3)[0].query_tokens for batches in (
        [torch.cat([tokens, tokens.flip(1)])], [tokens, tokens.flip(1)],
    )]  # fmt: skip
    assert twice[0].texts == twice[1].texts


def test_a_million_tokens_in_bounded_memory():
    """Only what may be kept is read of a recording, and only what is kept is stored."""
    model = Model(Layer(1, 2), words=2)
    n, b = 1000, 20
    with watch(model) as seen, torch.no_grad():
        model(torch.ones(b, n, dtype=torch.long))
    collector = Collector(most=2500)
    computed = []
    own, kind = type(seen[0])._computed, type(seen[0])
    try:
        kind._computed = lambda self: computed.append(1) or own(self)
        for _ in range(50):
            collector.add(seen)
            assert len(collector._kept) <= 2
            assert len(collector._reservoir._heap) <= 2
    finally:
        kind._computed = own
    assert len(computed) < 25
    points = collector.points()
    assert points[0].queries.shape == (1, 2000, 2)
    assert points.sampled.startswith("2,000 of 1,000,000 tokens are kept, from 2 of 1,000 seq")


def test_a_token_of_a_head_takes_as_little_as_is_said():
    """4·d bytes for query and key, and at most 200 for the rest."""
    width, heads, n = 64, 3, 70
    collector = Collector()
    model = Model(Layer(heads, width, causal=True))
    with watch(model) as seen, torch.no_grad():
        model(ids(5, n))
    collector.add(seen)
    arrays = [
        value.nbytes
        for kept in collector._kept.values()
        for piece in kept.pieces
        for value in [*vars(piece).values(), *piece.statistics.values(), *piece.rows.values()]
        if isinstance(value, np.ndarray)
    ]
    masks = sum(p.mask.packed.nbytes for kept in collector._kept.values() for p in kept.pieces)
    assert (sum(arrays) + masks) / (heads * n * 5) <= 4 * width + 200


# ------------------------------------------------------------------------------------ what is seen


def test_only_some_layers():
    model = Model(Layer(2, 3), Layer(HEADS, 7))
    points = collect(model, [ids(B, N)], only="layers.1")
    assert [(layer.name, layer.heads) for layer in points] == [("layers.1", HEADS)]


def positioned(positions):
    return TinyTransformer(
        WORDS, dim=30, heads=HEADS, layers=2, max_len=N, positions=positions
    ).eval()


@pytest.mark.parametrize(
    ("positions", "kind"),
    [
        ("alibi", "falls evenly with distance (ALiBi)"),
        ("t5_bias", "depends on distance alone (as that of T5)"),
        ("kerple", "depends on distance alone (as that of T5)"),
        ("shaw", "adds a bias to its scores"),
        ("rope", None),
        ("learned", None),
    ],
)
def test_what_is_outside_of_queries_and_keys_is_named(positions, kind):
    model = positioned(positions)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    for layer in collect(model, [ids(B, N)]):
        assert layer.outside is None if kind is None else kind in layer.outside


def test_a_bias_of_any_kind_and_a_mask_are_told_apart():
    bias = torch.randn(1, HEADS, N, N)
    masked = torch.zeros(N, N).masked_fill(torch.rand(N, N) < 0.3, -torch.inf)
    masked.fill_diagonal_(0)
    distance = -(torch.arange(N) - torch.arange(N)[:, None]).abs().float()
    points = collect(
        Model(
            Layer(HEADS, 7, bias=bias), Layer(2, 3, bias=masked),
            Layer(2, 3, bias=distance + masked), Layer(2, 3, bias=-distance),
            Layer(2, 3, bias=torch.randn(N)[None].expand(N, N)),
        ),
        [ids(B, N)],
    )  # fmt: skip
    said = [layer.outside for layer in points]
    assert "adds a bias to its scores" in said[0]
    assert said[1] is None
    assert "(ALiBi)" in said[2]
    assert "depends on distance alone" in said[3]
    assert "adds a bias to its scores" in said[4]
    assert said[0].startswith("layers.0 adds")


# --------------------------------------------------------------------------------------- bad calls


class Mixing(nn.Module):
    """Mixes tokens without queries and keys (FNet)."""

    def forward(self, x):
        return torch.fft.fft2(x).real


class Latents(nn.Module):
    """Keys that are not the tokens."""

    def __init__(self):
        super().__init__()
        self.cross = nn.MultiheadAttention(DIM, HEADS, batch_first=True)

    def forward(self, x):
        half = x[:, ::2]
        return self.cross(x, half, half)[0]


class Decoding(Model):
    """Two steps with a cache: the second has one query and all keys."""

    def forward(self, input_ids):
        layer, x = self.layers[0], self.embedding(input_ids)
        q, k, v = (layer.split(name, x) for name in "qkv")
        return F.scaled_dot_product_attention(q[:, :, -1:], k, v)


class Talking(Model):
    """Heads exchange weights after the softmax, with negative shares too."""

    def forward(self, input_ids):
        layer, x = self.layers[0], self.embedding(input_ids)
        q, k, v = (layer.split(name, x) for name in "qkv")
        weights = (q @ k.mT / layer.width**0.5).softmax(-1)
        return torch.einsum("bhnm,hg->bgnm", weights, -torch.eye(layer.heads)) @ v


class Twice(Model):
    """The second layer reads twice as many rows (windows of an image, for example)."""

    def forward(self, input_ids):
        x = self.layers[0](self.embedding(input_ids))
        return self.layers[1](torch.cat([x, x]))


class Sometimes(Model):
    def forward(self, input_ids):
        chosen = self.layers if len(input_ids) > 1 else self.layers[:1]
        x = self.embedding(input_ids)
        for layer in chosen:
            x = layer(x)
        return x


PLAIN = Model(Layer(2, 3))
IDS = torch.ones(B, N, dtype=torch.long)
PICTURES = torch.zeros(B, 4, 4)
BAD = {
    "no attention": (Mixing(), [torch.ones(B, N, DIM)], {}, "no attention was recognised"),
    "an MLP": (nn.Linear(DIM, 3), [torch.ones(B, DIM)], {}, "no queries and keys to collect"),
    "no weights": (
        attnlab.build("linear", dim=30, heads=5), [torch.ones(B, N, 30)], {},
        "'LinearAttention' has queries and keys, but its attention weights are not known",
    ),
    "negative weights": (
        Talking(Layer(2, 3)), [IDS], {}, "'Talking' has negative weights.*only=",
    ),
    "latents": (Latents(), [torch.ones(B, N, DIM)], {}, "keys are no tokens, leave .* `only`"),
    "more rows": (
        Twice(Layer(2, 3), Layer(2, 3)), [IDS], {}, "in 6 rows, but the 3 sequences",
    ),
    "a cache": (Decoding(Layer(2, 3)), [IDS], {}, "whole sequences, without the cache"),
    "other layers": (
        Sometimes(Layer(2, 3), Layer(HEADS, 7)), [IDS, IDS[:1]], {},
        r"only some of the batches have .* in 'layers.1' \(5, 7\)",
    ),
    "no batch": (PLAIN, [], {}, "give at least one batch"),
    "a tensor of batches": (PLAIN, IDS, {}, r"put this one into a list: \[batch\]"),
    "a pair": (PLAIN, [(IDS, IDS)], {}, "a dict, got tuple .*give the inputs alone"),
    "an empty dict": (PLAIN, [{}], {}, "a dict, got dict"),
    "read gives a text": (PLAIN, [IDS], {"read": lambda row: "a text"}, "returned 'a text'"),
    "read gives too few": (PLAIN, [IDS], {"read": lambda row: ["a"]}, "all 11 tokens"),
    "labels in a text": (PLAIN, [IDS], {"labels": "abc"}, "`labels` .* got one text"),
    "few labels": (PLAIN, [IDS], {"labels": [1]}, "`labels` should be one per sequence, 3"),
    "many labels": (PLAIN, [IDS], {"labels": range(7)}, "got 7, and the batches hold 3"),
    "labels of tokens": (PLAIN, [IDS], {"labels": [[1, 2]] * B}, "per token should be 11"),
    "many images": (PLAIN, [IDS], {"images": torch.zeros(7, 4, 4)}, "`images` .* got 7"),
    "flat images": (PLAIN, [IDS], {"images": PICTURES[0]}, r"should be \(3, height, width\)"),
    "bright images": (PLAIN, [IDS], {"images": PICTURES + 2}, "from 0 .* to 1"),
    "NaN images": (PLAIN, [IDS], {"images": PICTURES / 0}, "from 0 .* to 1"),
    "a large grid": (PLAIN, [IDS], {"grid": (3, 5), "read": read}, "more patches than the 11"),
    "no grid": (PLAIN, [IDS], {"grid": (0, 5)}, "`grid` should be"),
    "most": (PLAIN, [IDS], {"most": 0}, "`most` should be at least 1"),
    "seed": (PLAIN, [IDS], {"seed": -1}, "`seed` should be at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_say_what_to_do(name):
    model, batches, options, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        collect(model, batches, **options)


def recorded(model=PLAIN, tokens=IDS):
    with watch(model) as seen, torch.no_grad():
        model(tokens)
    return seen


TEXTS = [["a"] * N] * B
BAD_ADDS = {
    "a text": ({"tokens": "a text"}, "one list of texts per sequence"),
    "texts": ({"tokens": ["a", "b", "c"]}, "one list of texts per sequence"),
    "a tensor": ({"tokens": IDS}, "one list of texts per sequence"),
    "nothing": ({"tokens": []}, "one list of texts per sequence"),
    "too short": ({"tokens": [["a"]] * B}, "attended with 11 queries .* have 1 tokens"),
    "ragged": ({"tokens": [["a"] * N, ["a"], ["a"]]}, r"lists of lengths \[1, 11\]"),
    "few": ({"tokens": TEXTS[:2]}, "should hold 3 lists of 11 texts"),
    "padding": ({"padding": IDS[:, 1:]}, r"padding should be \(b, n\) = \(3, 11\)"),
    "all padding": ({"padding": IDS * 0}, "sequence 0 of the batch is all padding"),
    "source": ({"tokens": TEXTS, "source_tokens": "a"}, "one list of texts per sequence"),
    "source alone": ({"source_tokens": TEXTS}, "give `tokens`"),
    "source padding alone": ({"source_padding": IDS}, "needs `source_tokens`"),
}


@pytest.mark.parametrize("name", BAD_ADDS)
def test_bad_texts_say_what_to_do(name):
    given, message = BAD_ADDS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        Collector().add(recorded(), **given)


def test_what_is_known_of_one_batch_is_known_of_all():
    collector = Collector()
    collector.add(recorded(), labels=[1, 2, 3])
    with pytest.raises(ValueError, match="labels or none, images of one size or none"):
        collector.add(recorded())
    pictured = Collector()
    pictured.add(recorded(), images=PICTURES)
    with pytest.raises(ValueError, match="images of one size or none"):
        pictured.add(recorded(), images=torch.zeros(B, 4, 7))


@pytest.mark.parametrize("what", ["q", "k", "v"])
def test_nan_is_refused_with_the_name_of_the_layer(what):
    model = Model(Layer(2, 3), Layer(2, 3))
    with torch.no_grad():
        getattr(model.layers[1], what).bias[0] = torch.nan
    named = {"q": "queries", "k": "keys", "v": "values"}[what]
    with pytest.raises(ValueError, match=f"{named} of 'layers.1' hold NaN .*by `only`"):
        collect(model, [IDS])
    assert len(collect(model, [IDS], only="layers.0")) == 1


def test_a_batch_that_is_refused_leaves_no_trace():
    broken = Model(Layer(2, 3))
    with torch.no_grad():
        broken.layers[0].q.bias[0] = torch.nan
    collector = Collector(most=2 * N)
    collector.add(recorded())
    with pytest.raises(ValueError, match="NaN"):
        collector.add(recorded(broken))
    points = collector.points()
    assert len(points[0].query_tokens) == 2 * N
    assert re.match(f"{2 * N} of {B * N} tokens are kept, from 2 of 3", points.sampled)


def test_tokens_may_be_long_hostile_or_one():
    hostile = ["<script>alert(1)</script>", "x" * 10_000, "\x00\u202e", "", "</script>", "'\"\\"]
    found = collect(PLAIN, [IDS[:1, :6]], lambda row: hostile)[0]
    assert found.query_tokens.texts == tuple(hostile)
    one = collect(PLAIN, [IDS[:1, :1]])[0]
    assert one.queries.shape == (2, 1, 3)
    assert one.by_position.tolist() == [[[1.0]]] * 2
    assert np.isnan(one.statistics["previous"]).all()
