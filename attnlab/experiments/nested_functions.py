"""Nested functions: PCFG's expressions of more functions than those of the training.

The model is the encoder-decoder of ``none`` in `attnlab.experiments.length_split`: 2 + 2 layers of
width 64, four heads, sinusoids added to token vectors of N(0, 1). It is trained on expressions of
one to three functions (`attnlab.tasks.pcfg`), and is asked for new ones of two and three functions,
and of four, five and six, which it has not met. All that is asked has 9 to 12 words, a length that
training has too, so that only the nesting is new: more functions leave fewer letters.

The scores, by the number of functions, are the shares of whole strings that are right, in per cent,
as the model writes them and with the end mark forced, and the share that ends too early. The
baseline writes the letters of the expression in their order, for which no function is needed.

Lesson 73 shows what

    python -m attnlab.experiments nested_functions --threads 1 --json \\
        attnlab/experiments/assets/73_nested_functions.json

has written; rows that the file holds are not trained again.

Hupkes, Dankers, Mul, Bruni. Compositionality Decomposed: How do Neural Networks Generalise? JAIR
2020, arXiv:1908.08351, ask for longer expressions than those of the training ("productivity").
"""

from functools import cache, partial

from attnlab.experiments import length_split
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.tasks.pcfg import LETTERS, OF_ONE, OF_TWO, Pcfg, value

TASK = Pcfg(1, 3)
ASKED, NUMBERS, WORDS = 256, (2, 3, 4, 5, 6), range(9, 13)


@cache
def expressions(functions: int, size: int = ASKED) -> tuple[str, ...]:
    """New expressions of so many functions and 9 to 12 words."""
    task, found, seed = Pcfg(functions, functions), dict[str, None](), 0
    while len(found) < size:
        batch = task.batch("validation", size, seed)
        assert batch.source is not None
        assert batch.source_padding is not None
        for row, real in zip(batch.source, batch.source_padding, strict=True):
            if int(real.sum()) in WORDS:
                found[" ".join(task.tokens(row[real]))] = None
        seed += 1
    return tuple(found)[:size]


def functions_of(expression: str) -> int:
    """How many functions an expression has."""
    return sum(word in OF_ONE or word in OF_TWO for word in expression.split())


def copied(functions: int, quick: bool) -> float:
    """The per cent of expressions that stand for their own letters, in their order."""
    asked = expressions(functions, 8 if quick else ASKED)
    same = [[word for word in each.split() if word in LETTERS] == value(each) for each in asked]
    return round(100 * sum(same) / len(same), 2)


def _scores(trained: Trained) -> Scores:
    found: dict[str, float] = {}
    for number in NUMBERS:
        batch = trained.arm.task.of(expressions(number, 8 if trained.quick else ASKED))
        for name, share in length_split.shares(trained.model, batch).items():
            found[f"{number} functions, {name}"] = share
    return found


GRID = Grid(
    arms={"one to three functions": Arm(TASK, {"scale": "none"})},
    score=_scores,
    steps=600,
    make=length_split.GRID.make,
    model=length_split.GRID.model,
    training={"batch_size": 32, "learning_rate": 3e-3},
    baselines={
        f"letters in their order; {number} functions": partial(copied, number) for number in NUMBERS
    },
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
