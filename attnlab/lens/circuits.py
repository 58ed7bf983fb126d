r"""The two circuits of a head: where it would look (QK), and what it would write (OV).

A head does two things that do not touch each other. Its query and key matrices decide which token
looks at which, and its value and output matrices what a token that is looked at gives to the
answer:

$$\mathrm{QK}(s, t) = \frac{(W_Q\, \bar x_s) \cdot (W_K\, \bar x_t)}{\sqrt d},\qquad
  \mathrm{OV}(t, a) = w_a \cdot \mathrm{LN}'(W_O W_V\, \bar x_t)$$

for symbols s and t of the vocabulary, an answer a, its row $w_a$ of the output matrix, and the last
norm with its scale frozen, LN'. $\bar x_t$ stands for the symbol t.

**The trap.** It is tempting to take the row of t in the embedding table for $\bar x_t$, because
then both circuits are products of weights and need no text. But only the first layer reads those
vectors, and even it reads them through a norm. What a later layer reads was rewritten by all layers
before. So here $\bar x_t$ is the mean of what the layer **reads** (``Step.read``, behind its
norm) at the positions of some texts where t stands. ``vectors="embedding"`` gives the other
circuit, for seeing how different it is.

Symbols may also be other labels of the positions: an induction head compares the query's token with
the token **before** the key, so its QK circuit is seen where keys are gathered by ``keys_by=``
the token before them.

A mean hides what differs between the occurrences of a symbol, and the circuits say nothing about
positions: biases by distance are left out, and layers that rotate queries and keys are refused,
whose scores have no value without a distance. Refused are also mechanisms whose weights are not the
softmax of these scores, such as one that normalises queries and keys. OV is the direct way to the
answer, as in ``logit_parts``; what later layers make of the head's output is not in it.

Elhage et al. A Mathematical Framework for Transformer Circuits. 2021,
transformer-circuits.pub/2021/framework.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.positions import Rotation
from attnlab.core.suggest import check_choice
from attnlab.lens.logit_parts import frozen_scale, output_matrix, through_scaled
from attnlab.lens.record import Attention
from attnlab.lens.stream import Step, Stream, followed
from attnlab.lens.watch import watch
from attnlab.models.shared_cache import NoProjection
from attnlab.models.tiny import TinyTransformer

Vectors = Literal["read", "embedding"]

LEAST, APART = 1e-5, 1e-2
"""Weights below ``LEAST`` are not held against their scores, for rounding and for what is not
looked at at all; logarithms of the others differ from scores by at most ``APART``."""


class Circuit(NamedTuple):
    """One number for each pair of symbols.

    ``rows``     (r,) int64: the symbols of the queries (QK), or of the keys (OV)
    ``columns``  (c,) int64: the symbols of the keys (QK), or all answers (OV)
    ``values``   (r, c) float64: scores (QK), or logits (OV)
    """

    rows: Tensor
    columns: Tensor
    values: Tensor

    def first(self) -> float:
        """The share of rows whose own symbol has the largest value: a head that copies has 1 in
        OV, one that looks for its own symbol has 1 in QK. A row whose symbol is not among the
        columns counts as a row whose own symbol is not the largest."""
        best = self.columns[self.values.argmax(1)]
        return float((best == self.rows).double().mean())

    def chance(self) -> float:
        """What ``first`` would be if values were drawn by chance."""
        return float(torch.isin(self.rows, self.columns).double().mean()) / len(self.columns)


def qk_circuit(
    model: TinyTransformer,
    tokens: Tensor,
    layer: int,
    head: int,
    *,
    keys_by: Tensor | None = None,
    vectors: Vectors = "read",
    padding: Tensor | None = None,
    **more: Any,
) -> Circuit:
    """The score of each symbol as a query with each as a key, in the mean over ``tokens``.

    tokens:   (b, n) the texts whose vectors are gathered.
    layer, head: of self-attention, from 0.
    keys_by:  (b, n) whole numbers that keys are gathered by, such as the token before each; those
              below 0 are left out. ``tokens`` unless given.
    vectors:  "read", what the layer reads; "embedding", the rows of the embedding table.
    padding:  (b, n) bool, True = a real token.
    more:     other arguments of the model, such as ``source=``.

    Raises a ValueError for a layer without heads, for one that rotates queries and keys, and where
    the head's weights in this run are not the softmax of its scores and a bias by distance.
    """
    run, step, _ = scored(model, tokens, layer, head, padding, more)
    labels = tokens if keys_by is None else _labels(keys_by, tokens)
    if vectors == "embedding" and keys_by is not None:
        raise ValueError("the embedding has a row for each token: leave keys_by out")
    rows, asked = _means(run, step, tokens, vectors, padding)
    columns, looked = _means(run, step, labels, vectors, padding)
    return Circuit(rows, columns, scores(step, head, asked, looked))


def ov_circuit(
    model: TinyTransformer,
    tokens: Tensor,
    layer: int,
    head: int,
    *,
    vectors: Vectors = "read",
    padding: Tensor | None = None,
    **more: Any,
) -> Circuit:
    """What each symbol, if the head looks at it alone, adds to the logit of every answer.

    The arguments are those of ``qk_circuit``. The scale of the last norm is frozen at its mean over
    the positions of ``tokens``. A ValueError for a layer without heads, and for joins such as
    post-norm, where later norms stand between the head and the answer.
    """
    run, step = _read(model, tokens, layer, head, padding, more)
    heads = step.heads
    assert heads is not None
    if not all(hasattr(each.join, "branch") for each in run.steps):
        raise ValueError(
            f"with join={type(step.join).__name__} other norms stand between a head and the "
            "answer, so there is no OV circuit by itself; logit_parts has the parts of one run"
        )
    rows, looked = _means(run, step, tokens, vectors, padding)
    group = head * heads.kv_heads // heads.heads
    v = _through(heads.value, looked)[:, group * heads.value_dim :][:, : heads.value_dim]
    output = heads.output
    if not isinstance(output, torch.nn.Linear):
        raise ValueError(
            f"the output of layer {layer} passes a norm inside the sublayer, so there is no OV "
            "circuit by itself; logit_parts has the parts of one run"
        )
    width = heads.value_dim
    written = v @ output.weight.detach().double()[:, head * width : (head + 1) * width].mT
    with mode(step.join, training=False), torch.no_grad():  # LayerScale: what joins the stream
        joined = step.join.branch(run.start[:1, :1], lambda _: written[None])[0].double()
    weight, _ = output_matrix(run.model)
    scale = frozen_scale(run.norm, run.end[run.real(padding)]).mean(0)
    back, _ = through_scaled(run.norm, scale, weight)  # (answers, dim)
    return Circuit(rows, torch.arange(len(weight), device=rows.device), joined @ back.mT)


def scored(
    model: TinyTransformer, tokens: Tensor, layer: int, head: int, padding: Tensor | None, more: Any
) -> tuple[Stream, Step, Attention]:
    """A run, and the attention of a layer, whose weights are the softmax of ``scores`` and a bias
    by distance, with its record; the errors are those of ``qk_circuit``."""
    run, step = _read(model, tokens, layer, head, padding, more)
    heads = step.heads
    assert heads is not None
    both = hasattr(heads, "query") and hasattr(heads, "key")
    if not both or isinstance(heads.positions, Rotation):
        name = type(step.sublayer).__name__
        why = "rotates queries and keys by their positions" if both else ""
        raise ValueError(
            f"layer {layer} ({name}) {why or 'has no queries and keys'}, so a score without a "
            "distance does not exist; its OV circuit does"
        )
    seen = _record(run, step, tokens, padding, more)
    if seen is None or not _follow(
        seen.weights[:, head], scores(step, head, step.read, step.read), run.real(padding)
    ):
        raise ValueError(
            f"the weights of {type(step.sublayer).__name__} in layer {layer} are not the softmax "
            "of queries · keys, so their products would not say where it looks; its OV circuit may "
            "exist"
        )
    return run, step, seen


def _read(
    model: TinyTransformer, tokens: Tensor, layer: int, head: int, padding: Tensor | None, more: Any
) -> tuple[Stream, Step]:
    run = followed(model, tokens, padding, **more)
    if check_integer("layer", layer, at_least=0) >= run.layers:
        raise ValueError(f"layer should be from 0 to {run.layers - 1}, got {layer}")
    step = run.of(layer)
    if step.heads is None:
        raise ValueError(f"layer {layer} has no heads: {step.whole}")
    if isinstance(getattr(step.heads, "value", None), NoProjection):
        raise ValueError(
            f"layer {layer} attends to the keys and values of an earlier layer (cache_of=…), so it "
            "has no circuits of its own; choose the layer that makes them"
        )
    if check_integer("head", head, at_least=0) >= step.heads.heads:
        raise ValueError(f"head should be from 0 to {step.heads.heads - 1}, got {head}")
    return run, step


def _labels(labels: Any, tokens: Tensor) -> Tensor:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError("keys_by should be a tensor of whole numbers, one for each token")
    if labels.shape != tokens.shape:
        raise ValueError(
            f"keys_by should be one for each token, {tuple(tokens.shape)}, got "
            f"{tuple(labels.shape)}"
        )
    return labels


def _means(
    run: Stream, step: Step, labels: Tensor, vectors: str, padding: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The symbols that occur, and the mean vector of each, float64."""
    check_choice("vectors", vectors, ("read", "embedding"))
    labels = labels.to(run.start.device)
    real = run.real(padding) & (labels >= 0)
    if not bool(real.any()):
        raise ValueError("no token is left: all are padding, or their labels are below 0")
    if vectors == "embedding":
        if run.tokens is None:
            raise ValueError("this model has no vectors of tokens alone; take vectors='read'")
        source = run.tokens
    else:
        source = step.read
    symbols, at = labels[real].unique(return_inverse=True)
    sums = torch.zeros(len(symbols), source.shape[-1], dtype=torch.float64, device=source.device)
    sums.index_add_(0, at, source[real].double())
    return symbols, sums / at.bincount()[:, None]


