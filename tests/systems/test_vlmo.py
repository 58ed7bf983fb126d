"""VLMo: its layer against ordinary ones, experts by position, who sees whom, its size."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.feed.modality_experts import ModalityExperts
from attnlab.architecture.join.layer_scale import LayerScale
from attnlab.models.layers import Block
from attnlab.systems.vlmo import PRINTED, SIZES, VLMo, build
from attnlab.systems.vlmo_layers import VLMoLayer, VLMoOptions
from tests.systems.built import large, texts_and_images

OPTIONS = VLMoOptions(
    dim=20, layers=3, heads=5, hidden=28, pairs=1, vocab=17, max_len=13, features=11, patches=7
)
TEXT, IMAGE = (("text", 6),), (("image", 8),)


@pytest.fixture
def model() -> VLMo:
    return large(VLMo(OPTIONS).double())


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return texts_and_images()


def pair(model: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
    tokens, padding, source, hides = given
    return torch.cat(model(tokens, padding, source=source, source_padding=hides), 1)


# ---- the layer


def layer(**changes) -> VLMoLayer:
    pairs = changes.pop("pairs", False)
    return large(VLMoLayer(replace(OPTIONS, epsilon=1e-5, **changes), pairs=pairs).double())


def with_equal_experts(made: VLMoLayer) -> VLMoLayer:
    for expert in made.experts.values():
        expert.load_state_dict(made.experts["text"].state_dict())
    return made


@pytest.mark.parametrize("route", [TEXT, IMAGE, TEXT + IMAGE])
def test_with_equal_experts_it_is_an_ordinary_block(route):
    """Our block of full attention, an MLP, and LayerScale joins, with the same weights."""
    made = with_equal_experts(layer())
    heads = attnlab.build("full", dim=20, heads=5, bias=True)
    block = Block(heads, MLP(20, 28), lambda: LayerScale(20, epsilon=0.1)).double()
    block.attention.heads.load_state_dict(made.attention.heads.state_dict())
    block.feed_forward.load_state_dict(made.experts["image"].feed.state_dict())
    joins = (block.attention_residual, block.feed_forward_residual)
    norms = (made.norm, made.experts["image"].norm)
    with torch.no_grad():
        for join, norm, scale in zip(
            joins, norms, (made.attention_scale, made.feed_scale), strict=True
        ):
            join.norm.load_state_dict(norm.state_dict())
            join.scale.copy_(scale)
    x = torch.randn(3, sum(n for _, n in route), 20).double()
    torch.testing.assert_close(made(x, route), block(x))


def test_with_factors_of_one_it_is_a_layer_of_pytorch():
    made = with_equal_experts(layer())
    theirs = nn.TransformerEncoderLayer(
        20, 5, 28, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    heads, expert = made.attention.heads, made.experts["text"]
    stacked = (heads.query, heads.key, heads.value)
    with torch.no_grad():
        made.attention_scale.fill_(1)
        made.feed_scale.fill_(1)
        theirs.self_attn.in_proj_weight.copy_(torch.cat([each.weight for each in stacked]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([each.bias for each in stacked]))
    theirs.self_attn.out_proj.load_state_dict(heads.output.state_dict())
    for ours, other in (
        (made.norm, theirs.norm1), (expert.norm, theirs.norm2),
        (expert.feed.expand, theirs.linear1), (expert.feed.contract, theirs.linear2),
    ):  # fmt: skip
        other.load_state_dict(ours.state_dict())
    x = torch.randn(3, 14, 20).double()
    torch.testing.assert_close(made(x, TEXT + IMAGE), theirs(x))


def test_all_text_or_all_image_is_one_expert():
    x, made = torch.randn(2, 9, 20).double(), layer()
    for empty, full in (("image", "text"), ("text", "image")):
        alone = made(x, ((full, 9),))
        for route in (((full, 9), (empty, 0)), ((empty, 0), (full, 9))):
            assert torch.equal(made(x, route), alone)
    assert (made(x, (("text", 9),)) - made(x, (("image", 9),))).abs().max() > 0.1


def test_experts_by_position_are_those_of_the_page_modality_experts():
    made = layer()
    page = ModalityExperts(20, 28, split=(6,)).double()
    for norm in (made.experts["text"].norm, made.experts["image"].norm):
        norm.load_state_dict(nn.LayerNorm(20).state_dict())  # its experts share a norm
    with torch.no_grad():
        for i, kind in enumerate(("text", "image")):
            feed = made.experts[kind].feed
            for name in ("expand", "contract"):
                getattr(page, name).weight[i].copy_(getattr(feed, name).weight)
                getattr(page, name).bias[i].copy_(getattr(feed, name).bias)
    x = torch.randn(2, 14, 20).double()
    h = nn.functional.layer_norm(x, (20,))
    torch.testing.assert_close(made._fed(x, TEXT + IMAGE, "own"), page(h))


@pytest.mark.parametrize("pairs", [True, False])
def test_the_expert_for_pairs_reads_all_positions_where_there_is_one(pairs):
    made, x = layer(pairs=pairs), torch.randn(2, 14, 20).double()
    own, above = (made(x, TEXT + IMAGE, top=top) for top in ("own", "pair"))
    assert torch.equal(own, above) != pairs
    if pairs:
        for name in ("text", "image"):
            nn.init.zeros_(made.experts[name].feed.contract.weight)
        assert torch.equal(made(x, TEXT + IMAGE, top="pair"), above)


def test_apart_with_equal_projections_is_shared_attention():
    shared, apart = layer(), layer(shared=False)
    state = {name: x for name, x in shared.state_dict().items() if ".heads." not in name}
    for name, x in shared.attention.state_dict().items():
        for kind in ("text", "image"):
            state[f"attention.{name.replace('heads.', f'heads.{kind}.')}"] = x
    apart.load_state_dict(state)
    x, mask = torch.randn(2, 14, 20).double(), torch.rand(2, 1, 1, 14) < 0.7
    mask[..., 0] = True
    for route in (TEXT + IMAGE, (("image", 14),)):
        torch.testing.assert_close(apart(x, route, mask), shared(x, route, mask))
    nn.init.normal_(apart.attention.heads["image"].key.weight)
    far = apart(x, TEXT + IMAGE) - shared(x, TEXT + IMAGE)
    assert far[:, :6].abs().max() > 1e-3  # words see patches in other keys


# ---- the model


def test_apart_no_word_sees_a_patch_and_together_all_do(model, given):
    tokens, _, source, _ = given
    source = source.requires_grad_()
    fused = model(tokens, source=source)
    (of_pair,) = torch.autograd.grad(fused.text[0, 2].sin().sum(), source)
    assert (of_pair[0].abs().amax(-1) > 1e-9).all()
    assert not of_pair[1].any()
    image = model.read_image(source)
    (of_image,) = torch.autograd.grad(image[0, 0].sin().sum(), source)
    assert (of_image[0].abs().amax(-1) > 1e-9).all()
    other = tokens.clone()
    other[0, 5] = (tokens[0, 5] + 1) % 17
    changed = (model(other, source=source).image - fused.image)[0].abs().amax(-1)
    assert (changed > 1e-9).all()


def test_experts_of_the_other_modality_are_not_used_by_one_alone(model, given):
    tokens, padding, source, hides = given
    names = {"text": (model.read_text, tokens, padding), "image": (model.read_image, source, hides)}
    for kind, (read, *parts) in names.items():
        model.zero_grad()
        read(*parts).sin().sum().backward()
        used = {
            name.split(".experts.")[1].split(".")[0]
            for name, p in model.named_parameters()
            if ".experts." in name and p.grad is not None
        }
        assert used == {kind}
        model.zero_grad()
        read(*parts, top="pair").sin().sum().backward()
        last = {
            name.split(".experts.")[1].split(".")[0]
            for name, p in model.named_parameters()
            if name.startswith("layers.2.experts.") and p.grad is not None
        }
        assert last == {"pair"}


def test_what_stands_below_the_last_layers_is_computed_once_for_both_tops(model, given):
    read = model.embed_text(*given[:2])
    calls = []
    for i, each in enumerate(model.layers):
        each.register_forward_hook(lambda *_, i=i: calls.append(i))
    both = model.encode(read)
    assert calls == [0, 1, 2, 2]
    for found, top in zip(both, ("own", "pair"), strict=True):
        assert torch.equal(found, model.read_text(*given[:2], top=top))


def test_padding_changes_nothing_and_may_hold_anything(model, given):
    tokens, padding, source, hides = given
    both = pair(model, given)
    wild, far = tokens.clone(), source.clone()
    wild[1, 4:], far[0, 5:] = 999, float("nan")
    assert torch.equal(pair(model, (wild, padding, far, hides)), both)
    shorter = model(tokens[1:, :4], source=source[1:])
    torch.testing.assert_close(both[1:, :4], shorter.text)
    torch.testing.assert_close(both[1:, 6:], shorter.image)
    torch.testing.assert_close(
        model.read_text(tokens, padding)[1:, :4], model.read_text(tokens[1:, :4])
    )
    torch.testing.assert_close(model.read_image(far, hides)[0], model.read_image(source, hides)[0])


def test_a_watched_pair_shows_what_words_read_of_patches(model, given):
    with attnlab.watch(model) as seen:
        pair(model, given)
    found = {each.name: each.weights for each in seen}
    assert list(found) == [f"layers.{i}.attention" for i in range(3)]
    assert all(w.shape == (2, 5, 14, 14) for w in found.values())
    assert (found["layers.1.attention"][0, :, 2, 6:12] > 0).all()  # class token and real patches
    assert not found["layers.1.attention"][0, :, 2, 12:].any()


@pytest.mark.parametrize("shared", [True, False])
def test_bfloat16_and_autocast_are_near_float32(shared, given):
    tokens, padding, source, hides = given
    torch.manual_seed(0)
    model = VLMo(replace(OPTIONS, shared=shared))
    source = source.float()
    wanted = pair(model, (tokens, padding, source, hides))
    half = pair(copy.deepcopy(model).bfloat16(), (tokens, padding, source, hides))
    assert half.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        cast = pair(model, (tokens, padding, source, hides))
    cast.float().sin().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    real = torch.cat([padding, hides.new_ones(2, 1), hides], 1)
    for found in (half, cast):
        error = (found.float() - wanted)[real].abs().max()
        assert 0 < error < 0.1  # of vectors with variance 1


@pytest.mark.parametrize("size", SIZES)
def test_the_printed_size(size):
    """Counted on the meta device, and by hand from the sizes."""
    with torch.device("meta"):
        made = build(size)
    o = SIZES[size]
    d, f = o.dim, o.hidden
    expert = 2 * d * f + f + d + 2 * d
    of_layer = 4 * (d * d + d) + 2 * d + 2 * d
    experts = 2 * o.layers + o.pairs
    inputs = (o.vocab + o.max_len + o.patches + 2) * d + 2 * d + (o.features + 1) * d
    parameters = sum(p.numel() for p in made.parameters())
    assert parameters == o.layers * of_layer + experts * expert + inputs + 2 * d
    assert 0.995 < parameters / PRINTED[size] < 1.005


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, t, s: m(t), TypeError, "source"),
        (lambda m, t, s: m(t[:1], source=s), ValueError, "b is 2, expected 1"),
        (lambda m, t, s: m(t, source=s[:, :5]), ValueError, "7 patches of 11 numbers, got 5 of 11"),
        (lambda m, t, s: m.read_image(s[..., :4]), ValueError, "got 7 of 4"),
        (lambda m, t, s: m.read_image(s.long()), ValueError, "source.*int64"),
        (lambda m, t, s: m.read_text(t[:, :0]), ValueError, "n is 0"),
        (
            lambda m, t, s: m.embed_image(s, hidden=torch.zeros(2, 7, dtype=torch.bool)),
            ValueError,
            "got hidden; give hides, too, or neither",
        ),
        (
            lambda m, t, s: m.embed_image(s, hides=torch.zeros(20).double()),
            ValueError,
            "got hides; give hidden, too, or neither",
        ),
        (
            lambda m, t, s: m.read_text(t, torch.zeros_like(t, dtype=torch.bool)),
            ValueError,
            "row 0 begins with padding, but its first token is read as the vector of the text",
        ),
        (lambda m, t, s: m.read_text(t.repeat(1, 3)), ValueError, "18 tokens, more than max_len="),
        (lambda m, t, s: m.read_text(t + 17), ValueError, "vocab is 17"),
        (lambda m, t, s: m.read_text(t.double()), ValueError, "tokens.*float64"),
        (lambda m, t, s: m.read_text(t, top="pairs"), ValueError, "no top 'pairs'; did you mean"),
        (lambda m, t, s: VLMoOptions(layers=2, pairs=3), ValueError, "pairs should be at most"),
        (lambda m, t, s: VLMoOptions(scale=0.0), ValueError, "scale should be above 0"),
        (lambda m, t, s: build("basis"), ValueError, "base"),
        (lambda m, t, s: VLMo({"dim": 3}), TypeError, "options should be VLMoOptions"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(model, given, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(model, given[0], given[2])
