"""ErrorGraph: kinds, places and sentences of the steps of an answer."""

import re
from itertools import pairwise
from typing import Any

import pytest
import traitlets
from attnlab_widgets.error_graph import ErrorGraph
from attnlab_widgets.error_graph.example import example
from attnlab_widgets.error_graph.study import places

from attnlab.structures.computation import Computation, product, spaced_sum
from attnlab.tasks import UNSCORED
from attnlab.tasks.products import Products
from tests.widgets.stored import assert_fresh, write


def chain(length: int = 3) -> Computation:
    """Doubles 1 again and again."""
    made = Computation()
    last = made.given("x0", 1)
    for at in range(length):
        last = made.step(f"x{at + 1}", lambda x: 2 * x, last)
    return made


def nodes(view: ErrorGraph) -> dict[str, Any]:
    return dict(zip(view.names, view._told["nodes"], strict=True))


def test_a_wrong_step_is_found_and_what_follows_from_it_is_told() -> None:
    view = ErrorGraph(chain(4), {"x1": 2, "x2": 5, "x3": 10, "x4": 16}, asked="1 =")
    assert view.kinds == ["given", "correct", "local", "propagated", "restored"]
    assert view.names[view.node] == "x2"
    assert view.description() == (
        "1 = 4 steps of depth 4: 1 correct, 1 restored, 1 local, 1 propagated. “x2” went wrong by "
        "itself, a local error: 5, from “x1” = 2; from these follows 4. Right is 4."
    )
    view.node = 3
    assert view.description().endswith(
        "“x3” is propagated: what wrong parents give: 10, from “x2” = 5 (right: 4). Right is 8."
    )
    view.node = 4
    assert view.description().endswith(
        "“x4” is restored: right, although a parent is wrong: 16, from “x3” = 10 (right: 8)."
    )


def test_without_an_error_the_last_step_is_chosen() -> None:
    made = chain()
    view = ErrorGraph(made, {name: made.values[name] for name in made.computed})
    assert view.node == 3
    assert "3 correct, 0 restored, 0 local, 0 propagated" in view.description()
    assert ErrorGraph(made, {"x1": 2, "x2": 4, "x3": 8}, node="x1").node == 1


def test_what_cannot_be_read_is_said_so() -> None:
    view = ErrorGraph(chain(2), {"x1": None, "x2": 4})
    assert "a local error: nothing readable, from “x0” = 1; from these follows 2" in repr(view)
    assert nodes(view)["x2"]["follows"] == "?"
    copied = ErrorGraph(chain(1), {"x0": 3, "x1": 6})
    copied.node = 0
    assert copied.description().endswith("“x0” is given: 3; 1 was given.")


def test_what_a_model_has_written_is_read() -> None:
    task, question = Products(scratchpad=True), (3, 7, 4, 8)
    row = task.of([question]).targets[0]
    said = row[row != UNSCORED].clone()
    said[2] = 9  # the last digit of 56
    view = ErrorGraph.of(task, question, said)
    assert view.names[view.node] == "last 0 0"
    assert view.description().startswith("3 7 × 4 8 = ")
    assert view.kinds.count("local") == 1
    assert view.kinds[view.names.index("line 0")] == "restored", "296 with a wrong digit below it"
    assert ErrorGraph.of(task, question, said, asked="?").description().startswith("? ")


@pytest.mark.parametrize("made", [spaced_sum([3, -1, 5, 2, 4, 0, 1, 1]), product([1, 2], [3, 4])])
def test_places_go_from_left_to_right_and_do_not_meet(made: Computation) -> None:
    found = dict(zip(made.steps, places(made), strict=True))
    for name, step in made.steps.items():
        x, y = found[name]
        assert 0 <= x <= 1
        assert 0 <= y <= 1
        assert all(found[parent][0] < x for parent in step.parents)
    assert len({tuple(place) for place in found.values()}) == len(found)
    layer = sorted(y for name, (x, y) in found.items() if x == 0)
    assert min(b - a for a, b in pairwise(layer)) > 0.05


def test_the_picture_has_orange_lines_from_wrong_values_alone() -> None:
    made = chain(4)
    right = {name: made.values[name] for name in made.computed}
    counts = []
    for stated in (right, right | {"x2": 5}, right | {"x2": 5, "x3": 10, "x4": 20}):
        parts = ErrorGraph(made, stated).still().parts
        counts.append(sum(kind == "line" and look["dash"] != "" for kind, look in parts))
    assert counts == [0, 1, 2]


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    made = chain()
    right = {name: made.values[name] for name in made.computed}
    long = chain(150)
    for make, words in (
        (lambda: ErrorGraph([1], {}), "`computation` should be a Computation, got a list"),
        (lambda: ErrorGraph(made, [1]), "`stated` should have a value for each name"),
        (lambda: ErrorGraph(made, {"x1": 2}), "'x2' is missing"),
        (lambda: ErrorGraph(made, right | {"y": 2}), "'y' is unknown"),
        (lambda: ErrorGraph(made, right | {"x1": 2.5}), "`stated` of 'x1' should be a whole"),
        (lambda: ErrorGraph(made, right, asked=3), "`asked` should be a text, got 3"),
        (lambda: ErrorGraph(made, right, node="y"), "`node` should be a name, such as x0"),
        (lambda: ErrorGraph(long, {}), "1 to 150 nodes, got 151"),
        (lambda: ErrorGraph(Computation(), {}), "1 to 150 nodes, got 0"),
        (lambda: ErrorGraph.of(Products(), (1, 2, 3, 4), []), "one with scratchpad=True"),
        (lambda: setattr(ErrorGraph(made, right), "node", 4), "`node` should be 0 to 3 here"),
    ):
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
            make()


# The page


def cases() -> list[dict[str, Any]]:
    """What Python says of a few answers, node by node."""
    shown = [example(), ErrorGraph(chain(2), {"x1": None, "x2": 4})]
    return [{"_told": one._told, "said": [_said(one, at) for at in range(len(one.names))]}
            for one in shown]  # fmt: skip


def _said(one: ErrorGraph, node: int) -> str:
    one.node = node
    return one.description()


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("errors.json", cases())


if __name__ == "__main__":
    write("errors.json", cases())
