"""Lesson 52's checks: layers that reach a ring, a mask, a Laplacian, attention over edges."""

import torch

from attnlab.exercises import check_edge_attention, check_graph_mask, check_laplacian
from tests.exercises.frame import answers_to


def mask(n, edges):
    pairs = set(map(tuple, edges.tolist()))
    return torch.tensor([[(j, i) in pairs for j in range(n)] for i in range(n)])


def laplacian(A):
    scaled = torch.diag(A.sum(0) ** -0.5)
    return torch.eye(len(A), dtype=A.dtype) - scaled @ A @ scaled


def attend(q, k, v, edges):
    """Node by node."""
    out = torch.zeros_like(v)
    for i in range(len(q)):
        sources = edges[edges[:, 1] == i, 0]
        if len(sources):
            out[i] = torch.softmax(k[sources] @ q[i] / q.shape[1] ** 0.5, 0) @ v[sources]
    return out


def all_pairs(q, k, v, edges):
    """Right, but with a matrix (n, n), which the exercise forbids."""
    times = torch.zeros(len(q), len(q), dtype=q.dtype)
    times.index_put_((edges[:, 1], edges[:, 0]), q.new_ones(len(edges)), accumulate=True)
    powers = (q @ k.mT / q.shape[1] ** 0.5).exp() * times
    sums = powers.sum(1, keepdim=True)
    return powers @ v / (sums + (sums == 0))


RIGHT = [
    (check_graph_mask, mask),
    (check_laplacian, laplacian),
    (check_edge_attention, attend),
]
TABLES = [
    (check_edge_attention, {"all pairs": ("for n = 300 a tensor of", all_pairs)}),
]

TestAnswers = answers_to(RIGHT, TABLES)
