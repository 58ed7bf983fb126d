"""From which earlier output an edge comes, in AttentionView: parts that sum to the score."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.attention_view import origins as page
from torch import nn

import attnlab
from attnlab.lens.score_parts import score_parts

LAYERS, HEADS, N, DIM = 3, 2, 11, 24


def made(**options: Any) -> attnlab.TinyTransformer:
    torch.manual_seed(3)
    model = attnlab.TinyTransformer(13, dim=DIM, layers=LAYERS, heads=HEADS, **options)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "query" in name or "key" in name:
                weight.mul_(4)
    return model.eval()


IDS = torch.arange(2 * N).view(2, N) % 13


def viewed(model: Any, ids: Any = IDS, **options: Any) -> AttentionView:
    with attnlab.watch(model) as seen, torch.no_grad():
        model(ids)
    return AttentionView(seen, model=model, inputs=ids, **options)


def asked(view: AttentionView, **place: Any) -> dict[str, Any]:
    """What the view holds after its page has asked for what is pinned, or for another place."""
    now = {name: getattr(view, name) for name in ("step", "layer", "head", "query", "key")}
    view._asked(view, {"origins": [*(now | place).values()]}, [])
    return dict(view._origins)


def kept(view: AttentionView) -> tuple[list[str], np.ndarray]:
    """The names of the parts, and (2, P, k) as read at the key and at the query."""
    parts = asked(view)["parts"]
    return parts, np.frombuffer(view._origin_data, "<f4").reshape(2, len(parts), -1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by the side of every call of `score_parts`."""
    calls: list[str] = []

    def counting(*given: Any, side: Any, **options: Any) -> Any:
        calls.append(side)
        return score_parts(*given, side=side, **options)

    monkeypatch.setattr(page, "score_parts", counting)
    return calls


def test_the_model_is_asked_when_the_page_asks_and_not_before(counted: list[str]) -> None:
    view = viewed(made())
    view.layer, view.head, view.query, view.key = 2, 1, 7, 3
    view.query = 8
    view.set_state({"query": 9, "key": 2})
    assert counted == []
    assert view._origins == page.UNASKED
    assert asked(view)["place"] == [0, 2, 1, 9]
    assert counted == ["key", "query"]
    asked(view)
    view.query = 4
    assert len(counted) == 2
    assert asked(view, query=5)["place"] == [0, 2, 1, 5]  # whatever is pinned by now


def test_without_a_model_nothing_is_asked() -> None:
    view = AttentionView(np.eye(3)[None])
    view.query = 1
    assert asked(view) == {}


@pytest.mark.parametrize(
    "place",
    [
        None,
        3,
        [],
        [0, 1, 0],
        [0, 1, 0, 4, "2"],
        [0, 1, 0, 4.0, 2],
        [0, 9, 0, 4, 2],
        [0, 1, 0, N, 2],
    ],
)
def test_a_place_that_the_recording_does_not_have_is_not_answered(
    counted: list[str], place: Any
) -> None:
    view = viewed(made())
    view._asked(view, {"origins": place}, [])
    assert view._origins == page.UNASKED
    assert counted == []


@pytest.mark.parametrize("way", ["shown", "page", "state"])
def test_what_is_pinned_is_kept_once_when_the_view_is_shown_or_stored(
    counted: list[str], tmp_path: Path, way: str
) -> None:
    view = viewed(made())
    keeps = {
        "shown": view._repr_mimebundle_,
        "page": lambda: view.save_html(tmp_path / "view.html"),
        "state": view.get_state,
    }[way]
    keeps()
    assert counted == []  # nothing is pinned
    view.layer, view.query = 1, 6
    keeps()
    keeps()
    assert counted == ["key", "query"]
    assert view._origins["place"] == [0, 1, 0, 6]
    if way == "page":
        assert '"place":[0,1,0,6]' in (tmp_path / "view.html").read_text()


