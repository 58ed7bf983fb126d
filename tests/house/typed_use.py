"""What a type checker knows of the public names: `mypy` reads this file, nothing runs it."""

from types import ModuleType
from typing import assert_type

import torch
from attnlab_widgets.attention_view import AttentionView
from torch import Tensor, nn

import attnlab
from attnlab.catalog import Catalog
from attnlab.core.card import Card
from attnlab.lens.record import Seen
from attnlab.train import History

model = attnlab.TinyTransformer(256, attention="full")
tokens = torch.zeros(1, 8, dtype=torch.long)
assert_type(attnlab.build("full", dim=64, heads=4), nn.Module)
assert_type(attnlab.card("full"), Card)
assert_type(attnlab.cards(), Catalog)
assert_type(attnlab.generate(model, tokens, 4), Tensor)
assert_type(attnlab.goes_with("full", "rope"), bool)
assert_type(attnlab.train.fit(model, attnlab.tasks.task("copying"), 1), History)
assert_type(attnlab.view(model, tokens), AttentionView)
with attnlab.watch(model) as seen:
    assert_type(seen, Seen)

rooms = [
    *(attnlab.catalog, attnlab.core, attnlab.exercises, attnlab.figures, attnlab.lens),
    *(attnlab.measure, attnlab.mechanisms, attnlab.models, attnlab.pretrained),
    *(attnlab.tasks, attnlab.train),
]
assert_type(rooms, list[ModuleType])
