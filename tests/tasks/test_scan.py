"""SCAN: the counts that its authors give, meanings by hand, and both splits."""

import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.scan import END, START, Scan, actions

BY_HAND = {
    "walk": "WALK",
    "turn left": "LTURN",
    "jump right": "RTURN JUMP",
    "turn opposite left": "LTURN LTURN",
    "look opposite right after walk": "WALK RTURN RTURN LOOK",
    "turn around right": "RTURN RTURN RTURN RTURN",
    "run around left": "LTURN RUN LTURN RUN LTURN RUN LTURN RUN",
    "jump left twice and look": "LTURN JUMP LTURN JUMP LOOK",
    "walk thrice after turn right twice": "RTURN RTURN WALK WALK WALK",
}


@pytest.mark.parametrize(("command", "meaning"), BY_HAND.items())
def test_meanings_by_hand(command, meaning):
    assert actions(command) == meaning.split()


def test_there_are_as_many_commands_as_the_paper_has():
    task = Scan(split_by="length")
    short, long = task.commands("train"), task.commands("validation")
    assert (len(short), len(long)) == (16_990, 3_920)
    lengths = {len(actions(command)) for command in long}
    assert lengths == {24, 25, 26, 27, 28, 30, 32, 33, 36, 40, 48}
    assert max(len(command.split()) for command in short + long) == 9


def test_every_command_is_in_one_split_and_both_know_every_word():
    task = Scan()
    train, validation = (set(task.commands(split)) for split in ("train", "validation"))
    assert len(train) + len(validation) == len(train | validation) == 20_910
    assert 0.1 < len(validation) / 20_910 < 0.15
    words = {word for command in train for word in command.split()}
    assert words == {word for command in validation for word in command.split()}


def test_turn_alone_and_other_words_are_no_commands():
    for command in ("turn", "jump up", "walk and", "", "walk and run and jump"):
        with pytest.raises(ValueError, match="is no command of SCAN"):
            actions(command)


def test_a_row_by_hand():
    task = Scan()
    batch = task.of(["jump right", "walk"])
    assert [task.tokens(row) for row in batch.source] == [
        ["jump", "right"], ["walk", "end"]
    ]  # fmt: skip
    assert batch.source_padding.sum(1).tolist() == [2, 1]
    assert task.tokens(batch.inputs[0])[:4] == ["start", "RTURN", "JUMP"]
    assert task.tokens(batch.targets[0])[:4] == ["RTURN", "JUMP", "end"]
    assert batch.padding.sum(1).tolist() == [3, 2]
    assert (batch.targets == END).sum(1).tolist() == [1, 1]


def test_both_splits_keep_short_commands_for_neither():
    task, every = Scan(split_by="both", cutoff=26), Scan()
    train, long = (set(task.commands(split)) for split in ("train", "validation"))
    kept = set(every.commands("validation")) - long
    assert max(len(actions(command)) for command in train | kept) == 26
    assert min(len(actions(command)) for command in long) == 27
    assert not train & kept
    assert len(train | long | kept) == 20_910
    assert 0.1 < len(kept) / (len(kept) + len(train)) < 0.15


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize(
    "options", [{}, {"split_by": "length", "cutoff": 26}, {"split_by": "both", "cutoff": 26}]
)
def test_batches_hold_what_their_commands_mean(options, split):
    task = Scan(**options)
    batch, known = task.batch(split, 101, seed=0), set(task.commands(split))
    for row in range(101):
        command = " ".join(task.tokens(batch.source[row][batch.source_padding[row]]))
        assert command in known
        asked = batch.targets[row][batch.targets[row] != UNSCORED]
        assert task.tokens(asked) == [*actions(command), "end"]
        assert torch.equal(batch.inputs[row, 1 : len(asked)], asked[:-1])
        assert batch.inputs[row, 0] == START


def test_bad_options():
    with pytest.raises(ValueError, match="split_by"):
        Scan(split_by="verbs")
    with pytest.raises(ValueError, match="cutoff should be less than 48"):
        Scan(split_by="length", cutoff=48)
    with pytest.raises(ValueError, match="commands should be a list of one command at least"):
        Scan().of("walk")
    with pytest.raises(ValueError, match="split"):
        Scan().commands("test")
