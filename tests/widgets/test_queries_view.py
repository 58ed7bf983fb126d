"""QueriesView: what queries read of an image at every moment, and what is said of it."""

import re
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.queries_view import QueriesView, words
from attnlab_widgets.queries_view.example import example, image, weights
from attnlab_widgets.queries_view.film import Film, stored
from attnlab_widgets.queries_view.study import MASKED, STEPS

from attnlab.lens.watch import watch
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from tests.widgets.stored import assert_fresh, write

GRID = (3, 7)


def planted(special: int = 0) -> dict[str, torch.Tensor]:
    """(2, 2, 4, special + 21): head 0 of query i reads patch i alone, head 1 all patches alike."""
    one, even = torch.eye(4, 21), torch.full((4, 21), 1 / 21)
    before = torch.zeros(2, 2, 4, special)
    return {"cross": torch.cat([before, torch.stack([one, even]).expand(2, -1, -1, -1)], -1)}


def view(**given: Any) -> QueriesView:
    return QueriesView(planted(), image(), **{"grid": GRID} | given)


def test_weights_are_those_of_the_head_and_the_mean() -> None:
    one = view(head=0)
    near = 1.01 / STEPS  # half a step of the root, at most twice the root of 1
    assert np.abs(one.weights() - np.eye(4, 21)).max() <= near
    one.head = 1
    assert np.abs(one.weights() - 1 / 21).max() <= near
    one.head = -1
    assert np.abs(one.weights() - (np.eye(4, 21) + 1 / 21) / 2).max() <= near


def test_it_says_what_a_query_reads_and_who_reads_a_patch() -> None:
    one = view(head=0, query=2)
    assert one.description() == (
        "In cross (head 0): query 2 attends most to the patch in row 0, column 2, 1.00; 1 of 21 "
        "patches holds half of its weight."
    )
    one.head, one.patch = -1, 3
    assert one.readers() == [3, 0, 1, 2]
    assert one.description().endswith(
        "The patch in row 0, column 3 is read by query 3 (0.52), query 0 (0.024), query 1 (0.024), "
        "query 2 (0.024)."
    )
    one.head = 1
    assert "11 of 21 patches hold half of its weight" in one.description()
    one.patch = -1
    assert one.readers() == []


def test_half_is_of_what_patches_get_where_a_class_token_gets_the_rest() -> None:
    """The two largest patches hold 7 % of the weight, and 7 of the 10 % that go to patches."""
    given = torch.tensor([0.9, 0.04, 0.03, 0.02, 0.01]).expand(1, 1, 3, 5)
    one = QueriesView({"cross": given}, image(), grid=(2, 2))
    assert one.description() == (
        "In cross (its only head): query 0 attends most to the patch in row 0, column 0, 0.040; 2 "
        "of 4 patches hold half of what it gives to patches; 0.90 goes to the class token."
    )
    alone = QueriesView({"cross": torch.eye(1, 5).expand(1, 1, 3, 5)}, image(), grid=(2, 2))
    assert alone.description().endswith(
        "query 0 attends to no patch; 1.00 goes to the class token."
    )
    registers = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05, 0.05]).expand(1, 1, 3, 6)
    more = QueriesView({"cross": registers}, image(), grid=(2, 2), query=2)
    assert more.description().endswith("0.70 goes to the 2 tokens before them.")


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -0.1, 1.5])
def test_what_is_no_share_of_one_is_refused(wrong: float) -> None:
    broken = planted(1)["cross"]
    broken[1, 0, 2, 5] = wrong
    said = f"and 1 of 'cross' are not, the first of them {wrong:.3g}"
    with pytest.raises(ValueError, match=re.escape(said)):
        QueriesView({"cross": broken}, image(), grid=GRID, batch=1)
    QueriesView({"cross": broken}, image(), grid=GRID)  # another image of the batch


def test_small_weights_are_said_with_two_digits() -> None:
    given = torch.tensor([0.031, 0.027, 0.034, 0.0042]).reshape(1, 1, 4, 1).expand(-1, -1, -1, 21)
    one = QueriesView({"cross": given}, image(), grid=GRID, patch=0)
    shown = re.findall(r"query (\d) \((.*?)\)", one.description())
    assert [int(query) for query, _ in shown] == [2, 0, 1, 3]
    assert [float(number) for _, number in shown] == pytest.approx(
        [0.034, 0.031, 0.027, 0.0042], rel=0.05
    )
    assert {len(number.lstrip("0.")) for _, number in shown} == {2}


