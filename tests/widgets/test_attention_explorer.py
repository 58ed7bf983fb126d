"""The explorer without a browser: its menus and buttons, real training, and what goes wrong."""

import dataclasses
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from attnlab_widgets import attention_explorer, background
from attnlab_widgets.attention_explorer import TRAINING, AttentionExplorer
from attnlab_widgets.attention_explorer import models as explorer_models
from attnlab_widgets.attention_explorer import side as explorer_side
from ipywidgets import HTML

import attnlab
from attnlab.catalog import Catalog, cards
from attnlab.figures.loss_curve import loss_curve
from attnlab.lens import recorded_model
from attnlab.tasks.documentation import Documentation
from attnlab.train import in_turn

TINY = {"dim": 6, "layers": 1, "heads": 2, "hidden": 5}
WAIT = 300
PACE = attention_explorer.EVERY  # as it is outside of these tests


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(attention_explorer, "EVERY", 0.01)
    small = {name: {**given, "batch_size": 2} for name, given in TRAINING.items()}
    monkeypatch.setattr(attention_explorer, "TRAINING", small)


@pytest.fixture
def make():
    """Explorers of tiny untrained models, closed after the test with all of their threads."""
    made = []

    def explorer(text="a for loop", mechanisms=("full", "multi_query"), **options):
        options = {"trained": [False] * len(mechanisms), "untrained": TINY, "steps": 4} | options
        made.append(AttentionExplorer(text, mechanisms, **options))
        return made[-1]

    yield explorer
    for one in made:
        one.close()
        if one._training is not None:
            assert one._training.join(WAIT)
        assert one._looker.settle(WAIT)
    assert not [t for t in threading.enumerate() if t.name.startswith("attnlab-")]


@pytest.fixture
def shelf(monkeypatch):
    """Puts mechanisms on the shelf that are not there: name → what replaces of full's card."""

    def put(**mechanisms):
        full = attnlab.card("full")
        new = [
            dataclasses.replace(full, name=name, title=name.title(), **changes)
            for name, changes in mechanisms.items()
        ]
        catalog = Catalog([*cards(), *new])
        for module in (attnlab.catalog, explorer_models, attention_explorer):
            monkeypatch.setattr(module, "cards", lambda: catalog)
        forget()

    def forget():
        """What was looked up before is looked up again."""
        for kept in attnlab.catalog._REMEMBERED:
            kept.cache_clear()

    yield put
    monkeypatch.undo()
    forget()


def words(explorer):
    """All that the page says outside of the views."""
    rows = [child for child in explorer.children if hasattr(child, "children")]
    boxes = [explorer, *rows, *(side.column for side in explorer.sides)]
    return "\n".join(
        child.value for box in boxes for child in box.children if isinstance(child, HTML)
    )


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


@pytest.fixture
def held(monkeypatch):
    """Lets the first model make three steps and the second two, and no more until it is set."""
    gate, take, rounds = threading.Event(), in_turn.RoundRobin.take, []

    def waiting(turns, who):
        if who == 1:
            rounds.append(who)
            if len(rounds) > 2:
                gate.wait(WAIT)
        return take(turns, who)

    monkeypatch.setattr(in_turn.RoundRobin, "take", waiting)
    yield gate
    gate.set()


def weights(side, step=None):
    snapshots = side.recorded.snapshots
    return snapshots[max(snapshots) if step is None else step]


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


# ---- before anyone touches it


def test_it_opens_on_models_that_learn_to_copy():
    explorer = AttentionExplorer(steps=2)
    assert explorer.task.value == "copying"
    assert "".join(explorer._reading.tokens) == "aforloop|aforloo"
    assert [side.mechanism.value for side in explorer.sides] == ["full", "synthesizer"]
    assert [side.weights.value for side in explorer.sides] == ["untrained"] * 2
    explorer.typed.value = "Cat 3!"
    assert "".join(explorer._reading.tokens) == "catcatca|catcatc"
    explorer.typed.value = "3!"
    assert "no letter from a to z" in explorer._note.value
    explorer.train()
    assert explorer.task.disabled
    assert explorer.wait(WAIT)
    assert [max(side.recorded.snapshots) for side in explorer.sides] == [2, 2]
    explorer.close()


