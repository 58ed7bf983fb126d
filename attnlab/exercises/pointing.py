"""Checks of lesson 92: the place that a pointer points at, how much of it is on a character, and a
plan that is carried out."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- the mean column, by hand

check_pointer_column = NumberExercise(
    "Is it the column of the centre? On a grid of 4 × 8 patches, numbered from 0 in reading order, "
    "patch 3 has the weight 0.2, patch 11 has 0.5 and patch 12 has 0.3.",
    right=3.3,
    tolerance=0.004,
    mistakes={
        9.7: "That is the mean of the numbers of the patches. Patch 11 stands in row 1, column 3.",
        0.8: "That is the row. The column is asked.",
        4.3: "Columns are counted from 0.",
        3.0: "That is the column of the strongest patch. The mean of all three is asked.",
        10 / 3: "The columns are averaged without their weights.",
        2.1: "Those are the columns of a grid of 4 columns. This one has 4 rows and 8 columns.",
    },
)


# ---- the share on a character


def _share(
    weights: Tensor, covered: Tensor, *,
    every: bool = False, strongest: bool = False, heads: bool = False, each: bool = False,
    total: bool = False, one: bool = False, before: bool = False,
) -> Tensor:  # fmt: skip
    """(h,); every keyword is a mistake."""
    if before:
        weights = weights.roll(-1, 1)
    on = weights * covered
    per = on.amax(-1) if strongest else on.sum(-1)
    if each:
        per = per / covered.sum(-1).clamp(min=1)
    if one:
        per = (weights.argmax(-1, keepdim=True) == torch.arange(covered.shape[1])).to(on)
        per = (per * covered).sum(-1)
    somewhere = covered.any(-1)
    found = per.sum(1)
    if not total:
        found = found / (len(somewhere) if every else somewhere.sum())
    return found.mean().expand(len(weights)) if heads else found


def _looks() -> Iterator[Arguments]:
    """Some tokens cover two patches or three, and some none."""
    for h, n, m, seed in ((3, 6, 8, 92), (2, 9, 12, 93)):
        scores, chosen = random_tensors((h, n, m), (n, m), seed=seed)
        covered = torch.zeros(chosen.shape, dtype=torch.bool)
        for row, order in enumerate(chosen.argsort(1)):
            covered[row, order[: (2, 0, 3)[row % 3]]] = True
        yield {"weights": scores.softmax(-1), "covered": covered}


check_pointer_share = Exercise(
    """How much of each head is on the character that is written? `pointer_share(weights, covered)`.

    `weights` (h, n, m) are those of h heads, n written tokens and m patches; `covered` (n, m) is
    True for the patches of a token's character. Tokens that are no character cover none. It returns
    (h,): the weight on the covered patches, averaged over the tokens that cover any.
    """,
    right=_share,
    cases=_looks,
    axes="h",
    mistakes={
        but(every=True): (
            "Tokens that stand nowhere, such as a closing tag, are averaged in as zeros. Leave "
            "them out."
        ),
        but(strongest=True): "The largest weight of a character counts there. Add all of them.",
        but(each=True): (
            "The weights of a character are averaged over its patches. Add them: a character that "
            "covers three patches is looked at with the sum."
        ),
        but(heads=True): "The heads are averaged, so that a head that points is lost in the rest.",
        but(total=True): "The shares of all tokens are added up. Their mean is asked.",
        but(one=True): (
            "That is how often the strongest patch is a covered one. The weights themselves count."
        ),
        but(before=True): (
            "Tokens and patches are one token apart: row t of both belongs to the same token."
        ),
    },
    praise="It says little without its control: the same weights on the places of another page.",
)  # fmt: skip


# ---- a plan, step by step


def _carry_out(
    under: Tensor, plan: Tensor, *,
    top: bool = True, free: bool = True, lies: bool = True, itself: bool = True,
    stops: bool = True, undone: bool = False, turned: bool = False, most: int | None = None,
) -> Tensor:  # fmt: skip
    """(n,); every keyword is a mistake."""
    begun, under = under.clone(), under.clone()
    for number, step in enumerate(plan.tolist()):
        block, onto = reversed(step) if turned and min(step) >= 0 else step
        fails = (
            (top and bool((under == block).any()))
            or (free and onto >= 0 and bool((under == onto).any()))
            or (lies and onto < 0 and int(under[block]) < 0)
            or (itself and block == onto)
        )
        if fails or number == most:
            if undone and fails:
                return begun
            if stops or number == most:
                break
            continue
        under[block] = onto
    return under


_WORLD = (1, -1, 3, -1, -1)  # block 0 on 1, 2 on 3; 1, 3 and 4 on the table
_PLANS = (
    ((0, -1), (1, 2), (4, 1)),
    ((0, 4), (1, 4), (2, 1)),
    ((0, -1), (2, 2), (4, 0)),
    ((2, -1), (0, -1), (4, -1), (1, 3)),
    ((1, 4), (0, -1)),
    ((4, 1), (0, -1)),
    ((0, 2), (3, -1), (4, 0)),
)


def _worlds() -> Iterator[Arguments]:
    """The same worlds and plans, with the blocks numbered in another order."""
    for seed, plan in enumerate(_PLANS):
        (drawn,) = random_tensors((5,), seed=seed)
        names = torch.cat([drawn[:5].argsort(), torch.tensor([-1])])  # the last is the table
        under = torch.empty(5, dtype=torch.long)
        under[names[:5]] = names[torch.tensor(_WORLD)]
        yield {"under": under, "plan": names[torch.tensor(plan)]}


check_carry_out = Exercise(
    """Where do the blocks stand after a plan? `carry_out(under, plan)`.

    `under` (n,) says for each block on which block it stands, −1 for the table; `plan` (s, 2) has a
    block and where it goes in each row, −1 for the table. A step can be done if nothing stands on
    the block, and if it goes to the table from another block, or onto another block on which
    nothing stands. It returns `under` after the steps before the first that cannot be done.
    """,
    right=_carry_out,
    cases=_worlds,
    axes="n",
    mistakes={
        but(top=False): "A block is taken from under another one.",
        but(free=False): "A block is put where another one stands already.",
        but(lies=False): (
            "A block that stands on the table is put there again: such a step cannot be done."
        ),
        but(itself=False): "A block is put on itself.",
        but(stops=False): "It goes on after a step that cannot be done. The plan ends there.",
        but(undone=True): (
            "The steps before the one that fails are undone. They were done, and stay."
        ),
        but(turned=True): "The two columns are exchanged: first the block, then where it goes.",
        but(most=1): "Only the first step is carried out.",
    },
    praise="Plans in other words may be as right: only the world at the end decides.",
)
