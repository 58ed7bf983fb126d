"""A model with its weights at every recorded training step, and its maps on any text.

The weights are kept, not the maps, so that a text typed afterwards can be shown at every step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.lens.mixing import Mixing, mixing_matrix
from attnlab.lens.record import Seen
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

Weights = Mapping[str, Tensor]

MOST_SNAPSHOTS = 32  # 3.5 MB each for a model of the default size


@dataclass(frozen=True)
class Maps:
    """Attention maps in a form that `AttentionView` takes, and a remark about them."""

    source: Seen | list[Mixing]
    remark: str = ""


class Snapshots:
    """The weights of a model by training step, 0 first."""

    def __init__(self, model: nn.Module) -> None:
        self.snapshots: dict[int, Weights] = {}
        self.keep(0, model)

    @property
    def newest(self) -> int:
        return max(tuple(self.snapshots))

    def keep(self, step: int, model: nn.Module) -> None:
        """Record the weights of `step`; beyond the limit, every second snapshot is dropped."""
        weights = {k: v.detach().to("cpu", copy=True) for k, v in model.state_dict().items()}
        snapshots = {**self.snapshots, step: weights}
        if len(snapshots) > MOST_SNAPSHOTS:
            first, *between, last = sorted(snapshots)
            snapshots = {at: snapshots[at] for at in (first, *between[1::2], last)}
        self.snapshots = (
            snapshots  # one assignment, so that other threads see either the old or the new
        )


class RecordedModel(Snapshots):
    """A model of mechanism `name`, and its weights at every recorded step of its training."""

    def __init__(self, name: str, trained: bool, model: TinyTransformer) -> None:
        self.name, self.trained, self.model = name, trained, model
        super().__init__(model)

    def learner(self) -> TinyTransformer:
        """A model of its own with the newest weights, to be trained elsewhere."""
        learner = new_model(self.name, self.model.config)
        learner.load_state_dict(self.snapshots[self.newest])
        return learner

    def nearest(self, step: int) -> int:
        """The last recorded step that is not after `step`."""
        return max(at for at in tuple(self.snapshots) if at <= step)

    def look(self, tokens: Tensor, step: int) -> Maps:
        """The maps of recorded `step` on tokens (n,). For one thread at a time."""
        self.model.load_state_dict(self.snapshots[step])
        return maps(self.model, tokens)


def new_model(name: str, config: Mapping[str, Any], seed: int = 0) -> TinyTransformer:
    """A model with random weights, without dropout, which would add noise to a comparison."""
    own = {"attention": name, "attention_options": None, "dropout": 0.0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**{**config, **own}).eval()


@torch.no_grad()
def maps(model: TinyTransformer, tokens: Tensor) -> Maps:
    """Softmax weights where each layer has one n × n set of them, mixing matrices elsewhere."""
    inputs: dict[int, Tensor] = {}
    mixers = _mixers(model)
    handles = [
        mixer.register_forward_pre_hook(lambda _, args, i=i: inputs.update({i: args[0]}))
        for i, mixer in enumerate(mixers)
    ]
    try:
        with watch(model) as seen:
            model(tokens[None])
    finally:
        for handle in handles:
            handle.remove()
    if _one_square_each(seen, len(mixers), len(tokens)):
        return Maps(seen)
    found = [mixing_matrix(mixer, inputs[i]) for i, mixer in enumerate(mixers)]
    return Maps(
        found, f"No softmax weights here: what you see are mixing matrices ({found[0].how})."
    )


def _mixers(model: TinyTransformer) -> list[nn.Module]:
    assert model.decoder is not None  # a language model
    blocks: Any = model.decoder.blocks
    return [block.attention for block in blocks]


def _one_square_each(seen: Seen, layers: int, n: int) -> bool:
    if len(seen) != layers or any(record.shape[2:] != (n, n) for record in seen):
        return False
    try:
        return all(record.weights is not None for record in seen)
    except ValueError:  # it recorded queries and keys, but has no weights
        return False
