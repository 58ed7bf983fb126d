"""T5: equal to Transformers' with copied weights, in logits, gradients and what it writes."""

import math
from typing import Any

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from attnlab import TinyTransformer, watch
from attnlab.compression.budget_cache import H2O, budget_cache
from attnlab.core.heads import Heads
from attnlab.core.norms import norm_of
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.generate import generate
from attnlab.models.heads import with_head
from attnlab.models.published import t5_counts
from attnlab.models.t5 import SIZES, VOCABULARY, T5Options, build, from_transformers
from attnlab.tasks import task
from attnlab.train import fit

VOCAB, DIM, HEADS, HIDDEN, LAYERS = 29, 10, 2, 14, 3
SMALL = {
    "vocab_size": VOCAB, "d_model": DIM, "d_ff": HIDDEN, "num_layers": LAYERS, "num_heads": HEADS,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11,
    "dropout_rate": 0.0, "attn_implementation": "eager",
}  # fmt: skip
NEAR = {"atol": 2e-5, "rtol": 1e-4}
"""In float64: Transformers computes the mean square of a norm in float32."""


def theirs(*, gated: bool, width: int = 3, **changes: Any) -> Any:
    torch.manual_seed(gated + width)
    curve = "gated-gelu" if gated else "relu"
    config = T5Config(
        **{**SMALL, **changes}, d_kv=width, feed_forward_proj=curve, tie_word_embeddings=not gated
    )
    return T5ForConditionalGeneration(config).double().eval()


