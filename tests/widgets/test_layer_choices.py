"""LayerChoices: its numbers are the lens's, its bytes are what the page reads; bad input."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.layer_choices import LayerChoices
from attnlab_widgets.layer_choices.example import example
from attnlab_widgets.who_is_chosen import WhoIsChosen

import attnlab
from attnlab.lens.selected import selected_in
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

STATES: list[dict[str, Any]] = [
    {},
    {"query": 0},
    {"layer": 0, "head": 1, "query": 17},
    {"layer": 1, "query": 20},
    {"layer": 1, "head": 1, "branch": "window", "query": 9},
    {"layer": 1, "branch": "compressed", "query": 12},
    {"layer": 1, "branch": "compressed", "query": 1},
    {"layer": 2, "head": 1, "query": 30},
]


def tiny() -> LayerChoices:
    return example([f"t{i}" for i in range(13)], 13)


def padded() -> LayerChoices:
    torch.manual_seed(1)
    layer = attnlab.build("moba", dim=8, heads=2, causal=True, block=2, chosen=2)
    real = torch.tensor([[False, *[True] * 7, False]])
    with torch.no_grad(), attnlab.watch(layer) as seen:
        layer(torch.randn(1, 9, 8), padding=real)
    return LayerChoices(seen)


def decoded() -> LayerChoices:
    """The last two queries of seven keys."""
    torch.manual_seed(2)
    layer = attnlab.build("deepseek_sparse", dim=8, heads=2, causal=True, chosen=3)
    x = torch.randn(1, 7, 8)
    with torch.no_grad():
        _, state = layer.step(x[:, :5], None)
        with attnlab.watch(layer) as seen:
            layer.step(x[:, 5:], state)
    return LayerChoices(seen, [*"abcdefg"])


def case(one: LayerChoices, state: dict[str, Any]) -> dict[str, Any]:
    for name, value in state.items():
        setattr(one, name, value)
    found, i = one.selected, one.row
    part = found.branches[one.branch]
    return {
        **{name: getattr(one, name) for name in ("layer", "head", "branch", "query")},
        "_told": one._told,
        "_data": one._data.hex(),
        "sentence": one.description(),
        "read": part.read[one.head, i].int().tolist(),
        "kept": float(one.kept()[i]),
        "full": found.full[one.head, i].tolist(),
        "weights": part.weights[one.head, i].tolist(),
        "gate": float(part.gates[one.head, i]),
        "shares": found.by_unit()[one.head, i].tolist(),
        "scores": [x if np.isfinite(x) else None for x in found.scores[one.head, i].tolist()],
        "chosen": found.chosen[one.head, i].int().tolist(),
        "always": found.always[one.head, i].int().tolist(),
    }


def cases() -> list[Any]:
    small = [state | {"query": min(state.get("query", 12), 12)} for state in STATES]
    found = [case(tiny(), state) for state in small]
    found += [case(padded(), {"query": query}) for query in (0, 7)]
    return [*found, case(decoded(), {"query": 5})]


def without_bytes(cases: list[Any]) -> list[Any]:
    """The bytes hold rounded floats; the numbers beside them say whether they are right."""
    return [{name: value for name, value in one.items() if name != "_data"} for one in cases]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("choices.json", cases(), NEAR_FLOAT32, without_bytes)


def test_the_sentence_has_the_lens_s_numbers() -> None:
    one = tiny()
    one.query = 11
    found = one.selected
    read, kept = int(found.read()[0, 11]), 100 * float(found.kept()[0, 11])
    mean = 100 * float(found.mean_kept()[0])
    assert one.description() == (
        f"moba, head 0: query 11 “t11” reads {read} of 12 keys in 3 blocks, of which 1 is always "
        f"read, and keeps {kept:.1f} % of full attention, on the mean over all queries "
        f"{mean:.1f} %."
    )
    assert repr(one) == f"LayerChoices: {one.description()}"
    one.layer, one.branch = 1, "window"
    assert "reads 4 of 12 keys, the last ones, and keeps" in one.description()
    one.branch = "compressed"
    assert "reads the means of stretches that cover 12 of 12 keys" in one.description()
    one.layer = 2
    assert one.branch == "selected", "a layer without that branch shows its own"
    assert "reads 8 of 12 keys, those of the largest scores, and keeps" in one.description()


def test_padding_reads_nothing_and_no_query_is_before_the_first() -> None:
    one = padded()
    one.query = 0
    assert one.description().endswith("query 0 “0” is padding and reads nothing.")
    step = decoded()
    assert step.tokens == [*"abcdefg"]
    assert step.query == 6
    with pytest.raises(traitlets.TraitError, match="`query` should be 5 to 6 here, got 4"):
        step.query = 4


def test_it_opens_what_was_watched_and_a_model() -> None:
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(30, dim=8, heads=2, layers=2, attention=["full", "moba"])
    tokens = torch.arange(11)[None]
    with torch.no_grad(), attnlab.watch(model) as seen:
        model(tokens)
    a, b = WhoIsChosen.of(seen, head=1), LayerChoices.of(model, tokens, head=1)
    assert isinstance(a, LayerChoices)
    assert a.description() == b.description()
    assert [one.name for one in a.layers] == [one.name for one in selected_in(seen)]
    assert LayerChoices.of(model, tokens, tokens=[*"abcdefghijk"]).tokens == [*"abcdefghijk"]


def test_the_picture_shows_what_is_read_and_what_is_lost() -> None:
    one = tiny()
    one.head = 1  # whose choice is another than that of head 0
    (found,) = (part for kind, part in one.still().parts if kind == "map")
    lost = torch.from_numpy(found["levels"]) >= len(found["palette"]) // 2
    read = one.selected.branches["selected"].read
    assert torch.equal(~lost, read[1])
    assert not torch.equal(read[0], read[1])


def seen_of(n: int, layers: int = 1, dim: int = 8, heads: int = 2) -> Any:
    model = torch.nn.ModuleList(
        [attnlab.build("moba", dim=dim, heads=heads, causal=True) for _ in range(layers)]
    )
    with torch.no_grad(), attnlab.watch(model) as seen:
        for layer in model:
            layer(torch.randn(1, n, dim))
    return seen


def two_lengths() -> Any:
    return [*seen_of(5), *seen_of(6)]


def full() -> Any:
    layer = attnlab.build("full", dim=8, heads=2)
    with torch.no_grad(), attnlab.watch(layer) as seen:
        layer(torch.randn(1, 5, 8))
    return seen


@pytest.mark.parametrize(
    ("seen", "given", "words"),
    [
        (full, {}, "no layer of `seen` notes which keys it chose"),
        (lambda: 3, {}, "`seen` should be what attnlab.watch recorded"),
        (two_lengths, {}, "got 5 queries of 5 keys and 6 queries of 6 keys"),
        (lambda: seen_of(257), {}, "at most 256 tokens can be shown, got 257"),
        (lambda: seen_of(250, 17), {}, "17 layers on 250 tokens are too many"),
        (lambda: seen_of(5), {"tokens": ["a", "b"]}, "`tokens` has 2 labels for 5 keys"),
        (lambda: seen_of(5), {"batch": 1}, "`batch` should be 0 to 0, got 1"),
        (lambda: seen_of(5), {"layer": 1}, "`layer` should be 0 to 0 here, got 1"),
        (lambda: seen_of(5), {"head": 2}, "`head` should be 0 to 1 here, got 2"),
        (lambda: seen_of(5), {"query": 5}, "`query` should be 0 to 4 here, got 5"),
        (lambda: seen_of(5), {"branch": "window"}, "there is no branch 'window'"),
    ],
)
def test_what_does_not_fit_is_refused(seen: Any, given: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError, traitlets.TraitError), match=re.escape(words)):
        LayerChoices(seen(), **given)


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="`model` should be"):
        LayerChoices.of("gpt2", "a text")  # type: ignore[arg-type]


if __name__ == "__main__":
    write("choices.json", cases())