def test_the_task_can_be_changed():
    explorer = AttentionExplorer()
    explorer.task.value = "documentation"
    assert explorer.wait(WAIT)
    assert explorer.typed.value.startswith("The for statement")
    assert explorer.first.recorded.model.config["vocab"] == 512
    assert len(explorer._reading.ids) == explorer.first.view._recording["layers"][0]["n"]
    explorer.typed.value = "mine"
    explorer.task.value = "copying"
    assert explorer.wait(WAIT)
    assert explorer.typed.value == "mine"
    assert "".join(explorer._reading.tokens) == "minemine|minemin"
    assert explorer.second.view._recording["layers"][0]["n"] == 16
    explorer.close()


def test_the_task_follows_from_what_is_given():
    assert AttentionExplorer("a for loop").task.value == "documentation"
    assert AttentionExplorer(trained=[True, False]).task.value == "documentation"
    with pytest.raises(ValueError, match=r"for task=.documentation. only"):
        AttentionExplorer(task="copying", trained=[True, False])
    with pytest.raises(ValueError, match="copying"):
        AttentionExplorer(task="copy")


@pytest.mark.slow
def test_the_heads_of_the_default_training_form(monkeypatch):
    """In one of them each letter attends to the one that comes next in the list."""
    monkeypatch.setattr(attention_explorer, "TRAINING", TRAINING)
    explorer = AttentionExplorer(mechanisms=["full"])
    explorer.train()
    assert explorer.wait(WAIT)
    maps = [layer.weights[0] for layer in explorer.first._maps[200].source]
    back = explorer._reading.tokens.index("|")
    found = max(head.diagonal(-back).mean().item() for layer in maps for head in layer)
    assert found > 0.8
    explorer.close()


def test_it_opens_on_the_trained_model_and_an_untrained_one():
    explorer = AttentionExplorer(task="documentation")
    model, task = attnlab.pretrained.load("documentation")
    ids = task.encode(explorer.typed.value)
    with attnlab.watch(model) as seen, torch.no_grad():
        model(ids[None])
    shown = explorer.first._maps[0].source
    assert [record.name for record in shown] == seen.names
    for ours, its in zip(shown, seen, strict=True):
        torch.testing.assert_close(ours.weights, its.weights)
    assert explorer.second.view is not None
    assert not torch.equal(explorer.second._maps[0].source[0].weights, seen[0].weights)
    assert (explorer.first.learns.value, explorer.second.learns.value) == (False, True)
    assert explorer.state == "idle"
    assert [side.recorded.learner().dropout for side in explorer.sides] == [0, 0]
    assert 'role="alert"' not in words(explorer)
    assert f"{len(ids)} tokens." in words(explorer)
    explorer.close()


def test_every_control_has_a_label(make):
    explorer = make()
    rows = [explorer.first.row, explorer.second.row, *explorer.children]
    controls = [child for row in rows for child in getattr(row, "children", ())]
    named = [explorer.typed, *(c for c in controls if hasattr(c, "description"))]
    kinds = {type(c).__name__ for c in named}
    assert {"Textarea", "Dropdown", "Checkbox", "Button", "BoundedIntText"} <= kinds
    unnamed = [c for c in named if not isinstance(c, HTML) and not c.description]
    assert unnamed == []
    assert "AttentionExplorer: Full attention and Multi-query" in repr(explorer)


# ---- menus


def test_the_menus_come_from_the_cards_that_can_be_causal(make, shelf):
    shelf(blind={"causal": "never"}, turning={"role": "encode"}, new={"causal": "always"})
    explorer = make()
    offered = [name for _, name in explorer.first.mechanism.options]
    never = {c.name for c in attnlab.cards() if c.causal == "never" or not c.mixes} | {"turning"}
    assert offered == [c.name for c in attnlab.cards() if c.name not in never]
    assert {"new", "full"} <= set(offered)
    assert not {"blind", "turning", "linformer"} & set(offered)
    assert [name for _, name in explorer.second.mechanism.options] == ["nothing", *offered]


def test_only_mechanisms_with_shipped_weights_can_start_trained(make):
    explorer = make()
    assert explorer.first.weights.options == ("trained", "untrained")
    assert explorer.second.weights.options == ("untrained",)
    explorer.second.mechanism.value = "full"
    assert explorer.second.weights.value == "trained"
    assert not explorer.second.learns.value
    explorer.second.weights.value = "untrained"
    assert explorer.second.learns.value
    explorer.wait(WAIT)
    assert "Full attention <small>untrained" in explorer.second._title.value


