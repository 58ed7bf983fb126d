"""How small may the cache of a model be? Quality against the bytes that each token costs.

Not a figure of speed. Every model reads text and a passage that returns (`attnlab.tasks.returning`:
16 tokens, 16 others, the same 16 again), with rotary positions, four layers of width 64 with four
heads and feed-forward layers of 128, unless its name says otherwise. All are trained with the same
texts and updates. Arms, by what a layer keeps of each token:

    MHA                  keys and values of four heads
    GQA, 2 groups        of two; MQA: of one
    MLA                  a latent of 16 numbers and a key of 16 that all heads share
    CLA                  as MHA, but two layers share the cache of the lower one
    CLA with MQA         both
    YOCO                 a window of 8 tokens in two layers; two layers share one cache of MHA
    windows 3:1          a window of 8 tokens in three layers, MHA in the fourth
    windows              a window of 8 tokens in all layers

and what else could save as many bytes, as controls: MHA with *2 layers* or *1 layer* instead of
four, or of *width 32* or *16* instead of 64. Losses are in nats on unseen text: *text* of the first
32 tokens, *returning* of those that were read before. *b bits* is the same model after training,
with a cache of so few bits (`attnlab.compression.quantized_cache`, groups and residual of 16),
decoded token by token.

Each arm was tried with learning rates of 0.003 and 0.01 (one seed); the rate with the lower loss on
texts that are not scored has three seeds. Lesson 25 draws what

    python -m attnlab.experiments smaller_cache --threads 1 --json \\
        attnlab/experiments/assets/25_smaller_cache.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.compression.quantized_cache import quantized_cache
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained, parameters
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.returning import Returning

TASK = Returning(passage=16, pieces=512)
WINDOW = {"sinks": 0, "window": 8}
LAYERS, STEPS = 4, 400
USUAL, FASTER = (3e-3, 1e-2), (1e-2, 3e-3)
BITS = (8, 4, 2)
UNSEEN, CODED = 256, 64  # texts that are scored; with a cache of few bits, token by token


def _grouped(groups: int) -> dict[str, Any]:
    return {"attention": "multi_query", "attention_options": {"kv_heads": groups}}


def _layers(windowed: Sequence[bool]) -> dict[str, Any]:
    return {
        "attention": ["streaming" if each else "full" for each in windowed],
        "attention_options": [WINDOW if each else {} for each in windowed],
    }


MODELS: Mapping[str, Mapping[str, Any]] = {
    "MHA": {},
    "GQA, 2 groups": _grouped(2),
    "MQA": _grouped(1),
    "MLA": {"attention": "mla", "attention_options": {"latent_dim": 16}},
    "CLA": {"cache_of": [0, 0, 2, 2]},
    "CLA with MQA": {"cache_of": [0, 0, 2, 2], **_grouped(1)},
    "YOCO": {"cache_of": [0, 1, 2, 2], **_layers([True, True, False, False])},
    "windows 3:1": _layers([True, True, True, False]),
    "windows": _layers([True] * LAYERS),
    "MHA, 2 layers": {"layers": 2},
    "MHA, 1 layer": {"layers": 1},
    "MHA, width 32": {"dim": 32, "hidden": 64},
    "MHA, width 16": {"dim": 16, "hidden": 32},
}
BETTER_FASTER = ("CLA with MQA", "MHA, 1 layer", "MHA, width 32", "MHA, width 16")
RATES: Mapping[str, tuple[float, ...]] = {  # the better one first
    name: FASTER if name in BETTER_FASTER else USUAL for name in MODELS
}
ROUNDED = ("MHA", "GQA, 2 groups", "MQA")


@torch.no_grad()
def losses(model: nn.Module, count: int = UNSEEN, *, seed: int = 0, steps: bool = False) -> Tensor:
    """The loss of each token of ``count`` unseen texts, (count, n), in nats.

    steps: the model writes token by token, from its cache.
    """
    batch = TASK.batch("validation", count, seed)
    if steps:
        state, found = None, []
        for place in range(batch.inputs.shape[1]):
            out, state = model.step(batch.inputs[:, place : place + 1], state)  # type: ignore[operator]
            found.append(out)
        logits = torch.stack(found, dim=1)
    else:
        logits = model(batch.inputs)
    return F.cross_entropy(logits.mT, batch.targets, reduction="none")


def in_two(loss: Tensor) -> dict[str, float]:
    """The mean loss on text that is new, and on the passage that returns."""
    first = 2 * TASK.passage - 1
    return {
        "text": round(loss[:, :first].mean().item(), 4),
        "returning": round(loss[:, first + 1 :].mean().item(), 4),
    }


def _scores(trained: Trained) -> Scores:
    model, note = trained.model, f"{parameters(trained.model):,} parameters"
    found: dict[str, Any] = {
        what: (loss, "nats", note) for what, loss in in_two(losses(model)).items()
    }
    if trained.name in ROUNDED:
        for bits in BITS:
            small = quantized_cache(model, bits=bits, group=16, residual=16)
            rounded = in_two(losses(small, CODED, steps=True)).items()
            found |= {f"{what}, {bits} bits": loss for what, loss in rounded}
        exact = in_two(losses(model, CODED)).items()
        found |= {f"{what}, 16 bits": loss for what, loss in exact}
    return found


def _tuning(trained: Trained) -> Scores:
    """The loss on texts that are not scored; the rate with the lower one is taken."""
    return {"loss on other texts": round(losses(trained.model, seed=1).mean().item(), 4)}


def frequencies(quick: bool = False) -> float:
    """The loss on new text of who only knows how often each token stands in the training text."""
    seen = TASK.batch("train", 64 if quick else 4096, 0).inputs[:, : 2 * TASK.passage]
    counts = torch.bincount(seen.flatten(), minlength=TASK.vocab) + 1.0
    told = TASK.batch("validation", UNSEEN, 0).targets[:, : 2 * TASK.passage - 1]
    return round(-(counts / counts.sum()).log()[told].mean().item(), 4)


def _arm(name: str, rate: float) -> Arm:
    return Arm(TASK, MODELS[name], {"learning_rate": rate})


_COMMON: Mapping[str, Any] = {
    "steps": STEPS,
    "unit": "nats",
    "model": {
        "dim": 64, "layers": LAYERS, "heads": 4, "hidden": 128, "positions": "rope", "tie": False
    },
    "training": {"batch_size": 16},
}  # fmt: skip
MAIN = Grid(
    arms={name: _arm(name, rates[0]) for name, rates in RATES.items()},
    score=_scores,
    baselines={"frequencies of tokens; text": frequencies},
    figure="{arm}; {what}; seed {seed}",
    **_COMMON,
)
TUNING = Grid(
    arms={f"{name}; {rate:g}": _arm(name, rate) for name in MODELS for rate in RATES[name]},
    score=_tuning,
    seeds=(0,),
    figure="{arm}; {what}, tried once",
    **_COMMON,
)
GRID = Grids((MAIN, TUNING))
SEEDS = MAIN.seeds
rows, batches = GRID.rows, GRID.batches
build, train = MAIN.build, MAIN.train


def model_of(arm: str) -> TinyTransformer:
    """The untrained model of an arm, for what it keeps."""
    made: TinyTransformer = MAIN.build(arm)
    return made
