r"""What does a frozen model know, and after which layer? Probes, with both controls beside them.

    known = known_where(states, examples, new, asked, untrained=(random, random_new))
    known.trained.right, known.control, known.selectivity        # after each layer
    known.trained.expected_layer, known.trained.last.centre_of_gravity

Cumulative edge probes (``attnlab.lens.edge_probes``) of layers 0 to l are trained three times:

- on the states of the trained model;
- on those of the same model with random weights, which hold the words, their places, and random
  mixtures of both;
- on those of the trained model with the labels of the examples in a random order, which hold
  nothing to be learned.

The **control** of a layer is the larger of the last two, and the **selectivity** is what the probe
has right beyond it. Near 0, the score says something of the words or of the probe, and nothing of
what the training has added. An expected layer or a centre of gravity means little there.

Departure: the control task of Hewitt and Liang gives each word a random label, the same wherever it
stands, so that it can be learned by heart; their selectivity is the difference from that. Labels in
a random order cannot be learned at all. It is the random encoder that holds the words here.

Hewitt, Liang. Designing and Interpreting Probes with Control Tasks. EMNLP 2019, arXiv:1909.03368.
Tenney, Das, Pavlick. BERT Rediscovers the Classical NLP Pipeline. ACL 2019, arXiv:1905.05950.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.lens.edge_probes import STEPS, Cumulative, Examples, cumulative_probes


class Known(NamedTuple):
    """Cumulative probes of one question, and of its controls."""

    trained: Cumulative
    random: Cumulative
    """On the states of an untrained model."""
    shuffled: Cumulative
    """After training on labels in a random order."""

    @property
    def control(self) -> Float[Tensor, "layers"]:
        """The larger score of both controls after each layer."""
        return torch.maximum(self.random.right, self.shuffled.right)

    @property
    def selectivity(self) -> Float[Tensor, "layers"]:
        """What the probe of the trained model has right beyond the control."""
        return self.trained.right - self.control


def known_where(
    states: Float[Tensor, "layers b n d"], examples: Examples,
    new: Float[Tensor, "layers c n d"], asked: Examples,
    *, untrained: tuple[Float[Tensor, "layers b n d"], Float[Tensor, "layers c n d"]],
    steps: int = STEPS, seed: int = 0,
) -> Known:  # fmt: skip
    """Probes trained on ``examples`` about ``states`` and asked about new states, with controls.

    ``untrained``  the states of the same texts in the same model with random weights
    ``seed``       draws the probes' weights and the random order of the labels
    """
    if [part.shape for part in untrained] != [states.shape, new.shape]:
        raise ValueError(
            "untrained should be the states of the same texts in the same model with random "
            f"weights, {tuple(states.shape)} and {tuple(new.shape)}, got "
            f"{' and '.join(str(tuple(part.shape)) for part in untrained)}"
        )
    order = torch.randperm(len(examples.label), generator=torch.Generator().manual_seed(seed))
    mixed = examples._replace(label=examples.label[order.to(examples.label.device)])
    random, random_new = untrained
    return Known(
        cumulative_probes(states, examples, new, asked, steps=steps, seed=seed),
        cumulative_probes(random, examples, random_new, asked, steps=steps, seed=seed),
        cumulative_probes(states, mixed, new, asked, steps=steps, seed=seed),
    )
