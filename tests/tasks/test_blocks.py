"""Blocks: what can be moved, what a goal asks, and what becomes of a plan."""

import numpy as np
import pytest

from attnlab.tasks.blocks import (
    COLOURS,
    Goal,
    World,
    every_world,
    outcome,
    shortest,
    written,
)

STACKED = World((("blue", "green"), ("red",), (), ()))  # green stands on blue
RED_ON_BLUE = Goal(on=(("red", "blue"),))


def carried_out(plan: str, world: World = STACKED, goal: Goal = RED_ON_BLUE):
    return outcome(world, goal, plan.split())


@pytest.mark.parametrize(
    "plan",
    [
        "green to table , red to blue .",
        "green to red , green to table , red to blue .",  # longer, and as right
        "green to table , red to blue . red to table .",  # what follows the end is not read
    ],
)
def test_plans_are_right_when_they_reach_their_goal_whatever_their_words_are(plan):
    found = carried_out(plan)
    assert found.right
    assert found.why == ""
    assert found.step is None
    assert found.world.under("red") == "blue"


@pytest.mark.parametrize(
    ("plan", "step", "why"),
    [
        ("red to blue .", 1, "step 1: red cannot be put on blue, since green stands on it"),
        ("blue to table .", 1, "step 1: blue cannot be taken, since green stands on it"),
        ("green to table , red to red .", 2, "step 2: red cannot be put on itself"),
        ("red to table .", 1, "step 1: red stands on the table already"),
        ("green to blue .", 1, "step 1: green cannot be put on blue, since green stands on it"),
        ("green to yellow .", 1, "step 1: there is no yellow block; there are red, green, blue"),
        ("yellow to red .", 1, "step 1: there is no yellow block; there are red, green, blue"),
        ("green to table .", None, "after 1 step red stands on the table, not on blue"),
        (
            "green to table , red to green .",
            None,
            "after 2 steps red stands on green, not on blue",
        ),
        ("green to table , red to blue", 2, "step 2 should be as “red to blue ,”"),
        ("green to table red to blue .", 1, "got “green to table red”"),
        ("green on table .", 1, "got “green on table .”"),
        ("table to red .", 1, "got “table to red .”"),
        (".", 1, "got “.”"),
        ("", 1, "got “nothing”"),
    ],
)
def test_a_plan_that_fails_is_told_where_and_why(plan, step, why):
    found = carried_out(plan)
    assert not found.right
    assert found.step == step
    assert why in found.why


def test_a_table_without_a_free_place_takes_no_block():
    full = World((("red",), ("green",), ("blue", "yellow")))
    assert carried_out("red to table .", full).why == "step 1: red stands on the table already"
    assert carried_out("yellow to table .", full).why == (
        "step 1: yellow cannot be put on the table, where no place is free"
    )
    assert full.moved("red", "green").moved("yellow", "table").stacks == (
        ("yellow",), ("green", "red"), ("blue",),
    )  # fmt: skip


def test_goals_are_asked_in_words_and_say_what_is_missing():
    tower = Goal(on=(("red", "blue"), ("blue", "green")))
    clear = Goal(clear=("blue",))
    assert " ".join(RED_ON_BLUE.words) == "how to put red on blue ?"
    assert " ".join(tower.words) == "how to put red on blue , blue on green ?"
    assert " ".join(clear.words) == "how to clear blue ?"
    assert clear.missing(STACKED) == "green still stands on blue"
    built = World((("green", "blue", "red"), ()))
    assert tower.missing(built) == clear.missing(STACKED.moved("green", "table")) == ""
    assert tower.missing(World((("blue", "red"), ("green",)))) == (
        "blue stands on the table, not on green"
    )


