"""The topic of compiled forms: which there are, what is kept, what is refused. Nothing is compiled
to C++ here."""

import copy
import dataclasses
import json
import math
import time

import pytest
import torch
from attnlab_widgets.survey.gains import STORED

import attnlab
from attnlab.measure.benchmarks import compiled
from attnlab.measure.measured import call_of
from attnlab.measure.report import Row
from attnlab.measure.subject import subject
from tools.readme import compiled_table

FULL = subject("full", dim=8, heads=2)
PLAIN = type(FULL).layer


def test_every_form_of_every_mechanism_that_mixes_once_those_that_are_unrolled_last() -> None:
    found = [(one.mechanism, one.form) for one in compiled.forms()]
    mixing = [card for card in attnlab.cards() if card.mixes]
    every = {
        (card.name, form)
        for card in mixing
        for form in (card.forms if "form" in card.option_names() else [list(card.forms)[-1]])
    }
    assert len(found) == len(set(found))
    assert set(found) == every
    grow = [one.card.order("launches", one.form) != 1 for one in compiled.forms()]
    assert grow == sorted(grow)
    steady = [card for card in mixing if card.order("launches", list(card.forms)[-1]) == 1]
    assert found[: len(steady)] == [(card.name, list(card.forms)[-1]) for card in steady]


@pytest.mark.parametrize(
    ("mechanism", "form", "n"),
    [
        ("gru", "naive", compiled.STEPS),
        ("gru", "fused", compiled.STEPS),
        ("linear", "recurrent", compiled.STEPS),
        ("linear", "chunked", compiled.LENGTH),
        ("full", "naive", compiled.LENGTH),
        ("flash", "tiled", compiled.LENGTH),
        ("block_recurrent", "chunked", compiled.LENGTH),
        ("sparse_transformer", "blocked", compiled.LENGTH),
    ],
)
def test_a_step_a_token_is_compiled_for_few_tokens(mechanism, form, n, monkeypatch) -> None:
    assert compiled.tokens(attnlab.card(mechanism), form) == n
    one = subject(mechanism, form=form)
    monkeypatch.setattr(compiled, "forms", lambda **_: [one])
    monkeypatch.setattr(compiled, "_apart", lambda one, n, *_: [Row(f"{n}", None)])
    (found,) = compiled.batches(quick=False, threads=1, kept={})
    assert [row.figure for row in found] == [f"{n}"]


