"""The stages of lesson 06, finished: a whole decoder-only transformer in plain tensors.

In that lesson you write each of these functions yourself. Whoever leaves a stage out takes it from
here. Matrices have the layout of ``nn.Linear``, (out, in), so that the weights of a trained model
fit as they are stored; one sequence of n tokens goes through, without a batch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

_MATRICES = ("query", "key", "value", "output")
_NETWORK = ("expand.weight", "expand.bias", "contract.weight", "contract.bias")
_PARTS = ("attention", "feed_forward")

Stream = Float[Tensor, "n dim"]
Part = Callable[[Tensor], Tensor]


def embed(
    ids: Int[Tensor, "n"], tokens: Float[Tensor, "vocab dim"], places: Float[Tensor, "most dim"]
) -> Stream:
    """A vector for each token: that of what it is, and that of where it stands."""
    return tokens[ids] + places[: len(ids)]


def attend(
    x: Stream, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, heads: int
) -> Float[Tensor, "n dim"]:
    """Causal attention with several heads; the four matrices are (dim, dim)."""
    q, k, v = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(0, 1) for w in (wq, wk, wv))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones(len(x), len(x)).triu(1).bool()
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    return (weights @ v).transpose(0, 1).flatten(1) @ wo.T


def feed_forward(x: Stream, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Stream:
    """Two layers with a GELU between them, at each position alone."""
    return F.gelu(x @ w1.T + b1) @ w2.T + b2


def norm(x: Stream, gain: Float[Tensor, "dim"], bias: Float[Tensor, "dim"]) -> Stream:
    """Each position with mean 0 and variance 1, then gain and bias."""
    return F.layer_norm(x, x.shape[-1:], gain, bias)


def block(
    x: Stream, attention: Part, network: Part,
    gain: Float[Tensor, "2 dim"], bias: Float[Tensor, "2 dim"],
) -> Stream:  # fmt: skip
    """One layer: attention, then the network; each reads norm(x) and is added to x."""
    x = x + attention(norm(x, gain[0], bias[0]))
    return x + network(norm(x, gain[1], bias[1]))


def stack(
    x: Stream, blocks: Iterable[Part], gain: Tensor, bias: Tensor, tokens: Tensor
) -> Float[Tensor, "n vocab"]:
    """The blocks one after the other, a last norm, and the score of each token."""
    for each in blocks:
        x = each(x)
    return norm(x, gain, bias) @ tokens.T


def next_token_loss(scores: Float[Tensor, "n vocab"], ids: Int[Tensor, "n"]) -> Float[Tensor, ""]:
    """The mean of −log p over the tokens that have one before them, in nats."""
    return F.cross_entropy(scores[:-1], ids[1:])


def train(
    parameters: Sequence[Tensor], loss_of: Callable[..., Tensor], batches: Iterable[object],
    rate: float,
) -> list[float]:  # fmt: skip
    """One step of AdamW for each batch; the losses, each before its step."""
    optimizer, losses = torch.optim.AdamW(parameters, lr=rate), []
    for batch in batches:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def model(ids: Int[Tensor, "n"], weights: Mapping[str, Tensor], heads: int) -> Tensor:
    """The scores of a ``TinyTransformer`` that models language, from its ``state_dict``."""
    x = embed(ids, weights["embedding.weight"], weights["positions.weight"])
    count = sum(name.endswith("query.weight") for name in weights)
    blocks = [of_layer(weights, f"decoder.blocks.{layer}.", heads) for layer in range(count)]
    last = weights["decoder.norm.weight"], weights["decoder.norm.bias"]
    return stack(x, blocks, *last, weights["embedding.weight"])


def of_layer(weights: Mapping[str, Tensor], start: str, heads: int) -> Part:
    """One block of ``model``, whose weights have names with this start."""
    wq, wk, wv, wo = (weights[f"{start}attention.heads.{name}.weight"] for name in _MATRICES)
    w1, b1, w2, b2 = (weights[f"{start}feed_forward.{name}"] for name in _NETWORK)
    gain, bias = (
        torch.stack([weights[f"{start}{part}_residual.norm.{kind}"] for part in _PARTS])
        for kind in ("weight", "bias")
    )
    return lambda x: block(
        x,
        lambda y: attend(y, wq, wk, wv, wo, heads),
        lambda y: feed_forward(y, w1, b1, w2, b2),
        gain,
        bias,
    )