def test_the_second_may_be_nothing(make):
    explorer = make(mechanisms=["full"])
    assert explorer.second.view is None
    assert explorer.second.column.layout.display == "none"
    explorer.second.mechanism.value = "multi_query"
    explorer.wait(WAIT)
    assert explorer.second._place.children == (explorer.second.view,)
    assert explorer.second.column.layout.display == "flex"
    explorer.second.mechanism.value = "nothing"
    explorer.wait(WAIT)
    assert explorer.second._place.children == ()


class RunningMean(nn.Module):
    """Each position gets the mean of all up to it: no weights, no heads."""

    def __init__(self, dim, heads, causal):
        super().__init__()
        self.mix = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.mix.weight)

    def forward(self, x, padding=None):
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return self.mix(x).cumsum(1) / count


def test_a_mechanism_without_weights_shows_its_mixing_matrix_and_says_so(make, shelf):
    shelf(mean={"build": RunningMean, "role": "mix"})
    explorer = make(mechanisms=["mean"])
    (mixing,) = explorer.first._maps[0].source
    n = len(explorer._reading.ids)
    expected = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None] * TINY["dim"] ** 0.5
    torch.testing.assert_close(mixing.matrix[0], expected)
    assert "No softmax weights here" in words(explorer)
    assert "Frobenius norm" in words(explorer)


def test_what_cannot_be_built_is_said_and_the_other_stays(make, shelf):
    def broken(dim, heads, causal):
        raise ValueError(f"heads=<{heads}> are too few")

    shelf(broken={"build": broken})
    explorer = make()
    before = explorer.first.view
    explorer.second.mechanism.value = "broken"
    explorer.wait(WAIT)
    assert "Broken cannot be built here." in words(explorer)
    assert "heads=&lt;2&gt; are too few" in words(explorer)
    assert explorer.second._place.children == ()
    assert explorer.first.view is before
    explorer.second.mechanism.value = "multi_query"
    explorer.wait(WAIT)
    assert 'role="alert"' not in words(explorer)


def test_another_model_does_not_wear_the_numbers_of_the_one_before(make):
    explorer = make()
    explorer.train()
    assert explorer.wait(WAIT)
    explorer.second.mechanism.value = "nothing"
    assert explorer.wait(WAIT)
    assert "loss" not in words(explorer)
    assert "Trained for" not in words(explorer)
    assert explorer.progress.value == 0
    assert explorer.second.weights.layout.display == "none"


# ---- the text


def test_typing_changes_both_maps(make):
    explorer = make()
    explorer.typed.value = "while"
    explorer.wait(WAIT)
    n = len(explorer._reading.ids)
    for side in explorer.sides:
        assert side._maps[0].source[0].shape[2:] == (n, n)
        assert f"{n} queries × {n} keys" in repr(side.view)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "There is no text"), ("ab\ud800", "Character 2 of the text is half a surrogate pair")],
)
def test_a_text_that_cannot_be_read_is_said_and_the_maps_stay(make, text, message):
    explorer = make()
    before = explorer.first.view._data
    explorer.typed.value = text
    explorer.wait(WAIT)
    assert message in explorer._note.value
    assert 'role="alert"' in explorer._note.value
    assert explorer.first.view._data == before
    explorer.typed.value = "again"
    assert 'role="alert"' not in explorer._note.value


@pytest.mark.parametrize("text", ["abc <b>" * 150, "x" * 30_000])
def test_a_long_text_is_cut_with_a_sentence(make, text):
    explorer = make()
    explorer.typed.value = text
    explorer.wait(WAIT)
    assert len(explorer._reading.ids) == 128
    assert "read 128 tokens at most, so the text was cut after “…" in explorer._note.value
    assert "<b>" not in explorer._note.value
    assert explorer.first._maps[0].source[0].shape[3] == 128


def test_of_a_text_without_end_only_the_beginning_is_read(make, monkeypatch):
    read = []
    encode = Documentation.encode
    monkeypatch.setattr(
        Documentation, "encode", lambda task, text: read.append(len(text)) or encode(task, text)
    )
    explorer = make("x" * 3_000_000)
    assert len(explorer._reading.ids) == 128
    assert max(read) <= attention_explorer.LONGEST


def test_a_single_token_is_a_text(make):
    explorer = make("a")
    assert "1 token." in explorer._note.value
    assert explorer.first._maps[0].source[0].shape[2:] == (1, 1)


# ---- training


