"""WhatIsHidden: one text as every objective hands it to a model."""

import json
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.what_is_hidden import LEAST, WhatIsHidden, with_options

from attnlab import catalog
from attnlab.experiments import what_is_hidden as experiment
from attnlab.lens.objective_examples import LossByPlace, draw, example
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from attnlab.train import fit, model_options

WORDS = ["a", "dog", "ran", "to", "the", "old", "cat", "and", "slept", "by", "it"]
NAMES = {card.name for card in catalog.with_role("objective").values()}


def test_every_objective_of_the_catalogue_joins_by_itself() -> None:
    view = WhatIsHidden(WORDS)
    assert {*view.objectives} | {*view._hidden["left_out"]} == NAMES
    assert {"masked_lm", "electra", "next_token", "span_corruption"} <= {*view.objectives}
    assert view.objective == "masked_lm"
    assert view.tokens == WORDS[:-1], "the last word is the next token of the one before it"


@pytest.mark.parametrize("name", ["masked_lm", "span_corruption", "xlnet", "sentence_order"])
def test_the_page_has_the_draw_of_every_state(name: str) -> None:
    view = WhatIsHidden(WORDS, objectives=[name])
    for rate, span, seed in ((0.15, 3, 0), (0.5, 1, 2), (0.3, 6, 1)):
        view.rate, view.span, view.seed = rate, span, seed
        found, words = view.drawn(), view._hidden["words"]
        wanted = example(name, WORDS, rate=rate, span=span, seed=seed)
        assert found["pays"] == "".join(str(int(pays)) for pays in wanted.pays)
        for side in ("source", "asked"):
            told = [words[place[0]] if place[0] >= 0 else "" for place in found[side]]
            assert told == [place.word for place in getattr(wanted, side)]
            told = [words[place[1]] if place[1] >= 0 else "" for place in found[side]]
            assert told == [place.answer for place in getattr(wanted, side)]
        assert found["whole"] == wanted.whole


def test_what_is_said() -> None:
    view = WhatIsHidden(WORDS, objectives=["electra", "next_token", "sentence_order"])
    assert view.objective == "electra"
    assert view.description() == (
        "electra: of 10 tokens 2 are hidden; 10 are asked for (100 %), 8 of them shown as they are."
    )
    view.objective = "next_token"
    assert view.description() == ("next_token: all 10 tokens are shown; 10 are asked for (100 %).")
    view.objective = "sentence_order"
    assert "one answer for the whole text: " in view.description()
    assert repr(view) == f"WhatIsHidden: {view.description()}"


def test_a_place_beyond_the_end_of_another_draw_becomes_its_last() -> None:
    view = WhatIsHidden(WORDS, objectives=["mpnet", "span_corruption"], rate=0.5)
    view.place = len(view.drawn()["asked"]) - 1
    view.objective = "span_corruption"
    assert view.place == len(view.drawn()["asked"]) - 1


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(ValueError, match="4 to 40 words, got 2"):
        WhatIsHidden("too short")
    with pytest.raises(ValueError, match="got 41"):
        WhatIsHidden(["word"] * 41)
    with pytest.raises(TypeError, match="a list of words"):
        WhatIsHidden([1, 2, 3, 4])
    with pytest.raises(ValueError, match="masked_lm"):
        WhatIsHidden(WORDS, objectives=["masked_ml"])
    with pytest.raises(ValueError, match="at least one"):
        WhatIsHidden(WORDS, objectives=[])
    view = WhatIsHidden(WORDS)
    for name, value in (("rate", 0.2), ("span", True), ("seed", 3), ("objective", "x"),
                        ("place", 99)):  # fmt: skip
        with pytest.raises(traitlets.TraitError, match=name):
            setattr(view, name, value)


# Trained models

TASK = Documentation("bytes", 24)


