"""The topic `today`, small: every figure is there, and what is compared computes the same."""

import pytest
import torch

from attnlab import catalog
from attnlab.measure.benchmarks import today


@pytest.fixture(scope="module")
def quick():
    return {row.figure: row for row in today.rows(quick=True, threads=1)}


def test_a_quick_run_has_every_figure(quick):
    beside = [f"{name} / full" for name in ("sink", "gated", "differential")]
    shared = "full / NSA of shared keys"
    for name in ("Hugging Face / ours", "full / MoBA", "full / NSA,", shared, *beside):
        figures = [figure for figure in quick if figure.startswith(name)]
        assert len(figures) == 2, name
    assert quick["expanded / absorbed, one token after 256"].measured > 0
    assert all(row.at_least is None for row in quick.values()), "targets are for long texts"


def test_the_layers_that_are_timed_are_the_same_function(monkeypatch):
    """With its weights, ours gives what DeepSeek's gives, at small sizes."""
    monkeypatch.setattr(today, "DIM", 32)
    theirs, angles = today.deepseek(9)
    ours = catalog.build("mla", dim=32, heads=today.HEADS, causal=True, **today.LATENT)
    heads, both = ours.heads, theirs.kv_b_proj.weight.data.unflatten(0, (today.HEADS, -1))
    heads.key.weight.data, heads.value.weight.data = (x.flatten(0, 1) for x in both.chunk(2, 1))
    heads.query[0].weight.data = theirs.q_a_proj.weight.data
    heads.query[2].weight.data = theirs.q_b_proj.weight.data
    heads.latent.weight.data = theirs.kv_a_proj_with_mqa.weight.data
    heads.output.weight.data = theirs.o_proj.weight.data
    x = torch.randn(1, 9, 32)
    with torch.no_grad():
        out = theirs(x, position_embeddings=angles, attention_mask=None)[0]
        torch.testing.assert_close(ours(x), out, rtol=1e-4, atol=1e-5)
