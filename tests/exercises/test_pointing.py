"""Lesson 92's checks: how much of a head is on a character, and a plan that is carried out."""

import torch

from attnlab.exercises import check_carry_out, check_pointer_share
from attnlab.lens.pointer import share
from attnlab.tasks.blocks import World
from tests.exercises.frame import answers_to


def pointer_share(weights, covered):
    """Token by token."""
    rows = [row for row in range(len(covered)) if covered[row].any()]
    return sum(weights[:, row, covered[row]].sum(-1) for row in rows) / len(rows)


def carry_out(under, plan):
    """By the blocks that have nothing on them."""
    under = under.tolist()
    for block, onto in plan.tolist():
        clear = set(range(len(under))) - set(under)
        if block not in clear or onto == under[block] == -1:
            break
        if onto >= 0 and onto not in clear - {block}:
            break
        under[block] = onto
    return torch.tensor(under)


TestAnswers = answers_to([(check_pointer_share, pointer_share), (check_carry_out, carry_out)])


def test_the_share_is_that_of_the_lens() -> None:
    """Of one text."""
    generator = torch.Generator().manual_seed(92)
    weights = torch.rand(3, 5, 7, generator=generator).softmax(-1)
    covered = torch.rand(5, 7, generator=generator) > 0.6
    covered[2] = False
    found = share(weights[None], covered[None])
    torch.testing.assert_close(found, pointer_share(weights, covered))


def test_plans_are_carried_out_as_on_the_table_of_the_task() -> None:
    colours = ("red", "green", "blue", "yellow")
    generator = torch.Generator().manual_seed(92)
    ends = []
    for _ in range(200):
        world = World((("red", "green"), ("blue",), ("yellow",), ()))
        under = torch.tensor([colours.index(x) if (x := world.under(c)) != "table" else -1
                              for c in colours])  # fmt: skip
        plan = torch.randint(-1, 4, (3, 2), generator=generator)
        plan[:, 0].clamp_(min=0)
        done = 0
        try:
            for block, onto in plan.tolist():
                world = world.moved(colours[block], colours[onto] if onto >= 0 else "table")
                done += 1
        except ValueError:
            pass
        ends.append(done)
        for block, onto in zip(colours, carry_out(under, plan).tolist(), strict=True):
            assert world.under(block) == (colours[onto] if onto >= 0 else "table")
    assert set(ends) == {0, 1, 2, 3}