def test_colours_end_at_the_largest_weight_of_the_film_and_say_so() -> None:
    """One scale for every moment, layer and head: a map is not brightened by itself."""
    faint = {0: {"cross": torch.full((1, 1, 4, 21), 0.01)}, 1: {"cross": torch.eye(4, 21) / 25}}
    faint[1]["cross"] = faint[1]["cross"][None, None]
    one = QueriesView(faint, image(), grid=GRID)
    shown = {moment: _brightest(one, moment) for moment in (1, 0)}
    assert shown == {1: STEPS, 0: pytest.approx(STEPS / 2, abs=3)}
    told = one.still().svg("")
    assert "√weight, 0 to 0.040" in told
    assert "0.040 (square root)" in told


def _brightest(one: QueriesView, moment: int) -> int:
    """The last of the colours that the maps of a picture use."""
    one.moment = moment
    drawn = [part for kind, part in one.still().parts if kind == "map"]
    tiles = drawn[2:-2]  # after the image and the chosen map, before the legend
    return max(int(np.asarray(part["levels"]).max()) for part in tiles)


def test_moments_are_in_the_order_of_their_updates() -> None:
    seen = {200: weights(2), 0: weights(0), 1: weights(0.1)}
    one = QueriesView(seen, image(), grid=GRID, moment=0)
    assert one.found.steps == [0, 1, 200]
    assert one.description().startswith("Before the first update, in cross 2 (mean of 2 heads): ")
    even = one.weights()
    assert even.max() == pytest.approx(even.min())
    one.moment = 1
    assert one.description().startswith("After 1 update, in ")
    one.moment = 2
    assert one.weights().max() > 2 * even.max()
    assert QueriesView(seen, image(), grid=GRID).moment == 2, "the last, unless given"


def test_a_q_former_is_recorded_and_its_self_attention_left_out() -> None:
    torch.manual_seed(0)
    sizes = QFormerOptions(dim=12, layers=3, heads=2, hidden=8, queries=4, image_dim=10)
    model, seen = QFormer(sizes), {}
    for step in (0, 3):
        with watch(model) as seen[step]:
            model.read(torch.randn(2, 21, 10))
    one = QueriesView(seen, image(), grid=GRID, batch=1, moment=1)
    own = [each for each in seen[3] if "cross" in each.name]
    assert one.found.layers == [each.name for each in own]
    assert len(own) == 2
    mean = own[1].weights[1].detach().mean(0).numpy()
    assert np.abs(np.sqrt(one.weights()) - np.sqrt(mean)).max() <= 0.51 / STEPS


