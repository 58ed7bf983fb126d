"""Lesson 54's checks: the number of paths, where soft paths lead, their weights, a layer."""

import itertools
from functools import partial

import torch

from attnlab.exercises import check_along_edges, check_path_weight, check_soft_paths, learned_paths
from attnlab.mechanisms.structure import gtn
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.exercises.frame import answers_to


def soft_paths(A, w):
    """The sum over all paths of products of adjacencies."""
    total = torch.zeros_like(A[0])
    for kinds in itertools.product(range(len(A)), repeat=len(w)):
        product = torch.eye(A.shape[-1], dtype=A.dtype)
        for step, kind in enumerate(kinds):
            product = product @ A[kind] * w[step].softmax(-1)[kind]
        total = total + product
    sums = total.sum(-1, keepdim=True)
    return torch.where(sums > 0, total / sums.clamp(min=1e-30), 0)


def path_weight(w, path):
    """By the library's reading of all paths, where no kind is left out."""
    without_identity = torch.cat([w, torch.full_like(w[:, :1], -1e4)], dim=1)
    found = dict(gtn.meta_paths(without_identity))
    return torch.tensor(found[tuple(path)], dtype=w.dtype)


def along(v, w, sources, targets, kinds, form=gtn.edges):
    """By the library's form that goes along the edges."""
    graph = Graph(len(v), torch.stack([sources, targets], 1), kinds)
    return form(v[None, None], w[None], structure=GraphBatch.of([graph]))[0, 0]


RIGHT = [
    (check_soft_paths, soft_paths),
    (check_path_weight, path_weight),
    (check_along_edges, along),
]
TABLES = [
    (check_along_edges, {"dense": ("for n = 300 a tensor of", partial(along, form=gtn.naive))}),
]
TestAnswers = answers_to(RIGHT, TABLES)


def test_the_certain_choices_leave_nodes_without_paths():
    given = learned_paths._edges_given(certain=True)
    alone = (along(**given) == given["v"]).all(1)
    assert alone.any()
    assert not alone.all()
