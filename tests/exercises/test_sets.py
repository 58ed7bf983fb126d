"""Lesson 32's checks: equal counts of pairs, a pool, a mixture's likelihood, a Perceiver."""

import math

import torch
from torch.distributions import Normal
from torch.nn import functional as F

from attnlab.exercises import check_log_likelihood, check_perceive, check_pool
from tests.exercises.frame import answers_to


def pool(seed, x, real):
    members = x[real]
    powers = torch.exp((members * seed).sum(1) / math.sqrt(x.shape[1]))
    return (powers[:, None] * members).sum(0) / powers.sum()


def log_likelihood(x, weights, means, widths):
    density = sum(
        weight * Normal(mean, width).log_prob(x).sum(1).exp()
        for weight, mean, width in zip(weights, means, widths, strict=True)
    )
    return density.log()


def perceive(x, real, latents, query, encode, process, decode):
    """By PyTorch's attention."""

    def block(a, y, matrices):
        q, k, v = a @ matrices[0], y @ matrices[1], y @ matrices[2]
        return a + F.scaled_dot_product_attention(q[None], k[None], v[None])[0]

    z = block(latents, x[real], encode)
    return block(query[None], block(z, z, process), decode)[0]


def mean_of_real(seed, x, real):
    return (x * real[:, None]).sum(0) / real.sum()


def in_place(seed, x, real):
    out = pool(seed, x, real)
    x[~real] = 0
    return out


RIGHT = [
    (check_pool, pool),
    (check_log_likelihood, log_likelihood),
    (check_perceive, perceive),
]
TABLES = [
    (
        check_pool,
        {
            "by hand": ("the seed has no influence", mean_of_real),
            "in place": ("`x` changed in place", in_place),
            "weights": ("(7,)", lambda seed, x, real: x @ seed),
            "other": ("the numbers are not", lambda seed, x, real: pool(seed, x, real) + 1),
        },
    ),
    (
        check_perceive,
        {
            "a row": ("Wrong shape", lambda *given: perceive(*given)[None]),
            "None": ("`return`", lambda *given: None),
        },
    ),
]

TestAnswers = answers_to(RIGHT, TABLES)
