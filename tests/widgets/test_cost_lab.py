"""CostLab: its formulas are the cards', its counts are measure's, and what it shows follows."""

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import sympy
import traitlets
from attnlab_widgets import cost_formulas
from attnlab_widgets.cost_formulas import told, tree, value
from attnlab_widgets.cost_lab import BASE, CostLab

import attnlab
from attnlab.core.card import LIKE_N, letters
from attnlab.measure import by_name
from attnlab.measure.costs import counted
from attnlab.measure.measured import Measurement
from attnlab.measure.subject import subject
from tests.widgets.stored import assert_fresh, stored, write

MIXING = [card for card in attnlab.cards() if card.mixes]
SETTINGS: list[dict[str, Any]] = [
    {"mechanism": "longformer", "n": 2048, "dim": 128, "heads": 4, "options": {"window": 128}},
    {"mechanism": "performer", "n": 65_536, "dim": 64, "heads": 1, "options": {}},
    {"mechanism": "bigbird", "n": 1024, "dim": 512, "heads": 8, "options": {"block": 16}},
    {"mechanism": "fnet", "n": 512, "dim": 32, "heads": 2, "options": {}, "quantity": "memory"},
    {"mechanism": "multi_query", "n": 256, "dim": 256, "heads": 16, "options": {}},
    {"mechanism": "shaw", "n": 8192, "dim": 256, "heads": 4, "options": {}},
]


