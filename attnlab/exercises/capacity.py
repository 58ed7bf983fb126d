"""Checks of lesson 24: numbers for a hundred pairs, a state that fades, states that read blocks."""

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- numbers for a hundred pairs

DEVIATIONS = 2.33  # a normal number is below −2.33 in 1 % of cases

check_state_numbers = NumberExercise(
    "Is it the d at which 100 pairs with random keys have 99 % of their signs right?",
    right=DEVIATIONS**2 * 99,
    tolerance=0.03,
    unit="numbers",
    mistakes={
        100: "That is enough for orthogonal keys. Random keys disturb each other.",
        DEVIATIONS * 99: "The noise has the deviation √((m − 1) / d): square 2.33.",
        99 / DEVIATIONS**2: "That is the inverse: d must be larger than the number of pairs.",
    },
)


# ---- a state that fades


def _fading(
    keys: Tensor, values: Tensor, queries: Tensor, g: float, *,
    early: bool = False, newest: float = 1, last: bool = False,
) -> Tensor:  # fmt: skip
    """Token by token; every keyword is a mistake."""
    S, out = keys.new_zeros(keys.shape[1], values.shape[1]), []
    for k, v, q in zip(keys, values, queries, strict=True):
        old, S = S, g * S + newest * torch.outer(k, v)
        out.append(q @ (old if early else S))
    return queries @ S if last else torch.stack(out)


check_fading = Exercise(
    """Does the state fade by g at each token? `fading(keys, values, queries, g)`.

    `keys` and `queries` (n, d), `values` (n, e); it returns (n, e).
    """,
    right=_fading,
    cases=drawn(24, keys=(7, 5), values=(7, 3), queries=(7, 5), g=0.8),
    axes="n e",
    mistakes={
        but(early=True): "Each query reads the state before its own pair is written. Write first.",
        but(last=True): (
            "All queries read the last state. Each reads the state after its own token."
        ),
        (lambda keys, values, queries, g: _fading(keys, values, queries, 1.0)): (
            "The state does not fade: it is multiplied by g at each token."
        ),
        (lambda keys, values, queries, g: _fading(keys, values, queries, g, newest=1 - g)): (
            "The new pair has the factor 1 − g. Here it is written whole."
        ),
        (lambda keys, values, queries, g: _fading(keys, values, queries, g, newest=g)): (
            "The newest pair has faded as well. Only what was in the state before it fades."
        ),
    },
    praise="A pair that is t tokens old has the weight g to the power of t.",
)


# ---- vectors that read blocks


def _blocks(
    x: Tensor, s: Tensor, length: int, Wq: Tensor, Wk: Tensor, Wv: Tensor, g: float, *,
    causal: bool = True, late: bool = False, alone: bool = False, blind: bool = False,
    scaled: bool = True, apart: bool = False,
) -> Tensor:  # fmt: skip
    """(n + r, d): outputs, then the states; every keyword is a mistake."""
    out, r, start = [], len(s), s
    for tokens in x.split(length):
        both = torch.cat([s, tokens])
        scores = (both @ Wq) @ (both @ Wk).mT / (x.shape[1] ** 0.5 if scaled else 1)
        if causal:
            later = torch.ones_like(scores[r:, r:], dtype=torch.bool).triu(1)
            scores[r:, r:] = scores[r:, r:].masked_fill(later, -torch.inf)
        of_states = scores[:r].clone()
        of_states[:, :r] -= torch.inf if alone else 0
        new = g * s + (1 - g) * of_states.softmax(-1) @ (both @ Wv)
        if blind:
            scores[r:, :r] = -torch.inf
        if late:
            both = torch.cat([new, tokens])
            scores[r:, :r] = (tokens @ Wq) @ (new @ Wk).mT / x.shape[1] ** 0.5
        out.append(scores[r:].softmax(-1) @ (both @ Wv))
        s = start if apart else new
    return torch.cat([*out, new])


check_block_states = Exercise(
    """Do state vectors read block by block? `blocks(x, s, length, Wq, Wk, Wv, g)`.

    `x` (n, d), n a multiple of `length`, `s` (r, d), the matrices (d, d) are applied as `x @ W`; it
    returns (n + r, d): the outputs, and below them the states after the last block.
    """,
    right=_blocks,
    cases=drawn(25, x=(12, 5), s=(2, 5), length=4, Wq=(5, 5), Wk=(5, 5), Wv=(5, 5), g=0.7),
    axes="rows d",
    mistakes={
        but(late=True): "The tokens read the states that have read their own block, and with them "
        "their future. They attend to the states from before the block.",
        but(causal=False): "A token attends to later tokens of its block.",
        but(alone=True): "The states attend to the tokens alone. They attend to each other, too.",
        but(blind=True): (
            "The tokens do not attend to the states: nothing of earlier blocks reaches them."
        ),
        but(apart=True): "Every block starts from the first states. Carry the new ones on.",
        but(scaled=False): "The scores are not divided by √d.",
        (lambda x, s, length, Wq, Wk, Wv, g: _blocks(x, s, length, Wq, Wk, Wv, 1 - g)): (
            "The gate is the wrong way round: g is the share of the old states."
        ),
        (lambda x, s, length, Wq, Wk, Wv, g: _blocks(x, s, length, Wq, Wk, Wv, 0.0)): (
            "The states are replaced by what they read: the gate is missing."
        ),
        (lambda x, s, *rest: _blocks(x, s, *rest).roll(len(s), 0)): (
            "The states are right, but stand above the outputs. They come last."
        ),
    },
    praise="All that a later block learns of an earlier one has passed two vectors.",
)
