"""A method that changes PyTorch's number of threads, as umap-learn may, does not keep it."""

import numpy as np
import pytest
import torch

from attnlab.lens.query_key import embedding


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("method", ["umap", "tsne"])
def test_threads_are_put_back(method: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()

    def changes_them(vectors: np.ndarray, *rest: object) -> np.ndarray:
        torch.set_num_threads(before + 1)
        if fails:
            raise ArithmeticError
        return vectors

    monkeypatch.setattr(embedding, method, changes_them)
    try:
        embedding.nonlinear(method, np.zeros((5, 2)), np.zeros((5, 2)), 3, 0)
    except ArithmeticError:
        assert fails
    assert torch.get_num_threads() == before