def test_training_changes_the_maps_step_by_step(make):
    explorer = make()
    before = [dict(weights(side)) for side in explorer.sides]
    explorer.second.learns.value = False
    explorer.button.click()
    assert explorer.wait(WAIT)
    assert explorer.state == "idle"
    assert sorted(explorer.first.recorded.snapshots) == [0, 1, 2, 3, 4]
    assert equal(weights(explorer.first, 0), before[0])
    assert not equal(weights(explorer.first), before[0])
    assert equal(weights(explorer.second), before[1])
    assert explorer.first.view._recording["steps"] == [f"step {s}" for s in range(5)]
    assert explorer.first.view.step == 4
    maps = [explorer.first._maps[step].source[0].weights for step in (0, 4)]
    assert not torch.allclose(*maps), "each step is looked at with its own weights"
    assert explorer.progress.value == explorer.progress.max == 4
    assert "step 4 of 4 · loss: first 6." in words(explorer)
    assert "Trained for 4 steps" in words(explorer)
    assert "untrained, then 4 steps of training" in explorer.first._title.value
    assert explorer.button.description == "Train"


def test_both_learn_from_the_same_batches_in_turn(make, monkeypatch):
    order = []
    take = in_turn.RoundRobin.take

    def noted(turns, who):
        goes_on = take(turns, who)
        order.append(who)
        return goes_on

    monkeypatch.setattr(in_turn.RoundRobin, "take", noted)
    explorer = make(mechanisms=["full", "full"])
    explorer.train()
    assert explorer.wait(WAIT)
    assert order == [0, 1] * 4
    first, second = (side.losses for side in explorer.sides)
    assert first == second  # the same start, the same batches


def test_a_pause_loses_nothing(make, held):
    straight, paused = make(steps=12), make(steps=12)
    paused.train()
    until(lambda: [learner.done for learner in paused._training.learners] == [3, 2])
    paused.button.click()
    held.set()
    straight.train()
    assert straight.wait(WAIT)
    assert paused.state == "paused"
    assert paused.button.description == "Resume"
    assert not paused.wait()
    until(lambda: paused._training.done == 3)
    time.sleep(0.1)
    steps = [learner.done for learner in paused._training.learners]
    assert steps == [3, 3], "both wait after the same step"
    paused.button.click()
    assert paused.state == "training"
    assert paused.wait(WAIT)
    for one, other in zip(straight.sides, paused.sides, strict=True):
        assert equal(weights(one), weights(other))
        assert one.losses == other.losses


@pytest.mark.parametrize("pause_first", [False, True])
def test_stop_keeps_what_was_learned_and_training_goes_on_from_there(make, held, pause_first):
    explorer = make(steps=400)
    explorer.train()
    until(lambda: explorer._training.done == 2)
    if pause_first:
        explorer.pause()
    explorer.stopper.click()
    held.set()
    assert explorer.wait(WAIT)
    stopped = explorer.first.recorded.newest
    assert 2 <= stopped < 400
    assert f"Stopped after step {stopped}; what was learned is kept" in words(explorer)
    assert len(explorer.first.losses) == stopped
    assert explorer.second.recorded.newest == stopped, "both end after the same step"
    kept = weights(explorer.first)
    explorer.steps.value = 3
    explorer.train()
    assert explorer.wait(WAIT)
    assert explorer.first.recorded.newest == stopped + 3
    assert equal(weights(explorer.first, stopped), kept)
    assert [step for step, _ in explorer.first.losses] == [*range(1, stopped + 4)]


def test_start_over_goes_back_to_the_first_weights(make):
    explorer = make()
    before = weights(explorer.first)
    explorer.train()
    explorer.restorer.click()
    assert explorer.state == "idle"
    explorer.wait(WAIT)
    assert [*explorer.first.recorded.snapshots] == [0]
    assert equal(weights(explorer.first), before)
    assert "as they were before training" in words(explorer)
    assert explorer.first.view._recording["steps"] == [""]


def test_a_text_typed_afterwards_is_followed_through_all_steps(make):
    explorer = make()
    explorer.train()
    assert explorer.wait(WAIT)
    explorer.first.view.step = 1
    explorer.typed.value = "while it waits"
    assert explorer.wait(WAIT)
    n = len(explorer._reading.ids)
    assert [*explorer.first._maps] == [0, 1, 2, 3, 4]
    assert all(m.source[0].shape[3] == n for m in explorer.first._maps.values())
    assert explorer.first.view.step == 1, "the step on view stays"


