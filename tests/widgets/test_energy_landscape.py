"""EnergyLandscape: its path and energies are the mechanism's; its sentence says where it ends."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.energy_landscape import PRESETS, EnergyLandscape
from attnlab_widgets.energy_landscape.picture import bands
from attnlab_widgets.words import fixed

from attnlab.mechanisms.memory import hopfield
from tests.widgets.stored import assert_fresh, write

THREE = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]


def widgets() -> list[EnergyLandscape]:
    five = [[0.3, 1.7], [-2.2, 0.4], [1.1, -0.9], [2.6, 2.5], [-0.6, -3.1]]
    return [
        *(EnergyLandscape(preset=name) for name in PRESETS),
        EnergyLandscape(THREE, query=[0.8, 0.3], beta=8.0, steps=1),
        EnergyLandscape(five, query=[-3.0, 2.0], beta=0.7, steps=12, names=[*"αβγδε"]),
        EnergyLandscape([[0.0, -2.0]], query=[4.0, 4.0], beta=30.0, steps=2),
    ]


def case(one: EnergyLandscape) -> dict[str, Any]:
    names = ("patterns", "query", "beta", "steps", "names")
    return {
        **{name: getattr(one, name) for name in names},
        "path": one.path().tolist(),
        "energies": one.energies().tolist(),
        "weights": one.weights().tolist(),
        "said": one.description(),
    }


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("landscape.json", cases())


def test_the_path_is_that_of_plain_loops_and_its_energy_never_rises() -> None:
    for one in widgets():
        stored, state = (torch.tensor(x, dtype=torch.float64) for x in (one.patterns, one.query))
        for found in one.path():
            torch.testing.assert_close(found, state, rtol=0, atol=1e-12)
            state = (one.beta * stored @ state).softmax(0) @ stored
        energies = one.energies()
        assert len(energies) == one.steps + 1
        assert bool((energies.diff() <= 1e-12).all())
        assert bool((energies >= 0).all())
        torch.testing.assert_close(energies, hopfield.energy(one.path(), stored, beta=one.beta))


def test_the_sentence_tells_one_pattern_from_means() -> None:
    one = EnergyLandscape(THREE, query=[0.8, 0.3], beta=8.0, steps=1)
    assert one.description() == (
        "One step leads from (0.80, 0.30), where the energy is 0.20, to (0.98, 0.02), where it is "
        "0.14: pattern a, with 1.00 of the weight. The last step still moved the state by 0.34."
    )
    alike = EnergyLandscape(preset="two alike", steps=12).description()
    assert "a mean of a and b, which have 1.00 of the weight." in alike
    assert "moved" not in alike
    small = EnergyLandscape(preset="a small β", steps=12).description()
    assert "a mean of all 4 patterns, of which" in small


@pytest.mark.parametrize("name", PRESETS)
def test_what_an_example_asks_to_try_happens(name: str) -> None:
    one = EnergyLandscape(preset=name, steps=12)
    if name == "four patterns":
        one.query = [-0.5, 0.4]
        assert "pattern b" in one.description()
        one.beta = 0.1
        assert "a mean of all 4" in one.description()
    elif name == "a small β":
        one.beta = 3.0
        assert "pattern a" in one.description()
    elif name == "two alike":
        one.beta = 8.0
        assert "pattern a" in one.description()
    else:
        assert "pattern c" in one.description()
        one.patterns = [*one.patterns[:2], [0.4, -0.9]]
        assert "pattern c" not in one.description()


def test_states_are_set_and_refused_in_sentences() -> None:
    one = EnergyLandscape(THREE)
    assert one.query == [0.5, 0.0]
    one.patterns = torch.tensor(THREE) * 2
    one.query, one.beta, one.steps = np.array([1, 2]), 5, 3
    assert one.path().shape == (4, 2)
    for name, value, words in (
        ("patterns", [[1, 2]], "`patterns` should hold 3 points, as before, got 1"),
        ("query", [1, 2, 3], "`query` should be two coordinates, got 3"),
        ("query", [1, 200], "`query` has coordinates beyond ±100"),
        ("beta", 0, "`beta` should be above 0 and at most 100, got 0"),
        ("beta", 101, "`beta` should be above 0 and at most 100, got 101"),
        ("steps", 13, "`steps` should be 1 to 12, got 13"),
        ("names", ["a", "a", "b"], "`names` should be 3 different names, one for each pattern"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    for arguments, words in (
        ({"patterns": THREE, "preset": "two alike"}, "`preset` or `patterns`, not both"),
        ({"names": ["a"]}, "`names` belongs to `patterns`"),
        ({"preset": "two alikes"}, "there is no preset 'two alikes'; did you mean"),
        ({"patterns": torch.ones(9, 2)}, "1 to 8 points of the plane"),
        ({"patterns": torch.ones(3, 4)}, "1 to 8 points of the plane"),
        ({"patterns": [[1, np.nan]]}, "`patterns`"),
        ({"patterns": THREE, "names": ["x"]}, "`names` should be 3 different names"),
        ({"steps": 0}, "`steps` should be 1 to 12, got 0"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(words)):
            EnergyLandscape(**arguments)


def test_the_picture_shows_the_landscape_and_the_path() -> None:
    three = [[0.5, 0.0], [-0.2, 1.1], [-0.6, 0.0]]
    one = EnergyLandscape(three, query=[0.8, 0.3], beta=8.0, names=["<b>", "b", "c"])
    parts = one.still().parts
    (landscape,) = (part["levels"] for kind, part in parts if kind == "map")
    row, column = np.unravel_index(landscape.argmin(), landscape.shape)
    side = landscape.shape[0]
    lowest = np.array([2 * column / side - 1, 1 - 2 * row / side]) * 1.5
    assert np.hypot(*(lowest - three[1])) < 0.2, "the lowest energy lies at the longest pattern"
    paths = [part["points"] for kind, part in parts if kind == "line" and part["width"] == 2]
    assert [len(points) for points in paths] == [7, 7]
    assert "<b>" not in one.still().svg("")


def test_bands_rise_with_the_energy() -> None:
    energies = np.array([0.0, 0.001, 0.5, 2.0, 8.0])
    found = bands(energies)
    assert found.tolist() == [0, 0, 3, 7, 13]
    assert bands(np.ones(3)).tolist() == [0, 0, 0]


if __name__ == "__main__":
    write("landscape.json", cases())


def test_the_axis_of_the_still_is_cut_to_the_path() -> None:
    """So that a small fall is seen; whatever the energies, the path spans the chart."""
    for query in ([0.5, 0.4], [0.9, -0.9]):
        one = EnergyLandscape(THREE, query=query, beta=8.0)
        energies = one.energies()
        assert energies[0] - energies[-1] < energies[0], "an axis from 0 would be longer"
        texts = [part for kind, part in one.still().parts if kind == "text"]
        ends = [part["content"] for part in texts if part.get("anchor") == "end"]
        ticks = [text for text in ends if re.fullmatch(r"\d\.\d+", text)]
        digits = len(ticks[0].partition(".")[2])
        wanted = [fixed(float(energies.min()), digits), fixed(float(energies.max()), digits)]
        assert [ticks[0], ticks[2]] == wanted
