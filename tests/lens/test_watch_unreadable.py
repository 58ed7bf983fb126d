"""What a watch cannot read it says, and the model runs as it would without one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.core import probe
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense.full import naive

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:There is a performance drop"
)
WIDTH, HEADS = 16, 2
PARTS = [torch.randn(5, WIDTH), torch.randn(3, WIDTH)]


def products(q, k, v):
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def heads(q, k, v):
    q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend, self.projections = attend, nn.ModuleList(nn.Linear(16, 16) for _ in "qkv")

    def forward(self, x):
        return self.attend(*(each(x) for each in self.projections))


def encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


class SelfAttention(nn.MultiheadAttention):
    def __call__(self, x):
        return super().__call__(x, x, x, need_weights=False)[0]


class ByKeyword(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.attention = nn.MultiheadAttention(*args, **kwargs)

    def forward(self, x):
        return self.attention(query=x, key=x, value=x, need_weights=False)[0]


def nested(layout):
    return torch.nested.nested_tensor(PARTS, layout=layout)


CASES = {
    "products of nested": (lambda: Layer(products), lambda: nested(torch.strided), "nested"),
    "heads of jagged": (lambda: Layer(heads), lambda: nested(torch.jagged), "nested"),
    "encoder of nested": (encoder, lambda: nested(torch.strided), "nested"),
    "module of nested": (
        lambda: SelfAttention(WIDTH, HEADS, batch_first=True),
        lambda: nested(torch.strided),
        "nested",
    ),
    "module of nested by keyword": (
        lambda: ByKeyword(WIDTH, HEADS, batch_first=True),
        lambda: nested(torch.strided),
        "nested",
    ),
    "rows under vmap": (
        lambda: Layer(lambda *each: torch.func.vmap(products)(*each)),
        lambda: torch.randn(2, 5, WIDTH),
        "inside torch.func.vmap",
    ),
    "a sparse graph": (
        lambda: Layer(lambda q, k, v: (q @ k.mT).relu().to_sparse() @ v),
        lambda: torch.randn(5, WIDTH),
        "sparse",
    ),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_model_runs_and_the_watch_says_what_it_missed(case):
    make, given, kind = CASES[case]
    model, x = make().eval(), given()
    expected = model(x)
    with watch(model) as seen, watch(model) as twice:
        out = model(x)
    for ours, own in zip(out.unbind(), expected.unbind(), strict=True):
        assert torch.equal(ours, own)
    for each in (seen, twice):
        assert not len(each)
        assert f"{kind}" in repr(each)
        assert "could not be recorded" in repr(each)
    plain = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    with watch(plain) as after:  # nothing is left of the watches before
        plain(*[torch.randn(1, 3, WIDTH)] * 3)
    assert len(after) == 1


def test_notes_under_vmap_are_refused_in_a_sentence():
    q, k, v = torch.randn(3, 2, 1, 2, 5, 4)
    with probe.record(), pytest.raises(ValueError, match="vmap, whose tensors do not outlast"):
        torch.func.vmap(naive)(q, k, v)