def test_parts_are_those_of_the_chosen_row_layer_head_and_query() -> None:
    model = made()
    view = viewed(model, batch=1)
    view.layer, view.head, view.query = 2, 1, 8
    names, values = kept(view)
    for side, found in zip(("key", "query"), values, strict=True):
        parts = score_parts(model, IDS[1:], 2, 1, 8, side=side, minus="mean")  # type: ignore[arg-type]
        np.testing.assert_allclose(found.sum(0), parts.logits[0], atol=1e-4)
        own = {page._name(part): x[0] for part, x in zip(parts.parts, parts.values, strict=True)}
        for name, x in zip(names, found, strict=True):
            np.testing.assert_allclose(x, own.get(name, torch.zeros(N)), atol=1e-5)
    assert "layer 1, head 0" in names
    assert "the token itself" in names


def test_both_sides_sum_to_the_score_that_weights_have() -> None:
    model = made(positions="alibi")
    with attnlab.watch(model) as seen, torch.no_grad():
        model(IDS)
    view = AttentionView(seen, model=model, inputs=IDS)
    view.layer, view.query = 1, 9
    names, values = kept(view)
    assert "bias by distance" in names
    weights = seen[1].weights[0, 0, 9, :10].log().numpy()
    for side in values.sum(1)[:, :10]:
        np.testing.assert_allclose(side - side.mean(), weights - weights.mean(), atol=1e-3)


def test_a_first_layer_reads_the_tokens_alone() -> None:
    view = viewed(made())
    view.query = 5
    assert set(kept(view)[0]) <= {"the token itself", "its position", "bias of the norms", "bias"}


def test_of_a_long_text_the_strongest_keys_and_the_pinned_one_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = viewed(made())
    view.layer, view.query = 2, 10
    names, values = kept(view)
    order = np.argsort(-values[0].sum(0))
    monkeypatch.setattr(page, "MOST", 2 * len(names) * 4)
    asked(view, query=9)
    assert asked(view)["keys"] == sorted(order[:4].tolist())
    view.key = int(order[-1])
    assert asked(view)["keys"] == sorted([*order[:3].tolist(), view.key])
    again = kept(view)[1]
    np.testing.assert_allclose(again, values[:, :, view._origins["keys"]], atol=1e-6)


def test_each_training_step_has_its_model() -> None:
    models = {1: made(), 20: made(positions="alibi")}
    film = {}
    for step, model in models.items():
        with attnlab.watch(model) as film[step], torch.no_grad():
            model(IDS)
    view = AttentionView(film, model=models, inputs=IDS)
    view.layer, view.query = 1, 6
    for step, model in enumerate(models.values()):
        view.step = step
        parts = score_parts(model, IDS[:1], 1, 0, 6, minus="mean")
        np.testing.assert_allclose(kept(view)[1][0].sum(0), parts.logits[0], atol=1e-4)


def test_a_model_that_was_trained_further_is_not_taken_for_the_recorded_one() -> None:
    model = made()
    view = viewed(model)
    view.layer, view.query = 1, 7
    assert "parts" in asked(view)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5 * weight.std() * torch.randn_like(weight))
    view.query = 8
    assert "trained further" in asked(view)["said"]


@pytest.mark.parametrize("what", ["moved", "loaded"])
def test_the_same_weights_in_another_place_are_those_of_the_recording(what: str) -> None:
    model = made()
    view = viewed(model)
    view.layer, view.query = 2, 7
    before = kept(view)[1]
    asked(view, query=3)
    if what == "moved":
        model.to(torch.float64)
    else:
        model.load_state_dict({name: x.clone() for name, x in model.state_dict().items()})
    np.testing.assert_allclose(kept(view)[1], before, atol=1e-4)


def test_another_model_is_told_by_its_weights() -> None:
    model = made()
    with attnlab.watch(model) as seen, torch.no_grad():
        model(IDS)
    torch.manual_seed(9)
    other = attnlab.TinyTransformer(13, dim=DIM, layers=LAYERS, heads=HEADS)
    view = AttentionView(seen, model=other, inputs=IDS)
    view.layer, view.query = 1, 9
    assert "trained further" in asked(view)["said"]


