"""The experiment `tiled_positions`, small: its tables, and what a window sees of them."""

import pytest
import torch

from attnlab.experiments import stored
from attnlab.experiments.tiled_positions import (
    BACK,
    LONG,
    SHORT,
    TABLES,
    build,
    continued,
    longer,
    losses,
)


def spread(arm: str) -> torch.nn.Module:
    """An untrained model whose positions are not small."""
    model = build(arm, 0).double().eval()
    torch.nn.init.normal_(model.positions.weight)
    return model


@pytest.mark.parametrize("how", TABLES)
def test_every_table_begins_with_the_trained_rows(how: str) -> None:
    rows = build("window", 1).positions.weight.detach() + 1
    found = continued(rows, how)
    assert found.shape == (LONG, rows.shape[1])
    assert torch.equal(found[:SHORT], rows)
    known = (found[SHORT:, None] == rows).all(-1)  # new row × trained row
    copies = {"tiled": 3, "shuffled": 3, "one row": 96}.get(how, 0)
    assert known.sum(0).max() == copies
    if how == "tiled":
        assert known[:SHORT].diagonal().all()
    elif how == "shuffled":
        assert known.any(1).all()
        assert not known[:SHORT].diagonal().all()


def test_untrained_rows_are_small_and_drawn_ones_have_the_trained_spread() -> None:
    rows = 5 * torch.randn(SHORT, 64) + 3
    assert continued(rows, "untrained")[SHORT:].std() < 0.03
    drawn = continued(rows, "random")[SHORT:]
    torch.testing.assert_close(drawn.mean(0), rows.mean(0), rtol=0, atol=5 * 6 / 96**0.5)


def test_inside_a_copy_a_window_computes_what_it_computed_in_training() -> None:
    """Of the same bytes, from place 2 · 8 on; full attention does not."""
    tokens = torch.randint(256, (2, LONG))
    piece = slice(2 * SHORT, 3 * SHORT)
    for arm, same in (("window", True), ("full", False)):
        model = spread(arm)
        short, long = model(tokens[:, piece]), longer(model, "tiled").double()(tokens)[:, piece]
        inside = torch.isclose(short, long)[:, 2 * BACK :].all()
        assert inside == same
        assert not torch.isclose(short, long)[:, : 2 * BACK].all()


def test_losses_are_a_number_for_each_place() -> None:
    found = losses(longer(build("window", 0), "tiled"), texts=4)
    assert found.shape == (LONG,)
    assert (found > 3).all()


def test_what_lesson_11_says_of_the_stored_rows() -> None:
    rows = stored("11_tiled_positions.json", "tiled_positions")
    for seed in range(3):
        of = {how: rows[f"window, {how}, seed {seed}"] for how in ("trained", "tiled", *TABLES)}
        inside = rows[f"window, tiled, inside, seed {seed}"]
        assert abs(inside - of["trained"]) < 0.03
        assert of["tiled"] < of["trained"] + 0.5 < min(of[how] for how in TABLES[1:]) - 0.5
        assert min(rows[f"full, {how}, seed {seed}"] for how in TABLES) > 3.2
