"""QueriesView: what queries read of an image at every moment, and what is said of it."""

import re
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.queries_view import QueriesView
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
        "The patch in row 0, column 3 is read by query 3 (0.52), query 0 (0.02), query 1 (0.02), "
        "query 2 (0.02)."
    )
    one.head = 1
    assert "11 of 21 patches hold half of its weight" in one.description()
    one.patch = -1
    assert one.readers() == []


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
    for make, words in (
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
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
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
    ]
    places = [(0, 0, -1, 0, -1), (-1, -1, 0, 1, 5), (-1, 0, -1, -1, 20), (0, -1, -1, 2, 1)]
    return [
        {
            "_told": one.found.told() | {"image": None},
            "data": b64encode(one.found.codes.tobytes()).decode(),
            "said": [_said(one, *each) for each in places],
        }
        for one in shown
    ]


def _said(one: QueriesView, moment: int, layer: int, head: int, query: int, patch: int) -> Any:
    one.moment, one.layer = moment % len(one.found.steps), layer % len(one.found.layers)
    one.head, one.query, one.patch = head, query % one.found.queries, patch
    at = {name: getattr(one, name) for name in ("moment", "layer", "head", "query", "patch")}
    return [at, one.description(), one.readers()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("queries.json", cases())


if __name__ == "__main__":
    write("queries.json", cases())
