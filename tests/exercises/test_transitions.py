"""The checks of lesson 26: transitions, and a state that learns in mini-batches."""

import torch

from attnlab.exercises import check_kimi_transition, check_minibatch_learner
from tests.exercises.frame import answers_to


def transition(k, a, b):
    """What a token makes of every unit state: first the decay, then the erasure."""
    out = []
    for key, decay, step in zip(k, a, b, strict=True):
        faded = torch.diag(decay)
        out.append(faded - step * torch.outer(key, key @ faded))
    return torch.stack(out)


def learned(k, v, q, step, size):
    """By automatic gradients of the losses of a mini-batch, and a mask of the past."""
    W, out = torch.zeros(k.shape[1], v.shape[1], dtype=k.dtype), []
    for keys, values, queries in zip(*(x.split(size) for x in (k, v, q)), strict=True):
        each = W.expand(len(keys), *W.shape).clone().requires_grad_()
        loss = (torch.einsum("td,tde->te", keys, each) - values).square().sum() / 2
        (G,) = torch.autograd.grad(loss, each)
        after = W - step * G.cumsum(0)
        out.append(torch.einsum("td,tde->te", queries, after))
        W = after[-1]
    return torch.cat(out).detach(), W.detach()


TestAnswers = answers_to(
    [(check_kimi_transition, transition), (check_minibatch_learner, learned)], []
)
