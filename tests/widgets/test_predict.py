import pytest

pytest.importorskip("ipywidgets")

from attnlab_widgets.predict import Prediction, ask, predict

from attnlab.predictions import Prediction as Asked
from attnlab.predictions import prediction


@pytest.fixture
def asked():
    return ask(
        "Where does <head 3> look?", ["one back", "far back"], "one back", "It copies & shifts."
    )


def press(prediction, choice):
    prediction._menu.value = choice
    prediction._button.click()


def test_nothing_is_given_away_before_the_commitment(asked):
    assert asked._button.disabled
    assert asked._menu.value is None
    assert asked._verdict.value == ""
    assert asked.right is None
    asked._menu.value = "far back"
    assert not asked._button.disabled
    assert asked._verdict.value == ""


@pytest.mark.parametrize(("choice", "right"), [("one back", True), ("far back", False)])
def test_the_answer_commits_and_says_why(asked, choice, right):
    press(asked, choice)
    assert asked.chosen == choice
    assert asked.right is right
    assert asked._menu.disabled
    assert asked._button.disabled
    assert "It copies &amp; shifts." in asked._verdict.value
    assert ("Yes: one back" in asked._verdict.value) is right
    assert ("You said far back" in asked._verdict.value) is not right
    assert 'role="status"' in asked._verdict.value


def test_a_committed_answer_stays(asked):
    press(asked, "far back")
    press(asked, "one back")
    assert asked.chosen == "far back"


def test_the_picture_is_made_once_and_only_then():
    made = []
    asked = ask("Where?", ["a", "b"], "a", "So.", look=lambda: made.append(1))
    asked._menu.value = "b"
    assert not made
    asked._button.click()
    asked._button.click()
    assert made == [1]


def test_an_error_of_the_picture_is_reported_and_nothing_is_lost(capsys):
    def broken():
        raise RuntimeError("the <model> is not trained")

    asked = ask("Where?", ["a", "b"], "a", "So.", look=broken)
    press(asked, "a")
    assert "could not be made" in asked._verdict.value
    assert "the &lt;model&gt; is not trained" in asked._verdict.value
    assert "So." in asked._verdict.value
    assert "Traceback" in capsys.readouterr().out


def test_a_page_without_widgets_has_question_and_choices_and_no_answer(asked, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    asked._ipython_display_()
    (bundle,) = shown
    assert bundle["text/plain"] == "Predict: Where does <head 3> look? [one back / far back]"
    assert "<li>far back</li>" in bundle["text/html"]
    assert "&lt;head 3&gt;" in bundle["text/html"]
    assert "It copies" not in str(bundle)
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == asked.model_id
    press(asked, "far back")
    assert repr(asked).endswith("You said far back; it is one back.")


def test_many_choices_become_a_list_and_numbers_are_choices():
    asked = ask("How many?", range(11), 7, "Seven.")
    assert type(asked._menu).__name__ == "Select"
    press(asked, "7")
    assert asked.right


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("Q?", ["a"], "a", "w"), ValueError, "at least two"),
        (("Q?", ["a", "a"], "a", "w"), ValueError, "should differ"),
        (("Q?", ["a", "b"], "c", "w"), ValueError, "one of the choices .* got 'c'"),
        (("Q?", "ab", "a", "w"), TypeError, "should be a list, got 'ab'"),
        (("", ["a", "b"], "a", "w"), ValueError, "`question` should be a sentence"),
        (("Q?", ["a", "b"], "a", " "), ValueError, "`why` should be a sentence"),
        (("Q?", ["a", "b"], "a", "w", 3), TypeError, "write lambda"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(arguments, kind, words):
    with pytest.raises(kind, match=words):
        ask(*arguments)


def test_a_prediction_of_a_lesson_is_asked_by_its_key(capsys):
    drawn = []
    asked = predict("12.1", drawn.append)
    known = prediction("12.1")
    assert known.answer not in str(asked.static_html()).split("<ul>")[0]
    press(asked, known.answer)
    assert asked.right
    assert drawn == [known.title], "the title of the picture tells the answer: it comes with it"


def test_what_is_said_afterwards_follows_the_picture(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw=False: shown.append(data))
    asked = Prediction(Asked("Q?", ("a", "b"), "a", "So.", after="*Thus.*"), lambda: "drawn")
    press(asked, "b")
    assert shown == ["drawn", {"text/markdown": "*Thus.*", "text/plain": "*Thus.*"}]


def test_under_test_a_lesson_is_looked_at(monkeypatch):
    """An error of the picture, or other facts than those kept, are errors of the cell."""
    monkeypatch.setenv("ATTNLAB_TRY_PREDICTIONS", "1")
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    kept = Asked("Q?", ("a", "b"), "a", "So.", prints="7")
    Prediction(kept, lambda: print(7), shipped=True)._ipython_display_()
    with pytest.raises(AssertionError, match="shows\n8\n"):
        Prediction(kept, lambda: print(8), shipped=True)._ipython_display_()
    with pytest.raises(ZeroDivisionError):
        Prediction(kept, lambda: 1 / 0, shipped=True)._ipython_display_()


def test_what_later_cells_do_to_names_changes_nothing():
    """A reader may run the whole lesson before the first guess."""
    seen = []
    cells: dict = {"seen": seen, "ask": ask}
    exec("n, scale = 7, 2\ndef times(x, *, by=3): return x * by * scale", cells)
    exec("asked = ask('Q?', ['a', 'b'], 'a', 'So.', lambda: seen.append(times(n)))", cells)
    exec("n, scale = None, None\ndef times(x): ...", cells)
    press(cells["asked"], "a")
    assert seen == [42]


def test_a_wrong_key_or_picture_is_answered_with_a_sentence():
    with pytest.raises(ValueError, match=r"no prediction '12.9'; lesson '12' has 12.1, "):
        predict("12.9")
    with pytest.raises(ValueError, match="lesson 'Where\\?' has none"):
        predict("Where?")
    with pytest.raises(TypeError, match="of your own is asked by `ask"):
        predict("12.1", ["a", "b"])
