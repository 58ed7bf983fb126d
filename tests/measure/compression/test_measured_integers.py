"""Integers of 8 bits are measured where there are kernels, and what is missing is a sentence."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from attnlab.measure.benchmarks.compression import integers


@pytest.mark.skipif(
    torch.backends.quantized.engine == "none", reason="PyTorch has no kernels of integers here"
)
def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integers.importlib.util, "find_spec", lambda name: None)
    found = {row.figure: row for row in integers.rows(quick=True, threads=1)}
    assert len(found) == 3 * len(integers.KINDS)
    for figure, row in found.items():
        if "torchao" in figure:
            assert row.measured is None
            assert row.note == integers.MISSING
        elif figure.startswith("transformer, 8 bits by torch.ao"):
            assert row.measured is None
            assert row.note == "a layer of torch.ao has no weight that the model can read"
        else:
            assert row.measured is not None
            assert row.measured > 0
            assert "outputs differ by" in row.note


def test_torchao_is_asked_for_scales_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in of its name, as it is an extra."""
    asked = []
    package, own = ModuleType("torchao"), ModuleType("torchao.quantization")
    own.quantize_ = lambda module, config: asked.append((module, config))
    own.Int8DynamicActivationInt8WeightConfig = lambda: "int8"
    monkeypatch.setattr(integers.importlib.util, "find_spec", lambda name: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchao", package)
    monkeypatch.setitem(sys.modules, "torchao.quantization", own)
    layer = nn.Linear(3, 3)
    made = integers.by_torchao(layer)
    assert [config for _, config in asked] == ["int8"]
    assert asked[0][0] is made
    assert made is not layer


@pytest.mark.parametrize("make", [integers.by_attnlab, integers.by_torch])
def test_the_layers_of_integers_give_nearly_the_same(make) -> None:
    if make is integers.by_torch and torch.backends.quantized.engine == "none":
        pytest.skip("PyTorch has no kernels of integers here")
    torch.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(64, 32)), torch.randn(11, 64)
    made = make(layer)
    with torch.no_grad():
        torch.testing.assert_close(made(x), layer(x), rtol=0, atol=0.05)
        assert not torch.equal(made(x), layer(x))
