"""What each join has of its own: constants, initial weights, limits that are another join."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab import TinyTransformer, catalog
from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join import deep_norm, drop_path, layer_scale, rezero, sub_ln
from attnlab.core.norms import NoNorm, Normed, RMSNorm, norm_of
from attnlab.mechanisms.dense.full import FullAttention

DIM, N, B = 12, 7, 3


def built(name: str, **options: Any) -> Any:
    return catalog.build(name, dim=DIM, **options).double().eval()


def stream() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(B, N, DIM, dtype=torch.float64)


def layer() -> MLP:
    torch.manual_seed(2)
    return MLP(DIM).double()


# ---- norms


def test_norms_are_what_they_are_called() -> None:
    x = 3 * stream() + 1
    centred = x - x.mean(-1, keepdim=True)
    for name, expected in (
        ("layer_norm", centred / centred.square().mean(-1, keepdim=True).sqrt()),
        ("rms_norm", x / x.square().mean(-1, keepdim=True).sqrt()),
        ("no_norm", x),
    ):
        norm = norm_of(name, DIM).double()  # type: ignore[arg-type]
        torch.testing.assert_close(norm(x), expected, atol=1e-4, rtol=1e-4)
    scaled = NoNorm(DIM).double()
    with torch.no_grad():
        scaled.weight.copy_(torch.arange(DIM))
        scaled.bias.fill_(2)
    torch.testing.assert_close(scaled(x), torch.arange(DIM) * x + 2)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"join": "pre_norm"}, nn.LayerNorm),
        ({"join": "pre_norm", "join_options": {"norm": "rms_norm"}}, RMSNorm),
        ({"join": "post_norm"}, nn.Identity),
        ({"join": "post_norm", "join_options": {"norm": "no_norm"}}, NoNorm),
        ({"join": "rezero"}, nn.LayerNorm),
    ],
)
def test_a_stack_ends_with_the_norm_of_its_joins(options: Any, kind: type) -> None:
    model = TinyTransformer(11, dim=DIM, heads=2, layers=2, **options)
    assert type(model.decoder.norm) is kind
    assert model.decoder.norm is not model.decoder.blocks[1].feed_forward_residual


# ---- DeepNorm


def test_the_constants_of_deep_norm_are_those_of_its_table() -> None:
    assert deep_norm.constants(2) == pytest.approx((math.sqrt(2), 0.5))
    assert deep_norm.constants(27, "decoder", 6) == pytest.approx((3.0, 1 / 324**0.25))
    encoder = deep_norm.constants(18, "encoder", 6)  # the paper's 18 + 6 layers: (18⁴ · 6)^(1/16)
    assert encoder == pytest.approx((0.81 * 629856 ** (1 / 16), 0.87 / 629856 ** (1 / 16)))
    for layers in (1, 6, 100, 1000):
        for side in ("alone", "decoder"):
            alpha, beta = deep_norm.constants(layers, side)  # type: ignore[arg-type]
            assert alpha * beta == pytest.approx(1 / math.sqrt(2))


def test_deep_norm_changes_all_matrices_but_queries_and_keys() -> None:
    def weights(join: str, **own: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        sizes = {"dim": DIM, "heads": 2, "layers": 3, "kind": "encoder_decoder"}
        made = TinyTransformer(11, **sizes, join=join, join_options=own)
        return {name: p for name, p in made.named_parameters() if "residual" not in name}

    before, after = weights("post_norm", shrink=False), weights("deep_norm")
    beta = {side: deep_norm.constants(3, side)[1] for side in ("encoder", "decoder")}  # type: ignore[arg-type]
    for name, weight in after.items():
        side, inside = name.split(".")[0], weight.dim() == 2 and "blocks" in name
        kept = not inside or ".query." in name or ".key." in name
        factor = 1 if kept else beta[side]
        torch.testing.assert_close(weight, factor * before[name], msg=name)


def test_deep_norm_with_alpha_1_is_post_norm() -> None:
    join, post, x, f = built("deep_norm", layers=3), built("post_norm"), stream(), layer()
    assert not torch.allclose(join(x, f), post(x, f))
    join.alpha = 1.0
    torch.testing.assert_close(join(x, f), post(x, f))


# ---- Sub-LN


def test_the_gains_of_sub_ln() -> None:
    assert sub_ln.gain(50) == pytest.approx(math.sqrt(math.log(100)))
    assert sub_ln.gain(9, "decoder") == pytest.approx(math.sqrt(math.log(27)))
    encoder = sub_ln.gain(18, "encoder", 6)
    assert encoder == pytest.approx(math.sqrt(math.log(18) * math.log(36) / 3))


def test_sub_ln_normalises_in_front_of_the_last_matrix() -> None:
    join, x, f = built("sub_ln", layers=3), stream(), layer()
    join.prepare(f)
    W, b = f.contract.weight, f.contract.bias
    rest: Callable[[Tensor], Tensor] = lambda read: nn.functional.gelu(f.expand(read))  # noqa: E731
    torch.testing.assert_close(join(x, f), sub_ln.naive(x, rest, join.norm, f.contract.norm, W) + b)
    attention = FullAttention(DIM, 2).double()
    join.prepare(attention)
    join.prepare(attention)  # a second time changes nothing
    before = join(x, attention)
    assert isinstance(attention.heads.output, Normed)
    with torch.no_grad():
        attention.heads.value.weight.mul_(1000)  # what the inner norm takes back
    torch.testing.assert_close(join(x, attention), before, atol=1e-2, rtol=1e-2)


def test_cross_attention_gets_neither_inner_norm_nor_gain() -> None:
    sizes = {"dim": DIM, "heads": 2, "layers": 3, "kind": "encoder_decoder"}
    torch.manual_seed(0)
    model = TinyTransformer(11, **sizes, join="sub_ln")
    torch.manual_seed(0)
    plain = TinyTransformer(11, **sizes, join="pre_norm", join_options={"shrink": False})
    with_norm = [name for name, part in model.named_modules() if isinstance(part, Normed)]
    assert len(with_norm) == 2 * 3 * 2
    assert not any("cross" in name for name in with_norm)
    for mine, theirs in zip(model.decoder.blocks, plain.decoder.blocks, strict=True):
        assert torch.equal(mine.cross.heads.value.weight, theirs.cross.heads.value.weight)
        expected = sub_ln.gain(3, "decoder") * theirs.attention.heads.output.weight
        torch.testing.assert_close(mine.attention.heads.output.weight, expected)
        assert torch.equal(mine.attention.heads.query.weight, theirs.attention.heads.query.weight)


FEEDS = [card for card in catalog.shelf("architecture") if card.role == "feed"]


@pytest.mark.parametrize("card", FEEDS, ids=lambda card: card.name)
def test_the_inner_norm_stands_on_the_way_of_a_feed_forward_layer(card: Any) -> None:
    """Or the layer is refused: the matrices of experts are one tensor, and no linear layer."""
    torch.manual_seed(2)
    feed, x = catalog.build(card.name, dim=DIM).double().eval(), stream()
    last: Any = [part.contract for part in feed.modules() if hasattr(part, "contract")]
    if not any(isinstance(each, nn.Linear) for each in last):
        with pytest.raises(ValueError, match="has no output matrix in front of which a norm"):
            built("sub_ln", layers=3).prepare(feed)
        return
    built("sub_ln", layers=3).prepare(feed)
    inner = [part for part in feed.modules() if isinstance(part, Normed)]
    assert inner
    with torch.no_grad():
        for p in (p for part in inner for p in part.norm.parameters()):
            p.zero_()
        for p in (part.bias for part in inner if part.bias is not None):
            p.zero_()
    assert (feed(x) == 0).all()


# ---- ReZero and LayerScale


def test_rezero_begins_as_the_identity_and_first_learns_its_number() -> None:
    x = stream()
    stack = [(built_rezero(), layer()) for _ in range(5)]
    out = x
    for join, f in stack:
        out = join(out, f)
    assert torch.equal(out, x)
    (out - 1).square().sum().backward()
    for join, f in stack:
        assert join.alpha.grad != 0
        assert all((p.grad == 0).all() for p in f.parameters())
    join, f = stack[0]
    with torch.no_grad():
        join.alpha.fill_(0.5)
    torch.testing.assert_close(join(x, f), rezero.naive(x, f, torch.tensor(0.5)))


def built_rezero() -> Any:
    return catalog.build("rezero").double()


def test_layer_scale_is_pre_norm_with_a_factor_for_each_channel() -> None:
    x, f = stream(), layer()
    join, pre = built("layer_scale", epsilon=0.25), built("pre_norm")
    torch.testing.assert_close(join.branch(x, f), 0.25 * pre.branch(x, f))
    with torch.no_grad():
        join.scale.copy_(torch.arange(DIM))
    expected = layer_scale.naive(x, f, join.norm, torch.arange(DIM))
    torch.testing.assert_close(join(x, f), expected)
    began = [built("layer_scale", layers=layers).scale[0].item() for layers in (18, 24, 36)]
    assert began == pytest.approx([0.1, 1e-5, 1e-6])


# ---- drop path


def test_drop_path_leaves_out_whole_sequences_and_is_right_in_the_mean() -> None:
    join, f = built("drop_path", rate=0.25).train(), layer()
    x = stream()[:1].expand(4000, -1, -1)
    torch.manual_seed(0)
    added = join.branch(x, f)
    whole = join.eval().branch(x, f)
    dropped = (added == 0).all(-1)
    assert (dropped.all(1) == dropped.any(1)).all()
    share = dropped[:, 0].double().mean().item()
    assert share == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 4000))
    torch.testing.assert_close(added[~dropped[:, 0]], whole[~dropped[:, 0]] / 0.75)
    kept = (~dropped[:, :1, None]).double()
    torch.testing.assert_close(x + added, drop_path.naive(x, f, join.norm, kept, 0.25))
    torch.testing.assert_close(whole, built("pre_norm").branch(x, f))


def test_drop_path_drops_later_layers_more_often() -> None:
    own = {"rate": 0.4}
    sizes = {"dim": DIM, "heads": 2, "layers": 4}
    model = TinyTransformer(11, **sizes, join="drop_path", join_options=own)
    rates = [[join.rate for join, _ in block.sublayers()] for block in model.decoder.blocks]
    assert rates == [pytest.approx([rate, rate]) for rate in (0.1, 0.2, 0.3, 0.4)]


# ---- models


@pytest.mark.parametrize("join", ["sub_ln", "rezero", "layer_scale", "drop_path"])
def test_joins_that_only_add_stand_in_reversible_layers(join: str) -> None:
    torch.manual_seed(0)
    model = TinyTransformer(11, dim=DIM, heads=2, layers=3, join=join, depth="reversible")
    model(torch.randint(11, (B, N))).sum().backward()
    learned = [p for block in model.decoder.blocks for p in block.parameters()]
    assert all(p.grad is not None for p in learned)


@pytest.mark.parametrize("join", ["deep_norm", "sub_ln", "rezero", "layer_scale", "drop_path"])
def test_models_decode_step_by_step_and_are_stored(join: str, tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = TinyTransformer(11, dim=DIM, heads=2, layers=2, join=join).eval()
    tokens = torch.randint(11, (B, N))
    whole, state = model(tokens), None
    for i in range(N):
        scores, state = model.step(tokens[:, i : i + 1], state)
        torch.testing.assert_close(scores, whole[:, i], atol=1e-5, rtol=1e-4)
    model.save(tmp_path / "model.safetensors")
    again = TinyTransformer.load(tmp_path / "model.safetensors").eval()
    assert torch.equal(again(tokens), whole)


# ---- bad calls


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("deep_norm", {}, "deep_norm needs layers, the number of layers of the stack"),
        ("deep_norm", {"layers": 0}, "layers should be at least 1"),
        ("deep_norm", {"layers": 3, "others": 4}, "side='alone' has none; leave others=4 out"),
        ("deep_norm", {"layers": 3, "side": "left"}, "no side 'left'"),
        ("sub_ln", {}, "sub_ln needs layers"),
        ("layer_scale", {}, "layer_scale needs layers"),
        ("layer_scale", {"epsilon": 0.0}, "epsilon should be more than 0 and at most 1"),
        ("drop_path", {"rate": 1.0}, "rate is a probability, 0 ≤ rate < 1, got 1.0"),
        ("drop_path", {"rate": -0.1}, "rate is a probability"),
        ("drop_path", {"layers": 3, "layer": 3}, "layer counts from 0 to layers - 1 = 2, got 3"),
        ("pre_norm", {"norm": "batch_norm"}, "no norm 'batch_norm'"),
    ],
)
def test_bad_options_are_answered_in_sentences(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        attnlab.build(name, dim=DIM, **options)


def test_sub_ln_refuses_what_has_no_place_for_its_norm() -> None:
    sizes = {"dim": DIM, "heads": 2, "layers": 1, "join": "sub_ln"}
    with pytest.raises(ValueError, match="has no output matrix in front of which a norm"):
        TinyTransformer(11, **sizes, kind="token_classifier", classes=2, attention="fnet")
    with pytest.raises(ValueError, match="would change the module that you built"):
        TinyTransformer(11, **sizes, attention=FullAttention(DIM, 2, causal=True))


@pytest.mark.parametrize(
    ("join", "option"),
    [("drop_path", "layer"), ("drop_path", "layers"), ("deep_norm", "side"), ("sub_ln", "others")],
)
def test_a_model_decides_where_its_joins_stand(join: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"join_options cannot set '{option}'"):
        TinyTransformer(
            11, dim=DIM, heads=2, kind="encoder_decoder", join=join, join_options={option: 1}
        )
