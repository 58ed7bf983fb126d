"""Timing of layers: the forms are proved first, the passes are what they are called."""

import pytest
import torch

from attnlab.measure import measured as module
from attnlab.measure.measured import Unproved, measured, prove
from attnlab.measure.memory import allocated
from attnlab.measure.subject import Subject, subject, subjects

DIM, HEADS = 12, 2


@pytest.mark.parametrize("one", subjects(dim=DIM, heads=HEADS), ids=lambda one: one.mechanism)
def test_every_default_form_is_proved(one):
    prove(one)


def test_a_form_that_is_wrong_is_not_timed(monkeypatch):
    build = Subject.layer

    def spoilt(self, n, device="cpu", seed=0):
        layer = build(self, n, device, seed)
        if self.form == "fused" and device == "cpu":
            layer.register_forward_hook(lambda _, __, out: out * 1.0001)
        return layer

    monkeypatch.setattr(Subject, "layer", spoilt)
    prove.cache_clear()
    with pytest.raises(Unproved, match=r"full \(fused\) is not measured: its output differs"):
        measured([subject("full", dim=DIM, heads=HEADS)], 16)
    prove.cache_clear()


def test_a_wrong_gradient_alone_is_found(monkeypatch):
    evaluated = module._evaluated

    def spoilt(layer):
        found = evaluated(layer)
        if layer.form != "naive":
            found["its gradient of the input"] *= 1.001
        return found

    monkeypatch.setattr(module, "_evaluated", spoilt)
    prove.cache_clear()
    with pytest.raises(Unproved, match="its gradient of the input differs"):
        prove(subject("full", dim=DIM, heads=HEADS))
    prove.cache_clear()


def test_rounds_passes_and_layers_come_back_named():
    layers = [subject("full", dim=DIM, heads=HEADS), subject("bigbird", dim=DIM, heads=HEADS)]
    found = measured(layers, 70, passes=("forward", "both", "decode"), rounds=3, memory=True)
    assert [(one.subject.mechanism, one.of) for one in found] == [
        ("full", "forward"), ("full", "both"), ("full", "decode"),
        ("bigbird", "forward"), ("bigbird", "both"),
    ]  # fmt: skip
    assert all(len(one.seconds) == 3 and one.median in one.seconds for one in found)
    memory = {(one.subject.mechanism, one.of): one.peak_bytes for one in found}
    assert memory["full", "both"] > memory["full", "forward"] > 4 * 70 * DIM
    with pytest.raises(ValueError, match="backwards"):
        measured(layers, 7, passes=("backwards",))


def test_decoding_is_one_step_after_n_tokens():
    one = subject("full", dim=DIM, heads=HEADS)
    out, state = module.call_of(one, 600, "decode")()
    assert out.shape == (1, 1, DIM)
    assert {leaf.shape[2] for leaf in state} == {601}


def test_the_allocator_sees_what_a_kernel_takes_for_itself():
    x = torch.randn(1 << 16)
    assert 0 <= allocated(lambda: x + 1) - (4 << 16) < 100
    assert 0 <= allocated(lambda: (x + 1, x + 2)) - (8 << 16) < 100
    assert allocated(lambda: ((x + 1).sum(), (x + 2).sum())) < 5 << 16  # freed in between
    q = torch.randn(1, 4, 1024, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    assert allocated(lambda: attend(q, q, q)) > q.numel() * 4 * 1.5  # its buffers, not its result


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that runs CUDA")
def test_on_a_gpu():
    found = measured([subject("full")], 512, passes=("both",), device="cuda", memory=True)
    assert found[0].peak_bytes > 0
