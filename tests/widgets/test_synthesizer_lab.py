"""The SynthesizerLab without a browser: real training, its maps and words, what goes wrong."""

import threading
import time

import pytest
import torch

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from attnlab_widgets import synthesizer_lab
from attnlab_widgets.synthesizer_lab import SynthesizerLab

import attnlab
from attnlab.experiments.synthesizer import TASKS, build
from attnlab.tasks import task

WAIT = 300


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(synthesizer_lab, "EVERY", 0.01)
    made = []

    def lab(*args, **options):
        made.append(SynthesizerLab(*args, **{"steps": 3, **options}))
        return made[-1]

    yield lab
    for one in made:
        one.close()
        assert one._looker.settle(WAIT)
    assert not [t for t in threading.enumerate() if t.name.startswith("attnlab-")]


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def test_before_anyone_touches_it_the_maps_of_both_are_there(make):
    lab = make(("random", "vanilla"), "copying")
    problem = task("copying", **TASKS["copying"])
    row = problem.batch("validation", 1, seed=0).inputs
    for student, variant in zip(lab.students, ("random", "vanilla"), strict=True):
        model = build(problem, variant, 0).eval()
        with attnlab.watch(model) as seen, torch.no_grad():
            model(row)
        expected = torch.stack([record.weights[0] for record in seen])
        torch.testing.assert_close(student.maps[0], expected)
        assert student.tokens == problem.example(0).tokens
        assert student.column.children[-1] is student.view
    assert lab.state == "idle"
    assert "depends on the place alone" in lab._note.value


def test_training_moves_the_maps_of_random_and_leaves_those_of_fixed_random(make):
    lab = make(("random", "fixed_random"), "copying")
    lab.train()
    assert lab.wait(WAIT)
    learned, fixed = lab.students
    assert list(learned.maps) == list(fixed.maps) == [0, 1, 2, 3]
    assert not torch.equal(learned.maps[0], learned.maps[3])
    assert torch.equal(fixed.maps[0], fixed.maps[3])
    assert [step for step, _ in learned.losses] == [1, 2, 3]
    assert "right, loss" in learned.title.value
    assert "Done after 3 steps" in lab._status.value
    assert "Loss: random" in lab._numbers.value
    assert "<svg" in lab._numbers.value
    lab.train()
    assert lab.wait(WAIT)
    assert max(learned.maps) == 6
    assert learned.view.step == len(learned.maps) - 1


def test_who_went_back_in_time_stays_there(make):
    lab = make(("random",), "copying")
    lab.train()
    lab.wait(WAIT)
    lab.students[0].view.step = 1
    lab.train()
    lab.wait(WAIT)
    assert lab.students[0].view.step == 1


def test_pause_loses_nothing_and_stop_keeps_what_was_learned(make):
    lab = make(("random",), "copying", steps=2000)
    lab.button.click()
    until(lambda: lab.students[0].newest > 0 or lab._training.done > 3)
    assert lab.button.description == "Pause"
    assert lab.task.disabled
    lab.button.click()
    assert (lab.state, lab.button.description) == ("paused", "Resume")
    assert not lab.wait(0)
    lab.button.click()
    lab.stopper.click()
    assert lab.wait(WAIT)
    assert "Stopped after" in lab._status.value
    assert not lab.task.disabled
    assert lab.students[0].newest > 0
    lab.restorer.click()
    assert list(lab.students[0].maps) == [0]
    assert lab.progress.value == 0


def test_menus_make_new_models(make):
    lab = make(("random", "vanilla"), "copying")
    lab.task.value = "recall"
    assert lab.students[0].tokens == task("recall", **TASKS["recall"]).example(0).tokens
    lab.second.value = "nothing"
    assert [student.variant for student in lab.students] == ["random"]
    assert len(lab._columns.children) == 1
    assert "random on recall, idle" in repr(lab)


def test_an_error_is_reported_in_plain_words(make, monkeypatch):
    def failing(*_args, **_options):
        raise ValueError("the loss is <not> finite")

    lab = make(("random",), "copying")
    monkeypatch.setattr("attnlab.train.fit", failing)
    lab.train()
    lab.wait(WAIT)
    assert 'role="alert"' in lab.students[0].alert.value
    assert "the loss is &lt;not&gt; finite" in lab.students[0].alert.value
    assert lab.state == "idle"


def test_wrong_names_are_refused_with_the_nearest(make):
    with pytest.raises(ValueError, match="no variant 'randon'; did you mean 'random'"):
        SynthesizerLab(("randon",))
    with pytest.raises(ValueError, match="no task of the SynthesizerLab 'sortin'"):
        SynthesizerLab(task="sortin")
    with pytest.raises(ValueError, match="one or two names"):
        SynthesizerLab(("random", "dense", "vanilla"))
    lab = make(("random",), "copying")
    lab.stop()
    assert "Nothing is training." in lab._status.value


def test_every_control_has_a_label(make):
    lab = make(("random",), "copying")
    controls = (lab.task, lab.first, lab.second, lab.steps, lab.button, lab.stopper, lab.restorer)
    assert all(control.description for control in (*controls, lab.progress))
