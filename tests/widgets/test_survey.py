"""The survey's table: a row for every mechanism, nothing by hand, rows that are checked again."""

import json
import math
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets import survey as module
from attnlab_widgets.survey import STORED, Survey, checked, gains, row_of, survey
from attnlab_widgets.survey.picture import cells
from attnlab_widgets.words import to_fixed

import attnlab
from attnlab.measure import by_name
from attnlab.measure.benchmarks.compiled import LIMIT
from attnlab.measure.fit import fit
from tests.widgets.stored import stored, write
from tools.readme import compiled_table

MIXING = [card for card in attnlab.cards() if card.mixes]
KNOWN = json.loads(STORED.read_text(encoding="utf-8"))
FILTERS: list[dict[str, Any]] = [
    {"order": "year", "down": False, "family": "", "search": ""},
    {"order": "counted", "down": True, "family": "", "search": ""},
    {"order": "name", "down": False, "family": "fixed", "search": ""},
    {"order": "decodes", "down": True, "family": "", "search": "former"},
]


@pytest.fixture(scope="module")
def table() -> Survey:
    return survey()


def row_named(table: Survey, name: str) -> dict[str, Any]:
    return next(row for row in table.rows if row["name"] == name)


def filtered(table: Survey, chosen: dict[str, Any]) -> list[str]:
    for name, value in chosen.items():
        setattr(table, name, value)
    return [row["name"] for row in table.shown()]


def fixtures(table: Survey) -> dict[str, Any]:
    names = ("name", "title", "family", "year", "formula", "counted", "measured", "decodes")
    rows = [{name: row[name] for name in names} for row in table.rows]
    cases = [[chosen, filtered(table, chosen)] for chosen in FILTERS]
    return {"rows": rows, "cases": cases}


def test_every_mechanism_has_a_row_from_its_card(table: Survey) -> None:
    assert attnlab.survey is survey
    assert [row["name"] for row in table.rows] == [card.name for card in MIXING]
    for row, card in zip(table.rows, MIXING, strict=True):
        assert (row["title"], row["year"]) == (card.title, card.paper.year)
        address = row["page"][0].removesuffix(".py").rstrip("/")
        assert address.endswith(attnlab.catalog.pages()[card.name].replace(".", "/"))
        assert row["decodes"] == row["because"].startswith("yes")
        assert not (row["decodes"] and card.causal == "never")


def test_a_row_says_how_the_number_of_kernels_grows(table: Survey) -> None:
    for row, card in zip(table.rows, MIXING, strict=True):
        assert (row["launches"] == "constant") == (card.cost("launches", [*card.forms][-1]) == 1)
        assert row["launched"] == card.launches_text()
    assert row_named(table, "full")["launches"] == "constant"
    assert row_named(table, "gru")["launches"] == "n"


def test_a_row_says_what_torch_compile_gains(table: Survey) -> None:
    """The figures are those of the file of the benchmark; what it has not measured is said."""
    run = json.loads(gains.STORED.read_text(encoding="utf-8"))
    whole = {row["figure"]: row for row in run["topics"]["compiled"]}
    rows = {name: row["measured"] for name, row in whole.items()}
    for row, card in zip(table.rows, MIXING, strict=True):
        last = [*card.forms][-1]
        assert row["compiled"] == rows.get(f"{card.name} ({last}), n = 1,024, forward"), card.name
        forms = [last, *[*card.forms][:-1]] if "form" in card.option_names() else [last]
        assert row["compiled_said"].count(". ") == len(forms) - 1
    full = row_named(table, "full")
    forward, both = (
        rows[f"full (fused), n = 1,024, {which}"] for which in ("forward", "forward and backward")
    )
    low, high = whole["full (fused), n = 1,024, forward"]["quartiles"]
    assert full["compiled_quartiles"] == [low, high]
    assert re.match(
        rf"Fused: forward ({forward:.2f}|≈ 1) times as fast \({low:.2f} to {high:.2f}\), "
        rf"forward and backward ({both:.2f}|≈ 1) times as fast \(",
        full["compiled_said"],
    )
    assert cells(full)["compiled"] in table.still().svg("")


def test_digits_are_those_that_the_page_writes() -> None:
    """What Node writes for the same numbers by toFixed(2)."""
    found = [
        to_fixed(each, 2) for each in (1.125, 2.5, -0.004, 1e26, math.inf, -math.inf, math.nan)
    ]
    assert found == ["1.13", "2.50", "-0.00", "1e+26", "Infinity", "-Infinity", "NaN"]


