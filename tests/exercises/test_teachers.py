"""Lesson 82: a softened probability, Hinton's loss, its gradient, the layers of TinyBERT."""

import math

import torch

from attnlab.exercises import (
    check_hinton_gradient,
    check_hinton_loss,
    check_layer_states,
    check_soft_share,
)
from attnlab.objectives.held_layers import layer_map
from tests.exercises.frame import answers_to


def hinton_loss(z_s, z_t, T):
    """By cross-entropy less entropy."""
    p = (z_t / T).softmax(-1)
    gap = p * (p.log() - (z_s / T).log_softmax(-1))
    return T * T * gap.sum() / len(p)


def hinton_gradient(z_s, z_t, T):
    """By autograd."""
    z_s = z_s.detach().clone().requires_grad_()
    hinton_loss(z_s, z_t, T).backward()
    return z_s.grad * len(z_s)


def layer_states(states, layers):
    return torch.stack([states[i] for i in layer_map(len(states) - 1, layers)])


TestAnswers = answers_to(
    [
        (check_hinton_loss, hinton_loss),
        (check_hinton_gradient, hinton_gradient),
        (check_layer_states, layer_states),
        (check_soft_share, 1 / (1 + math.e)),
    ]
)
