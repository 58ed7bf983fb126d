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
        logits = model(batch.inputs)
    answers = logits.shape[-1]
    assert answers == (task.classes or task.vocab)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, answers), batch.targets.flatten())
    assert loss < 0.8 * torch.tensor(float(answers)).log()


def test_the_vision_transformer_reads_unseen_digits() -> None:
    model, task = pretrained.load("digits")
    unseen = task.batch("validation", 355, seed=0)
    with torch.no_grad():
        right = (model(unseen.inputs).argmax(-1) == unseen.targets).double().mean().item()
    assert right > 0.95
    assert right == pytest.approx(float(model.extra["validation_accuracy"]), abs=0.02)
    assert (pretrained.FOLDER / "digits.safetensors").stat().st_size < 400_000


@pytest.mark.parametrize("name", ["induct", None, ["induction"], "../induction"])
def test_unknown_names(name: object, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="there is no pretrained model"):
        pretrained.load(name)
    with pytest.raises(ValueError, match="there is no pretrained model"):
        make(name, tmp_path, 0)