def test_what_is_not_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"measured": None, "note": "not done after 300 s of the processor"}
    fast = {"measured": 1.5, "quartiles": [1.25, 1.75], "note": ""}
    names = [f"gru (fused), n = 16, {which}" for which in ("forward", "forward and backward")]
    stored = {"machine": {}, "rows": dict(zip(names, (fast, slow), strict=True))}
    monkeypatch.setattr(gains, "stored", lambda: stored)
    gru = attnlab.card("gru")
    assert gains.gain(gru)["compiled"] is None, "the column is for 1,024 tokens"
    assert gains.sentence(gru, "fused") == (
        "for 16 tokens, forward 1.50 times as fast (1.25 to 1.75), forward and backward not "
        "measured, not done after 300 s of the processor"
    )
    assert gains.sentence(gru, "naive") == "not measured yet"
    slow["note"] = "InductorError: AssertionError: u95 -> u2"
    assert gains.sentence(gru, "fused").endswith("forward and backward does not compile")
    assert gains.gain(attnlab.card("full")) == {
        "compiled": None, "compiled_quartiles": None,
        "compiled_said": "Fused: not measured yet. Naive: not measured yet.",
    }  # fmt: skip
    assert gains.machine() == ""


def test_a_gain_whose_quartiles_lie_on_both_sides_of_1_is_none(
    table: Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"fnet (fft), n = 1,024, {which}" for which in ("forward", "forward and backward")]
    rows = [
        {"figure": name, "measured": 1.07, "quartiles": quartiles, "note": ""}
        for name, quartiles in zip(names, ([0.78, 1.11], [1.02, 1.11]), strict=True)
    ]
    found = {"machine": {}, "rows": {row["figure"]: row for row in rows}}
    monkeypatch.setattr(gains, "stored", lambda: found)
    fnet = gains.gain(attnlab.card("fnet"))
    assert "forward ≈ 1 times as fast (0.78 to 1.11)" in fnet["compiled_said"]
    assert "forward and backward 1.07 times as fast (1.02 to 1.11)" in fnet["compiled_said"]
    row = row_named(table, "fnet") | fnet
    assert cells(row)["compiled"] == "≈ 1 ×"
    assert cells(row | {"compiled_quartiles": [1.02, 1.11]})["compiled"] == "1.07 ×"
    told = compiled_table()
    assert "| `fnet` | `fft` | 1,024 | ≈ 1 × (0.78 to 1.11) | 1.07 × (1.02 to 1.11) |" in told


