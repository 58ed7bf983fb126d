"""Grid world: what an observation tells, and which questions are asked."""

import numpy as np
import pytest
import torch

from attnlab.systems.patches import into_patches
from attnlab.tasks import UNSCORED
from attnlab.tasks.blocks import COLOURS, World, outcome, shortest
from attnlab.tasks.grid_world import MARKER, OBSERVATIONS, GridWorld

VECTORS = OBSERVATIONS[1:]


def told(task: GridWorld, batch, row: int) -> World:
    """The world that an observation of vectors tells, read from the numbers alone."""
    source, spread = batch.source[row].numpy(), task.places - 1
    if task.observation == "picture":
        light = source.reshape(task.places, task.places, 2, 2, 3)
        assert (light == light[:, :, :1, :1]).all()  # a patch has the light of one block
        where = {}
        for number, line in enumerate(light[:, :, 0, 0]):
            for place, seen in enumerate(line.tolist()):
                colour = {(1, 0, 0): 0, (0, 1, 0): 1, (0, 0, 1): 2, (1, 1, 0): 3}.get(tuple(seen))
                if colour is not None:
                    where[COLOURS[colour]] = (place, task.places - 1 - number)
    elif task.observation == "state":
        rows = source.reshape(4, 3)
        where = {c: tuple(r[1:] * spread) for c, r in zip(COLOURS, rows, strict=True) if r[0]}
    else:
        where = {COLOURS[int(r[:4].argmax())]: tuple(r[4:] * spread) for r in source}
    stacks: list[list[str]] = [[] for _ in range(task.places)]
    for colour, (place, height) in sorted(where.items(), key=lambda each: each[1][1]):
        assert len(stacks[round(float(place))]) == round(float(height))
        stacks[round(float(place))].append(colour)
    return World(tuple(map(tuple, stacks)))


@pytest.mark.parametrize("observation", VECTORS)
def test_vectors_tell_the_world_of_their_question(observation):
    task = GridWorld(observation, places=5)
    batch, questions = task.batch("train", 31, seed=2), task.questions("train", 31, seed=2)
    assert batch.source.shape == (31, task.vectors, task.numbers)
    assert batch.source_padding.all()
    assert ((batch.inputs == MARKER).sum(1) == task.vectors).all()
    for row, question in enumerate(questions):
        assert told(task, batch, row) == question.world


def test_words_tell_the_world_of_their_question():
    task = GridWorld("words")
    batch, questions = task.batch("train", 31, seed=2), task.questions("train", 31, seed=2)
    assert batch.source is None
    for row, question in zip(batch.inputs, questions, strict=True):
        said = task.tokens(row)[1:16]
        assert said[1::5] == ["is"] * 3
        assert said[2::5] == ["on"] * 3
        assert dict(zip(said[::5], said[3::5], strict=True)) == {
            block: question.world.under(block) for block in question.world.blocks
        }


def test_named_vectors_stand_behind_their_names():
    task = GridWorld("named")
    batch = task.batch("train", 31, seed=2)
    orders = set()
    for row, source in zip(batch.inputs, batch.source, strict=True):
        said = task.tokens(row)[1:13]
        assert said[1::4] == ["is"] * 3
        assert said[2::4] == ["vector"] * 3
        assert said[::4] == [COLOURS[int(each[:4].argmax())] for each in source]
        orders.add(tuple(said[::4]))
    assert len(orders) > 12  # of 24: blocks come in any order


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_the_answer_is_a_shortest_plan_and_alone_is_scored(observation):
    task = GridWorld(observation)
    batch, questions = task.batch("train", 67, seed=5), task.questions("train", 67, seed=5)
    assert len({len(question.plan) for question in questions}) == 4
    for tokens, targets, question in zip(batch.inputs, batch.targets, questions, strict=True):
        asked = targets != UNSCORED
        plan, begin = task.tokens(targets[asked]), int(asked.int().argmax())
        assert outcome(question.world, question.goal, plan).right
        assert plan.count(",") + 1 == len(shortest(question.world, question.goal))
        assert asked[begin : begin + len(plan)].all()
        words = task.tokens(tokens[: begin + 1])
        assert words[-len(question.goal.words) :] == list(question.goal.words)


