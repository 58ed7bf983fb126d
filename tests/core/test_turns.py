"""Rotations in layers that make what they compare themselves: above the line turned, below not."""

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.positions import Turn
from attnlab.mechanisms.fixed.longformer import LongformerAttention
from attnlab.mechanisms.kernelized import linear, performer
from attnlab.mechanisms.positions.rope import RotaryPositions

ROPE = RotaryPositions(12, 3)  # heads of width 4


def made(n: int = 7, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, 3, n, 4), (2, 3, m, 4), (2, 3, m, 11))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@pytest.mark.parametrize("form", linear.FORMS.values(), ids=linear.FORMS)
@pytest.mark.parametrize(
    ("causal", "n", "m"), [(False, 7, 7), (True, 7, 7), (False, 3, 7), (True, 3, 7)]
)
def test_linear_attention_pair_by_pair(form, causal: bool, n: int, m: int) -> None:
    """Turned features times values, over the sum of the products of those that are not turned."""
    q, k, v = made(n, m)
    given = Turn(ROPE, torch.arange(100, 100 + m))
    out = form(q, k, v, causal=causal, turn=given)
    phi_q, phi_k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    turned_q, turned_k = ROPE.queries(phi_q, given.at[m - n :]), ROPE.keys(phi_k, given.at)
    for i in range(n):
        seen = slice(0, m - n + i + 1 if causal else m)
        above = (turned_q[:, :, i, None] * turned_k[:, :, seen]).sum(-1)
        below = (phi_q[:, :, i, None] * phi_k[:, :, seen]).sum((-2, -1))
        expected = (above[..., None] * v[:, :, seen]).sum(2) / below[..., None]
        torch.testing.assert_close(out[:, :, i], expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", performer.FORMS)
def test_forms_of_performer_agree_on_turned_features(form: str, causal: bool) -> None:
    q, k, v = made(5, 7)
    rows = torch.randn(3, 6, 4, dtype=torch.float64)
    given = Turn(ROPE.of_width(6), torch.arange(7))
    options = performer.PerformerOptions(chunk=3)
    found, expected = (
        performer.FORMS[each](q, k, v, rows, causal=causal, turn=given, options=options)
        for each in (form, "naive")
    )
    torch.testing.assert_close(found, expected)
    plain = performer.FORMS[form](q, k, v, rows, causal=causal, options=options)
    assert not torch.allclose(found, plain)


@pytest.mark.parametrize("name", ["linear", "performer"])
def test_at_one_position_nothing_changes(name: str) -> None:
    """R_i · R_j is R_0 where all tokens stand at one position: both features are turned alike."""
    q, k, v = made()
    rows = (torch.randn(3, 4, 4, dtype=torch.float64),) if name == "performer" else ()
    for form in (linear if name == "linear" else performer).FORMS.values():
        turned = form(q, k, v, *rows, turn=Turn(ROPE, torch.full((7,), 5)))
        torch.testing.assert_close(turned, form(q, k, v, *rows))


@pytest.mark.parametrize("form", ["naive", "blocked"])
def test_global_rows_of_a_longformer_are_turned(form: str) -> None:
    """With all pairs in the window, it is full attention with the same rotation."""
    options = {"window": 40, "global_positions": (0, 5), "form": form, "positions": "rope"}
    layer = attnlab.build("longformer", dim=12, heads=3, **options).double()
    whole = attnlab.build("full", dim=12, heads=3, positions="rope").double()
    assert isinstance(layer, LongformerAttention)
    whole.load_state_dict(layer.state_dict(), strict=False)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), whole(x))
    padding = torch.tensor([[True] * 9, [True] * 7 + [False] * 2])
    found, expected = layer(x, padding), whole(x, padding)
    torch.testing.assert_close(found[padding], expected[padding])


def test_a_memory_that_holds_all_is_full_attention_with_a_rotation() -> None:
    """One softmax over all of the past, of turned keys that were stored long ago."""
    sizes = {"segment": 2, "cache": 2, "memory": 40, "neighbours": 40, "stored": "leaving"}
    made = attnlab.build(
        "memorizing", dim=12, heads=3, causal=True, positions="rope", gated=False,
        normalise=False, **sizes,
    ).double()  # fmt: skip
    whole = attnlab.build("full", dim=12, heads=3, causal=True, positions="rope").double()
    whole.load_state_dict(made.state_dict(), strict=False)
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    torch.testing.assert_close(made(x), whole(x))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="a rotation turns pairs of features, but there are 15"):
        attnlab.build("linear", dim=12, heads=3, positions="rope", feature="based")
    with pytest.raises(ValueError, match="a rotation turns pairs of features, but there are 7"):
        attnlab.build("performer", dim=12, heads=3, positions="rope", features=7)
    growing = attnlab.build("rope", dim=12, heads=3, scaling="xpos", factor=512.0)
    with pytest.raises(ValueError, match="made unit vectors, but this rotation changes their len"):
        attnlab.build("memorizing", dim=12, heads=3, causal=True, positions=growing)
    plain, turning = (
        attnlab.build("linear", dim=12, heads=3, causal=True, positions=positions)
        for positions in (None, "rope")
    )
    _, state = plain.step(torch.randn(1, 3, 12))
    with pytest.raises(TypeError, match="the state should be a TurnedSums, got a Sums"):
        turning.step(torch.randn(1, 3, 12), state)
