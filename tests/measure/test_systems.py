"""The topic `systems`, small: every figure is there, and what is compared computes the same."""

import pytest
import torch

from attnlab.measure.benchmarks import systems

PARTS = ["read", "write", "matching", "captioning", "stage one"]


def test_a_quick_run_has_every_figure():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = {row.figure: row for row in systems.rows(quick=True, threads=1)}
    assert torch.equal(torch.get_rng_state(), state)
    vit = [each for each in rows if each.startswith("Hugging Face / ours, ViT")]
    assert [each.rpartition(", ")[2] for each in vit] == list(systems.PASSES)
    for part in PARTS:
        assert len([each for each in rows if f"of width 24, {part}, " in each]) == 2, part
    assert len(rows) == 12
    asked = [figure for figure, row in rows.items() if row.at_least == 1]
    assert asked == [*vit, *(figure for figure in rows if "stage one" in figure)]
    assert all("of the processor" in row.note for row in rows.values())


@pytest.mark.parametrize("figure", ["ViT of width 24, 9 patches", "Q-Former of width 24"])
def test_both_sides_give_the_same_values_and_gradients(figure):
    """The Q-Former's are one number each, in which every real vector takes part."""
    ours, theirs = dict(systems.sizes(True))[figure]
    assert list(ours.calls) == list(theirs.calls)
    for what in ours.calls:
        found, wanted = (side.calls[what]() for side in (ours, theirs))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)
        sizes = []
        for side, out in zip((ours, theirs), (found, wanted), strict=True):
            grads = torch.autograd.grad(out.sum(), side.parameters, allow_unused=True)
            sizes.append(sum(float(g.square().sum()) for g in grads if g is not None) ** 0.5)
        assert sizes[0] == pytest.approx(sizes[1], rel=1e-3), what
        assert sizes[0] > 0


def test_padded_words_take_no_part():
    ours, _ = dict(systems.sizes(True))["Q-Former of width 24"]
    assert ours.calls["write"]().ndim == 0
    padded = torch.tensor([[True, False]])
    vectors = torch.tensor([[[0.5], [float(3)]]])
    expected = torch.tensor(0.5).sin() / 2
    torch.testing.assert_close(systems._numbers(vectors, padded), expected)


def test_without_transformers_it_is_said(monkeypatch):
    monkeypatch.setattr(systems, "find_spec", lambda _: None)
    (row,) = systems.rows(quick=True, threads=1)
    assert row.measured is None
    assert "pip install transformers" in row.note
