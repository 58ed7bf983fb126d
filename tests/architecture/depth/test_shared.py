"""Shared layers: one set of parameters for several layers, in gradients, files and counts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from attnlab.core.depth import Sets
from attnlab.measure.count import count
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models import counts
from attnlab.models.tiny import TinyTransformer

VOCAB, N, LAYERS = 11, 13, 4
OPTIONS: dict[str, Any] = {
    "vocab": VOCAB, "dim": 12, "heads": 3, "layers": LAYERS, "max_len": N, "hidden": 17,
}  # fmt: skip
TOKENS = torch.randint(VOCAB, (2, N), generator=torch.Generator().manual_seed(0))
SHARED = [
    {"what": "all"},
    {"what": "attention"},
    {"what": "feed"},
    {"what": "all", "groups": 2},
    {"what": "feed", "groups": 4},
]


def model(shared: dict[str, Any] | None = None, **changes: Any) -> TinyTransformer:
    torch.manual_seed(1)
    way: dict[str, Any] = {} if shared is None else {"depth": "shared", "depth_options": shared}
    return TinyTransformer(**{**OPTIONS, **way, **changes}).double()


def unshared(ours: TinyTransformer) -> TinyTransformer:
    """The same numbers, each layer with parameters of its own."""
    plain = model(**{k: ours.config[k] for k in ("kind", "layers", "attention_options", "join")})
    plain.load_state_dict(ours.state_dict())
    return plain


def gradients(model: nn.Module, out: Tensor) -> dict[str, Tensor]:
    """By every name that a parameter has."""
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    named = dict(model.named_parameters(remove_duplicate=False))
    unique = {id(p): p for p in named.values()}
    found = torch.autograd.grad((out * direction).sum(), list(unique.values()))
    of = dict(zip(unique, found, strict=True))
    return {name: of[id(p)] for name, p in named.items()}


def test_the_set_of_a_layer_is_the_floor_of_l_times_groups_over_layers() -> None:
    way: Any = model({"groups": 3}, layers=6).decoder.depth  # type: ignore[union-attr]
    assert way.sets(6) == Sets((0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 2, 2))
    way = model({"what": "attention", "groups": 2}, layers=6).decoder.depth  # type: ignore[union-attr]
    assert way.sets(6) == Sets((0, 0, 0, 1, 1, 1), (0, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_sublayers_of_one_set_are_one_module_and_have_one_join(shared: dict[str, Any]) -> None:
    stack: Any = model(shared).decoder
    sets = stack.depth.sets(LAYERS)
    for part, numbers in (("attention", sets.attention), ("feed_forward", sets.feed)):
        for name in (part, f"{part}_residual"):
            found = [id(getattr(block, name)) for block in stack.blocks]
            assert [found.index(one) for one in found] == [numbers.index(one) for one in numbers]


@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_the_gradient_of_a_set_is_the_sum_of_those_of_its_layers(shared: dict[str, Any]) -> None:
    ours = model(shared)
    plain = unshared(ours)
    out, expected = ours(TOKENS), plain(TOKENS)
    torch.testing.assert_close(out, expected)
    mine, apart = gradients(ours, out), gradients(plain, expected)
    named = dict(ours.named_parameters(remove_duplicate=False))
    assert any(len(same(named, name)) > 1 for name in named) == (shared.get("groups") != LAYERS)
    for name, gradient in mine.items():
        total = torch.stack([apart[other] for other in same(named, name)]).sum(0)
        torch.testing.assert_close(gradient, total)


def same(named: dict[str, nn.Parameter], name: str) -> list[str]:
    return [other for other, p in named.items() if p is named[name]]


@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_a_file_holds_each_tensor_once(shared: dict[str, Any], kind: str, tmp_path: Path) -> None:
    ours, path = model(shared, kind=kind), tmp_path / "model.safetensors"
    ours.save(path)
    with safe_open(str(path), "pt") as file:
        assert len(list(file.keys())) == len(list(ours.parameters()))
    read = TinyTransformer.load(path).double()
    assert len(list(read.parameters())) == len(list(ours.parameters()))
    for one, other in zip(read.parameters(), ours.parameters(), strict=True):
        assert torch.equal(one, other.float().double())


def test_a_model_of_many_layers_in_one_set_is_read_back(tmp_path: Path) -> None:
    model({}, layers=40).save(tmp_path / "model.safetensors")
    assert len(TinyTransformer.load(tmp_path / "model.safetensors").decoder.blocks) == 40  # type: ignore[union-attr]


def test_initial_weights_are_scaled_for_the_number_of_applications() -> None:
    one, four = (model({}, layers=layers) for layers in (1, 4))
    for name in ("attention.heads.output", "feed_forward.contract"):
        weights = [each.get_submodule(f"decoder.blocks.0.{name}").weight for each in (one, four)]
        torch.testing.assert_close(weights[1], weights[0] / 2)  # √(2·4) beside √2


@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_decoding_has_a_state_for_each_application(shared: dict[str, Any]) -> None:
    ours, state, parts = model(shared).eval(), None, []
    with torch.no_grad():
        for t in range(N):
            logits, state = ours.step(TOKENS[:, t : t + 1], state)
            parts.append(logits)
        torch.testing.assert_close(torch.stack(parts, 1), ours(TOKENS))
    assert len(state.layers) == LAYERS  # type: ignore[union-attr]
    keys = [layer.keys for layer in state.layers]  # type: ignore[union-attr]
    assert not any(torch.equal(keys[0], other) for other in keys[1:])


def test_time_and_activations_stay_those_of_all_layers() -> None:
    shared, plain = (counts.count(each, N)[-1] for each in (model({}), model()))
    assert shared.flops == plain.flops
    assert shared.parameters < plain.parameters
    tokens = torch.zeros(1, N, dtype=torch.long, device="meta")
    held = [
        count(each.to("meta"), tokens, backward=True).peak_bytes
        - sum(p.numel() * p.element_size() for p in each.parameters())
        for each in (model({}), model())
    ]
    assert held[0] >= 0.8 * held[1]


def test_a_set_is_one_row_of_the_counts() -> None:
    ours = model({"what": "attention"})
    rows = {row.part: row for row in counts.count(ours, N)}
    assert [name for name in rows if name.endswith("attention")] == ["decoder.blocks.0.attention"]
    assert rows["total"].parameters == sum(p.numel() for p in ours.parameters())
    assert sum(row.flops for name, row in rows.items() if name != "total") == rows["total"].flops


def test_cross_attention_is_shared_with_attention() -> None:
    decoder: Any = model({"what": "attention"}, kind="encoder_decoder").decoder
    assert len({id(block.cross) for block in decoder.blocks}) == 1
    assert len({id(block.cross_residual) for block in decoder.blocks}) == 1
    assert len({id(block.feed_forward) for block in decoder.blocks}) == LAYERS


def test_a_module_of_the_caller_may_be_the_one_set() -> None:
    own = FullAttention(12, 3, causal=True)
    before = own.heads.output.weight.clone()
    ours = model({}, attention=own)
    assert all(block.attention is own for block in ours.decoder.blocks)  # type: ignore[union-attr]
    assert torch.equal(own.heads.output.weight.float(), before)  # it may be trained already


@pytest.mark.parametrize(
    ("shared", "options", "words"),
    [
        ({"groups": 3}, {}, "groups should divide the number of layers, 4, got 3; .* 1, 2, 4"),
        ({"groups": 0}, {}, "groups should be at least 1"),
        ({"what": "norms"}, {}, "no what 'norms'"),
        ({}, {"attention": ["full", "full", "linear", "full"]}, "layers 0 and 2 share one att"),
        (
            {},
            {"attention_options": [{"form": "naive"}, {}, {}, {}]},
            "layers 0 and 1 share one attention, so attention_options should be the same",
        ),
        (
            {"groups": 2},
            {"attention": [FullAttention(12, 3, causal=True) for _ in range(4)]},
            "layers 0 and 1 share one attention, so attention should be the same",
        ),
        ({"layers": 3}, {}, "depth_options cannot set 'layers'"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    shared: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        model(shared, **options)


def test_layers_with_attention_of_their_own_may_share_the_rest() -> None:
    ours = model({"what": "feed"}, attention=["full", "linear", "full", "linear"])
    assert len({id(block.attention) for block in ours.decoder.blocks}) == LAYERS  # type: ignore[union-attr]
    assert len({id(block.feed_forward) for block in ours.decoder.blocks}) == 1  # type: ignore[union-attr]


ALBERT = {
    "vocab": 30_000, "dim": 768, "heads": 12, "layers": 12, "hidden": 3072, "positions": "none",
    "kind": "token_classifier", "classes": 1, "join": "post_norm",
    "attention_options": {"bias": True},
}  # fmt: skip
PUBLISHED = [
    ("all", 128, 11_683_584), ("attention", 128, 63_647_232), ("feed", 128, 37_686_528),
    (None, 128, 89_650_176), ("all", 64, 9_681_408), ("all", 256, 15_687_936),
]  # fmt: skip


@pytest.mark.parametrize(("what", "rank", "printed"), PUBLISHED)
def test_parameters_of_albert_base(what: str | None, rank: int, printed: int) -> None:
    """Lan et al., table 4 has 12, 64, 38 and 89 million, table 3 for E = 64 and 256 10 and 16."""
    shared: dict[str, Any] = {"depth": "shared", "depth_options": {"what": what}} if what else {}
    with torch.device("meta"):
        ours = TinyTransformer(**ALBERT, embedding_rank=rank, **shared)
    own = sum(p.numel() for p in ours.parameters()) - (768 + 1)  # the classes
    of_the_embedding = (512 + 2 + 2) * rank  # positions, types and a norm, of width E
    pooler = 768 * 768 + 768
    assert own + of_the_embedding + pooler == printed
