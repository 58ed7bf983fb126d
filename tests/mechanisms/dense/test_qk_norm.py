"""QK-norm: loops, three variants, rotations, bounds; the layers of Qwen3, OLMo 2 and Llama 4."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.positions import Rotation
from attnlab.core.probe import record
from attnlab.mechanisms.dense.qk_norm import FORMS, NormedHeads, QKNormAttention, QKNormOptions
from attnlab.mechanisms.positions.rope import RotaryPositions

NORMS = ("per_head", "whole", "after_rotation")
each_norm = pytest.mark.parametrize("norm", NORMS)


def layer(norm: str = "per_head", *, gains: bool = True, **given: Any) -> QKNormAttention:
    made = QKNormAttention(12, 3, options=QKNormOptions(norm=norm), **given).double()
    if gains and norm != "after_rotation":
        for each in (made.heads.query_norm, made.heads.key_norm):
            each.weight.data = torch.rand_like(each.weight) + 0.5
    return made


def projected(made: QKNormAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    with record() as notes:
        made(x)
    return notes.last("queries"), notes.last("keys")


@each_norm
def test_rows_are_normalised_by_loops(norm: str) -> None:
    """Two key heads for four query heads of width 3; a rotation that turns nothing."""
    made = QKNormAttention(12, 4, kv_heads=2, options=QKNormOptions(norm=norm)).double()
    heads, x = made.heads, torch.randn(2, 5, 12, dtype=torch.float64)
    if norm != "after_rotation":
        for each in (heads.query_norm, heads.key_norm):
            each.weight.data = torch.rand_like(each.weight) + 0.5
    for found, linear, which in zip(
        (each.detach() for each in projected(made, x)),
        (heads.query, heads.key),
        ("query_norm", "key_norm"),
        strict=True,
    ):
        raw = x @ linear.weight.detach().T
        for s, i, a, c in itertools.product(range(2), range(5), range(found.shape[1]), range(3)):
            own = raw[s, i, 3 * a : 3 * a + 3]
            over = raw[s, i] if norm == "whole" else own
            mean = sum(float(y) ** 2 for y in over) / len(over)
            expected = float(own[c]) / math.sqrt(mean + 1e-6)
            if norm != "after_rotation":
                gains = getattr(heads, which).weight.detach()
                expected *= float(gains[3 * a + c if norm == "whole" else c])
            assert float(found[s, a, i, c]) == pytest.approx(expected, rel=1e-9)


@each_norm
def test_scores_are_bounded(norm: str) -> None:
    """By √d, and by h √d where the heads are normalised together."""
    made, x = layer(norm, gains=False, form="naive"), 1e3 * torch.randn(2, 7, 12).double()
    with record() as notes:
        made(x)
    largest = notes.last("scores").abs().max()
    assert largest <= math.sqrt(4) * (3 if norm == "whole" else 1) + 1e-9
    assert largest > 0.5


@each_norm
def test_the_size_of_the_projections_does_not_matter(norm: str) -> None:
    made, x = layer(norm), 1e4 * torch.randn(2, 7, 12, dtype=torch.float64)
    expected = made(x)
    made.heads.query.weight.data *= 7
    made.heads.key.weight.data /= 5
    torch.testing.assert_close(made(x), expected)


def test_a_norm_goes_past_a_rotation_where_pairs_have_one_gain() -> None:
    """Without gains on either side; with one gain for each pair; not with others."""
    x, at = torch.randn(1, 3, 7, 4, dtype=torch.float64), torch.arange(7)
    turn = RotaryPositions(12, 3).double()
    made = layer(gains=False).heads
    assert isinstance(made, NormedHeads)
    for gains, same in (([1.0] * 4, True), ([2.0, 0.5, 2, 0.5], True), ([2.0, 1, 1, 1], False)):
        made.query_norm.weight.data = torch.tensor(gains, dtype=torch.float64)
        before = turn.queries(made.compared(x, x)[0], at)
        after = made.compared(turn.queries(x, at), x)[0]
        assert torch.allclose(before, after) == same


def test_without_gains_the_norm_is_that_after_the_rotation() -> None:
    before, after = (layer(x, gains=False, causal=True, positions=RotaryPositions(12, 3))
                     for x in ("per_head", "after_rotation"))  # fmt: skip
    after.load_state_dict({k: v for k, v in before.state_dict().items() if "norm" not in k})
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(before(x), after(x))


def test_the_three_are_different() -> None:
    made = [layer(norm, causal=True, positions=RotaryPositions(12, 3)) for norm in NORMS]
    for other in made[1:]:
        for part in ("query", "key", "value", "output"):
            getattr(other.heads, part).weight.data = getattr(made[0].heads, part).weight.data
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    outs = [each(x) for each in made]
    for one, two in itertools.combinations(outs, 2):
        assert not torch.allclose(one, two)


def test_keys_are_cached_normalised_and_once() -> None:
    made = layer(causal=True, positions=RotaryPositions(12, 3))
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    out, state = made.step(x[:, :3])
    rest, state = made.step(x[:, 3:], state)
    torch.testing.assert_close(torch.cat((out, rest), dim=1), made(x))
    torch.testing.assert_close(state.keys, projected(made, x)[1])


def test_how_many_parameters() -> None:
    def sizes(norm: str) -> int:
        return sum(p.numel() for p in layer(norm).parameters())

    plain = sizes("after_rotation")
    assert (sizes("per_head"), sizes("whole")) == (plain + 2 * 4, plain + 2 * 12)


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="norm"):
        attnlab.build("qk_norm", dim=12, heads=3, norm="each_head")
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 2, 5, 4)
    for form in FORMS.values():
        with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
            form(q, k, k)


# ---- Hugging Face


class Turning(Rotation):
    """The rotation of a model of Transformers."""

    def __init__(self, rotary, turn) -> None:
        super().__init__()
        self.rotary, self.turn, self.head_dim = rotary, turn, 4

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        return self.turn(q, self.rotary(q, positions[None]))

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        return self.queries(k, positions)


def _half_split(apply):
    return lambda x, both: apply(x, x, *both)[0]


def _interleaved(apply):
    return lambda x, both: apply(x.transpose(1, 2), x.transpose(1, 2), both)[0].transpose(1, 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "norm"), [("qwen3", "per_head"), ("olmo2", "whole"), ("llama4", "after_rotation")]
)
def test_equals_hugging_face(name: str, norm: str, form: str) -> None:
    """With their weights. Their norms are in float32."""
    import importlib

    import transformers

    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    model = {"qwen3": "Qwen3", "olmo2": "Olmo2", "llama4": "Llama4Text"}[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{model}Config")(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=4,
        num_hidden_layers=1, rms_norm_eps=1e-6, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    theirs = getattr(module, f"{model}Attention")(config, 0).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, mean=0.2, std=0.3)
    rotary = getattr(module, f"{model}RotaryEmbedding")(config)
    turn = (
        _interleaved(module.apply_rotary_emb)
        if name == "llama4"
        else _half_split(module.apply_rotary_pos_emb)
    )
    x, at = torch.randn(2, 9, 24, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, rotary(x, at), hidden)
    ours = attnlab.build(
        "qk_norm", dim=24, heads=6, kv_heads=2, causal=True, form=form, norm=norm,
        positions=Turning(rotary, turn),
    ).double()  # fmt: skip
    for mine, its in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
        getattr(ours.heads, mine).weight.data = getattr(theirs, f"{its}_proj").weight.data
        if norm != "after_rotation" and mine in ("query", "key"):
            gains = getattr(theirs, f"{its}_norm").weight.data
            getattr(ours.heads, f"{mine}_norm").weight.data = gains
    torch.testing.assert_close(ours(x), expected, rtol=3e-6, atol=3e-6)
    assert (ours(x) - expected).abs().max() < 1e-2 * expected.abs().max()
