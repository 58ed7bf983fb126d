r"""A forward pass in which some wires are cut: what the page computes, in PyTorch and float64.

A wire leads from a sender, which adds to the stream, to one receiver, which reads it: the query,
key or value of a head, or the logits. A receiver without a cut wire reads the stream as it is. One
with cut wires S reads a stream of its own,

$$x = \sum_{s \notin S} o_s + \sum_{s \in S} \tilde o_s + \sum_l (b_l + f_l),$$

with $o_s$ what a sender adds in this pass, $\tilde o_s$ what is put in its place, $b_l$ the bias of
an output matrix and $f_l$ what a feed-forward layer adds. Where wires lead **through** the
feed-forward layers, these are computed anew from the receiver's own stream; else they add what they
add in this pass, and the wire is the direct way alone. All that follows is computed again from what
the receiver has read, so several cuts act together: a cut that changes a head is felt by all who
read that head along wires that are whole.

One cut alone, with what the sender makes of another text, is the path patching of
``attnlab.lens.patching``. Cuts of single edges of this graph: Wang, Variengien, Conmy, Shlegeris,
Steinhardt, Interpretability in the Wild, ICLR 2023, arXiv:2211.00593; Goldowsky-Dill, MacLeod,
Sato, Arora, Localizing Model Behavior with Path Patching, 2023, arXiv:2304.05969.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab_widgets.draws import uniform
from attnlab_widgets.forward import linear, norm
from attnlab_widgets.network import ADDED, Network

LETTERS, PLACES, LOGITS = "letters", "places", "logits"
INTO = ("query", "key", "value")
TEXTS = 64
"""Over how many texts a mean is taken."""

Wire: TypeAlias = tuple[str, str]
"""Sender and receiver: ("letters", "0.1 value"), ("0.1", "1.0 key"), ("1.0", "logits")."""
Added: TypeAlias = Mapping[str, Tensor]
"""What each sender adds to the stream, (n, dim)."""


def senders(network: Network, layers: int | None = None) -> list[str]:
    """Letters, places where the model has vectors for them, and the heads below a layer."""
    first = [LETTERS, PLACES] if ADDED in network.numbers else [LETTERS]
    below = network.heads[:layers]
    return first + [f"{at}.{head}" for at, count in enumerate(below) for head in range(count)]


def wires(network: Network) -> list[Wire]:
    """Every wire: of each receiver from below, and of each sender."""
    found = [
        (sender, f"{layer}.{head} {into}")
        for layer, count in enumerate(network.heads)
        for head in range(count)
        for into in INTO
        for sender in senders(network, layer)
    ]
    return found + [(sender, LOGITS) for sender in senders(network)]


@dataclass
class Pass:
    """``added``    what each sender adds to the stream, (n, dim)
    ``weights``  of each head by its name, (n, n)
    ``logits``   (n, vocab)
    """

    added: dict[str, Tensor]
    weights: dict[str, Tensor] = field(default_factory=dict)
    feeds: list[Tensor] = field(default_factory=list)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))


@torch.no_grad()
def run(
    network: Network,
    tokens: Sequence[int],
    cuts: Sequence[Sequence[str]] = (),
    instead: Added | None = None,
    through: bool = True,
) -> Pass:
    """A pass of n tokens with these wires cut; a cut wire carries what ``instead`` has for its
    sender."""
    n, numbers = len(tokens), network.numbers
    here = Pass({LETTERS: numbers["embedding"][torch.tensor(tokens)]})
    if ADDED in numbers:
        here.added[PLACES] = numbers[ADDED][:n]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)

    def read(layer: int, receiver: str = "") -> Tensor:
        """The stream below a layer, as a receiver reads it."""
        own = {sender for sender, to in cuts if to == receiver}
        given = here.added if instead is None else here.added | {s: instead[s] for s in own}
        x = _sum([given[sender] for sender in senders(network, 0)])
        for at in range(layer):
            x = _attended(network, x, given, at)
            x = x + (_feed(network, x, at) if own and through else here.feeds[at])
        return x

    for layer, count in enumerate(network.heads):
        for head in range(count):
            name = f"{layer}.{head}"
            q, k, v = (
                _projected(network, read(layer, f"{name} {into}"), layer, head, into)
                for into in INTO
            )
            scores = (q @ k.mT * network.scales[layer]).masked_fill(later, -torch.inf)
            here.weights[name] = scores.softmax(-1)
            columns = numbers[f"{layer}.output"].chunk(count, 1)[head]
            here.added[name] = here.weights[name] @ v @ columns.mT
        here.feeds.append(_feed(network, _attended(network, read(layer), here.added, layer), layer))
    last = norm(network, read(len(network.heads), LOGITS), "norm", -1)
    table = "output" if "output" in numbers else "embedding"
    here.logits = linear(network, last, table) * network.logit_scale
    return here


def _sum(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def _attended(network: Network, x: Tensor, added: Added, layer: int) -> Tensor:
    """The stream plus what the heads of a layer add."""
    x = x + _sum([added[f"{layer}.{head}"] for head in range(network.heads[layer])])
    bias = network.numbers.get(f"{layer}.output.bias")
    return x if bias is None else x + bias


def _feed(network: Network, x: Tensor, layer: int) -> Tensor:
    read = norm(network, x, f"{layer}.norm2", 2 * layer + 1)
    return linear(network, F.gelu(linear(network, read, f"{layer}.expand")), f"{layer}.contract")


def _projected(network: Network, x: Tensor, layer: int, head: int, into: str) -> Tensor:
    """(n, width): the query, key or value of one head."""
    read = norm(network, x, f"{layer}.norm", 2 * layer)
    return linear(network, read, f"{layer}.{into}").chunk(network.heads[layer], 1)[head]


# What a cut wire carries


def zeros(network: Network, n: int) -> dict[str, Tensor]:
    """Nothing from any sender, (n, dim) of each."""
    dim = network.numbers["embedding"].shape[1]
    return {sender: torch.zeros(n, dim, dtype=torch.float64) for sender in senders(network)}


def means(network: Network) -> dict[str, Tensor]:
    """What each sender adds in the mean over ``TEXTS`` texts and all their places, (dim,): rounded
    to half precision, with which Python and the page compute."""
    found = {sender: torch.zeros(()).double() for sender in senders(network)}
    for at in range(TEXTS):
        added = run(network, repeating(network, at)).added
        found = {sender: found[sender] + x.mean(0) / TEXTS for sender, x in added.items()}
    return {sender: x.half().double() for sender, x in found.items()}


def repeating(network: Network, seed: int) -> list[int]:
    """A text as long as it may be: a run of different random letters, again and again."""
    n, vocab = network.longest, len(network.names)
    most = max(1, min(vocab, n // 2))
    size = 1 + int(uniform(seed, 0) * most)
    order = sorted(range(vocab), key=lambda token: uniform(seed, 1 + token))
    return [order[at % size] for at in range(n)]


def reordered(tokens: Sequence[int], seed: int) -> list[int]:
    """The same letters in another order: each letter of the text stands for another of them
    wherever it occurs, so that what repeats still repeats. Sattolo's algorithm leaves none as it
    was, unless the text has one kind of letter only: then the other text is the text."""
    letters = list(dict.fromkeys(tokens))
    others = list(letters)
    for at in range(len(others) - 1, 0, -1):
        swap = int(uniform(seed, at) * at)
        others[at], others[swap] = others[swap], others[at]
    to = dict(zip(letters, others, strict=True))
    return [to[token] for token in tokens]
