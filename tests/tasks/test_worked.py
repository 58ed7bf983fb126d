"""Tasks whose steps are known: rows by hand, answers read back, puzzles with one solution."""

import itertools

import numpy as np
import pytest
import torch

from attnlab.tasks import UNSCORED, task
from attnlab.tasks.logic_grids import LogicGrids, clues, fits, tables
from attnlab.tasks.products import Products
from attnlab.tasks.sequences import in_split
from attnlab.tasks.spaced_sums import SpacedSums

EVERY = [
    ("products", {"first": 3, "second": 2}),
    ("spaced_sums", {"fewest": 3, "most": 7}),
    ("logic_grids", {"attributes": 3}),
]


def answers(batch, row):
    return batch.targets[row][batch.targets[row] != UNSCORED]


def test_products_by_hand():
    plain, worked = Products(), Products(scratchpad=True)
    batch = plain.of([(3, 7, 4, 8)])
    assert "".join(plain.tokens(batch.inputs[0])) == "37×48=177"
    assert "".join(plain.tokens(answers(batch, 0))) == "1776"
    # 7·8 = 56: 6, carry 5; 3·8 = 24, with the carry 29: 9, carry 2; the line 296. 7·4 = 28: 8, 2;
    # 3·4 = 12, 14: 4, 1; the line 148; 296 + 1480 = 1776.
    steps = "56 6 5 24 29 9 2 296 28 8 2 12 14 4 1 148 1776 1 7 7 6".replace(" ", "")
    assert "".join(worked.tokens(answers(worked.of([(3, 7, 4, 8)]), 0))) == steps


def test_spaced_sums_by_hand():
    plain, worked = SpacedSums(), SpacedSums(scratchpad=True)
    batch = plain.of([(3, -1, 5, 2), (-1, -2, -5, -3, 0)])
    assert plain.tokens(batch.inputs[0])[:5] == ["3", "-1", "5", "2", "="]
    assert plain.tokens(answers(batch, 0)) == list("1212")
    assert plain.tokens(answers(batch, 1)) == list("22221")  # 0 is chosen: 1 comes before 2
    assert worked.tokens(answers(worked.of([(3, -1, 5, 2)]), 0)) == list("25581212")
    assert batch.padding.sum(1).tolist() == [8, 10]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_spaced_sums_have_all_lengths_and_the_best_choice(split):
    kind = SpacedSums(3, 7)
    found = kind.questions(split, 101, seed=5)
    assert {len(each) for each in found} == {3, 4, 5, 6, 7}
    batch = kind.of(found)
    for row, numbers in enumerate(found):
        chosen = kind.tokens(answers(batch, row))
        every = [
            (-sum(n for n, c in zip(numbers, choice, strict=True) if c == "1"), choice)
            for choice in itertools.product("12", repeat=len(numbers))
            if "11" not in "".join(choice)
        ]
        assert tuple(chosen) == min(every)[1]


def test_a_list_alone_decides_its_split():
    sizes = [(4, 4), (3, 4), (4, 5), (3, 7), (4, 10)]
    asked = {each for size in sizes for each in SpacedSums(*size).questions("validation", 199, 0)}
    for size in sizes:
        learned = {q for seed in range(60) for q in SpacedSums(*size).questions("train", 64, seed)}
        assert len({*map(len, learned)}) == size[1] - size[0] + 1
        assert not learned & asked, size


def test_lists_are_split_as_those_of_the_stored_experiments():
    """Lists of four numbers are hashed as by a task of four and five, longer ones as they are."""
    short = [(3, 5, -1, -5), (0, 4, 0, -1), (4, -5, 0, 2, -1), (-5, 2, 3, -4, 1)]
    assert SpacedSums().questions("validation", 4, seed=0) == short
    assert SpacedSums(6, 6).questions("train", 1, seed=2) == [(5, -5, -2, -1, -3, 1)]


def test_a_puzzle_of_validation_is_learned_in_no_order():
    kind = LogicGrids()
    asked = {frozenset(each) for each in kind.questions("validation", 199, seed=1)}
    learned = [each for seed in range(30) for each in kind.questions("train", 64, seed)]
    assert not asked & {*map(frozenset, learned)}


def test_clues_are_split_alike_whatever_the_number_of_attributes():
    two, three = LogicGrids(), LogicGrids(3)
    numbers = np.arange(len(clues(2)))
    same = np.array([clues(3).index(clue) for clue in clues(2)])
    rows = np.random.default_rng(0).permuted(np.tile(numbers, (400, 1)), axis=1)[:, :8]
    kinds = [kind._deciding(each) for kind, each in ((two, rows), (three, same[rows]))]
    splits = [in_split(each, "validation") for each in kinds]
    assert np.array_equal(*splits)
    assert 20 < splits[0].sum() < 90


@pytest.mark.parametrize("attributes", [2, 3])
def test_clues_leave_one_table_and_each_is_needed(attributes):
    kind, fit = LogicGrids(attributes), fits(attributes)
    for question in kind.questions("train", 41, seed=2):
        chosen = list(question)
        assert fit[chosen].all(0).sum() == 1
        assert len(chosen) <= kind.most_clues
        for number in chosen:
            assert fit[[each for each in chosen if each != number]].all(0).sum() > 1
        (table,) = tables(attributes)[fit[chosen].all(0)]
        batch = kind.of([question])
        assert answers(batch, 0).tolist() == table.tolist()


