"""Queries and keys of models that only encode: a vision transformer on the digits."""

import numpy as np
import torch

from attnlab import pretrained, watch
from attnlab.lens.query_key.collect import collect


def test_patches_of_a_vision_transformer() -> None:
    model, task = pretrained.load("digits")
    batch = task.batch("validation", 5, seed=0)
    images = batch.inputs.view(-1, 8, 8).numpy()
    names = [f"digit {digit}" for digit in batch.targets.tolist()]
    points = collect(model, batch.inputs.split((2, 3)), labels=names, images=images, grid=(8, 8))
    assert points.heads == tuple((layer, head) for layer in range(3) for head in range(4))
    tokens = points[0].query_tokens
    assert tokens is points[0].key_tokens
    assert (len(tokens), tokens.sequences, tokens.grid) == (5 * 64, 5, (8, 8))
    assert tokens.labels is not None
    assert list(tokens.labels[::64]) == names
    assert tokens.images is not None
    np.testing.assert_array_equal(tokens.images, images)
    with torch.no_grad(), watch(model) as seen:
        model(batch.inputs)
    queries = seen[2].queries.transpose(0, 1).flatten(1, 2)
    np.testing.assert_allclose(points[2].queries, queries, atol=0.02)