def learned(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    sizes = {"dim": 8, "heads": 2, "layers": 1, "max_len": 64}
    model = TinyTransformer(**(model_options(TASK, name) | sizes))
    takes = "vocab" in catalog.with_role("objective")[name].option_names()
    objective = catalog.build(name, **({"vocab": TASK.vocab} if takes else {}))
    objective.fitted(model)
    return model, objective


def test_a_model_guesses_in_every_draw_and_its_losses_are_kept() -> None:
    text = "x = (a + b)\n"
    model, objective = learned("masked_lm")
    drawn = draw(
        "masked_lm", with_options(objective, rate=0.15), TASK.encode(text),
        TASK.tokens(range(TASK.vocab)),
    )  # fmt: skip
    watch = LossByPlace(objective, drawn, steps=(1, 4))
    fit(model, TASK, 4, objective=objective, callbacks=[watch], progress=False, device="cpu")
    view = WhatIsHidden.of(
        {"masked_lm": (model, objective)}, text, TASK, history={"masked_lm": watch.as_dict()}
    )
    assert view.objectives[0] == view.objective == "masked_lm"
    assert len(view.objectives) > 5, "the others are shown without guesses"
    row = view._hidden["objectives"][0]
    assert [each["name"] for each in view._hidden["objectives"] if "history" in each] == [
        "masked_lm"
    ]
    assert row["history"]["steps"] == [1, 4]
    for found in row["draws"]:
        assert len(found["guesses"]) == len(found["asked"])
        for guesses in found["guesses"]:
            percents = [percent for _, percent in guesses]
            assert percents == sorted(percents, reverse=True)
    assert view.tokens == [*"x␣=␣(a␣+␣b)"]


def test_a_history_belongs_to_the_draw_with_the_spans_of_its_training() -> None:
    model, objective = learned("span_corruption")
    text = TASK.encode("x = (a + b) * c[d]\n")
    drawn = draw("span_corruption", objective, text, TASK.tokens(range(TASK.vocab)))
    watch = LossByPlace(objective, drawn, steps=(1,))
    fit(model, TASK, 1, objective=objective, callbacks=[watch], progress=False, device="cpu")
    view = WhatIsHidden.of(
        {"span_corruption": (model, objective)}, "x = (a + b) * c[d]\n", TASK,
        history={"span_corruption": watch.as_dict()}, span=3,
    )  # fmt: skip
    row = view._hidden["objectives"][0]
    places = [len(one["asked"]) for one in row["draws"]]
    assert places[0] != len(drawn.asked) == len(row["history"]["losses"][0])


def test_histories_and_tasks_that_do_not_fit_are_refused() -> None:
    pair = {"masked_lm": learned("masked_lm")}
    with pytest.raises(ValueError, match="a loss for each of its"):
        WhatIsHidden.of(pair, "abcdefgh", TASK, history={"masked_lm": {"steps": [1], "losses": []}})
    with pytest.raises(ValueError, match="no objective of `history` 'masked'"):
        WhatIsHidden.of(pair, "abcdefgh", TASK, history={"masked": {}})
    with pytest.raises(TypeError, match="has no encode"):
        WhatIsHidden.of(pair, "abcdefgh", object())
    with pytest.raises(TypeError, match="should be a text"):
        WhatIsHidden.of(pair, 7, TASK)
    with pytest.raises(ValueError, match="4 to 40 tokens"):
        WhatIsHidden.of(pair, "abc", TASK)


def test_other_options_share_what_was_learned() -> None:
    _, objective = learned("electra")
    other = with_options(objective, rate=0.5)
    assert other.options.rate == 0.5
    assert objective.options.rate == 0.15
    assert other.small is objective.small
    assert with_options(objective) is objective


def test_what_is_stored_is_whole() -> None:
    view = WhatIsHidden.stored()
    rows = {row["name"]: row for row in view._hidden["objectives"]}
    with_guesses = {name for name, row in rows.items() if "guesses" in row["draws"][0]}
    assert with_guesses == {*rows}
    assert {*rows} == {*experiment.OBJECTIVES}
    assert {name for name, row in rows.items() if "history" in row} <= with_guesses
    assert len(json.dumps(view._hidden)) < 400_000
    assert len(view.tokens) >= LEAST
