import dataclasses
import inspect
import math
import pickle

import pytest
import torch
from torch.nn import functional as F

from attnlab.core import probe
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.options import Options
from attnlab.models.tiny import TinyTransformer

KINDS = ("language_model", "classifier", "token_classifier", "encoder_decoder")
NORMS = ("pre", "post")
POSITIONS = ("learned", "sinusoidal", "none")


def call(model, tokens, source=None, **options):
    return model(tokens, source=source if model.kind == "encoder_decoder" else None, **options)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_shapes_of_every_kind(make, tokens, source, norm, positions):
    shapes = dict.fromkeys(KINDS, (3, 11, 29)) | {
        "classifier": (3, 7),
        "token_classifier": (3, 11, 7),
    }
    for kind, shape in shapes.items():
        model = make(kind, norm=norm, positions=positions)
        assert call(model, tokens, source).shape == shape


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
def test_the_future_changes_nothing(make, tokens, source, kind, norm):
    model = make(kind, norm=norm)
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 29
    before, after = call(model, tokens, source), call(model, changed, source)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amax(-1).min() > 1e-3


def test_an_encoder_sees_both_sides(make, tokens):
    model = make("encoder_decoder")
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 29
    difference = model.encode(tokens) - model.encode(changed)
    assert (difference != 0).any(-1).all()


def test_a_token_classifier_answers_from_each_vector_of_the_encoder(make, tokens):
    model = make("token_classifier")
    assert torch.equal(model(tokens), model.logits(model.encode(tokens)))
    with pytest.raises(ValueError, match="has no decoder; call encode"):
        model.decode(tokens)


def test_every_target_position_reads_the_source(make, tokens, source):
    model = make("encoder_decoder")
    changed = source.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 29
    difference = model(tokens, source=source) - model(tokens, source=changed)
    assert difference.abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_as_if_absent(make, tokens, source, kind, side):
    """7 real tokens padded to 11 with a number no vocabulary has give what the 7 give."""
    model = make(kind).double()
    real = torch.arange(11) < 7 if side == "right" else torch.arange(11) >= 4
    padding = real.expand(3, 11)
    alone = call(model, tokens[:, real], source)
    padded = call(model, tokens.masked_fill(~padding, -100), source, padding=padding)
    padded = padded if kind == "classifier" else padded[:, real]
    torch.testing.assert_close(padded, alone)


def test_padding_of_the_source_is_as_if_absent(make, tokens, source):
    model = make("encoder_decoder").double()
    padding = (torch.arange(17) < 13).expand(3, 17)
    padded = model(tokens, source=source.masked_fill(~padding, 999), source_padding=padding)
    torch.testing.assert_close(padded, model(tokens, source=source[:, :13]))


def test_padded_vectors_may_hold_anything(make):
    model = make("classifier", features=5, classes=7).double()
    x = torch.randn(3, 11, 5, generator=torch.Generator().manual_seed(3))
    padding = (torch.arange(11) < 7).expand(3, 11)
    filled = x.masked_fill(~padding[..., None], torch.nan)
    torch.testing.assert_close(model(filled, padding), model(x[:, :7]))


def test_a_row_without_real_tokens_is_finite_and_leaves_the_others_alone(make, tokens):
    model = make("classifier").double()
    padding = torch.ones(3, 11, dtype=torch.bool)
    padding[1] = False
    out = model(tokens, padding)
    assert out.isfinite().all()
    torch.testing.assert_close(out[[0, 2]], model(tokens)[[0, 2]])
    torch.testing.assert_close(out[1], model.output.bias)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("kind", "dim"), [(kind, 128) for kind in KINDS] + [(KINDS[0], 512)])
def test_loss_starts_at_the_logarithm_of_the_choices(kind, dim, norm, tie):
    torch.manual_seed(0)
    options = {"kind": kind, "dim": dim, "layers": 2, "norm": norm, "tie": tie, "max_len": 31}
    model = TinyTransformer(211, classes=13 if "classifier" in kind else None, **options)
    tokens = torch.randint(211, (7, 31))
    logits = call(model, tokens, tokens)
    loss = (logits.logsumexp(-1) - logits.mean(-1)).mean()  # of targets drawn uniformly
    assert abs(loss.item() - math.log(logits.shape[-1])) < 0.06


def test_residual_branches_start_smaller_with_depth():
    """Last matrix of each branch: std 1/√(3·fan_in) of nn.Linear, divided by √(2·layers)."""
    torch.manual_seed(0)
    block = TinyTransformer(11, dim=96, layers=7, max_len=5).decoder.blocks[3]
    for matrix in (block.attention.heads.output.weight, block.feed_forward.contract.weight):
        expected = (3 * matrix.shape[1] * 14) ** -0.5
        assert matrix.std().item() == pytest.approx(expected, rel=0.05)


def test_overfits_one_batch(tokens):
    torch.manual_seed(0)
    model = TinyTransformer(29, dim=32, layers=2, max_len=11)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_recomputes_and_gives_equal_gradients(make, tokens, source, kind):
    gradients, calls = [], []
    for checkpoint in (False, True):
        model = make(kind, checkpoint=checkpoint, dropout=0.3).train()
        stack = model.decoder or model.encoder
        seen = []
        stack.blocks[0].register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        torch.manual_seed(7)
        call(model, tokens, source).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
        calls.append(len(seen))
    assert calls == [1, 2]
    assert all(g is not None for g in gradients[0].values())
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)


def test_dropout_only_while_training(make, tokens):
    model = make(dropout=0.4)
    assert torch.equal(model(tokens), model(tokens))
    assert not torch.equal(model.train()(tokens), model(tokens))


