"""Tiled positions: a model trained on texts of 32 bytes reads texts of 128 without a step more.

A learned table of positions has a row for each of the 32 places of training and none for the rest.
Longformer was made of RoBERTa by writing its table of 512 rows eight times below itself (Beltagy,
Peters, Cohan, Longformer: The Long-Document Transformer, 2020, arXiv:2004.05150, section 5). Here
the same is done with 32 rows and four copies. Two small causal models of two layers, on the Python
documentation in bytes: one with a window (8 bytes back in each layer, so 16 in all), one with full
attention. Nothing is timed; a row is a loss in nats per byte, on the same validation texts.

    trained       at places 16 to 31, whose rows are trained
    tiled         at places 32 to 127, with copies of the 32 rows in their order
    tiled, inside where a window sees no row of another copy: places 16 to 31 of each
    shuffled      with copies in an order of their own: rows that are trained, in the wrong places
    one row       with the last trained row at every place
    random        with rows drawn like the trained ones: of the mean and spread of each number
    untrained     with rows as they were before training

From place 16 on a window sees as much at every place, so its losses can be compared with that of
``trained``; full attention sees more at later places. The models are the same in all rows: only
the table is changed after training, so no row has been trained longer than another. Lesson 11 draws

    python -m attnlab.experiments tiled_positions --threads 1 --json \\
        attnlab/experiments/assets/11_tiled_positions.json
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, seeded
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation

SHORT, LONG, BACK = 32, 128, 8
STEPS, TEXTS = 1000, 512
TABLES = ("tiled", "shuffled", "one row", "random", "untrained")


def continued(rows: Tensor, how: str, length: int = LONG, seed: int = 0) -> Tensor:
    """The table (SHORT, dim) → one of ``length`` rows, whose first are the trained ones."""
    trained, (n, dim) = rows, rows.shape
    more = length - n
    generator = torch.Generator().manual_seed(seed)
    if how == "tiled":
        added = trained.repeat(-(-more // n), 1)[:more]
    elif how == "shuffled":
        copies = [trained[torch.randperm(n, generator=generator)] for _ in range(-(-more // n))]
        added = torch.cat(copies)[:more]
    elif how == "one row":
        added = trained[-1:].repeat(more, 1)
    elif how == "random":
        drawn = torch.randn(more, dim, generator=generator)
        added = trained.mean(0) + trained.std(0) * drawn
    elif how == "untrained":
        added = build("window", seed, max_len=length).positions.weight[n:].detach()
    else:
        raise ValueError(f"how should be one of {', '.join(TABLES)}, got {how!r}")
    return torch.cat((trained, added))


def longer(model: TinyTransformer, how: str, seed: int = 0) -> TinyTransformer:
    """A copy of the model for texts of ``LONG`` bytes; its weights are those of ``model``."""
    weights = dict(model.state_dict())
    name = "positions.weight"
    weights[name] = continued(weights[name], how, seed=seed)
    with seeded(seed):
        other = TinyTransformer(**{**model.config, "max_len": LONG})
    other.load_state_dict(weights)
    return other.eval()


@torch.no_grad()
def losses(model: TinyTransformer, texts: int = TEXTS) -> Tensor:
    """The mean loss (LONG,) at each place of validation texts, in nats."""
    batch = Documentation(length=LONG).batch("validation", texts, seed=0)
    logits = torch.cat([model(part) for part in batch.inputs.split(64)])
    return F.cross_entropy(logits.mT, batch.targets, reduction="none").mean(0)


def _scores(trained: Trained) -> Scores:
    texts, found = 8 if trained.quick else TEXTS, {}
    for how in TABLES:
        at = losses(longer(trained.model, how, trained.seed), texts)
        found["trained"] = round(at[SHORT // 2 : SHORT].mean().item(), 3)
        found[how] = round(at[SHORT:].mean().item(), 3)
        if how == "tiled":
            inside = at[SHORT:].unflatten(0, (-1, SHORT))[:, SHORT // 2 :]
            found["tiled, inside"] = round(inside.mean().item(), 3)
    return found


ATTENTION: Mapping[str, Mapping[str, object]] = {
    "window": {"attention": "longformer", "attention_options": {"window": 2 * BACK}},
    "full": {"attention": "full"},
}
GRID = Grid(
    arms={
        name: Arm(lambda: Documentation(length=SHORT), model) for name, model in ATTENTION.items()
    },
    score=_scores,
    steps=STEPS,
    model={"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "max_len": SHORT},
    training={"batch_size": 64, "learning_rate": 3e-3},
    unit="nats",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
