r"""One forward pass, every step of it: what a page computes, in PyTorch and float64.

$$x = e + p,\qquad
  x \leftarrow x + \sum_h \mathrm{softmax}(q_h k_h^\top / \sqrt{d})\, v_h\, W_{O,h},\qquad
  x \leftarrow x + W_2\,\mathrm{gelu}(W_1\,\mathrm{LN}(x) + b_1) + b_2$$

A silent head attends as before, but what it gathers is replaced by zeros.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab_widgets.network import ADDED, Network


@torch.no_grad()
def forward(
    network: Network, tokens: Sequence[int], silent: Sequence[Sequence[int]] = ()
) -> dict[str, Tensor]:
    """Every step of one forward pass of n tokens, by its key, in float64.

    Vectors are (n, width), those of heads (h, n, width), scores and weights (h, n, n), logits and
    chances (n, vocab).

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
        read = found[at + "norm"] = norm(network, x, at + "norm", 2 * layer)
        q, k, v = (
            linear(network, read, at + name).view(n, heads, -1).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        found[at + "query"], found[at + "key"] = q, k
        found[at + "score"] = (q @ k.mT * network.scales[layer]).masked_fill(later, -torch.inf)
        weights = found[at + "weight"] = found[at + "score"].softmax(-1)
        found[at + "value"] = v
        heard = torch.tensor([[layer, head] not in map(list, silent) for head in range(heads)])
        gathered = found[at + "gathered"] = weights @ v * heard[:, None, None]
        side_by_side = gathered.transpose(0, 1).flatten(1)
        found[at + "output"] = linear(network, side_by_side, at + "output")
        x = found[at + "attended"] = x + found[at + "output"]
        read = found[at + "norm2"] = norm(network, x, at + "norm2", 2 * layer + 1)
        found[at + "hidden"] = F.gelu(linear(network, read, at + "expand"))
        found[at + "contract"] = linear(network, found[at + "hidden"], at + "contract")
        x = found[at + "stream"] = x + found[at + "contract"]
    found["norm"] = norm(network, x, "norm", -1)
    table = "output" if "output" in numbers else "embedding"
    found["logits"] = linear(network, found["norm"], table) * network.logit_scale
    found["chances"] = found["logits"].softmax(-1)
    return found


def linear(network: Network, x: Tensor, name: str) -> Tensor:
    return F.linear(x, network.numbers[name], network.numbers.get(f"{name}.bias"))


def norm(network: Network, x: Tensor, name: str, at: int) -> Tensor:
    weight, bias = network.numbers[name], network.numbers.get(f"{name}.bias")
    return F.layer_norm(x, x.shape[-1:], weight, bias, network.epsilon[at])
