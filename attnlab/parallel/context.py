"""Attention over one text by several processes, from one call: divided, computed, put together."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from attnlab.core.suggest import check_choice
from attnlab.parallel.group import LIMIT, Event, Group, Sent
from attnlab.parallel.launch import in_processes
from attnlab.parallel.layouts import Layout, positions, whole
from attnlab.parallel.ring import ring_attention
from attnlab.parallel.tree import tree_attention
from attnlab.parallel.ulysses import ulysses_attention

Way = Literal["ring", "ulysses", "tree"]
WAYS: tuple[str, ...] = get_args(Way)


class Shared(NamedTuple):
    """What several processes made together.

    out: the output in the order of the text.
    gradients: of q, k and v, or None where none were asked for.
    forward, backward: for each process, what it sent.
    events: for each process, when it worked and when it waited.
    """

    out: Tensor
    gradients: tuple[Tensor, Tensor, Tensor] | None
    forward: list[list[Sent]]
    backward: list[list[Sent]]
    events: list[list[Event]]


def shared_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    processes: int,
    way: Way = "ring",
    causal: bool = False,
    layout: Layout = "contiguous",
    d_out: Tensor | None = None,
    limit: float = LIMIT,
) -> Shared:
    """Start processes, give each its shard of a text, and put their outputs together.

    q, k, v: (b, h, n, d), (b, g, n, d), (b, g, n, e): the whole text. By ``way="tree"`` all
        processes get all the queries.
    d_out: the gradient of the output; given, the gradients of q, k and v come back.

    Raises ValueError if the text cannot be divided so, ProcessesError as ``in_processes`` does.
    """
    check_choice("`way`", way, WAYS)
    if way == "tree" and causal:
        raise ValueError("way='tree' is for queries that follow all keys; causal has no meaning")
    positions(layout, k.shape[2], processes)
    given = (way, causal, layout, q, k, v, d_out)
    each = in_processes(_share, processes, *given, limit=limit)
    outs, grads, forward, backward, events = map(list, zip(*each, strict=True))
    keys = [None if d_out is None else [whole(list(x), layout) for x in zip(*grads, strict=True)]]
    if way == "tree":
        out, found = outs[0], keys[0] and (grads[0][0], *keys[0][1:])
    else:
        out, found = whole(outs, layout), keys[0] and tuple(keys[0])
    return Shared(out, found, forward, backward, events)  # type: ignore[arg-type]


def _share(
    group: Group,
    way: str,
    causal: bool,
    layout: Layout,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    d_out: Tensor | None,
) -> tuple[Tensor, tuple[Tensor | None, ...], list[Sent], list[Sent], list[Event]]:
    own = positions(layout, k.shape[2], group.size)[group.rank]
    rows = torch.arange(q.shape[2]) if way == "tree" else own
    shards = [x[:, :, at].requires_grad_() for x, at in ((q, rows), (k, own), (v, own))]
    if way == "tree":
        out = tree_attention(group, *shards)
    else:
        attend = ring_attention if way == "ring" else ulysses_attention
        out = attend(group, *shards, causal=causal, layout=layout)
    forward = len(group.sent)
    if d_out is not None:
        out.backward(d_out[:, :, rows])
    gradients = tuple(x.grad for x in shards)
    return out.detach(), gradients, group.sent[:forward], group.sent[forward:], group.events
