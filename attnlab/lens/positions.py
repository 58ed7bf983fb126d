"""How much the positions of query and key change a score, measured in a model."""

import copy
import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.heads import Heads
from attnlab.core.integers import check_integer
from attnlab.core.positions import biased
from attnlab.models.tiny import TinyTransformer, check_model


@torch.no_grad()
def position_scores(model: TinyTransformer, n: int, *, tokens: int = 8) -> Float[Tensor, "h n n"]:
    r"""The scores of the first layer where one token stands at all n positions, in float64.

    Queries and keys then differ by their positions alone. From each score that of the query's own
    position is subtracted, $s_{ij} - s_{ii}$, so that 0 means "as much as the token itself". The
    mean over the first ``tokens`` tokens of the vocabulary. NaN for later keys, to which a language
    model's query may not attend.
    """
    check_model(model)
    n = check_integer("n", n, at_least=1)
    tokens = check_integer("tokens", tokens, at_least=1)
    if model.decoder is None or model.kind != "language_model":
        raise ValueError(f"position_scores needs a language model, got a {model.kind}")
    exact = copy.deepcopy(model).double().eval()
    assert exact.decoder is not None
    assert model.vocab is not None
    layer = exact.decoder.get_submodule("blocks.0.attention")
    if not isinstance(heads := getattr(layer, "heads", None), Heads):
        raise ValueError(f"the first layer, a {type(layer).__name__}, has no queries and keys")
    same = torch.arange(min(tokens, model.vocab), device=next(model.parameters()).device)
    read: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, given: read.append(given[0])):
        exact(same[:, None].expand(-1, n))
    q, k, _ = heads.project(read[0])
    products = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[-1])
    scores = biased(products, heads.bias(n, n))
    own = scores.diagonal(0, -2, -1)[..., None]
    later = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    return (scores - own).mean(0).masked_fill(later, torch.nan)