@pytest.mark.parametrize(
    ("blocks", "places", "out_of_reach"),
    [(2, 1, True), (2, 2, False), (2, 3, False), (3, 2, True), (3, 3, False), (3, 4, False)],
)
def test_shortest_plans_reach_their_goals_and_none_is_shorter(blocks, places, out_of_reach):
    def reached(world, steps):
        """Worlds after so many steps that can be done, found without the planner."""
        worlds = {world}
        for _ in range(steps):
            after = set()
            for one in worlds:
                for block in one.blocks:
                    for onto in ("table", *one.blocks):
                        try:
                            after.add(one.moved(block, onto))
                        except ValueError:
                            continue
            worlds |= after
        return worlds

    refused = 0
    for number, world in enumerate(every_world(blocks, places)):
        if number % 7 and places > blocks - 1:
            continue
        a, b, *more = world.blocks
        goals = [Goal(on=((a, b),)), Goal(on=((b, a),)), Goal(clear=(b,))]
        goals += [Goal(on=((b, c), (c, a))) for c in more]
        for goal in goals:
            try:
                plan = shortest(world, goal)
            except ValueError:
                assert all(goal.missing(one) for one in reached(world, 9))
                refused += 1
                continue
            if not plan:
                assert goal.missing(world) == ""
                continue
            assert outcome(world, goal, written(plan)).right
            nearer = reached(world, len(plan) - 1)
            assert all(goal.missing(one) for one in nearer)
    assert (refused > 0) == out_of_reach


def test_a_tower_on_the_only_place_cannot_be_taken_apart():
    with pytest.raises(ValueError, match=r"no plan reaches “how to clear red \?” from"):
        shortest(World((("red", "blue"),)), Goal(clear=("red",)))


def test_a_goal_that_no_plan_reaches_is_refused():
    circle = Goal(on=(("red", "blue"), ("blue", "red")))
    with pytest.raises(ValueError, match="no plan reaches “how to put red on blue , blue on red"):
        shortest(STACKED, circle)


def test_a_plan_is_written_as_it_is_read():
    assert " ".join(written((("red", "table"), ("blue", "green")))) == (
        "red to table , blue to green ."
    )


def test_every_world_occurs_once():
    worlds = [*every_world(2, 3)]
    assert len(set(worlds)) == len(worlds) == 6 * 2 * 6  # colours, orders, cuts into three
    assert {len(world.stacks) for world in worlds} == {3}
    assert {world.blocks for world in worlds} == {
        (a, b) for a in COLOURS for b in COLOURS if COLOURS.index(a) < COLOURS.index(b)
    }


def test_a_picture_shows_each_block_where_it_stands():
    light = World((("blue", "yellow"), (), ("red",))).picture()
    assert light.shape == (3, 6, 6)
    assert (light[:, 4:, :2].transpose(1, 2, 0) == [0, 0, 1]).all()
    assert (light[:, 2:4, :2].transpose(1, 2, 0) == [1, 1, 0]).all()
    assert (light[:, 4:, 4:].transpose(1, 2, 0) == [1, 0, 0]).all()
    assert light.sum() == 4 * (1 + 2 + 1)
    assert light.dtype == np.float32


def test_a_stack_that_is_higher_than_its_picture_is_refused():
    with pytest.raises(ValueError, match="a stack of 3 does not fit; give the world 3 places"):
        World((("blue", "yellow", "red"), ())).picture()
    assert World((("blue", "yellow"), ("red",))).picture().sum() == 4 * (1 + 2 + 1)


def test_a_goal_that_asks_for_nothing_is_refused():
    with pytest.raises(ValueError, match="a goal asks for something: give blocks"):
        Goal()


def test_where_blocks_stand():
    assert STACKED.place("green") == (0, 1)
    assert STACKED.place("red") == (1, 0)
    assert (STACKED.under("green"), STACKED.under("blue")) == ("blue", "table")
    assert (STACKED.on("blue"), STACKED.on("red")) == ("green", None)
    assert STACKED.blocks == ("red", "green", "blue")


@pytest.mark.parametrize("stacks", [(), ((),), (("red",), ("red",)), (("pink",),)])
def test_what_is_no_world_is_refused(stacks):
    with pytest.raises(ValueError, match="blocks of different colours, of red, green, blue, yell"):
        World(stacks)