def test_clues_are_true_of_the_tables_that_they_say():
    every, told = tables(2), clues(2)
    assert len(every) == 36
    assert len(told) == len(set(told)) == 6 * 6 + 9 + 30
    table = every[0].tolist()  # red green blue, cat dog fox
    true = {clue for clue, ok in zip(told, fits(2)[:, 0], strict=True) if ok}
    assert table == [0, 1, 2, 3, 4, 5]
    assert {("red", "at", "1"), ("red", "with", "cat"), ("cat", "before", "blue")} <= true
    assert ("fox", "not-at", "2") in true
    assert not {("red", "at", "2"), ("red", "before", "cat"), ("red", "not-at", "1")} & true


def test_a_grid_by_hand():
    """Red at 1; the cat before blue and not in house 1, so in 2; then blue is in 3."""
    told = clues(2)
    given = [("red", "at", "1"), ("cat", "before", "blue"), ("cat", "not-at", "1")]
    given += [("green", "before", "dog")]
    kind = LogicGrids(scratchpad=True)
    question = tuple(told.index(clue) for clue in given)
    made = kind.computation(question)
    first = next(iter(made.computed))
    assert first == "house1 colour"
    assert made.steps[first].parents == ("clue 0",)
    assert made.values["answer house2 pet"] == 3
    words = kind.tokens(answers(kind.of([question]), 0))
    assert words[:2] == ["house1", "red"]
    assert words[-6:] == ["red", "green", "blue", "fox", "cat", "dog"]


def test_every_step_of_a_grid_follows_from_its_parents_and_wrong_parents_mislead_it():
    kind, misled = LogicGrids(scratchpad=True), 0
    for question in kind.questions("validation", 23, seed=0):
        made = kind.computation(question)
        for name in made.computed:
            step = made.steps[name]
            given = [made.steps[parent].value for parent in step.parents]
            assert step.rule(*given) == step.value
            cells = [k for k, parent in enumerate(step.parents) if parent.startswith("house")]
            for k in cells:
                other = [*given]
                other[k] = given[k] // 3 * 3 + (given[k] + 1) % 3
                misled += step.rule(*other) != step.value
    assert misled > 23


@pytest.mark.parametrize(("name", "options"), EVERY)
@pytest.mark.parametrize("scratchpad", [False, True])
def test_what_is_written_is_read_back(name, options, scratchpad):
    kind = task(name, scratchpad=scratchpad, **options)
    for question in kind.questions("validation", 13, seed=1):
        made, row = kind.computation(question), answers(kind.of([question]), 0)
        stated = kind.stated(question, row)
        assert stated == {node: made.values[node] for node in kind.written(made)}
        assert kind.right(question, stated)
        assert set(stated) == set(made.computed if scratchpad else kind.answer(made))
        sign = kind.names.index("=")
        wrong = row.clone()
        wrong[-1] = sign
        assert list(kind.stated(question, wrong).values())[-1] is None
        assert list(kind.stated(question, row[:-1]).values())[-1] is None
        assert not kind.right(question, kind.stated(question, wrong))
        if scratchpad:
            assert set(made.judged(stated).values()) == {"correct"}
            assert made.judged(kind.stated(question, wrong))[list(stated)[-1]] == "local"


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_questions_are_those_of_the_batch(name, options):
    kind = task(name, **options)
    one, other = kind.batch("train", 11, seed=3), kind.of(kind.questions("train", 11, seed=3))
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.targets, other.targets)


def test_a_deduction_of_another_house_is_none():
    kind = LogicGrids(scratchpad=True)
    question = kind.questions("train", 1, seed=0)[0]
    row = answers(kind.of([question]), 0)
    house = row[0].item()
    cells = [kind.names.index(f"house{k}") for k in (1, 2, 3)]
    row[0] = next(each for each in cells if each != house)
    assert next(iter(kind.stated(question, row).values())) is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Products(1, 1), "too few for training"),
        (lambda: Products(9, 2), "at most 8, got first=9 and second=2"),
        (lambda: Products().of([(1, 2, 3)]), "the 4 digits of both numbers, got"),
        (lambda: Products().of([]), "a list of one question at least"),
        (lambda: SpacedSums(5, 4), "fewest should be at most most"),
        (lambda: SpacedSums(5, 11), "most at most 10, got fewest=5 and most=11"),
        (lambda: SpacedSums(2, 2), "only 121 different sequences"),
        (lambda: SpacedSums().of([(1, 6)]), "1 to 10 numbers from -5 to 5"),
        (lambda: LogicGrids(4), "attributes should be 2 or 3, got 4"),
        (lambda: LogicGrids().of([(0, 500)]), "numbers of clues, from 0 to 74"),
        (lambda: LogicGrids().of([(0,)]), "leave several tables, or none"),
    ],
)
def test_bad_options_and_questions_get_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_scratchpad_is_a_switch():
    with pytest.raises(TypeError, match="scratchpad"):
        Products(scratchpad=1)


def test_grids_use_every_sort_of_clue():
    told = clues(2)
    used = {told[n][1] for q in LogicGrids().questions("train", 50, seed=0) for n in q}
    assert used == {"at", "not-at", "with", "before"}
    assert np.unique(fits(2).sum(1)).min() > 0  # no clue is false of every table
