"""Lesson 37's checks: the size of a state, a channel's map, a recalling sum, a layer of H3."""

import torch

from attnlab.exercises import check_associate, check_h3_layer, check_hyena_map
from attnlab.mechanisms.convolution import hyena
from attnlab.mechanisms.recurrence import h3
from tests.exercises.frame import answers_to


def hyena_map(gates, filters):
    """Column by column, by the library's form."""
    values = torch.eye(gates.shape[1], dtype=gates.dtype)[:, :, None]  # one sequence for each j
    each = gates[None, :, :, None].expand(len(values), -1, -1, -1)
    return hyena.naive(values, each, filters[:, None])[..., 0].T


def associate(q, k, v):
    """As a recurrence."""
    state, out, before = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype), [], 0 * k[0]
    for query, key, value in zip(q, k, v, strict=True):
        state, before = state + torch.outer(before, value), key
        out.append(query @ state)
    return torch.stack(out)


def layer(x, Wq, Wk, Wv, Wo, taps, decay, weight, D, products, keys):
    """By the library's shift and its chunks of two tokens."""
    q, k, v = ((x @ W)[None, None] for W in (Wq, Wk, Wv))
    shifted = h3.shifted(k, taps[None], keys[None])
    state = torch.stack((products, 0 * products), dim=-1)[None, None]
    system = ((part + 0j)[None] for part in (decay, weight / 2))
    y, after = h3.advance(q, shifted, v, state, *system, D[None], 2)
    return y[0, 0] @ Wo, after[0, 0, ..., 0], torch.cat((keys, k[0, 0]))[len(x) :]


RIGHT = [(check_hyena_map, hyena_map), (check_associate, associate), (check_h3_layer, layer)]
TestAnswers = answers_to(RIGHT)


def test_an_unknown_mistake_says_where():
    found = check_h3_layer(lambda *given: (layer(*given)[0] * 2, *layer(*given)[1:]))
    assert not found.right
    assert "`y`" in found.message