def test_a_form_of_which_one_pass_is_measured_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is said to be left out for a reason that was not measured."""
    name = "flash (tiled), n = 1,024, forward"
    row = {"figure": name, "measured": 2.06, "quartiles": [1.85, 2.15], "note": ""}
    monkeypatch.setattr(gains, "stored", lambda: {"machine": {}, "rows": {name: row}})
    told = compiled_table()
    assert "| `flash` | `tiled` | 1,024 | 2.06 × (1.85 to 2.15) | not measured yet |" in told
    assert told.count("\n\n") == 2, "what is measured, the table, what is not measured yet"
    assert "Not measured yet: " in told


def test_the_stored_gains_were_measured_by_the_limit_that_holds() -> None:
    notes = [row["note"] for row in gains.stored()["rows"].values() if row["measured"] is None]
    late = [note for note in notes if note.startswith("not done")]
    assert set(late) <= {f"not done after {LIMIT:,g} s of the processor"}


def test_counted_exponents_are_those_of_the_cards_where_n_is_long(table: Survey) -> None:
    for row in table.rows:
        if row["name"] in ("full", "linear", "performer", "fnet", "entmax", "linformer"):
            assert row["counted"] == pytest.approx(row["formula"], abs=0.02), row["name"]


def test_what_is_stored_is_of_the_catalogue_and_comes_out_again() -> None:
    assert set(KNOWN["rows"]) <= {card.name for card in attnlab.cards()}
    for name in ("linear", "full", "fnet"):
        assert module._counted(attnlab.card(name)) == KNOWN["rows"][name]["counted"]
        assert list(by_name.decodes(name)) == [
            KNOWN["rows"][name]["decodes"], KNOWN["rows"][name]["because"],
        ]  # fmt: skip


def test_a_mechanism_that_is_not_stored_is_counted_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = row_of(attnlab.card("linear"), None)
    assert (row["counted"], row["decodes"]) == (None, None)
    waits = threading.Event()
    counts = module._counted
    rest = {name: row for name, row in KNOWN["rows"].items() if name != "linear"}
    monkeypatch.setattr(module, "_stored", lambda: KNOWN | {"rows": rest})
    monkeypatch.setattr(module, "_counted", lambda one: waits.wait(60) and counts(one))
    table = Survey()
    row = row_named(table, "linear")
    assert (row["counted"], row["checked"], table._busy) == (None, "", ["linear"])
    assert table.still().svg("").count(">…<") == 2
    assert f"{sum(r['decodes'] for r in rest.values())} do" in table.description()
    table.order, table.down = "counted", True
    assert table.shown()[-1]["name"] == "linear"
    waits.set()
    assert table.wait(60)
    row = row_named(table, "linear")
    assert row["counted"] == pytest.approx(1, abs=0.01)
    assert (row["measured"], row["decodes"], row["checked"], table._busy) == (None, True, "", [])


class Means(torch.nn.Module):
    """Each token attends to the means of √n blocks; not causal, whatever it is asked to be."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.query, self.value = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, padding: Any = None) -> torch.Tensor:
        size = math.isqrt(x.shape[1])
        blocks = x[:, : x.shape[1] // size * size].unflatten(1, (-1, size)).mean(2)
        weights = (self.query(x) @ blocks.mT).softmax(-1)
        return torch.as_tensor(weights @ self.value(blocks))


class Sums(torch.nn.Module):
    """A running sum with a step: always causal, and it decodes."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, padding: Any = None) -> torch.Tensor:
        return x.cumsum(1)

    def step(self, x: torch.Tensor, state: Any = None) -> Any: ...


def test_a_mechanism_of_the_readers_has_a_row_like_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Survey()
    table.add("block means", Means, claims="n√n")
    assert table.wait(60)
    row = table.rows[-1]
    assert len(table.rows) == len(MIXING) + 1
    assert (row["name"], row["family"], row["claimed"]) == ("block means", "yours", "n√n")
    assert (row["formula"], row["page"], row["lesson"]) == (1.5, None, None)
    assert row["counted"] == pytest.approx(1.5, abs=0.02)
    assert row["because"] == "no: what follows a token changes its output"
    assert "as your claim gives n^1.50" in row["checked"]
    table.family = "yours"
    assert [row["name"] for row in table.shown()] == ["block means"]
    timed = []

    def times(layers: Any, n: int, **_: Any) -> Any:
        timed.append(layers[0].label)
        return [SimpleNamespace(median=1e-6 * n**1.5)]

    monkeypatch.setattr(by_name, "timed", times)
    table.time("block means")
    assert table.wait(60)
    assert table.rows[-1]["measured"] == 1.5
    assert set(timed) == {"block means"}
    table.add("block means", Sums, claims="n²")
    assert table.wait(60)
    row = table.rows[-1]
    assert len(table.rows) == len(MIXING) + 1
    assert (row["decodes"], row["formula"], row["measured"]) == (True, 2.0, None)
    assert row["counted"] == pytest.approx(1, abs=0.02)
    assert "where your claim gives n^2.00" in row["checked"]


@pytest.mark.parametrize(
    ("name", "build", "claims", "error", "words"),
    [
        ("linear", Means, "n", ValueError, "'linear' is in the catalogue"),
        ("  ", Means, "n", ValueError, "name should be a text"),
        (3, Means, "n", ValueError, "name should be a text"),
        ("mine", Means(8, 1, False), "linear", ValueError, "claim"),
        ("mine", "Means", "n", TypeError, "build should be a module's class"),
        ("mine", lambda dim: Means(dim, 1, False), "n", TypeError, "called as function.dim, heads"),
        ("mine", lambda dim, heads, causal: None, "n", TypeError, "should return an nn.Module"),
        ("mine", lambda dim, heads, causal: torch.nn.GELU(), "n", TypeError, "forward of GELU"),
    ],
)
def test_a_row_that_cannot_be_added_is_refused(
    name: Any, build: Any, claims: str, error: type[Exception], words: str
) -> None:
    table = Survey()
    with pytest.raises(error, match=words):
        table.add(name, build, claims=claims)
    assert len(table.rows) == len(MIXING)


def test_a_leak_from_the_future_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = by_name.Subject.layer

    class Leaks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x.mean(dim=1, keepdim=True)

        def step(self) -> None: ...

    assert by_name.decodes("full")[0]
    monkeypatch.setattr(by_name.Subject, "layer", lambda *_, **__: Leaks())
    assert by_name.decodes("full") == (False, "no: what follows a token changes its output")
    monkeypatch.setattr(by_name.Subject, "layer", honest)
    monkeypatch.setattr(by_name, "steps", lambda _: False)
    assert "no step" in by_name.decodes("full")[1]


def test_a_row_is_checked_and_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        by_name, "timed", lambda _layers, n, **__: [SimpleNamespace(median=1e-6 * n**1.5)]
    )
    table = Survey()
    table.check("linear")
    assert table.wait(60)
    row = row_named(table, "linear")
    assert row["checked"].startswith("Counted now: n^1.00, as the card's formula gives n^1.00")
    assert row["measured"] == KNOWN["rows"]["linear"]["measured"]
    table._told(table, {"kind": "time", "name": "linear"}, [])
    assert table.wait(60)
    row = row_named(table, "linear")
    assert row["measured"] == 1.5
    assert "Timed now: n^1.50 (1.50 to 1.50)" in row["checked"]
    assert table._busy == []
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        table.check("linera")


def test_an_error_is_shown_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(module, "checked", fails)
    table = Survey()
    table.check("full")
    assert table.wait(60)
    row = row_named(table, "full")
    assert row["checked"] == "It could not be checked: no memory"


def test_a_count_that_differs_from_the_formula_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_counted", lambda _: 1.4)
    said = checked(attnlab.card("linear"), timed=False)["checked"]
    assert "n^1.40, where the card's formula gives n^1.00" in said


def test_what_the_page_is_tested_with_sorts_as_python() -> None:
    given = stored("survey.json")
    table = Survey()
    table._rows = [{**row, "interval": None} for row in given["rows"]]
    for chosen, names in given["cases"]:
        assert filtered(table, chosen) == names


def test_the_formula_column_is_the_cards_over_the_counted_lengths() -> None:
    n = module.COUNTED
    expected = fit(n, [5 * 256 * k * (torch.tensor(256.0 * k).log2().item()) / 2 for k in n]).slope
    assert module._formula(attnlab.card("fnet")) == pytest.approx(expected, abs=1e-3)


def test_the_still_has_the_first_rows_and_says_how_many_are_left(table: Survey) -> None:
    for name, value in FILTERS[0].items():
        setattr(table, name, value)
    drawn = table.still().svg("")
    assert drawn.count(">yes<") + drawn.count(">no<") == 28
    assert f"And {len(MIXING) - 28} more." in drawn
    table.family = "fixed"
    drawn = table.still().svg("")
    assert "more." not in drawn
    assert drawn.count(">yes<") + drawn.count(">no<") == len(table.shown())
    table.family = ""
    assert "mechanisms with the growth" in repr(table)


def test_the_pages_of_another_shelf_stand_with_their_claims() -> None:
    found = Survey()
    assert found._parts == [], "no byte of a notebook is spent on what nobody looks at"
    found.shelf, found.order = "join", "year"
    joins = [card for card in attnlab.cards() if card.role == "join"]
    assert [row["name"] for row in found.shown()] == [
        card.name for card in sorted(joins, key=lambda card: card.paper.year)
    ]
    assert [tuple(pair) for pair in found.shown()[0]["claims"]] == attnlab.card(
        found.shown()[0]["name"]
    ).claims.rows()
    texts = [part["content"] for kind, part in found.still().parts if kind == "text"]
    assert "Post-norm, 2017" in texts
    assert texts[0] == attnlab.catalog.TITLES["join"]
    found.search = "deepn"
    assert [row["name"] for row in found.shown()] == ["deep_norm"]
    assert "1 page with" in repr(found)
    with pytest.raises(traitlets.TraitError, match="shelf"):
        found.shelf = "attic"


def test_wrong_orders_are_refused() -> None:
    with pytest.raises(traitlets.TraitError):
        Survey().order = "price"


if __name__ == "__main__":
    write("survey.json", fixtures(Survey()))
