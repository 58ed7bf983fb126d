"""Which tokens may a trained model forget while it writes? The loss against the tokens kept.

Not a figure of speed. The models are trained as they are, with full attention, and then decode with
a budget (`attnlab.compression.budget_cache`): of what they have read they keep b tokens in each
layer, or, Quest, keep all and read b. Each reads a prompt at once, as without a budget, and then
token by token; the losses, in nats, are those of the tokens after the prompt.

    MHA            the model of `attnlab.experiments.smaller_cache`, three trainings, on rows like
                   those of its training: a passage of 16 tokens, 16 others, and the passage again.
                   *text*: a prompt of 20 tokens, and 11 that are new; *returning*: a prompt of 36,
                   with the first 4 of those that return, and the 11 others. (On longer text in
                   which nothing returns this model is worse with all tokens than with a few, since
                   it copies what stands 32 tokens back all the same.)
    documentation  the language model that comes with attnlab; 96 tokens of unseen text, then 32.

Policies. *window*: the last b tokens; *sinks*: the first 4 and the last b - 4 (StreamingLLM); *H2O*
and *random*: the last b / 2, and b / 2 that were attended to most, or that are drawn; *SnapKV*: b
of the prompt by the votes of its last 4 tokens (8 in the larger model), and all that is written;
*Quest*: pages of 4 tokens (8). What is kept at the end of the text, and read by its last token, is
in the note. The model without a budget is *all*.

Lesson 25 draws what

    python -m attnlab.experiments kept_tokens --threads 1 --json \\
        attnlab/experiments/assets/25_kept_tokens.json

has written.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab import pretrained
from attnlab.compression.budget_cache import (
    H2O,
    Policy,
    Quest,
    Random,
    Sinks,
    SnapKV,
    Window,
    budget_cache,
)
from attnlab.experiments import smaller_cache
from attnlab.experiments.grid import Arm, Grid, Measured, Scores, Trained, seeded
from attnlab.models.tiny import TinyTransformer

TASK = smaller_cache.TASK
PROMPTS = {"text": 20, "returning": 36}
BUDGETS = {"text": (4, 8, 16), "returning": (4, 8, 16, 24, 32)}
NEW = 11  # tokens after a prompt
LARGER = (8, 16, 32, 64, 96)  # of the model that comes with attnlab
LARGER_PROMPT, LARGER_PAGE = 96, 8
ROWS, LARGER_ROWS, FEW = 128, 256, 8


def policies(budget: int, seed: int, page: int) -> dict[str, Policy]:
    """Every policy with this budget; ``page`` is also the tokens that vote in SnapKV."""
    return {
        "window": Window(budget=budget),
        "sinks": Sinks(budget=budget, sinks=4),
        "random": Random(budget=budget, seed=seed),
        "H2O": H2O(budget=budget),
        "SnapKV": SnapKV(budget=budget, window=page),
        "Quest": Quest(budget=budget, page=page),
    }


@torch.no_grad()
def loss(
    model: TinyTransformer, policy: Policy | None, rows: Tensor, prompt: int
) -> tuple[float, str, str]:
    """The mean loss after the prompt, and what is kept and read at the end of the ``rows``."""
    small: Any = model if policy is None else budget_cache(model, policy)
    out, state = small.step(rows[:, :prompt])
    found = []
    for place in range(prompt, rows.shape[1] - 1):
        out, state = small.step(rows[:, place : place + 1], state)
        found.append(out)
    read = rows.shape[1] - 1
    kept, seen = (read, read) if policy is None else _counted(policy, state, read)
    mean = F.cross_entropy(torch.stack(found, dim=2), rows[:, prompt + 1 :])
    return round(mean.item(), 4), "nats", f"keeps {kept}, reads {seen}"


def _counted(policy: Policy, state: Any, read: int) -> tuple[int, int]:
    """How many tokens a layer keeps, and how many of them its last token has read."""
    kept = state[1][0].size
    if isinstance(policy, Quest):  # the page of the last token may not be full
        return kept, min(read, policy.budget - policy.page + (read - 1) % policy.page + 1)
    return kept, min(read, kept + (kept < read and not isinstance(policy, SnapKV)))


def texts(part: str, count: int) -> Tensor:
    """Unseen rows up to the last token that is asked for."""
    batch = TASK.batch("validation", count, seed=0)
    rows = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1)
    return rows[:, : PROMPTS[part] + NEW + 1]


def _scores(trained: Trained) -> Scores:
    found: dict[str, Measured] = {}
    for part, prompt in PROMPTS.items():
        rows = texts(part, FEW if trained.quick else ROWS)
        found[f"all; {part}"] = loss(trained.model, None, rows, prompt)
        for budget in BUDGETS[part][: 1 if trained.quick else None]:
            for name, policy in policies(budget, trained.seed, page=4).items():
                found[f"{name}, {budget}; {part}"] = loss(trained.model, policy, rows, prompt)
    return found


@lru_cache(maxsize=1)
def _larger() -> tuple[TinyTransformer, Tensor]:
    """The language model that comes with attnlab, and unseen text of its task."""
    with seeded(0):  # a model is made with random weights before it is filled
        model, task = pretrained.load("documentation")
    batch = task.batch("validation", LARGER_ROWS, 0)
    return model, torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1)


def _of_larger(name: str, budget: int, quick: bool) -> Measured:
    model, rows = _larger()
    policy = policies(budget, 0, page=LARGER_PAGE)[name] if budget else None
    if quick:  # after the prompt a page of new tokens, and one more
        rows = rows[:FEW, : LARGER_PROMPT + LARGER_PAGE + 2]
    return loss(model, policy, rows, LARGER_PROMPT)


def _baselines() -> Mapping[str, Callable[[bool], Measured]]:
    found = {"documentation; all; text": partial(_of_larger, "all", 0)}
    for budget in LARGER:
        for name in policies(budget, 0, page=LARGER_PAGE):
            found[f"documentation; {name}, {budget}; text"] = partial(_of_larger, name, budget)
    return found


GRID = Grid(
    arms={"MHA": Arm(TASK, training={"learning_rate": smaller_cache.RATES["MHA"][0]})},
    score=_scores,
    baselines=_baselines(),
    figure="{arm}; {what}; seed {seed}",
    steps=smaller_cache.STEPS,
    unit="nats",
    model=smaller_cache.MAIN.model,
    training=smaller_cache.MAIN.training,
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches
build, train = GRID.build, GRID.train