def test_what_is_measured_is_kept_and_what_failed_is_tried_again(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(compiled, "_apart", lambda one, *_: asked.append(one.form) or [])
    fused, naive = compiled.forms(quick=True)
    kept = {name: Row(name, 1.5, "×") for name in compiled.figures(fused, compiled.QUICK)}
    failed = {name: Row(name, None) for name in compiled.figures(naive, compiled.QUICK)}
    found = list(compiled.batches(quick=True, threads=1, kept=kept | failed))
    assert found == [list(kept.values()), []]
    assert asked == ["naive"]


@pytest.mark.parametrize("which", ["forward", "both"])
def test_a_layer_beside_itself(which, monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    row = compiled.compared("x", FULL, 16, which, rounds=3, threads=1)
    assert row.measured is not None
    assert math.isfinite(row.measured)
    assert row.note.startswith("eager: ")


def test_another_result_has_no_time(monkeypatch) -> None:
    wrong = dataclasses.replace(FULL, heads=4)
    monkeypatch.setattr(torch, "compile", lambda module, **_: wrong.layer(16))
    row = compiled.compared("x", FULL, 16, "forward", rounds=3, threads=1)
    assert row.measured is None
    assert "differs from the eager one" in row.note


class InDouble(torch.nn.Module):
    """The same layer with other rounding."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = copy.deepcopy(layer)

    def forward(self, x):
        return self.layer.double()(x.double()).float()


class Halved(InDouble):
    """Another rounding, and half of the gradient of the last parameter."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__(layer)
        *_, last = self.layer.parameters()
        last.register_hook(lambda gradient: gradient / 2)


class Noisy(torch.nn.Module):
    """A layer that draws random numbers when it is called."""

    def __init__(self, layer: torch.nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.layer, self.scale = layer, scale

    def forward(self, x):
        return self.scale * self.layer(x + torch.randn_like(x))


def test_gradients_that_are_nothing_but_rounding_are_no_difference(monkeypatch) -> None:
    """Those of a sum of layer-normed numbers, which is the same whatever the layer does."""
    ends_in_a_norm = subject("set_transformer", dim=8, heads=2)
    monkeypatch.setattr(torch, "compile", lambda module, **_: InDouble(module))
    plain, double = (
        compiled._seeded(call_of(one, 16, "both"))
        for one in (ends_in_a_norm, compiled.Compiled(ends_in_a_norm))
    )
    assert max(compiled.differences(double, plain)) > compiled.APART
    row = compiled.compared("x", ends_in_a_norm, 16, "both", rounds=3, threads=1)
    assert row.measured is not None


def test_rounding_of_one_gradient_excuses_no_other(monkeypatch) -> None:
    ends_in_a_norm = subject("set_transformer", dim=8, heads=2)
    monkeypatch.setattr(torch, "compile", lambda module, **_: Halved(module))
    row = compiled.compared("x", ends_in_a_norm, 16, "both", rounds=3, threads=1)
    assert row.measured is None
    assert "differs from the eager one by 5.0e-01 of its size" in row.note


def test_a_form_that_draws_has_no_result_in_64_bits(monkeypatch) -> None:
    """That one would have drawn other numbers, and excuse any difference."""
    monkeypatch.setattr(type(FULL), "layer", lambda *given: Noisy(PLAIN(*given)))
    monkeypatch.setattr(torch, "compile", lambda noisy, **_: Noisy(noisy.layer, 1.2))
    row = compiled.compared("x", FULL, 16, "forward", rounds=3, threads=1)
    assert row.measured is None
    assert "differs from the eager one by 2.0e-01 of its size" in row.note


def test_a_form_whose_time_is_up(monkeypatch) -> None:
    monkeypatch.setattr(compiled, "LIMIT", 0.2)
    rows = compiled._apart(FULL, 16, 3, 1)
    assert [row.figure for row in rows] == compiled.figures(FULL, 16)
    assert {row.note for row in rows} == {"not done after 0.2 s of the processor"}


COMPILES = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 2: pass"
subprocess.run([sys.executable, "-c", burn])
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("measure", "given", "code"), [(exec, COMPILES, compiled.SPENT), (time.sleep, 2.0, 0)]
)
def test_time_of_the_processor_counts_that_of_a_compiler_too_and_waiting_does_not(
    measure, given, code
) -> None:
    process = compiled._context().Process(target=compiled._within, args=(1.0, measure, given))
    process.start()
    process.join(600)
    process.kill()
    assert process.exitcode == code


def _never_done(*_) -> None:
    """A process whose time is up before it has a group of its own."""
    time.sleep(SLEEP)


SLEEP = 90.0


def test_a_process_without_a_group_of_its_own_is_ended(monkeypatch) -> None:
    monkeypatch.setattr(compiled, "PATIENCE", 0.2)
    monkeypatch.setattr(compiled, "_within", _never_done)
    start = time.monotonic()
    rows = compiled._apart(FULL, 16, 3, 1)
    assert {row.note for row in rows} == {"not done after 0.2 s"}
    assert time.monotonic() - start < SLEEP / 2


def test_the_stored_rows_are_of_forms_that_there_are() -> None:
    run = json.loads(STORED.read_text(encoding="utf-8"))
    names = {
        name
        for one in compiled.forms()
        for name in compiled.figures(one, compiled.tokens(one.card, one.form))
    }
    stored = [row["figure"] for row in run["topics"]["compiled"]]
    assert not run["quick"]
    assert len(stored) == len(set(stored))
    assert set(stored) <= names
    table = compiled_table()
    assert f" of {len(compiled.forms())} forms are measured" in table
    for one in compiled.forms():  # each is told of once, as a row or with the reason why not
        told = (f"| `{one.mechanism}` | `{one.form}` |", f"`{one.mechanism}` (`{one.form}`)")
        assert sum(map(table.count, told)) == 1, one
