r"""One forward pass, step by step: what the page computes, in PyTorch and float64.

$$x = e + p,\qquad
  x \leftarrow x + \sum_h \mathrm{softmax}(q_h k_h^\top / \sqrt{d})\, v_h\, W_{O,h},\qquad
  x \leftarrow x + W_2\,\mathrm{gelu}(W_1\,\mathrm{LN}(x) + b_1) + b_2$$

A silent head attends as before, but what it gathers is replaced by zeros.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab_widgets.walk.network import ADDED, Network


class Step(NamedTuple):
    """``key`` names what is computed; ``part`` is where: "letters", "layer 0", …, "answer".

    ``kind`` is how it is drawn: "vectors" (n, width), "heads" (h, n, width), "scores" or "weights"
    (h, n, n), "logits" or "chances" (n, vocab).
    """

    key: str
    part: str
    name: str
    kind: str
    says: str


_LETTERS = (
    ("embedding", "embedding", "vectors",
     "Each letter is looked up in a table: a vector of its own, wherever it stands."),
    ("position", "position", "vectors",
     "Each place has a vector, too, whichever letter stands there."),
    ("stream", "sum", "vectors",
     "Letter plus place: the stream, which every later step reads and adds to."),
)  # fmt: skip
_NO_PLACES = "This model adds no vectors of places: zeros."
_NOTHING_ADDED = (
    "The vector of each letter alone: the stream, which every later step reads and adds to."
)
_LAYER = (
    ("norm", "norm 1", "vectors",
     "The stream of each letter, brought to mean 0 and variance 1, then scaled and shifted."),
    ("query", "queries", "heads",
     "Each head makes of every letter a query: what this letter looks for."),
    ("key", "keys", "heads",
     "Each head makes of every letter a key, too: by what this letter is found."),
    ("score", "scores", "scores",
     "Query times key, divided by the root of their width. Later letters are masked."),
    ("weight", "weights", "weights",
     "Softmax: the scores of each row become shares that sum to 1."),
    ("value", "values", "heads",
     "Each head makes a value: what this letter hands on to those that attend to it."),
    ("gathered", "gathered", "heads",
     "Each letter gathers its own value and those before it, by its weights."),
    ("output", "output", "vectors",
     "The heads side by side, times one matrix: what attention adds to the stream."),
    ("attended", "sum 1", "vectors",
     "The stream plus what attention adds."),
    ("norm2", "norm 2", "vectors",
     "The stream again brought to mean 0 and variance 1, then scaled and shifted."),
    ("hidden", "hidden", "vectors",
     "{width}, each letter alone: what is below zero is nearly cut off (GELU)."),
    ("contract", "feed-forward", "vectors",
     "Back to the width of the stream: what the feed-forward layer adds."),
    ("stream", "sum 2", "vectors",
     "The stream plus what the feed-forward layer adds."),
)  # fmt: skip
_ANSWER = (
    ("norm", "norm", "vectors",
     "The stream a last time brought to mean 0 and variance 1, then scaled and shifted."),
    ("logits", "logits", "logits",
     "Times {table}{scale}: a score for each that may come next."),
    ("chances", "probabilities", "chances",
     "Softmax: how probable the model finds each next letter."),
)  # fmt: skip


def steps(network: Network) -> list[Step]:
    """All steps of a model in order, in sentences that are true of it."""
    found = [Step(key, "letters", *rest) for key, *rest in _LETTERS]
    if ADDED not in network.numbers:
        found[1] = found[1]._replace(says=_NO_PLACES)
        found[2] = found[2]._replace(says=_NOTHING_ADDED)
    for at in range(len(network.heads)):
        hidden, dim = network.numbers[f"{at}.expand"].shape
        width = "A wider layer" if hidden > dim else "A narrower layer"
        width = "A layer as wide as the stream" if hidden == dim else width
        layer = [Step(f"{at}.{key}", f"layer {at}", *rest) for key, *rest in _LAYER]
        found += [step._replace(says=step.says.format(width=width)) for step in layer]
    table = "a matrix with a row for every letter"
    table = table if "output" in network.numbers else "the vector of every letter"
    scale = "" if network.logit_scale == 1 else f" and {network.logit_scale:g}"
    answer = [Step(key, "answer", *rest) for key, *rest in _ANSWER]
    return found + [
        step._replace(says=step.says.format(table=table, scale=scale)) for step in answer
    ]


@torch.no_grad()
def forward(
    network: Network, tokens: Sequence[int], silent: Sequence[Sequence[int]] = ()
) -> dict[str, Tensor]:
    """Every step of one forward pass of n tokens, by its key, in float64 (shapes in ``Step``).

    ``silent``  heads as pairs (layer, head)
    """
    numbers, found = network.numbers, {}
    n = len(tokens)
    found["embedding"] = numbers["embedding"][torch.tensor(tokens)]
    added = numbers.get(ADDED)
    found["position"] = torch.zeros_like(found["embedding"]) if added is None else added[:n]
    x = found["stream"] = found["embedding"] + found["position"]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    for layer, heads in enumerate(network.heads):
        at = f"{layer}."
        read = found[at + "norm"] = _norm(network, x, at + "norm", 2 * layer)
        q, k, v = (
            _linear(network, read, at + name).view(n, heads, -1).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        found[at + "query"], found[at + "key"] = q, k
        found[at + "score"] = (q @ k.mT * network.scales[layer]).masked_fill(later, -torch.inf)
        weights = found[at + "weight"] = found[at + "score"].softmax(-1)
        found[at + "value"] = v
        heard = torch.tensor([[layer, head] not in map(list, silent) for head in range(heads)])
        gathered = found[at + "gathered"] = weights @ v * heard[:, None, None]
        side_by_side = gathered.transpose(0, 1).flatten(1)
        found[at + "output"] = _linear(network, side_by_side, at + "output")
        x = found[at + "attended"] = x + found[at + "output"]
        read = found[at + "norm2"] = _norm(network, x, at + "norm2", 2 * layer + 1)
        found[at + "hidden"] = F.gelu(_linear(network, read, at + "expand"))
        found[at + "contract"] = _linear(network, found[at + "hidden"], at + "contract")
        x = found[at + "stream"] = x + found[at + "contract"]
    found["norm"] = _norm(network, x, "norm", -1)
    table = "output" if "output" in numbers else "embedding"
    found["logits"] = _linear(network, found["norm"], table) * network.logit_scale
    found["chances"] = found["logits"].softmax(-1)
    return found


def _linear(network: Network, x: Tensor, name: str) -> Tensor:
    return F.linear(x, network.numbers[name], network.numbers.get(f"{name}.bias"))


def _norm(network: Network, x: Tensor, name: str, at: int) -> Tensor:
    weight, bias = network.numbers[name], network.numbers.get(f"{name}.bias")
    return F.layer_norm(x, x.shape[-1:], weight, bias, network.epsilon[at])