def test_a_class_token_is_no_patch_and_what_is_masked_is_hatched() -> None:
    one = QueriesView(planted(1), image(), grid=GRID, head=0, query=2)
    assert one.found.patches == 21
    assert "row 0, column 2, 1.00" in one.description()
    assert one.description().endswith("of what it gives to patches; 0 goes to the class token.")
    allowed = torch.ones(1, 1, 1, 21, dtype=torch.bool)
    allowed[..., 20] = False
    torch.manual_seed(0)
    model, seen = QFormer(QFormerOptions(dim=12, layers=1, heads=2, hidden=8, queries=4,
                                         image_dim=10)), {}  # fmt: skip
    with watch(model) as seen[0]:
        model.read(torch.randn(1, 21, 10), allowed[0, 0])
    hidden = QueriesView(seen, image(), grid=GRID)
    assert (hidden.found.codes[..., 20] == MASKED).all()
    assert (hidden.found.codes[..., :20] != MASKED).all()
    assert not hidden.weights()[:, 20].any()
    assert "hatch" in [kind for kind, _ in hidden.still().parts]
    assert "hatch" not in [kind for kind, _ in one.still().parts]


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    own, wide = {"self": torch.ones(1, 1, 21, 21)}, {"a": torch.ones(1, 1, 65, 21)}
    two = {"a": torch.ones(1, 1, 3, 21), "b": torch.ones(1, 2, 3, 21)}
    for make, said in (
        (lambda: QueriesView([1], image()), "seen should be what attnlab.watch recorded"),
        (lambda: QueriesView({}, image()), "seen is an empty dict"),
        (lambda: QueriesView(own, image(), grid=GRID), "another number of keys than of queries"),
        (lambda: QueriesView(own, image(), grid=GRID), "(queries × keys: self 21 × 21)"),
        (lambda: QueriesView(planted(), image(), grid=(2, 3)), "the patches form another grid"),
        (lambda: QueriesView(two, image(), grid=GRID), "the layers differ in heads, queries"),
        (lambda: QueriesView({0: planted(), "a": planted()}, image()), "got the keys [0, 'a']"),
        (lambda: QueriesView({-1: planted()}, image()), "updates from 0 on"),
        (lambda: QueriesView({0: planted(), 5: weights(1)}, image(), grid=GRID), "those of 5 are"),
        (lambda: QueriesView(wide, image(), grid=GRID), "65 queries and 21 patches are too many"),
        (lambda: QueriesView(planted(), "a.png", grid=GRID), "`image` should be an array"),
        (lambda: QueriesView(planted(), image(), grid=3), "`grid` should be (rows, columns)"),
        (lambda: view(batch=2), "`batch` should be 0 to 1, the images that were read, got 2"),
        (lambda: view(moment=1), "`moment` should be 0 to 0 here, got 1"),
        (lambda: view(layer=1), "`layer` should be 0 to 0 here, got 1"),
        (lambda: view(query=4), "`query` should be 0 to 3 here, got 4"),
        (lambda: view(head=2), "`head` should be from -1 to 1, got 2"),
        (lambda: view(patch=21), "`patch` should be from -1 to 20, got 21"),
        (lambda: QueriesView.stored(99), "`scene` should be 0 to"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(said)):
            make()


def test_a_film_is_read_as_it_was_written(tmp_path: Any, monkeypatch: Any) -> None:
    seen = {0: planted(), 7: planted()}
    images = np.stack([image().numpy()] * 2)
    written = Film(seen, images, GRID).written()
    import json

    from attnlab_widgets.queries_view import film

    (tmp_path / "film.json").write_text(json.dumps(written))
    monkeypatch.setattr(film, "FILE", tmp_path / "film.json")
    found = film.stored.__wrapped__()
    assert [*found.seen] == [0, 7]
    assert found.grid == GRID
    assert found.images == pytest.approx(images, abs=0.51 / 255)
    near = found.seen[7]["cross"].sqrt() - planted()["cross"].sqrt()
    assert near.abs().max() <= 0.51 / STEPS


def test_the_stored_film_is_of_four_queries_during_training() -> None:
    film = stored()
    assert next(iter(film.seen)) == 0
    assert len(film.seen) > 3
    for layers in film.seen.values():
        for each in layers.values():
            assert each.shape == (len(film.images), 4, 4, 32)
            assert each.sum(-1).numpy() == pytest.approx(1, abs=0.02)
    one = QueriesView.stored(1, query=3)
    assert (one.layer, one.head) == (0, 2), "which shows where queries differ"
    assert QueriesView.stored(head=-1, layer=1).description().count("layer 2 (mean of 4 heads)")
    assert one.found.queries == 4
    assert f"After {max(film.seen)} updates" in one.description()


# The page


def cases() -> list[dict[str, Any]]:
    """What Python says of a few recordings."""
    hidden = planted()["cross"].clone()
    hidden[:, :, 1] = 0
    falling = {step: weights(sharp) for step, sharp in ((0, 3), (1, 1), (30, 0))}
    shown = [
        example(),
        view(),
        QueriesView({"a": hidden[:, :1]}, image(), grid=GRID),
        QueriesView(falling, image(), grid=GRID),
        *(QueriesView(_behind(count), image(), grid=GRID) for count in (1, 2)),
    ]
    places = [
        (0, 0, -1, 0, -1),
        (-1, -1, 0, 1, 5),
        (-1, 0, -1, -1, 20),
        (0, -1, -1, 2, 1),
        (0, 0, 0, 3, 7),
    ]
    return [
        {
            "_told": one.found.told() | {"image": None},
            "data": b64encode(one.found.data()).decode(),
            "said": [_said(one, *each) for each in places],
            "weights": [words.weight(code) for code in range(256)],
        }
        for one in shown
    ]


def _behind(count: int) -> dict[str, torch.Tensor]:
    """Tokens before the patches that get different shares from different queries."""
    found = planted(count)["cross"]
    share = torch.tensor([0.9, 0.3, 0.0, 1.0])[:, None]
    found[..., count:] *= 1 - share
    found[..., :count] = share / count
    return {"cross": found}


def _said(one: QueriesView, moment: int, layer: int, head: int, query: int, patch: int) -> Any:
    one.moment, one.layer = moment % len(one.found.steps), layer % len(one.found.layers)
    one.head, one.query, one.patch = head, query % one.found.queries, patch
    at = {name: getattr(one, name) for name in ("moment", "layer", "head", "query", "patch")}
    return [at, one.description(), one.readers()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("queries.json", cases())


if __name__ == "__main__":
    write("queries.json", cases())
