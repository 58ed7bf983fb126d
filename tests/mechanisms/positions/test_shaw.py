"""Shaw's relative attention: a table of clipped distances, looked up or added up."""

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.positions import shaw
from attnlab.mechanisms.positions.shaw import FORMS, ShawAttention, clipped_distances

B, H, N, M, D, E, K = 2, 3, 5, 11, 7, 13, 2


def made(clip: int = K) -> list[Tensor]:
    """Queries, keys, values and the two tables."""
    rows = 2 * clip + 1
    shapes = (B, H, N, D), (B, H, M, D), (B, H, M, E), (rows, D), (rows, E)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def test_clipped_distances_by_hand() -> None:
    """Key minus query, the queries at 1, 2 and 3; -1, 0 and 1 are rows 0, 1 and 2."""
    found = clipped_distances(3, 4, 3, None, torch.device("cpu"))
    assert found.tolist() == [[[0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]]]
    padding = torch.tensor([[True, False, True, True]])
    found = clipped_distances(4, 4, 5, padding, torch.device("cpu"))
    assert found[0, 3].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("form", FORMS)
def test_the_equation_pair_by_pair(form: str) -> None:
    q, k, v, a_keys, a_values = made()
    with record() as notes:
        out = FORMS[form](q, k, v, a_keys, a_values)
    row = 3
    c = [min(max(j - (row + M - N), -K), K) + K for j in range(M)]
    scores = (q[:, :, row, None] * (k + a_keys[c])).sum(-1) / D**0.5
    torch.testing.assert_close(notes.last("scores")[:, :, row], scores)
    expected = (scores.softmax(-1)[..., None] * (v + a_values[c])).sum(-2)
    torch.testing.assert_close(out[:, :, row], expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [True, False])
def test_tables_of_zeros_are_full_attention(form: str, causal: bool) -> None:
    q, k, v, a_keys, a_values = made()
    expected = full.naive(q, k, v, mask=patterns.causal() if causal else None)
    for tables in ((a_keys * 0, a_values * 0), (None, None)):
        torch.testing.assert_close(FORMS[form](q, k, v, *tables, causal=causal), expected)


@pytest.mark.parametrize("form", FORMS)
def test_equal_rows_shift_keys_and_values(form: str) -> None:
    """A table with one row, k = 0, is the same as one whose rows are all equal to it."""
    q, k, v, a_keys, a_values = made()
    expected = full.naive(q, k + a_keys[0], v + a_values[0])
    same = (a_keys[:1].expand(5, -1), a_values[:1].expand(5, -1))
    torch.testing.assert_close(FORMS[form](q, k, v, *same), expected)
    torch.testing.assert_close(FORMS[form](q, k, v, a_keys[:1], a_values[:1]), expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_causal_layer_never_uses_later_rows(form: str) -> None:
    q, k, v, *tables = made()
    tables = [table.requires_grad_() for table in tables]
    out = FORMS[form](q, k, v, *tables, causal=True)
    for grad in torch.autograd.grad(out.square().sum(), tables):
        assert (grad[K + 1 :] == 0).all()
        assert (grad[: K + 1] != 0).any(dim=-1).all()


def test_weights_are_added_up_by_clipped_distance() -> None:
    """Their sums are those of the pairs, and together one."""
    q, k, v, a_keys, a_values = made()
    with record() as notes:
        shaw.clipped(q, k, v, a_keys, a_values)
    weights, sums, c = (notes.last(name) for name in ("weights", "sums", "distances"))
    for row in range(2 * K + 1):
        torch.testing.assert_close(sums[..., row], (weights * (c == row)).sum(-1))
    torch.testing.assert_close(sums.sum(-1), torch.ones(B, H, N, dtype=torch.float64))


def test_beyond_the_clip_order_is_not_seen() -> None:
    """Two keys farther than k may change places; two within may not."""
    own = ShawAttention(12, 3, causal=True, options=shaw.ShawOptions(clip=K)).double()
    x = torch.randn(1, 8, 12, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3, 4, 5, 6, 7]]
    torch.testing.assert_close(own(swapped)[:, -1], own(x)[:, -1])
    near = x[:, [0, 1, 2, 3, 4, 6, 5, 7]]
    assert not torch.allclose(own(near)[:, -1], own(x)[:, -1])


def test_translation_changes_nothing() -> None:
    own = ShawAttention(12, 3, options=shaw.ShawOptions(clip=K)).double()
    x = torch.randn(B, 9, 12, dtype=torch.float64)
    moved = torch.cat((torch.randn(B, 4, 12, dtype=torch.float64), x), dim=1)
    padding = torch.arange(13)[None].expand(B, -1) >= 4
    torch.testing.assert_close(own(moved, padding)[:, 4:], own(x))


@pytest.mark.parametrize("form", FORMS)
def test_costs_are_those_of_the_card(form: str) -> None:
    """Only the naive form holds a vector for every pair."""
    own, x = (
        ShawAttention(64, 2, form=form, options=shaw.ShawOptions(clip=K)),
        torch.randn(1, 128, 64),
    )
    counted = count(own, x)
    assert counted.largest_tensor.elements == 128 * 128 * (32 if form == "naive" else 2)
    found = {"naive": 2 * 2 * 2 * 128 * 128 * 64, "clipped": 2 * 2 * 128 * 64 * (128 + 5)}
    assert counted.flops == 4 * 2 * 128 * 64 * 64 + found[form]


def test_watch_reads_the_weights() -> None:
    own, x = ShawAttention(12, 3).double(), torch.randn(1, 7, 12, dtype=torch.float64)
    with record() as notes, attnlab.watch(own) as seen:
        own(x)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0].weights, notes.last("weights"))


def test_a_model_takes_it_in_place_of_full_attention() -> None:
    model = attnlab.TinyTransformer(
        11, dim=12, heads=2, layers=2, positions="shaw", position_options={"clip": 3}
    )
    found = [m for m in model.modules() if isinstance(m, ShawAttention)]
    assert [m.a_keys.shape for m in found] == [(7, 6), (7, 6)]
    assert model(torch.randint(11, (2, 7))).shape == (2, 7, 11)


def test_wrong_calls_are_answered_in_sentences() -> None:
    def build(**options: object) -> None:
        attnlab.build("shaw", dim=8, heads=2, **options)

    with pytest.raises(ValueError, match="leave no positions; build 'full'"):
        build(keys=False, values=False)
    with pytest.raises(ValueError, match="clip should be at least 0, got -1"):
        build(clip=-1)
    with pytest.raises(
        ValueError, match="is an attention of its own, in place of attention='full'"
    ):
        attnlab.TinyTransformer(9, dim=8, heads=2, layers=1, positions="shaw", attention="linear")
    q, k, v, a_keys, a_values = made()
    with pytest.raises(ValueError, match=r"a table has 2k \+ 1 rows.*got 4"):
        shaw.naive(q, k, v, a_keys[:4], a_values[:4])
    with pytest.raises(ValueError, match="c is 3, expected 5 as in `a_keys`"):
        shaw.clipped(q, k, v, a_keys, a_values[:3])