def test_menus_wait_while_it_trains(make, held):
    explorer = make(steps=400)
    explorer.train()
    assert explorer.first.mechanism.disabled
    assert not explorer.typed.disabled
    assert not explorer.button.disabled
    explorer.stop()
    held.set()
    assert explorer.wait(WAIT)
    assert not explorer.first.mechanism.disabled


def test_nothing_to_train_pause_or_stop_is_said(make):
    explorer = make()
    for side in explorer.sides:
        side.learns.value = False
    explorer.button.click()
    assert "Nothing to train" in words(explorer)
    for action in (explorer.pause, explorer.resume, explorer.stopper.click):
        explorer._status.value = ""
        action()
        assert "Nothing is training." in words(explorer)


def test_an_error_of_training_is_reported_in_the_widget(make, monkeypatch):
    fit = in_turn.train.fit

    def failing(model, *args, **options):
        if model.config["attention"] == "multi_query":
            raise RuntimeError("out of <memory>")
        return fit(model, *args, **options)

    monkeypatch.setattr(in_turn.train, "fit", failing)
    explorer = make()
    explorer.train()
    assert explorer.wait(WAIT)
    alert = explorer.second._alert.value
    assert "The second model stopped learning." in alert
    assert "RuntimeError: out of &lt;memory&gt;" in alert
    assert "<details>" in alert
    assert "Traceback" in alert
    assert explorer.first.recorded.newest == 4, "the other one goes on"
    assert explorer.second.recorded.newest == 0
    monkeypatch.setattr(in_turn.train, "fit", fit)
    explorer.train()
    assert explorer.wait(WAIT)
    assert explorer.second._alert.value == ""
    assert explorer.second.recorded.newest == 4


def test_a_loss_that_is_not_finite_is_reported_in_fits_own_words(make):
    explorer = make(mechanisms=["full"])
    broken = {name: value * float("nan") for name, value in weights(explorer.first).items()}
    explorer.first.recorded.snapshots = {0: broken}
    explorer.train()
    assert explorer.wait(WAIT)
    assert "Training stopped at step 1 of 4: the loss is nan" in words(explorer)
    assert "Training ended with an error" in words(explorer)
    assert explorer.state == "idle"


def test_an_error_while_drawing_is_reported_and_goes_with_its_cause(make, monkeypatch):
    explorer = make()
    look = recorded_model.maps

    def failing(model, ids):
        raise KeyError("no <such> map")

    monkeypatch.setattr(recorded_model, "maps", failing)
    explorer.typed.value = "other"
    explorer.wait(WAIT)
    assert "The maps could not be drawn." in words(explorer)
    assert "&lt;such&gt;" in words(explorer)
    monkeypatch.setattr(recorded_model, "maps", look)
    explorer.typed.value = "another"
    explorer.wait(WAIT)
    assert "could not be drawn" not in words(explorer)


def test_the_callers_random_numbers_are_as_before(make):
    explorer = make()
    before = torch.get_rng_state()
    explorer.train()
    assert explorer.wait(WAIT)
    assert torch.equal(torch.get_rng_state(), before)


# ---- several of them, and their end


def test_two_explorers_train_side_by_side_independently(make):
    alone, one, other = make(steps=6), make(steps=6), make(steps=6)
    alone.train()
    assert alone.wait(WAIT)
    one.train()
    other.train()
    assert one.wait(WAIT)
    assert other.wait(WAIT)
    for explorer in (one, other):
        assert equal(weights(explorer.second), weights(alone.second))
        assert explorer.second.losses == alone.second.losses
    one.typed.value = "mine"
    assert other.typed.value != "mine"


@pytest.mark.parametrize("paused", [False, True])
def test_closing_ends_the_training(make, paused):
    explorer = make(steps=5000)
    explorer.train()
    training = explorer._training
    until(lambda: training.done >= 1)
    if paused:
        explorer.pause()
    explorer.close()
    assert training.join(WAIT)
    assert training.done < 5000


def cell(monkeypatch, identity, run, code="AttentionExplorer()"):
    parent = {"metadata": identity, "header": {"msg_id": run}, "content": {"code": code}}
    shell = SimpleNamespace(get_parent=lambda: parent)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)