def texts() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A source (3, 17), of which one row ends early, its padding, and a target (3, 13)."""
    torch.manual_seed(5)
    padding = torch.ones(3, 17, dtype=torch.bool)
    padding[1, 11:] = False
    return torch.randint(2, VOCAB, (3, 17)), padding, torch.randint(2, VOCAB, (3, 13))


@pytest.mark.parametrize("width", [3, 5, 7])
@pytest.mark.parametrize("gated", [False, True])
def test_logits_and_gradients_are_those_of_transformers(gated: bool, width: int) -> None:
    model = theirs(gated=gated, width=width)
    ours = from_transformers(model)
    source, padding, target = texts()
    expected = model(
        input_ids=source, attention_mask=padding.long(), decoder_input_ids=target
    ).logits
    found = ours(target, source=source, source_padding=padding)
    torch.testing.assert_close(found, expected, **NEAR)
    for logits in (expected, found):
        (logits.log_softmax(-1) * torch.arange(VOCAB).sin()).sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    assert len(grads) == sum(1 for _ in ours.parameters())
    pairs = {
        "embedding.weight": "shared.weight",
        "encoder.blocks.0.attention.heads.positions.weight":
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.blocks.0.attention.heads.positions.weight":
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "encoder.blocks.1.attention.heads.query.weight":
            "encoder.block.1.layer.0.SelfAttention.q.weight",
        "decoder.blocks.2.cross.heads.value.weight":
            "decoder.block.2.layer.1.EncDecAttention.v.weight",
        "decoder.blocks.1.cross_residual.norm.weight": "decoder.block.1.layer.1.layer_norm.weight",
        "encoder.blocks.2.feed_forward.contract.weight":
            "encoder.block.2.layer.1.DenseReluDense.wo.weight",
        "decoder.norm.weight": "decoder.final_layer_norm.weight",
    }  # fmt: skip
    own = dict(ours.named_parameters())
    for name, other in pairs.items():
        assert grads[other].abs().max() > 1e-4
        torch.testing.assert_close(own[name].grad, grads[other], **NEAR)


@pytest.mark.parametrize("gated", [False, True])
def test_it_writes_what_transformers_writes(gated: bool) -> None:
    model = theirs(gated=gated)
    source, padding, _ = texts()
    written = model.generate(
        input_ids=source, attention_mask=padding.long(), max_new_tokens=9, do_sample=False,
        eos_token_id=None, pad_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    ours = from_transformers(model)
    start = torch.zeros(3, 1, dtype=torch.long)
    for incremental in (True, False):
        found = generate(
            ours, start, 9, temperature=0, source=source, source_padding=padding,
            incremental=incremental,
        )  # fmt: skip
        assert torch.equal(found, written)
    assert written[:, 1:].unique().numel() > 2  # not one token again and again


def test_a_copy_keeps_dtype_and_mode_and_has_weights_of_its_own() -> None:
    model = theirs(gated=False).float().train()
    ours = from_transformers(model, max_len=23)
    assert ours.training
    assert not from_transformers(model.eval()).training
    assert ours.max_len == 23
    assert ours.embedding.weight.dtype == torch.float32
    before = ours.embedding.weight.detach().clone()
    model.shared.weight.data.zero_()
    assert torch.equal(ours.embedding.weight, before)


@pytest.mark.parametrize("size", ["small", "3b", "v1.1 small", "v1.1 xl"])
def test_a_printed_size_has_the_parameters_of_transformers(size: str) -> None:
    """Version 1.1 has an output matrix of its own; the Transformers of today ties it."""
    o = SIZES[size]
    config = T5Config(
        vocab_size=VOCABULARY, d_model=o.dim, d_kv=o.head_dim, d_ff=o.hidden, num_layers=o.layers,
        num_heads=o.heads, feed_forward_proj="gated-gelu" if o.gated else "relu",
    )  # fmt: skip
    with torch.device("meta"):
        expected = T5ForConditionalGeneration(config)
        ours = TinyTransformer(VOCABULARY, **o.model())
    output = VOCABULARY * o.dim if o.gated else 0
    count = sum(p.numel() for p in expected.parameters()) + output
    assert sum(p.numel() for p in ours.parameters()) == count


def test_large_alone_is_not_as_printed() -> None:
    rows = {row.model: row for row in t5_counts()}
    assert rows["T5-small"].parameters == 60_506_624
    assert rows["T5-base"].parameters == 222_903_552
    off = {name: row.parameters / 1e6 / row.published - 1 for name, row in rows.items()}
    assert {name for name, each in off.items() if abs(each) > 0.03} == {"T5-large"}
    large = rows["T5-large"].parameters
    assert round(large / 1e6, 1) == 737.7
    assert round((large + VOCABULARY * SIZES["large"].dim) / 1e6) in (770, 771)


def test_first_weights_are_those_of_the_released_code() -> None:
    torch.manual_seed(0)
    sizes = T5Options(dim=48, layers=1, heads=3, head_dim=32, hidden=80)
    model = build(997, sizes)
    stds = {
        model.embedding.weight: 1,
        **{
            each.weight: std
            for part in model.modules()
            if isinstance(part, Heads)
            for each, std in (
                (part.query, (48 * 32) ** -0.5),
                (part.key, 48**-0.5),
                (part.value, 48**-0.5),
                (part.output, 96**-0.5),
            )
        },
        model.encoder.blocks[0].feed_forward.expand.weight: 48**-0.5,
        model.decoder.blocks[0].feed_forward.contract.weight: 80**-0.5,
        model.encoder.blocks[0].attention.heads.positions.weight: 48**-0.5,
    }
    for weight, std in stds.items():
        spread = 5 / math.sqrt(2 * weight.numel())  # five standard errors
        assert weight.std().item() == pytest.approx(std, rel=spread)
    source = torch.randint(0, 997, (7, 13))
    assert 0.5 < model(source, source=source).std() < 2


def test_an_untied_output_begins_with_logits_of_variance_1() -> None:
    torch.manual_seed(0)
    model = build(997, T5Options(dim=48, layers=1, heads=3, hidden=80, gated=True))
    assert model.output is not None
    source = torch.randint(0, 997, (7, 13))
    assert model(source, source=source).std().item() == pytest.approx(1, abs=0.2)


def test_a_small_t5_learns_and_is_saved_with_its_options(tmp_path: Any) -> None:
    problem = task("number_words")
    sizes = T5Options(dim=24, layers=1, heads=2, head_dim=16, hidden=48, max_len=16)
    torch.manual_seed(1)
    model = build(problem.vocab, sizes)
    history = fit(model, problem, 40, progress=False, learning_rate=1e-2, seed=0)
    assert history.rows[-1]["loss"] < 0.8 * history.rows[0]["loss"]
    model.save(tmp_path / "t5.safetensors")
    again = TinyTransformer.load(tmp_path / "t5.safetensors")
    batch = problem.batch("validation", 3, seed=0)
    given = {"source": batch.source}
    assert torch.equal(again.eval()(batch.inputs, **given), model.eval()(batch.inputs, **given))


# ---- the options that it needs


def test_a_scale_is_that_of_cross_attention_too_and_is_seen() -> None:
    torch.manual_seed(0)
    model = build(VOCAB, T5Options(dim=12, layers=1, heads=2, head_dim=5, hidden=8)).eval()
    source, padding, target = texts()
    with watch(model) as seen:
        model(target, source=source, source_padding=padding)
    assert [record.scale for record in seen] == [1.0, 1.0, 1.0]
    assert {record.queries.shape[-1] for record in seen} == {5}
    for record in seen:
        weights = record.weights
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_a_layer_whose_heads_are_replaced_has_the_scale_of_the_new_ones() -> None:
    layer = FullAttention(12, 2)
    assert layer.scale == 6**-0.5
    layer.heads = Heads(12, 4, head_dim=5)
    assert layer.scale == 5**-0.5


def test_a_budget_weighs_by_the_scale_of_the_layer() -> None:
    """With the scale 0 all keys are worth the same, so of the old ones the earliest stay."""
    torch.manual_seed(0)
    x = torch.randn(1, 11, 12)
    kept = {}
    for scale in (0.0, 3.0):
        layer = FullAttention(12, 2, causal=True, scale=scale)
        torch.nn.init.normal_(layer.heads.query.weight)
        decoding = budget_cache(layer, H2O(budget=4, recent=1))
        state = None
        for i in range(11):
            _, state = decoding.step(x[:, i : i + 1], state)
        kept[scale] = state.at[0].tolist()
    assert kept[0.0] == [[0, 1, 2, 10]] * 2
    assert kept[3.0] != kept[0.0]


def test_a_classifier_on_a_t5_has_scores_of_its_own() -> None:
    model = build(VOCAB, T5Options(dim=12, layers=1, heads=2, head_dim=5, hidden=8))
    assert with_head(model, "classifier", 3).logit_scale == 1
    assert model.logit_scale == 12**-0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_scale": 0}, "logit_scale should be above 0 and finite, got 0"),
        ({"logit_scale": math.nan}, "logit_scale should be above 0 and finite, got nan"),
        ({"logit_scale": "1"}, "logit_scale should be a number, got '1'"),
        ({"attention_options": {"scale": "1"}}, "scale should be a number or None, got '1'"),
        ({"join_options": {"epsilon": 0.0}}, "epsilon should be above 0, got 0.0"),
        ({"feed_options": {"curve": "tanh"}}, "curve"),
        ({"feed_options": {"bias": 1}}, "bias should be"),
    ],
)
def test_bad_options_get_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TinyTransformer(11, dim=8, heads=2, layers=1, **options)


def test_no_norm_has_no_epsilon() -> None:
    with pytest.raises(ValueError, match="divides by no statistics: leave epsilon out"):
        norm_of("no_norm", 8, 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_decoder_layers": 2}, "as many layers as each other, got num_layers=3"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon should be 1e-06"),
    ],
)
def test_models_of_another_kind_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_transformers(theirs(gated=False, **changes))


def test_a_model_that_is_no_t5_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a T5ForConditionalGeneration of Transformers, got"):
        from_transformers(torch.nn.Linear(2, 3))
    with pytest.raises(TypeError, match=r"sizes should be T5Options, such as SIZES\['base'\]"):
        build(11, "base")  # type: ignore[arg-type]
    other = theirs(gated=False)
    other.config.feed_forward_proj = "gated-silu"
    with pytest.raises(ValueError, match="feed_forward_proj should be 'relu'"):
        from_transformers(other)