def test_tied_output_is_the_embedding(make, tokens):
    tied, untied = make(tie=True), make(tie=False)
    assert sum(p.numel() for p in untied.parameters()) - 29 * 12 == sum(
        p.numel() for p in tied.parameters()
    )
    hidden = tied.decode(tokens)
    torch.testing.assert_close(tied(tokens), hidden @ tied.embedding.weight.T)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
def test_a_factorized_embedding_is_a_table_of_that_rank(make, tokens, source, kind, tie, tmp_path):
    model = make(kind, embedding_rank=5, tie=tie)
    plain = make(kind, tie=tie)
    factors = model.embedding
    with torch.no_grad():
        plain.load_state_dict(model.state_dict(), strict=False)
        plain.embedding.weight.copy_(factors.table @ factors.projection)
        factors.bias.zero_()
    given = {"source": source} if kind == "encoder_decoder" else {}
    # In float32, where the product of the factors is rounded once more.
    torch.testing.assert_close(model(tokens, **given), plain(tokens, **given), rtol=0, atol=1e-3)
    saved = sum(p.numel() for p in plain.parameters()) - sum(p.numel() for p in model.parameters())
    assert saved == 29 * 12 - (29 * 5 + 5 * 12 + 12)
    model.save(tmp_path / "m")
    again = TinyTransformer.load(tmp_path / "m").eval()
    assert again.config["embedding_rank"] == 5
    torch.testing.assert_close(again(tokens, **given), model(tokens, **given))


def test_positions_matter_unless_none(make):
    same = torch.full((1, 5), 3)
    for positions in POSITIONS:
        out = make(positions=positions)(same)[0]
        assert torch.allclose(out[0], out[4], atol=1e-5) == (positions == "none")


def test_post_norm_ends_in_a_norm_and_pre_norm_reads_through_one(make, tokens):
    last = make(norm="post").decoder.blocks[-1].feed_forward_residual.norm
    out = make(norm="post").decode(tokens)
    standard = (out - last.bias) / last.weight
    torch.testing.assert_close(standard.mean(-1), torch.zeros(3, 11), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.var(-1, correction=0), torch.ones(3, 11), atol=1e-3, rtol=0)
    block = make(norm="pre").decoder.blocks[0]
    x = torch.randn(3, 11, 12)
    mixed = x + block.attention(block.attention_residual.norm(x))
    expected = mixed + block.feed_forward(block.feed_forward_residual.norm(mixed))
    torch.testing.assert_close(block(x), expected)


def test_attention_by_name_function_list_and_module_agree(make, tokens):
    def naive(dim, heads, causal):
        return FullAttention(dim, heads, causal=causal, form="naive")

    expected = make()(tokens)
    for attention in (FullAttention, naive, ["full", naive]):
        torch.testing.assert_close(make(attention=attention)(tokens), expected)
    modules = [FullAttention(12, 2, causal=True) for _ in range(2)]
    before = modules[1].heads.output.weight.detach().clone()
    model = TinyTransformer(29, dim=12, layers=2, heads=2, attention=modules)
    assert model.decoder.blocks[1].attention is modules[1]
    assert torch.equal(before, modules[1].heads.output.weight), "a given module is left as it was"


def test_options_reach_the_mechanism_of_their_layer(make, tokens):
    options = [{"form": "naive"}, {"form": "fused"}]
    model = make(attention_options=options)
    assert [block.attention.form for block in model.decoder.blocks] == ["naive", "fused"]
    with probe.record() as notes:
        model(tokens)
    assert len(notes["weights"]) == 1
    assert TinyTransformer(**model.config).decoder.blocks[0].attention.form == "naive"


def test_any_integer_dtype_and_length_up_to_max_len(make, tokens):
    model = make()
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(model(tokens.to(dtype)), model(tokens))
    for n in (1, 2, 23):
        assert model(torch.zeros(3, n, dtype=torch.long)).shape == (3, n, 29)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_stays_empty(make, tokens, source, kind):
    model = make(kind)
    out = call(model, tokens[:0], source[:0])
    assert out.shape == (0, *call(model, tokens, source).shape[1:])
    padding = torch.ones(0, 11, dtype=torch.bool)
    assert call(model, tokens[:0], source[:0], padding=padding).shape == out.shape


def test_options_are_written_once_and_seen_in_the_signature_and_the_repr(running_mean):
    signature = inspect.signature(TinyTransformer)
    names = [option.name for option in dataclasses.fields(Options)]
    assert list(signature.parameters) == names == list(TinyTransformer(29).config)
    assert signature.parameters["layers"].default == 4
    assert str(signature).startswith("(vocab: int | None = None, *, dim: int = 128")
    with pytest.raises(TypeError, match="positional"):
        TinyTransformer(29, 12)
    model = TinyTransformer(29, dim=12, heads=2, tie=True, attention="multi_query")
    assert "\n  vocab=29, dim=12, heads=2, attention='multi_query'\n" in repr(model)
    assert "vocab=29, attention=…" in repr(TinyTransformer(29, attention=running_mean))


def test_a_model_built_by_a_local_function_can_be_pickled(tokens):
    def attention(dim, heads, causal):
        return FullAttention(dim, heads, causal=causal)

    model = TinyTransformer(29, dim=12, heads=2, attention=attention).eval()
    assert torch.equal(pickle.loads(pickle.dumps(model))(tokens), model(tokens))


def test_compiles_without_graph_breaks(make, tokens):
    model = make()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), model(tokens))


def test_runs_in_bfloat16_and_under_autocast(make, tokens):
    model = make()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(tokens).isfinite().all()
    assert make().bfloat16()(tokens).dtype == torch.bfloat16
