"""LongRangeUse: what it sends and says is what the lens has measured; wrong values are refused."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.base import page_of
from attnlab_widgets.long_range_use import LongRangeUse
from attnlab_widgets.long_range_use.example import studies

from attnlab.lens.far_context import CLASSES, FarContext, far_context
from tests.widgets.stored import assert_fresh, write

SENT = {
    "_tokens": "<u2", "_intact": "<i2", "_differences": "<i2", "_members": "u1", "_means": "<f4",
    "_errors": "<f4",
}  # fmt: skip
STATE = ("perturbation", "distance", "model", "token_class", "lines", "text", "token")
B, N, LAST = 3, 31, 7


def made(**more: Any) -> dict[str, FarContext]:
    """By arithmetic alone, so that every machine has the same losses: numbers for losses, and a
    second model that has half of the changes."""
    place = torch.arange(B * N).reshape(B, N)
    tokens = place * place % 17 % 11
    settings: dict[str, Any] = {"last": LAST, "distances": (3, 5, 11)} | more
    found = far_context(lambda x: torch.zeros(*x.shape, 11), tokens, **settings)
    shape = found.changed.shape
    loss = torch.arange(found.intact.numel()).reshape(found.intact.shape) % 13 / 7.0
    change = torch.arange(found.changed.numel()).reshape(shape) % 23 / 17.0 - 0.5
    full = found._replace(intact=loss, changed=loss + change)
    return {"full": full, "half": full._replace(changed=loss + change / 2)}


def widgets() -> list[LongRangeUse]:
    return [
        LongRangeUse(made(), distance=5, perturbation="shuffle", token=4, text=1),
        LongRangeUse(made(), model="half", lines="models", token_class="rare", text=2, token=6),
        LongRangeUse(made(perturbations=["replace"])["full"], str_of, distance=11, text=2),
    ]


def str_of(ids: list[int]) -> list[str]:
    return [f"<{token}>" for token in ids]


def case(one: LongRangeUse) -> dict[str, Any]:
    sent = {name: np.frombuffer(getattr(one, name), kind).tolist() for name, kind in SENT.items()}
    names = (*STATE, "models", "perturbations", "distances", "_texts", "_size", "_count")
    at = one.distances.index(one.distance), one.perturbations.index(one.perturbation)
    return {
        **{name: getattr(one, name) for name in names},
        **{name: [*map(_known, values)] for name, values in sent.items()},
        "said": one.description(),
        "changes": one.study.differences[at][one.text].tolist(),
        "curves": {name: [_known(x) for _, x, _ in one.curve(name)] for name in one.names},
        "classes": [
            [name for c, name in enumerate(CLASSES) if one.study.members[c, at[0], one.text, i]]
            for i in range(LAST)
        ],
    }


def _known(value: float) -> float | None:
    """As JSON, without what another machine may round otherwise."""
    return None if math.isnan(value) else round(value, 6)


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("far.json", cases(), 2 * 10**-6)


def test_what_is_sent_is_what_was_measured() -> None:
    found = studies()
    one = LongRangeUse(found)
    sent = {name: np.frombuffer(getattr(one, name), kind) for name, kind in SENT.items()}
    every = [*found.values()]
    texts, n, last = one._size
    names = np.array(one._texts).astype(int)
    assert (names[sent["_tokens"]].reshape(texts, n) == every[0].tokens.numpy()).all()
    for name, wanted in (
        ("_intact", [each.intact for each in every]),
        ("_differences", [each.differences for each in every]),
    ):
        stacked = torch.stack(wanted).numpy()
        assert np.abs(sent[name].reshape(stacked.shape) / 1000 - stacked).max() <= 0.00051
    members = sent["_members"].reshape(4, texts, last)
    for at in range(len(CLASSES)):
        assert ((members >> at & 1) == every[0].members[at].numpy()).all()
    table = every[1].table()
    np.testing.assert_allclose(sent["_means"].reshape(2, 6, 4, 4)[1], table.difference, rtol=1e-6)
    np.testing.assert_allclose(sent["_errors"].reshape(2, 6, 4, 4)[1], table.error, rtol=1e-6)
    assert one._count == table.counts.tolist()


def test_curves_are_rows_of_the_table() -> None:
    found = made()
    one = LongRangeUse(found, perturbation="random", model="half", token_class="frequent")
    table = found["half"].table()
    for at, name in enumerate(CLASSES):
        curve = one.curve(name)
        assert [d for d, *_ in curve] == [3, 5, 11]
        np.testing.assert_allclose([x for _, x, _ in curve], table.difference[at, :, 3], rtol=1e-6)
        np.testing.assert_allclose([e for *_, e in curve], table.error[at, :, 3], rtol=1e-6)
    one.lines = "models"
    assert one.names == ["full", "half"]
    full = [x for _, x, _ in one.curve("full")]
    np.testing.assert_allclose(full, found["full"].table().difference[1, :, 3], rtol=1e-6)
    np.testing.assert_allclose([2 * x for _, x, _ in one.curve("half")], full, rtol=1e-6)
    with pytest.raises(ValueError, match="one of full, half, got 'rare'"):
        one.curve("rare")


def test_the_sentence_has_the_numbers() -> None:
    one = LongRangeUse(made(), distance=5, perturbation="cut")
    said = one.description()
    assert said.startswith("If the text farther than 5 tokens away is left out, the loss of full")
    for name in one.names:
        _, mean, error = one.curve(name)[1]
        assert f"{name} {mean:+.3f} ± {error:.3f}" in said or math.isnan(error)
    assert repr(one) == f"LongRangeUse: {said}"
    one.lines = "models"
    assert "on tokens of the class “far”, by model" in one.description()


def test_the_picture_tints_the_far_part_and_colours_what_changed() -> None:
    found = made()
    one = LongRangeUse(found, distance=5, perturbation="shuffle", text=1)
    boxes = [part["fill"] for kind, part in one.still().parts if kind == "box"]
    far, near, measured = boxes[: N - LAST - 5], boxes[N - LAST - 5 : -LAST], boxes[-LAST:]
    assert len(boxes) == N
    assert len(set(far)) == len(set(near)) == 1
    assert far[0] != near[0]
    change = found["full"].differences[1, 1, 1]
    grew = [int(fill[1:3], 16) > int(fill[5:7], 16) for fill in measured]
    assert grew == (change > 0).tolist()


def test_the_name_of_a_curve_stands_above_the_numbers_of_the_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all curves end at the bottom, too; numbers are 11 pixels high."""
    falling = [(distance, 1.0 - at, 0.0) for at, distance in enumerate(made()["full"].distances)]
    monkeypatch.setattr(LongRangeUse, "curve", lambda self, name: falling)
    one = LongRangeUse(made(), distance=5, perturbation="shuffle", text=1)
    texts = [part for kind, part in one.still().parts if kind == "text"]
    (lowest,) = {part["at"][1] for part in texts if part["content"] == str(one.distances[-1])}
    names = [part["at"][1] for part in texts if part["content"] in one.names]
    assert len(names) == len(one.names)
    assert max(names) <= lowest - 11