def test_lengths_of_plans_are_bounded_and_every_length_is_asked():
    for fewest, most in ((1, 2), (3, 4), (4, 8), (2, 2)):
        task = GridWorld(fewest=fewest, most=most)
        for split in ("train", "validation"):
            lengths = {len(q.plan) for q in task.questions(split, 300, seed=0)}
            assert lengths == set(range(fewest, min(most, 4) + 1))
    assert GridWorld(most=2).length == 4 + 11 + 8
    assert GridWorld(fewest=3).length == 4 + 11 + 16


def test_no_arrangement_is_in_both_splits_and_all_kinds_are_in_each():
    def stacks(world):
        return frozenset(stack for stack in world.stacks if stack)

    train, validation = (
        {
            question.world
            for lengths in ({"most": 2}, {"fewest": 3})
            for question in GridWorld(**lengths).questions(split, 4000, seed=0)
        }
        for split in ("train", "validation")
    )
    assert len(train) + len(validation) == 480
    arranged, held = (set(map(stacks, worlds)) for worlds in (train, validation))
    assert arranged.isdisjoint(held)
    assert (len(arranged), len(held)) == (43, 9)
    assert {len(each) for each in held} == {len(each) for each in arranged} == {1, 2, 3}


@pytest.mark.parametrize("ask", ["put", "clear", "tower"])
def test_kinds_of_questions_can_be_chosen(ask):
    task = GridWorld("words", asks=(ask,))
    for question in task.questions("train", 40, seed=0):
        on, clear = len(question.goal.on), len(question.goal.clear)
        assert (on, clear) == {"put": (1, 0), "clear": (0, 1), "tower": (2, 0)}[ask]


def test_half_of_the_rows_can_be_told_in_words():
    task = GridWorld("named", also_words=True)
    batch, questions = task.batch("train", 200, seed=1), task.questions("train", 200, seed=1)
    shown = batch.source_padding[:, 0]
    assert 60 < shown.sum() < 140
    assert (batch.source_padding == shown[:, None]).all()
    assert not batch.source[~shown].any()
    assert ((batch.inputs == MARKER).sum(1) == 3 * shown).all()
    plain = GridWorld("words").of(questions, seed=0)
    for row in (~shown).nonzero()[:20, 0].tolist():
        words = task.tokens(batch.inputs[row][batch.padding[row]])
        other = task.tokens(plain.inputs[row][plain.padding[row]])
        assert sorted(words[:16]) == sorted(other[:16])
        assert words[16:] == other[16:]


def test_given_questions_are_asked():
    questions = GridWorld().questions("validation", 5, seed=3)
    one, other = (GridWorld("picture").of(questions, seed=seed) for seed in (0, 1))
    assert torch.equal(one.source, other.source)
    light = torch.from_numpy(np.stack([question.world.picture() for question in questions]))
    assert torch.equal(one.source, into_patches(light, 2))
    assert GridWorld().of(questions).source.shape == (5, 3, 6)


def test_an_example_shows_the_table_from_the_front():
    task = GridWorld(places=6)
    (question,), image = task.questions("validation", 1, seed=4), task.example(4).image
    assert image.shape == (12, 12)
    for number, colour in enumerate(COLOURS, start=1):
        seen = np.argwhere(image == number)
        if colour not in question.world.blocks:
            assert not len(seen)
            continue
        place, height = question.world.place(colour)
        assert len(seen) == 4
        assert seen.min(0).tolist() == [12 - 2 * (height + 1), 2 * place]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"observation": "states"}, "no observation 'states'; did you mean 'state'"),
        ({"asks": ()}, "asks should name each kind of question once"),
        ({"asks": ("put", "put")}, "asks should name each kind of question once"),
        ({"asks": ("cleer",)}, "no question 'cleer'; did you mean 'clear'"),
        ({"blocks": 5}, "there are 4 colours, got blocks=5"),
        ({"blocks": 1}, "blocks should be at least 2"),
        ({"places": 2}, "places should be from blocks=3 to 8"),
        ({"places": 9}, "places should be from blocks=3 to 8"),
        ({"fewest": 5}, "no question about 3 blocks on 4 places needs from fewest=5 to most=8"),
        ({"fewest": 3, "most": 2}, "needs from fewest=3 to most=2 steps in both splits"),
        ({"observation": "words", "also_words": True}, "leave also_words out"),
        ({"asks": ("tower",), "blocks": 2}, "no question about 2 blocks"),
    ],
)
def test_what_asks_nothing_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        GridWorld(**options)
