"""One text as each objective hands it to a model."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from attnlab import catalog
from attnlab.lens.objective_examples import (
    HIDDEN,
    KEPT,
    OPEN,
    REPLACED,
    SHOWN,
    SIGN,
    LossByPlace,
    answered,
    draw,
    example,
    knobs,
    loss_by_place,
    options_of,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from attnlab.train import fit, model_options

TEXT = "the old cat saw the dog and the dog ran to the old cat . all slept now then"
WORDS = TEXT.split()
NAMES = sorted({card.name for card in catalog.with_role("objective").values()})


@pytest.mark.parametrize("name", NAMES)
def test_every_objective_of_the_catalogue_shows_a_text_or_says_why_not(name: str) -> None:
    found = None
    with suppress(ValueError):  # what cannot take a plain text is left out of the picture
        found = example(name, WORDS, seed=1)
    if found is None:
        with pytest.raises(ValueError, match=r".{20}"):
            example(name, WORDS, seed=1)
        return
    assert len(found.kinds) == len(found.pays) > 0
    assert bool(found.whole) != any(place.answer for place in found.asked)
    assert found.scored == [i for i, place in enumerate(found.asked) if place.answer]


@pytest.mark.parametrize("name", ["masked_lm", "electra", "mpnet", "span_corruption"])
def test_the_rate_and_the_seed_decide_what_is_hidden(name: str) -> None:
    few, many = (example(name, WORDS, rate=rate, seed=3) for rate in (0.15, 0.5))
    hidden = [[kind in (HIDDEN, REPLACED) for kind in each.kinds] for each in (few, many)]
    assert sum(hidden[0]) < sum(hidden[1])
    same, other = (example(name, WORDS, rate=0.5, seed=seed) for seed in (3, 4))
    assert same.kinds == many.kinds != other.kinds


def test_a_masked_text_asks_for_what_it_hides() -> None:
    became = set()
    for seed in range(5):
        found = example("masked_lm", WORDS, rate=0.5, seed=seed)
        became |= {*found.kinds}
        for i, place in enumerate(found.asked):
            assert place.at == i
            assert (place.answer == WORDS[i]) == found.pays[i] == bool(place.answer)
            if place.kind == HIDDEN:
                assert not place.word
            elif place.kind == REPLACED:
                assert place.word not in ("", WORDS[i])
            else:
                assert place.word == WORDS[i]
    assert became == {HIDDEN, REPLACED, KEPT, SHOWN}


def test_spans_are_read_as_signs_and_written_again() -> None:
    found = example("span_corruption", WORDS, rate=0.5, span=3, seed=2)
    signs = [place.word for place in found.source if place.kind == SIGN]
    assert signs == [f"⟨{i + 1}⟩" for i in range(len(signs))]
    answers = [place.answer for place in found.asked]
    assert answers[0] == "⟨1⟩"
    assert answers[-1] == signs[-1], "the end mark closes both"
    kept = [place.word for place in found.source if place.kind != SIGN]
    written = [answer for answer in answers if not answer.startswith("⟨")]
    assert sorted([*kept, *written]) == sorted(WORDS[:-1])
    assert found.pays == [kind == HIDDEN for kind in found.kinds]


def test_tokens_that_are_asked_from_a_query_are_hidden() -> None:
    found = example("xlnet", WORDS, rate=0.5, seed=0)
    answers = sorted(place.answer for place in found.asked if place.answer)
    hidden = [word for word, kind in zip(WORDS, found.kinds, strict=False) if kind == HIDDEN]
    assert answers == sorted(hidden)
    assert found.pays == [kind == HIDDEN for kind in found.kinds]


def test_a_prefix_is_open_and_next_tokens_are_asked_after_it() -> None:
    found = example("prefix_lm", WORDS, seed=0)
    p = found.kinds.count(OPEN)
    assert p > 0
    assert found.pays == [i >= p - 1 for i in range(len(found.kinds))]


def test_an_answer_for_the_whole_text_has_its_name() -> None:
    names = {example("sentence_order", WORDS, seed=seed).whole for seed in range(6)}
    assert names == {"next", "exchanged"}
    assert not any(example("sentence_order", WORDS).pays)


def test_knobs_are_those_of_the_options() -> None:
    assert knobs("masked_lm") == (True, False)
    assert knobs("span_corruption") == (True, True)
    assert knobs("next_token") == (False, False)
    assert options_of("xlnet", 0.3, 3) == {"one_in": 3}
    assert options_of("mpnet", 0.3, 3) == {"rate": 0.3}
    assert options_of("next_token", 0.3, 3) == {}


# ---- a trained model

TASK = Documentation("bytes", 19)
TOKENS = TASK.encode("a = [b for b in c]")[:18]
LETTERS = TASK.tokens(range(TASK.vocab))


def learned(name: str, steps: int = 0) -> tuple[TinyTransformer, torch.nn.Module]:
    torch.manual_seed(0)
    model = TinyTransformer(
        **(model_options(TASK, name) | {"dim": 16, "heads": 2, "layers": 1, "max_len": 64})
    )
    card = catalog.with_role("objective")[name]
    takes = {"vocab": TASK.vocab} if "vocab" in card.option_names() else {}
    objective = catalog.build(name, **takes)
    objective.fitted(model)
    return model, objective


@pytest.mark.parametrize("name", ["next_token", "masked_lm", "electra", "xlnet", "mpnet", "wklm"])
def test_losses_of_the_places_add_up_to_that_of_the_text(name: str) -> None:
    model, objective = learned(name)
    drawn = draw(name, objective, TOKENS, LETTERS, seed=1)
    places, beside = loss_by_place(model.eval(), objective, drawn)
    one = drawn.batch[0:1]
    with torch.no_grad():
        whole = objective.loss(objective.answers(model, one), one).item()
    assert sum(places) + beside == pytest.approx(whole, rel=1e-4)
    assert all((loss > 0) == bool(p.answer) for loss, p in zip(places, drawn.asked, strict=True))
    assert beside == 0


def test_guesses_are_sorted_probabilities() -> None:
    for name in ("masked_lm", "electra", "sentence_order"):
        model, objective = learned(name)
        drawn = draw(name, objective, TOKENS, LETTERS)
        found = answered(model, objective, drawn)
        assert len(found) == (1 if drawn.whole else len(drawn.asked))
        for guesses in found:
            values = [guess.probability for guess in guesses]
            assert values == sorted(values, reverse=True)
            assert 0 < sum(values) <= 1 + 1e-5
    assert {guess.answer for guess in found[0]} == {"next", "exchanged"}
    assert model.training, "the mode is as before"


def test_every_objective_guesses_at_its_places_or_once_or_not_at_all() -> None:
    for name in NAMES:
        try:
            model, objective = learned(name)
            drawn = draw(name, objective, TOKENS, LETTERS)
        except (TypeError, ValueError):  # what needs a teacher, or a source
            continue
        found = answered(model, objective, drawn)
        assert len(found) in ((0, 1) if drawn.whole else (len(drawn.asked),)), name


def test_an_entity_is_judged_and_a_hidden_word_is_guessed() -> None:
    model, objective = learned("wklm")
    text = TOKENS.clone()
    objective.options = replace(objective.options, types=([*range(97, 110)],))
    objective.types = type(objective.types).of(TASK.vocab, objective.options.types)
    drawn = draw("wklm", objective, text, LETTERS, seed=1)
    found = answered(model, objective, drawn)
    judged = [place.answer in objective.verdicts for place in drawn.asked]
    assert any(judged)
    assert any(
        place.answer and not is_verdict
        for place, is_verdict in zip(drawn.asked, judged, strict=True)
    )
    for place, guesses, is_verdict in zip(drawn.asked, found, judged, strict=True):
        if place.answer:
            assert ({guess.answer for guess in guesses} == {*objective.verdicts}) == is_verdict


def test_a_callback_keeps_the_losses_of_some_steps() -> None:
    model, objective = learned("masked_lm")
    drawn = draw("masked_lm", objective, TOKENS, LETTERS)
    watch = LossByPlace(objective, drawn, steps=(1, 3))
    fit(model, TASK, 3, objective=objective, callbacks=[watch], progress=False, device="cpu",
        batch_size=4)  # fmt: skip
    found = watch.as_dict()
    assert found["steps"] == [1, 3]
    assert [len(row) for row in found["losses"]] == [len(drawn.asked)] * 2
    assert found["losses"][0] != found["losses"][1]
    _, order = learned("sentence_order")
    with pytest.raises(ValueError, match="asks the text as a whole"):
        LossByPlace(order, draw("sentence_order", order, TOKENS, LETTERS), steps=(1,))
    _, several = learned("dino")
    with pytest.raises(ValueError, match="asks the text as a whole"):
        LossByPlace(several, draw("dino", several, TOKENS, LETTERS), steps=(1,))


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="objective"):
        example("masked", WORDS)
    with pytest.raises(ValueError, match="seed"):
        example("masked_lm", WORDS, seed=-1)


def test_a_separator_replaces_no_token_of_the_text() -> None:
    """It moves the second half by one place, where other tokens of the text stood."""
    words = [letter for letter in "abcdefghi" for _ in range(2)]
    for seed in range(4):
        found = example("sentence_order", words, seed=seed)
        assert {place.kind for place in found.asked} == {SHOWN, SIGN}
        assert [place.word for place in found.asked].count("⟨1⟩") == 1
