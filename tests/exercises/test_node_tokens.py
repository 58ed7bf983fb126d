"""Lesson 53's checks: tokens of a graph, ends at nodes, edges from identifiers, messages."""

import torch

from attnlab.exercises import check_incident, check_message_step, check_recovered, node_tokens
from tests.exercises.frame import answers_to


def incident(P, edges):
    found = torch.zeros(len(P), len(edges), dtype=P.dtype)
    for number, ends in enumerate(edges.tolist()):
        for end in ends:
            found[end, number] += 1
    return found


def recovered(nodes, edges):
    found = nodes.new_zeros(len(nodes), len(nodes))
    for source, target in (edges @ nodes.mT).argmax(-1).tolist():
        found[target, source] += 1
    return found


def step(P, edges, x, c):
    """Node by node, with exponentials."""
    n, far = len(P), torch.as_tensor(c, dtype=x.dtype).exp()
    read = [(x.sum(0) + (far - 1) * x[u]) / (far + n - 1) for u in edges[:, 0].tolist()]
    out = []
    for node in range(n):
        powers = torch.where(edges[:, 1] == node, far, 1.0).to(x.dtype)
        total = powers.sum() + far.sqrt()
        out.append(sum(p * one for p, one in zip(powers, read, strict=True)) / total)
    return torch.stack(out)


RIGHT = [(check_incident, incident), (check_recovered, recovered), (check_message_step, step)]
TestAnswers = answers_to(RIGHT)


def test_a_large_c_is_message_passing():
    given = node_tokens._given(40.0)
    edges, x = given["edges"], given["x"]
    means = [x[edges[edges[:, 1] == node, 0]].mean(0).nan_to_num() for node in range(6)]
    torch.testing.assert_close(step(**given), torch.stack(means), rtol=0, atol=1e-6)