@pytest.fixture(autouse=True)
def _no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting in the background is asked for where a test looks at it."""
    monkeypatch.setattr(CostLab, "_count", lambda _: None)


def case(setting: dict[str, Any]) -> dict[str, Any]:
    lab = CostLab(**setting)
    return {
        "setting": {"quantity": "time", **setting},
        "key": lab._key,
        "lengths": lab.lengths(),
        "costs": [lab.cost(n) for n in lab.lengths()],
        "exponent": lab.exponent(),
        "crossover": lab.crossover(),
    }


def fixtures() -> dict[str, Any]:
    return {
        "mechanisms": [told(card) for card in MIXING],
        "cases": [case(setting) for setting in SETTINGS],
    }


@pytest.mark.parametrize("card", MIXING, ids=lambda card: card.name)
def test_a_formula_on_the_page_is_that_of_the_card(card: Any) -> None:
    options, form = card.options(), list(card.forms)[-1]
    told_of = told(card)
    for what in ("time", "memory"):
        known: dict[str, float] = {"n": 1031, "h": 3, "d": 7, "e": 7, "dim": 21}
        claim = card.cost(what, form, options).subs(dict.fromkeys(LIKE_N, letters("n")[0]))
        own = {letter: getattr(options, name) for letter, name in card.letters.items()}
        expected = claim.subs({x: (known | own)[x.name] for x in claim.free_symbols})
        usual = {letter: one["usual"] for letter, one in told_of["letters"].items()}
        assert value(told_of[what], known | usual) == pytest.approx(float(expected), rel=1e-12)


def test_a_function_that_the_page_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot evaluate floor"):
        tree(sympy.floor(sympy.Symbol("n") / 2))


def test_what_the_page_is_tested_with_is_fresh() -> None:
    assert_fresh("costs.json", {**stored("costs.json"), "cases": fixtures()["cases"]})


def test_counted_are_the_flops_of_the_mixing() -> None:
    lab = CostLab("longformer", n=1024, dim=32, heads=2, options={"window": 64})
    layer = subject("longformer", dim=32, heads=2, window=64)
    assert lab.counted() == {n: counted(layer, n).mixing_flops for n in (64, 128, 256, 512, 1024)}
    assert lab.counted()[1024] == pytest.approx(lab.cost(1024), rel=0.5)  # whole blocks


def test_where_the_formulas_cross() -> None:
    assert CostLab("longformer").crossover() == pytest.approx(513)  # w + 1 keys a query
    assert CostLab("longformer", options={"window": 64}).crossover() == pytest.approx(65)
    assert CostLab("shaw").crossover() is None
    lab = CostLab("full")
    assert lab.crossover_said() == "This is full attention itself."
    assert "never" in CostLab("shaw").crossover_said()
    assert CostLab("full").exponent() == pytest.approx(2)


def test_a_curve_waits_for_its_claim() -> None:
    lab = CostLab("longformer")
    assert "Choose before you see" in repr(lab)
    assert "513" not in repr(lab)
    before = lab.still().svg("")
    lab.claims = {"longformer": "n²"}
    assert "claimed to grow like n²; its formula grows like n to the power 1.00" in repr(lab)
    assert "from n = 513 on" in repr(lab)
    after = lab.still().svg("")
    assert before.count("n log n") == 1
    assert "n log n" not in after
    assert "Longformer</text>" in after


def measurement(name: str, n: int, of: float) -> Measurement:
    seconds = tuple(of * (1 + at / 100) for at in range(3))
    layer = subject(name, dim=32, heads=2)
    return Measurement(layer, n, "forward", seconds, seconds[1], (of, seconds[2]), 1, "cpu")


def timed(layers: Any, n: int, *_: Any, **more: Any) -> list[Measurement]:
    asked.append((layers, n, more))
    return [measurement(layers[0][0], n, 1e-6 * n), measurement(BASE, n, 1e-9 * n * n)]


asked: list[Any] = []


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> CostLab:
    asked.clear()
    monkeypatch.setattr(by_name, "times", timed)
    claims = {"longformer": "n"}
    return CostLab(n=2048, dim=32, heads=2, options={"window": 64}, claims=claims)


def test_what_is_timed_is_told_with_its_exponent_and_crossover(lab: CostLab) -> None:
    assert lab.measured is None
    lab.backward = True
    lab._told(lab, {"kind": "measure"}, [])
    assert lab.wait(60)
    assert [n for _, n, _ in asked] == [128, 256, 512, 1024, 2048]
    assert asked[0][0] == [("longformer", {"window": 64}), ("full", {})]
    assert asked[0][2]["backward"] is True
    found = lab.measured
    assert found is not None
    assert found["slope"] == pytest.approx(1)
    assert found["rows"][0] == pytest.approx(
        [
            128,
            1.01 * 128e-6,
            128e-6,
            1.02 * 128e-6,
            1.01e-9 * 128**2,
            1e-9 * 128**2,
            1.02e-9 * 128**2,
        ]
    )
    assert "faster from n = 1,000 on" in repr(lab)
    assert lab._progress["done"] == 5
    lab.backward = False  # another pass: not measured
    assert lab.measured is None
    lab.backward = True
    assert lab.measured is not None
    lab.n = 4096  # another setting: not measured
    assert lab.measured is None


def test_a_stop_keeps_what_was_timed(lab: CostLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def once(*given: Any, **more: Any) -> list[Measurement]:
        lab._told(lab, {"kind": "stop"}, [])
        return timed(*given, **more)

    monkeypatch.setattr(by_name, "times", once)
    lab.measure()
    assert lab.wait(60)
    assert lab.measured is not None
    assert len(lab.measured["rows"]) == 1


def test_an_error_in_the_background_is_shown(lab: CostLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(by_name, "times", fails)
    lab.measure()
    assert lab.wait(60)
    assert lab._progress["error"] == "This cannot be timed: no memory"


def test_a_new_mechanism_keeps_no_option_of_the_old_one(lab: CostLab) -> None:
    lab.mechanism = "performer"
    assert lab.options == {}


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("mechanism", "longformr", "did you mean 'longformer'"),
        ("mechanism", "rope", "no mechanism"),
        ("n", 1000, "one of 64, 128"),
        ("dim", 33, "one of 32, 64"),
        ("heads", 3, "one of 1, 2, 4"),
        ("options", {"windw": 3}, "did you mean 'window'"),
        ("options", {"window": -1}, "at least"),
        ("claims", {"longformer": "n³"}, "one of n, n log n"),
        ("quantity", "money", "money"),
    ],
)
def test_wrong_values_are_refused(name: str, wrong: Any, words: str) -> None:
    with pytest.raises(traitlets.TraitError, match=words):
        CostLab(**{name: wrong})


def test_options_of_the_mechanism_do_not_reach_full_attention(lab: CostLab) -> None:
    lab.measure()
    assert lab.wait(60)
    assert all(layers[1] == (BASE, {}) for layers, _, _ in asked)


def test_a_saved_page_says_that_nobody_measures(lab: CostLab, tmp_path: Path) -> None:
    lab._progress = {"key": lab._key, "done": 1, "of": 5, "n": 256}
    assert lab._saved_state()["_progress"] == {}  # nothing is under way there
    page = lab.save_html(tmp_path / "lab.html").read_text(encoding="utf-8")
    assert '"_live":false' in page
    assert "cdn" not in page
    about = json.loads(zlib.decompress(lab._about))
    assert [one["name"] for one in about["mechanisms"]] == [card.name for card in MIXING]


def test_the_bundles_are_small() -> None:
    static = Path(cost_formulas.__file__).parent / "static"
    for name in ("cost_lab.js", "survey.js"):
        assert (static / name).stat().st_size <= 80 * 1024


def test_a_new_mechanism_is_there_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlab_widgets import cost_lab

    new = dataclasses.replace(attnlab.card("full"), name="brand_new", title="Brand new")
    monkeypatch.setattr(cost_lab, "cards", lambda: [*attnlab.cards(), new])
    assert CostLab("brand_new").exponent() == pytest.approx(2)


if __name__ == "__main__":
    CostLab._count = lambda _: None  # type: ignore[method-assign]
    write("costs.json", fixtures())
