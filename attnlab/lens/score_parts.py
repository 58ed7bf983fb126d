r"""From which earlier layer's output does an edge come? A score as the exact sum of its parts.

The score of a query i with a key j is linear in what the layer reads at j, and in what it reads at
i:

$$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d} + b_{j-i},\qquad
  k_j = W_K\, \mathrm{LN}(x_j) + b_K,\qquad x_j = \sum_p x_{p,j}$$

Each part of the stream at the key (the vector of the token, that of its position, what each head
and each feed-forward layer below has added) has its part of the score, with the scale of the norm
frozen as in ``attnlab.lens.logit_parts``; and so has each part of the stream at the query, with the
key as it is. A bias by distance $b_{j-i}$, such as ALiBi's, is a part of its own on both sides,
"distance". The parts of one side sum to the score. So an induction head's edge is seen to come from
what a head of an earlier layer has written at the key.

What a part is not. The softmax compares scores: what raises the scores of all keys of a query alike
changes no weight. So compare with another key: ``minus=``, or ``minus="mean"``, the mean over all
keys that the query may attend to. And a part is a direct effect: what a feed-forward layer adds may
itself be made of what a head has written, which path patching finds (``attnlab.lens.patching``).

Elhage et al. A Mathematical Framework for Transformer Circuits. 2021,
transformer-circuits.pub/2021/framework, "composition".
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.lens.circuits import APART, LEAST, scored, scores
from attnlab.lens.logit_parts import LogitParts, Part, check_sum, parts_along
from attnlab.lens.record import Attention
from attnlab.lens.stream import Step, Stream
from attnlab.models.tiny import TinyTransformer

Side = Literal["key", "query"]


def score_parts(
    model: TinyTransformer,
    tokens: Tensor,
    layer: int,
    head: int,
    query: int,
    *,
    side: Side = "key",
    minus: int | str | None = None,
    padding: Tensor | None = None,
    **more: Any,
) -> LogitParts:
    """The scores of one query with all keys, as the sums of what each part of the stream adds.

    tokens:  (b, n), as the model is called.
    layer, head: of self-attention, from 0.
    query:   its position, from 0, or from the end below 0.
    side:    "key", the parts of what is read at each key; "query", those of what is read at the
             query.
    minus:   the position of a key whose parts are taken from those of every key; ``"mean"``, the
             mean over the real keys that the query may attend to, by the mask of this run.
    padding: (b, n) bool, True = a real token.
    more:    other arguments of the model, such as ``source=``.

    ``values`` (P, b, n) are at each key, ``logits`` (b, n) the scores before the mask, with the
    bias by distance at the keys that the query may attend to. Biases of the query's or key's matrix
    are the part "bias" of their own side. Errors are those of ``qk_circuit``, and a ValueError for
    a join whose norm is not known, for scores to which more is added than was recorded, and for
    the mean over keys where a query may attend to none.
    """
    check_choice("side", side, ("key", "query"))
    run, step, seen = scored(model, tokens, layer, head, padding, more)
    n = step.read.shape[1]
    if not -n <= check_integer("query", query) < n:
        raise ValueError(f"query should be from {-n} to {n - 1}, got {query}")
    at = query % n
    real = run.real(padding)
    allowed = real if seen.mask is None else real & _row(seen.mask, seen, head, at)
    zero = torch.zeros_like(allowed, dtype=torch.float64)
    distance = zero if seen.bias is None else _row(seen.bias, seen, head, at).double() * allowed
    given = scores(step, head, step.read, step.read)[:, at] + distance  # (b, n)
    _check_scores(given, seen, head, at, allowed)
    below = _below(run, step)
    direction, constant = _directions(step, head, at, side)
    if side == "query":
        below = _everywhere(below, at, n)
    found = [*parts_along(below, direction), (Part("bias"), constant), (Part("distance"), distance)]
    values = torch.stack([value for _, value in found if bool(value.any())])
    parts = [part for part, value in found if bool(value.any())]
    check_sum(values, given.to(step.read.dtype), real, of="scores")  # as exact as the model
    if minus is not None:
        base = _base(minus, at, allowed)
        values = values - (values * base).sum(-1, keepdim=True)
        given = given - (given * base).sum(-1, keepdim=True)
    whole = [each.whole for each in below.steps if each.whole is not None]
    return LogitParts(parts, values, given, list(dict.fromkeys(whole)), real)


def _below(run: Stream, step: Step) -> Stream:
    """The run up to what this sublayer reads, with the norm through which it reads it."""
    steps = run.steps[: next(at for at, each in enumerate(run.steps) if each is step)]
    norm: Any = nn.Identity()
    if not torch.equal(step.read, step.before):
        norm = getattr(step.join, "norm", None)
        if norm is None:
            raise ValueError(
                f"join={type(step.join).__name__} has no norm in front of its sublayer, and yet "
                "the layer reads another thing than the stream, so its parts are not known"
            )
    return replace(run, steps=steps, norm=norm)


def _directions(step: Step, head: int, at: int, side: str) -> tuple[Tensor, Tensor]:
    """(b, n, dim): what each part is multiplied by, for every key; and what the bias of the matrix
    adds, (b, n)."""
    zero = torch.zeros_like(step.read[:1, :1]).double()
    basis = torch.eye(step.read.shape[-1], dtype=torch.float64, device=step.read.device)[None]
    asked = step.read[:, at : at + 1]
    if side == "key":
        constant = scores(step, head, asked, zero)[:, 0]  # (b, 1)
        direction = (scores(step, head, asked, basis) - constant[:, None])[:, 0]  # (b, dim)
        n = step.read.shape[1]
        return direction[:, None].expand(-1, n, -1), constant.expand(-1, n)
    constant = scores(step, head, zero, step.read)[:, 0]  # (b, n)
    direction = scores(step, head, basis, step.read) - constant[:, None]  # (b, dim, n)
    return direction.mT, constant


def _everywhere(run: Stream, at: int, n: int) -> Stream:
    """The same run, with the stream of one position at all n."""

    def spread(x: Tensor) -> Tensor:
        return x[:, at : at + 1].expand(-1, n, *x.shape[2:])

    names = ("before", "read", "added", "after", "joined")
    tokens = None if run.tokens is None else spread(run.tokens)
    steps = []
    for step in run.steps:
        kept = {name: getattr(step, name) for name in names}
        given: Any = {name: x if x is None else spread(x) for name, x in kept.items()}
        steps.append(replace(step, **given))
    return replace(run, tokens=tokens, start=spread(run.start), steps=steps)


def _row(x: Tensor, seen: Attention, head: int, at: int) -> Tensor:
    """(b, n): the row of one query in a mask or a bias that broadcasts to (b, h, n, n)."""
    return x.expand(seen.shape)[:, head, at]


def _check_scores(given: Tensor, seen: Attention, head: int, at: int, allowed: Tensor) -> None:
    """A ValueError where the weights of a query are not the softmax of the scores ``given``."""
    weights = seen.weights[:, head, at].double()
    known = allowed & (weights > LEAST)
    beyond = weights.log() - given
    most = beyond.masked_fill(~known, -torch.inf).amax(1)
    least = beyond.masked_fill(~known, torch.inf).amin(1)
    if bool((most - least > APART).any()):
        raise ValueError(
            f"{seen.name} adds more to its scores than its queries, keys and recorded bias say, so "
            "their parts are not known"
        )


def _base(minus: Any, at: int, allowed: Tensor) -> Tensor:
    """(b, n): the shares in which keys are taken off."""
    n = allowed.shape[1]
    if minus == "mean":
        if not bool(allowed.any(1).all()):
            text = int((~allowed.any(1)).nonzero()[0])
            raise ValueError(
                f"query {at} of text {text} may attend to no real key, so there is no mean over "
                "keys; choose a query that stands at a real token"
            )
        return allowed.double() / allowed.sum(1, keepdim=True)
    if isinstance(minus, str):
        raise ValueError(f'minus should be the position of a key, or "mean", got {minus!r}')
    if not -n <= check_integer("minus", minus) < n:
        raise ValueError(f"minus should be from {-n} to {n - 1}, got {minus}")
    return nn.functional.one_hot(torch.tensor(minus % n, device=allowed.device), n).double()[None]