@pytest.mark.parametrize("identity", [{"cellId": "c7"}, {}])
def test_running_the_cell_again_ends_what_it_had_started(make, monkeypatch, identity):
    cell(monkeypatch, {"cellId": "another"}, "run 0", code="other")
    elsewhere = make(steps=5000)
    cell(monkeypatch, identity, "run 1")
    older, beside = make(steps=5000), make()
    for step in range(1, 9):
        older.first.recorded.keep(step, older.first.recorded.model)
    for explorer in (elsewhere, older):
        explorer.train()
    training = older._training
    until(lambda: training.done >= 1)
    assert not training.stopped, "two in one run of a cell are no matter to each other"
    cell(monkeypatch, identity, "run 2")
    make()
    assert training.join(WAIT)
    assert training.stopped
    assert len(older.first.recorded.snapshots) <= 3, "what takes room is let go"
    assert elsewhere.state == "training"
    assert beside._training is None


# ---- the two views


def test_what_is_chosen_in_one_view_is_chosen_in_the_other(make):
    explorer = make(untrained=TINY | {"layers": 3})
    explorer.first.view.layer = 2
    explorer.second.view.head = 1
    explorer.second.view.hide_first = True
    assert (explorer.second.view.layer, explorer.first.view.head) == (2, 1)
    assert explorer.first.view.hide_first
    explorer.train()
    assert explorer.wait(WAIT)
    explorer.second.view.step = 3
    assert explorer.first.view.step == 3


def test_views_of_different_size_stay_where_they_can(make):
    explorer = make("a for loop", ["full", "full"], trained=[True, False])
    explorer.first.view.layer = 3
    assert explorer.second.view.layer == 0


# ---- memory and pace


def test_recorded_steps_are_few_and_the_ends_stay(make):
    one = make().first.recorded
    for step in range(1, 100):
        one.keep(step, one.model)
    assert len(one.snapshots) <= recorded_model.MOST_SNAPSHOTS
    assert min(one.snapshots) == 0
    assert max(one.snapshots) == 99


def test_while_it_trains_little_is_sent(make, monkeypatch):
    explorer = make()
    explorer.train()
    assert explorer.wait(WAIT)
    side, n = explorer.first, len(explorer._reading.ids)
    monkeypatch.setattr(explorer_side, "LIVE_BYTES", 2 * n**2 * 2 + 1)
    assert side._wanted(side.recorded, n, training=True) == [4, 3]
    assert side._wanted(side.recorded, n, training=False) == [4, 3, 2, 1, 0]


def test_requests_that_come_at_once_are_answered_together():
    rounds, gate = [], threading.Event()

    def work():
        rounds.append(time.monotonic())
        gate.wait(WAIT)

    latest = background.Throttled(work, 0.05)
    latest.ask()
    until(lambda: len(rounds) == 1)
    for _ in range(50):
        latest.ask()
    gate.set()
    assert latest.settle(WAIT)
    assert len(rounds) == 2
    assert rounds[1] - rounds[0] >= 0.05
    latest.close()
    latest.ask()
    assert latest.settle(WAIT)
    assert len(rounds) == 2


def test_the_page_is_updated_at_most_four_times_a_second():
    assert PACE >= 0.25


def test_the_loss_is_drawn_and_said():
    falling = [(step, 7 - step / 100) for step in range(1, 201)]
    drawn = loss_curve([("first", 0, falling), ("second", 1, falling[:90])], 200)
    assert 'aria-label="Loss: first from 6.98 to 5.02; second from 6.98 to 6.1' in drawn
    assert drawn.count("<polyline") == 2
    assert drawn.count('stroke-dasharray="5 3"') == 1
    placed = drawn.split('points="')[1].split('"')[0].split()
    assert len(placed) == 50
    assert 170 < float(placed[-1].split(",")[0]) <= 180
    assert float(placed[0].split(",")[1]) < float(placed[-1].split(",")[1]), "up is more"
    assert loss_curve([("first", 0, falling[:1])], 200) == ""


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"mechanisms": "full"}, ValueError, "one or two names in a list, got 'full'"),
        ({"mechanisms": []}, ValueError, "one or two names"),
        ({"mechanisms": ["fulll"]}, ValueError, "fulll.*full"),
        ({"mechanisms": ["blind"]}, ValueError, "blind cannot be a causal language model"),
        ({"trained": [True]}, ValueError, "True or False for each mechanism"),
        ({"trained": [True, True]}, ValueError, "no trained weights of multi_query"),
        ({"untrained": {"layer": 1}}, ValueError, "layer"),
    ],
)
def test_arguments_are_refused_with_a_sentence(make, shelf, arguments, kind, message):
    shelf(blind={"causal": "never"})
    with pytest.raises(kind, match=message):
        make(**arguments)