def test_what_has_no_parts_says_why() -> None:
    view = viewed(made(positions="rotary"))
    view.query = 4
    assert "rotates queries and keys" in asked(view)["said"]


def test_a_model_of_another_kind_says_so() -> None:
    model = nn.TransformerEncoderLayer(DIM, 2, batch_first=True).eval()
    with attnlab.watch(model) as seen, torch.no_grad():
        model(torch.randn(1, N, DIM))
    view = AttentionView(seen, model=model, inputs=IDS)
    view.query = 4
    assert "this model is a TransformerEncoderLayer" in asked(view)["said"]


def test_cross_attention_and_an_encoder_say_that_they_are_no_part_of_the_stream() -> None:
    model = attnlab.TinyTransformer(13, dim=DIM, layers=1, heads=HEADS, kind="encoder_decoder")
    with attnlab.watch(model) as seen, torch.no_grad():
        model(IDS, source=IDS)
    view = AttentionView(seen, model=model, inputs={"tokens": IDS, "source": IDS})
    said = {}
    for layer, known in enumerate(view._recording["layers"]):
        view.layer, view.query = layer, 6
        said[known["kind"]] = asked(view).get("said")
    assert said["self"] is None
    assert "no self-attention" in str(said["cross"])
    assert "no self-attention" in str(said["encoder"])


def test_show_forgets_the_model_and_takes_the_new_one() -> None:
    model = made()
    view = viewed(model)
    view.query = 7
    with attnlab.watch(model) as seen, torch.no_grad():
        model(IDS)
    assert asked(view)["place"] == [0, 0, 0, 7]
    view.show(seen)
    view.query = 8
    assert asked(view) == {}
    view.show(seen, model=model, inputs=IDS)
    assert view._origins == page.UNASKED
    assert asked(view)["place"] == [0, 0, 0, 8]


def test_view_gives_the_model() -> None:
    model = made()
    view = attnlab.view(model, IDS[0])
    view.layer, view.query = 1, 6
    parts = score_parts(model, IDS[:1], 1, 0, 6, minus="mean")
    np.testing.assert_allclose(kept(view)[1][0].sum(0), parts.logits[0], atol=1e-4)


def test_what_is_stored_with_a_notebook_holds_the_parts() -> None:
    view = viewed(made())
    view.layer, view.query = 1, 6
    state = view.get_state()
    assert state["_origins"]["place"] == [0, 1, 0, 6]
    assert len(state["_origin_data"]) == 4 * kept(view)[1].size


def wrong(**options: Any) -> None:
    model = made()
    with attnlab.watch(model) as seen, torch.no_grad():
        model(IDS)
    AttentionView(options.pop("source", seen), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": nn.Identity()}, "comes with `inputs`"),
        ({"inputs": IDS}, "comes with `model`"),
        ({"model": 3, "inputs": IDS}, "nn.Module, got a int"),
        ({"model": nn.Identity(), "inputs": "text"}, "got a str"),
        ({"model": nn.Identity(), "inputs": torch.zeros(2, 3, 4)}, r"of shape \(2, 3, 4\)"),
        ({"model": nn.Identity(), "inputs": {"source": IDS}}, "got a NoneType"),
        ({"model": nn.Identity(), "inputs": IDS[:0]}, "holds 0 rows"),
        (
            {"source": {1: np.eye(3)[None]}, "model": nn.Identity(), "inputs": IDS},
            "same training steps",
        ),
        (
            {
                "source": np.eye(3)[None],
                "compare": np.eye(3)[None],
                "model": nn.Identity(),
                "inputs": IDS,
            },
            "`compare`",
        ),
    ],
)
def test_what_is_wrong_is_said(options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        wrong(**options)