def test_only_the_first_sixteen_texts_are_sent_and_all_are_averaged() -> None:
    few, many = (LongRangeUse(studies(texts=texts)) for texts in (5, 19))
    assert many._size[0] == 16
    assert many._count[0][0] == 19 * 24
    assert len(many._tokens) == 16 * 96 * 2
    assert few._size[0] == 5


def test_a_saved_page_is_small() -> None:
    one = LongRangeUse(studies(texts=16))
    state = page_of("a", one._saved_state(), "var a={};export{a as default};")
    assert len(state) < 60_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"studies": {}}, "`studies` is empty"),
        ({"studies": 3}, "`studies` should map names"),
        ({"studies": {"a": "b"}}, "what attnlab.lens.far_context.far_context returns"),
        ({"studies": {str(at): made()["full"] for at in range(7)}}, "at most 6, got 7"),
        ({"studies": {"a": made()["full"], "b": made(distances=(3,))["full"]}}, "'b' was not"),
        ({"studies": {"a": made()["full"], "b": made(run=2)["full"]}}, "'b' was not"),
        ({"names": lambda ids: ["a"]}, "one text for each token"),
        ({"perturbation": "swap"}, "swap"),
        ({"distance": 4}, "`distance` should be one of 3, 5, 11, got 4"),
        ({"model": "third"}, "`model` should be one of full, half, got 'third'"),
        ({"token_class": "common"}, "common"),
        ({"lines": "rows"}, "rows"),
        ({"text": B}, "`text` should be 0 to 2, got 3"),
        ({"token": -1}, "`token` should be 0 to 6, got -1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], words: str) -> None:
    given = {"studies": made(), **arguments}
    with pytest.raises((ValueError, TypeError, traitlets.TraitError), match=re.escape(words)):
        LongRangeUse(given.pop("studies"), given.pop("names", None), **given)


def test_what_was_not_measured_cannot_be_shown() -> None:
    one = LongRangeUse(made(perturbations=["cut"]))
    with pytest.raises(traitlets.TraitError, match="`perturbation` should be one of cut, got"):
        one.perturbation = "random"


def test_a_text_that_is_too_long_is_refused() -> None:
    tokens = torch.zeros(2, 1025, dtype=torch.int64)
    found = far_context(lambda x: torch.zeros(*x.shape, 2), tokens, last=2, distances=(3,))
    with pytest.raises(ValueError, match="at most 1024 tokens, got 1025"):
        LongRangeUse(found)


if __name__ == "__main__":
    write("far.json", cases())
