"""KernelLab without a browser: its maps are those of the lens, its sentences, and its manners."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets import kernel_lab
from attnlab_widgets.kernel_lab import KEPT, KernelLab, trained_heads, words
from attnlab_widgets.kernel_lab.given import Head
from attnlab_widgets.kernel_lab.picture import Axes, said_share
from attnlab_widgets.words import two

from attnlab.lens.kernel_maps import KINDS, Approximation, Choice, Speed, approximate
from tests.widgets.stored import assert_fresh, write

N, D = 11, 5
WAIT = 300
Pair = tuple[torch.Tensor, torch.Tensor]


def made(n: int = N, m: int = N, d: int = D, scale: float = 1.0) -> Pair:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(n, d, generator=generator, dtype=torch.float64)
    k = torch.randn(m, d, generator=generator, dtype=torch.float64)
    return (scale * q).float(), (scale * k).float()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., KernelLab]]:
    """Labs on small heads, timed at once; closed after the test with their threads."""
    monkeypatch.setattr(kernel_lab, "EVERY", 0.01)
    labs: list[KernelLab] = []

    def lab(heads: Any = None, *arguments: Any, **options: Any) -> KernelLab:
        options = {"length": 64, "features": 7} | options
        labs.append(KernelLab(heads or {"one": made()}, *arguments, **options))
        return labs[-1]

    yield lab
    for one in labs:
        one.close()
        assert one.wait(WAIT)
    assert not [t for t in threading.enumerate() if t.name.startswith("attnlab-")]


# What the page must compute, too

HEADS: list[tuple[Pair, bool]] = [
    (made(7, 13, 3, 1.5), True),
    (made(11, 5, 2), False),
    (made(5, 5, 19, 0.8), True),
    (made(3, 3, 1), True),
    ((-torch.ones(2, 1), torch.ones(2, 1)), True),  # whose relu is 0
]
TEMPERATURES = [[0.71], [0.714, 0.711], [1.0, 1.004, 2.0], [1 / 3, 1 / 3 + 1e-9]]
POINTS: list[list[tuple[float, float]]] = [
    [], [(64, 0.2)], [(1, 0.02)], [(2, 8.28), (2**14, 0.5)], [(64, 0.0007), (4, 0)], [(8, 3e7)],
]  # fmt: skip
DRAWN = [(1, True, 0, 1.0), (7, True, 5, 0.5), (23, False, 9999, 2.0), (40, True, 3, 1.37)]


def case(pair: Pair, causal: bool, choice: Choice) -> dict[str, Any]:
    (q, k), width = pair, pair[0].shape[1]
    seen = approximate(q, k, choice, causal=causal)
    lab_head = Head(q, k, [f"t{i}" if width > 1 else str(i) for i in range(len(q))])
    return {
        "head": {"n": len(q), "m": len(k), "d": width, "causal": causal, "names": lab_head.names,
                 "q": q.flatten().tolist(), "k": k.flatten().tolist()},
        "choice": {name: getattr(choice, name) for name in choice.__dataclass_fields__},
        "count": choice.count(width),
        "rows": choice.rows(width).flatten().tolist() if choice.random else [],
        "exact": seen.exact.flatten().tolist(), "map": seen.map.flatten().tolist(),
        "misplaced": seen.misplaced.tolist(), "error": seen.error,
        "negative": seen.negative, "empty": seen.empty,
        "said": words.description(seen, choice, lab_head), "reach": words.reach(seen),
    }  # fmt: skip


def cases() -> dict[str, Any]:
    found = [
        case(pair, causal, Choice(feature, *DRAWN[(at + which) % len(DRAWN)]))
        for which, (pair, causal) in enumerate(HEADS)
        for at, feature in enumerate(KINDS)
    ]
    shares = [0.0, 0.0004, 0.001, 0.0123, 0.0994, 0.0996, 0.126, 1.0, 12.346]
    numbers = [0.01, 0.25, 0.7, 0.71, 1.0, 1.4, 2.0, 10.0, 100.0]
    return {
        "kinds": [*KINDS.items()],
        "cases": found,
        "percents": [[share, words.percent(share)] for share in shares],
        "temperatures": [[number, words.temperature(number)] for number in numbers],
        "digits": [[given, words.digits_of(given)] for given in TEMPERATURES],
        "axes": [axes_of(points) for points in POINTS],
    }


def axes_of(points: list[tuple[float, float]]) -> dict[str, Any]:
    axes = Axes.around(points)
    return {"points": points, "axes": asdict(axes), "places": [axes.place(*one) for one in points],
            "shares": [said_share(share) for share in axes.shares]}  # fmt: skip


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("kernels.json", cases())


# The widget


def test_it_begins_with_trained_heads_worth_seeing() -> None:
    heads, tokens = trained_heads()
    gentle, sharp = (
        approximate(q, k, Choice("positive", 256), causal=True).error for q, k in heads.values()
    )
    assert gentle < 0.25 < 0.35 < sharp
    assert [len(names) for names in tokens.values()] == [len(q) for q, _ in heads.values()]


def test_a_choice_changes_maps_words_and_speed(make: Any) -> None:
    lab = make()
    lab.feature, lab.features = "trigonometric", 16
    wanted = approximate(*made(), Choice("trigonometric", 16), causal=True)
    torch.testing.assert_close(lab.approximation.map, wanted.map)
    assert "Random: cos and sin, 32 features, orthogonal, seed 0" in lab.description()
    assert lab.description() in repr(lab)
    assert lab.wait(WAIT)
    assert lab.measured.ratio == pytest.approx(lab.measured.own / lab.measured.exact, rel=9)
    assert "64 tokens" in lab._times[lab._key()]["said"]
    lab.feature = "softmax"
    assert lab.measured is None
    assert "the map that all others are measured by" in lab.description()


def test_errors_are_those_of_each_number_of_features(make: Any) -> None:
    lab = make(features=50)
    errors = lab.errors()
    assert list(errors) == sorted({*kernel_lab.NUMBERS, 50})
    assert errors[50] == lab.approximation.error
    wanted = approximate(*made(), Choice("positive", 1024), causal=True)
    assert errors[1024] == wanted.error
    lab.feature = "elu"
    assert lab.errors() == {50: lab.approximation.error}


@pytest.mark.parametrize(("control", "value"), [("seed", 5), ("orthogonal", False)])
def test_another_draw_is_another_map(make: Any, control: str, value: Any) -> None:
    lab = make()
    before = lab.approximation.map
    setattr(lab, control, value)
    assert not torch.equal(lab.approximation.map, before)


def test_what_was_tried_stays_in_a_short_list(make: Any) -> None:
    lab = make()
    for seed in range(KEPT + 3):
        lab.seed = seed
    assert [one["seed"] for one in lab.tried] == [*range(3, KEPT + 3)]
    lab.feature = "elu"
    lab.seed = 4  # has no effect: the same setting
    assert [lab.said(one) for one in lab.tried[-2:]] == [
        f"random: positive, 7 features, orthogonal, seed {KEPT + 2}", "elu + 1, 5 features",
    ]  # fmt: skip
    json.dumps(lab.tried)


def test_a_page_says_itself_what_was_tried(make: Any) -> None:
    """What a slider passes is a state of the widget, and no setting that was tried."""
    lab = make()
    for features in (8, 16, 32):
        lab.set_state({"features": features})
    assert (lab.features, len(lab.tried)) == (32, 1)
    lab.set_state({"tried": [*lab.tried, lab.tried[0] | {"features": 32}]})
    assert [one["features"] for one in lab.tried] == [7, 32]
    lab.set_state({"tried": [lab.tried[0] | {"features": 0}]})
    assert [one["features"] for one in lab.tried] == [7, 32]
    lab.features = 64
    assert [one["features"] for one in lab.tried] == [7, 32, 64]


def test_sentences_say_what_is_no_weight_any_more(make: Any) -> None:
    lab = make({"one": made(17, 17, scale=3)}, [*"abcdefghijklmnopq"], feature="trigonometric")
    seen = lab.approximation
    assert f"{seen.negative} of 17 rows are divided by a number below zero" in lab.description()
    worst = int(seen.misplaced.argmax())
    assert f"{'abcdefghijklmnopq'[worst]} at position {worst}, " in lab.description()
    empty = Approximation(seen.exact, seen.map * 0, seen.misplaced, 0, 17)
    head = Head(*made(17, 17), [*"abcdefghijklmnopq"])
    assert "17 of 17 rows have no weight at all." in words.description(empty, lab.choice, head)


def test_the_speed_is_told_in_a_sentence() -> None:
    said = words.timed(Speed(0.0125, 0.005, 2.5), 1024, 16, True)
    assert said == (
        "1,024 tokens, 4 heads of width 16, causal: 12.5 ms, exact softmax 5 ms: it takes 2.5 × "
        "as long. Median of 5 passes where Python ran."
    )
    assert "it is 4.0 × as fast" in words.timed(Speed(0.0025, 0.01, 0.25), 8192, 16, False)


def test_an_error_of_the_clock_is_reported_and_passes(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make()
    assert lab.wait(WAIT)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(kernel_lab, "speed", broken)
        lab.features = 9
        lab.wait(WAIT)
        assert lab._trouble == "The speed could not be measured: no room"
        assert lab._measuring == ""
    lab.features = 10
    lab.wait(WAIT)
    assert lab._trouble == ""
    assert lab.measured


def test_a_saved_file_has_the_time_that_was_measured(make: Any, tmp_path: Any) -> None:
    lab = make()
    page = lab.save_html(tmp_path / "lab.html").read_text("utf-8")
    state = json.loads(re.search(r"data-attnlab-state>(.*?)</script>", page, re.DOTALL)[1])  # type: ignore[index]
    assert state["_live"] is False
    assert state["_times"] == lab._times != {}


def test_the_picture_hatches_what_is_masked_and_shows_signs_as_such(make: Any) -> None:
    lab = make()
    kinds = [kind for kind, _ in lab.still().parts]
    assert kinds.count("hatch") == 3
    maps = [part for kind, part in lab.still().parts if kind == "map"]
    exact, features, difference = (np.asarray(part["levels"]) for part in maps[:3])
    apart = (lab.approximation.map - lab.approximation.exact).numpy()
    assert ((difference > 32) == (np.sqrt(np.abs(apart)) * np.sign(apart) * 32 > 0.5)).all()
    assert exact.min() == features.min() == 0
    assert exact[1:].max() < 64, "one scale: no weight but the first row's is 1"
    lab.feature = "trigonometric"
    if bool((lab.approximation.map < 0).any()):
        palettes = [part["palette"] for kind, part in lab.still().parts if kind == "map"]
        assert palettes[1] == palettes[2] != palettes[0]
    full = make({"one": made()}, causal=False)
    assert "hatch" not in [kind for kind, _ in full.still().parts]
    for feature in KINDS:
        lab.feature = feature
        assert lab.still().svg("").endswith("</svg>")


def test_the_axes_grow_to_the_points_and_each_stands_where_it_is() -> None:
    usual = Axes.around([(4, 3.0), (2**13, 0.004)])
    assert usual == Axes.around([]) == Axes(2, 13, 0.004, 3.0)
    assert usual.place(4, 3.0) == (0.0, 0.0)
    assert usual.place(2**13, 0.004) == (1.0, 1.0)
    across, down = usual.place(2**7.5, 0.004**0.5 * 3**0.5)
    assert (across, down) == pytest.approx((0.5, 0.5))
    large = Axes.around([(1, 8.28), (64, 2.93), (2, 0.0007)])
    assert large == Axes(0, 13, pytest.approx(1e-4), 10.0)
    assert large.place(1, 8.28)[0] == 0
    assert 0 < large.place(1, 8.28)[1] < large.place(64, 2.93)[1] < large.place(2, 0.0007)[1] < 1
    assert [said_share(share) for share in large.shares] == [
        "0.01 %", "0.1 %", "1 %", "10 %", "100 %", "1,000 %",
    ]  # fmt: skip
    none = Axes.around([(4, 0.0), (8, 0.3)])
    assert none.place(4, 0.0)[1] == 1, "no weight in the wrong place stands at the lower end"


def test_what_is_always_1_is_framed_only_where_it_is_1(make: Any) -> None:
    lab = make({"one": (-torch.ones(3, 1), torch.ones(3, 1))}, feature="relu")
    assert lab.approximation.map[0, 0] == 0
    left = [part["box"][0] for kind, part in lab.still().parts if kind == "map"][:3]

    def framed() -> list[float]:
        boxes = [part["box"] for kind, part in lab.still().parts if kind == "box"]
        return [x for x, _, w, h in boxes if w == h == pytest.approx(244 / 3)]

    assert framed() == left[:1]
    lab.feature = "positive"
    assert framed() == left[:2]


def test_weights_of_both_signs_have_a_key_that_says_what_is_clipped(make: Any) -> None:
    lab = make({"one": made(17, 17, scale=1)})
    said = [part["content"] for kind, part in lab.still().parts if kind == "text"]
    assert not [text for text in said if "both signs" in text]
    lab.feature = "trigonometric"
    least, most = lab.approximation.map.min().item(), lab.approximation.map.max().item()
    assert most > 1
    said = [part["content"] for kind, part in lab.still().parts if kind == "text"]
    assert "weights of both signs: −1" in said
    wanted = f"+1; colours end at ±1: here weights go from {two(least)} to {two(most)}"
    assert wanted in said


def test_settings_with_other_effects_are_kept_and_said_apart(make: Any) -> None:
    lab = make(temperature=0.714)
    assert "temperature 0.71" in lab.description()
    lab.temperature = 0.711
    assert [one["temperature"] for one in lab.tried] == [0.714, 0.711]
    assert [lab.said(one)[-17:] for one in lab.tried] == ["temperature 0.714", "temperature 0.711"]
    assert "temperature 0.711: " in lab.description()


def test_a_long_name_is_cut_and_still_read(make: Any) -> None:
    lab = make({"h" * 90: made(), "two": made()})
    said = [part["content"] for kind, part in lab.still().parts if kind == "text"]
    assert "h" * 65 + "…" in said


def test_one_is_said_as_one(make: Any) -> None:
    lab = make({"one": (-torch.ones(3, 1), torch.ones(3, 1))}, feature="relu")
    assert lab.description() == (
        "Relu, 1 feature: 50 % of the attention sits in the wrong place; in the worst row, that at "
        "position 0, 50 %. 3 of 3 rows have no weight at all."
    )


def test_python_ends_while_the_clock_runs(tmp_path: Any) -> None:
    """A thread that is stopped within PyTorch would abort the process."""
    made_and_left = (
        "import torch\n"
        "from attnlab_widgets.kernel_lab import KernelLab\n"
        "q, k = torch.randn(2, 8, 16)\n"
        "lab = KernelLab({'one': (q, k)}, features=256, length=2048)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", made_and_left], capture_output=True, text=True, check=False,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=WAIT,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_lab_measures_no_more(make: Any) -> None:
    lab = make()
    lab.close()
    lab.wait(WAIT)
    lab._timer.ask()
    assert lab.wait(WAIT)


WRONG: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ValueError, "pick one sequence and one head", {"heads": {"a": (torch.zeros(1, 3, 2),) * 2}}),
    (ValueError, "between 1 and 128", {"heads": {"a": made(129, 129)}}),
    (ValueError, "use causal=False", {"heads": {"a": made(7, 5)}}),
    (ValueError, "NaN", {"heads": {"a": (torch.full((3, 2), torch.nan), torch.zeros(3, 2))}}),
    (TypeError, "at least one head", {"heads": [made()]}),
    (TypeError, "a pair", {"heads": {"a": torch.zeros(3, 2)}}),
    (ValueError, "list of 11", {"tokens": ["a"]}),
    (ValueError, "head", {"head": "two"}),
    (ValueError, "positive", {"feature": "positiv"}),
    (ValueError, "`features`", {"features": 0}),
    (ValueError, "`features`", {"features": 20_000}),
    (ValueError, "`temperature`", {"temperature": 0.0}),
    (ValueError, "`seed`", {"seed": -1}),
    (ValueError, "`seed`", {"seed": 10_000}),
    (ValueError, "`length`", {"length": 0}),
]


@pytest.mark.parametrize(("kind", "said", "options"), WRONG, ids=[w[1] for w in WRONG])
def test_wrong_arguments_are_reported(
    kind: type[Exception], said: str, options: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=said.replace("`", ".")):
        KernelLab(**({"heads": {"one": made()}} | options))


def test_states_are_refused_in_sentences(make: Any) -> None:
    lab = make()
    for name, value, said in (
        ("head", "two", "there is no head 'two'"),
        ("feature", "elus", "there is no feature map 'elus'; did you mean"),
        ("features", 0, "`features` should be from 1 to 16384, got 0"),
        ("temperature", 0.001, "`temperature` should be from 0.01 to 100, got 0.001"),
        ("length", 10_000, "`length` should be from 1 to 8192, got 10000"),
        ("tried", [{"head": "one"}], "a setting should be a dict of head, feature, features"),
        ("tried", [lab.tried[0]] * 9, "`tried` should be a list of at most 8 settings"),
        ("tried", [lab.tried[0] | {"head": ["one"]}], "head"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(said)):
            setattr(lab, name, value)


if __name__ == "__main__":
    write("kernels.json", cases())
