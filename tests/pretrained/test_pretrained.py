"""The shipped models load, and unknown names are refused in a sentence."""

import pytest
import torch

from attnlab import pretrained
from attnlab.pretrained.__main__ import make


@pytest.mark.parametrize("name", pretrained.names())
def test_every_shipped_model_fits_its_task(name: str) -> None:
    model, task = pretrained.load(name)
    assert not any(module.training for module in model.modules())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    batch = task.batch("validation", 2, seed=0)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(
            model(batch.inputs).flatten(0, 1), batch.targets.flatten()
        )
    assert loss < 0.8 * torch.tensor(float(task.vocab)).log()


@pytest.mark.parametrize("name", ["induct", None, ["induction"], "../induction"])
def test_unknown_names(name: object, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="there is no pretrained model"):
        pretrained.load(name)
    with pytest.raises(ValueError, match="there is no pretrained model"):
        make(name, tmp_path, 0)
