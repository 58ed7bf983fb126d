"""watch on all combinations of how heads are laid out, scores made, softened and mixed."""

import itertools
import math

import pytest
import torch
from torch import nn

from attnlab.lens.watch import watch

B, H, N, M, D, E = 2, 3, 5, 7, 4, 6
BLOCKED = torch.ones(N, M, dtype=torch.bool).triu(2)
LAYOUTS = {  # to the layout and, for the result, back to (b, n, h·e)
    "b h n d": (
        lambda x: x.unflatten(2, (H, -1)).transpose(1, 2),
        lambda y: y.transpose(1, 2).flatten(2),
    ),
    "h b n d": (
        lambda x: x.unflatten(2, (H, -1)).permute(2, 0, 1, 3),
        lambda y: y.permute(1, 2, 0, 3).flatten(2),
    ),
    "(b h) n d": (
        lambda x: x.unflatten(2, (H, -1)).transpose(1, 2).flatten(0, 1),
        lambda y: y.unflatten(0, (B, H)).transpose(1, 2).reshape(B, -1, H * E),
    ),
    "(h b) n d": (
        lambda x: x.unflatten(2, (H, -1)).permute(2, 0, 1, 3).flatten(0, 1),
        lambda y: y.view(H, B, -1, E).permute(1, 2, 0, 3).flatten(2),
    ),
    "(h b) n d by cat": (
        lambda x: torch.cat(x.chunk(H, dim=2), dim=0),
        lambda y: torch.cat(y.split(B), dim=-1),
    ),
    "n (b h) d": (
        lambda x: x.transpose(0, 1).reshape(x.shape[1], B * H, -1).transpose(0, 1),
        lambda y: y.transpose(0, 1).reshape(-1, B, H * E).transpose(0, 1),
    ),
}
SCORES = {
    "matmul": lambda q, k: q @ k.mT * 0.5,
    "scaled queries": lambda q, k: (q / 2) @ k.transpose(-1, -2),
    "einsum": lambda q, k: torch.einsum("...nd,...md->...nm", q, k) / 2,
    "keys first": lambda q, k: (k @ q.mT * 0.5).mT,
    "sum": lambda q, k: (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1) * 0.5,
}
SOFTMAX = {
    "softmax": lambda s: s.masked_fill(BLOCKED, -math.inf).softmax(-1),
    "logarithm": lambda s: s.masked_fill(BLOCKED, -math.inf).log_softmax(-1).exp(),
    "sink": lambda s: torch.cat(
        [s.masked_fill(BLOCKED, -math.inf), torch.zeros_like(s[..., :1])], -1
    ).softmax(-1)[..., :M],
}
MIX = {
    "matmul": lambda w, v: w @ v,
    "einsum": lambda w, v: torch.einsum("...nm,...me->...ne", w, v),
    "sum": lambda w, v: (w.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2),
}


class Combined(nn.Module):
    def __init__(self, layout, scores, soften, mix):
        super().__init__()
        self.enter, self.leave = LAYOUTS[layout]
        self.scores, self.soften, self.mix = SCORES[scores], SOFTMAX[soften], MIX[mix]

    def forward(self, *qkv):
        q, k, v = map(self.enter, qkv)
        return self.leave(self.mix(self.soften(self.scores(q, k)), v))


@pytest.mark.parametrize("inference", [True, False], ids=["inference mode", "gradients"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_combination_gives_the_same_record(layout, inference):
    q, k, v = (torch.randn(B, n, H * w, dtype=torch.float64) for n, w in ((N, D), (M, D), (M, E)))
    heads = [x.unflatten(2, (H, -1)).transpose(1, 2) for x in (q, k, v)]
    powers = (heads[0] @ heads[1].mT / 2).exp().masked_fill(BLOCKED, 0)
    for names in itertools.product(SCORES, SOFTMAX, MIX):
        model = Combined(layout, *names)
        with torch.inference_mode(inference), watch(model) as seen:
            out = model(q, k, v)
        (record,) = seen
        weights = powers / (powers.sum(-1, keepdim=True) + ("sink" in names))
        assert torch.allclose(out, (weights @ heads[2]).transpose(1, 2).flatten(2)), names
        found = (record.queries * record.scale, record.keys, record.values, record.weights)
        for ours, expected in zip(found, (heads[0] / 2, *heads[1:], weights), strict=True):
            assert ours.shape == expected.shape, names
            assert torch.allclose(ours, expected, atol=1e-12), names
        assert torch.equal(record.mask.expand(record.shape), ~BLOCKED.expand(record.shape)), names
        assert record.bias is None, names
        assert record.doubt is None, names