def scores(step: Step, head: int, asked: Tensor, looked: Tensor) -> Tensor:
    """(…, r, c) float64: the scores of vectors (…, r, dim) with vectors (…, c, dim)."""
    heads: Any = step.heads
    own, group = head, head * heads.kv_heads // heads.heads
    q = _through(heads.query, asked)[..., own * heads.head_dim :][..., : heads.head_dim]
    k = _through(heads.key, looked)[..., group * heads.head_dim :][..., : heads.head_dim]
    scale = getattr(step.sublayer, "scale", None)
    return q @ k.mT * (scale if isinstance(scale, int | float) else heads.head_dim**-0.5)


def _record(
    run: Stream, step: Step, tokens: Tensor, padding: Tensor | None, more: Any
) -> Attention | None:
    """The call of a layer, its own where layers share their parameters, with weights (b, h, n, n).

    None where it has no such weights, makes queries and keys of something else than what it reads,
    or applies a function such as a soft cap to the scores."""
    heads: Any = step.heads
    if any(linear.weight.shape[1] != step.read.shape[-1] for linear in (heads.query, heads.key)):
        return None
    names = {id(module): name for name, module in run.model.named_modules()}
    with mode(run.model, training=False), torch.no_grad(), watch(run.model) as seen:
        run.model(tokens, padding, **more)
    found = [call for call in seen if call.name.split("#")[0] == names[id(step.sublayer)]]
    uses = [each for each in run.steps if each.sublayer is step.sublayer]
    if len(found) != len(uses):
        return None
    call = next(call for call, each in zip(found, uses, strict=True) if each is step)
    n = step.read.shape[1]
    return call if call.weights.shape[-2:] == (n, n) and call.scale is not None else None


def _follow(weights: Tensor, scores: Tensor, real: Tensor) -> bool:
    """Whether weights (b, n, n) of real queries (b, n) are a share of the softmax of scores and of
    a bias by distance: from one key to the next, what the logarithm of a weight has beyond the
    score depends on the distance alone."""
    beyond = weights.double().log() - scores
    steps = beyond[..., 1:] - beyond[..., :-1]
    known = (weights > LEAST) & real[..., None]
    known = known[..., 1:] & known[..., :-1]
    for distance in range(1 - steps.shape[-2], steps.shape[-1]):
        at = known.diagonal(distance, -2, -1)
        here = steps.diagonal(distance, -2, -1)[at]
        if len(here) and float(here.max() - here.min()) > APART:
            return False
    return True


def _through(linear: Any, x: Tensor) -> Tensor:
    """W x + b in float64."""
    made = x.double() @ linear.weight.detach().double().mT
    return made if linear.bias is None else made + linear.bias.detach().double()
