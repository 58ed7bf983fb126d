"""The checks of lesson 28: products that have decayed, and a chunk of the delta rule."""

import torch

from attnlab.exercises import check_decayed_pairs, check_delta_chunk
from tests.exercises.frame import answers_to


def pairs(q, k, log_a):
    """Key by key, which decays token by token."""
    out = torch.zeros(len(q), len(k), dtype=q.dtype)
    for j in range(len(k)):
        held = k[j]
        for i in range(j, len(q)):
            held = held if i == j else held * log_a[i].exp()
            out[i, j] = q[i] @ held
    return out


def token_by_token(q, k, v, b, S):
    out = []
    for qi, ki, vi, bi in zip(q, k, v, b, strict=True):
        S = S + bi * torch.outer(ki, vi - ki @ S)
        out.append(qi @ S)
    return torch.stack(out), S


def chunk(q, k, v, b, S):
    """By the WY representation: products of the transitions as I - Kᵀ W."""
    T = torch.linalg.inv(torch.eye(len(k), dtype=k.dtype) + b[:, None] * (k @ k.mT).tril(-1))
    W, U = T @ (b[:, None] * k), T @ (b[:, None] * v)
    return q @ S + (q @ k.mT).tril() @ (U - W @ S), S + k.mT @ (U - W @ S)


def test_a_loop_is_a_loop(refuses):
    refuses(check_delta_chunk(token_by_token), "there is a loop")


TestAnswers = answers_to([(check_decayed_pairs, pairs), (check_delta_chunk, chunk)], [])
