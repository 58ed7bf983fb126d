"""bertviz's head, model and neuron view of what attnlab recorded.

bertviz (Vig. A Multiscale Visualization of Attention in the Transformer Model. ACL 2019 demos,
arXiv:1906.05714) is widely known. It loads require.js, d3 and jQuery from the network,
so its views stay empty where there is none; ``AttentionView`` does not.
"""

from collections.abc import Sequence
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor

from attnlab.core.arguments import check_list
from attnlab.lens.record import Attention
from attnlab.lens.sources.layers import layers_of

View = Literal["head", "model", "neuron"]


def to_bertviz(
    recording: Any, tokens: Sequence[str], view: View = "head", *, batch: int = 0
) -> Any:
    """An ``IPython.display.HTML`` with bertviz's view of self-attention layers of one length.

    ``recording`` is whatever ``AttentionView`` takes; the neuron view needs queries and keys, so a
    recording of ``attnlab.watch``. Where query heads share key heads, each sees its own copy.
    """
    if not isinstance(view, str) or view not in ("head", "model", "neuron"):
        raise ValueError(f'`view` should be "head", "model" or "neuron", got {view!r}')
    tokens = check_list("tokens", tokens)
    maps = [torch.from_numpy(layer.maps) for layer in layers_of(recording, batch)]
    _fit(maps, len(tokens))
    labels = [str(token).replace("<", _LESS) for token in tokens]
    if view == "neuron":
        return _escaped(_neuron_view(recording, maps, labels, batch))
    from bertviz import head_view, model_view

    show = head_view if view == "head" else model_view
    return _escaped(show([layer[None] for layer in maps], tokens=labels, html_action="return"))


# bertviz writes the tokens into a script, which a token such as </script> would end.
_LESS = "\ue000"  # a private-use character that stands for "<" meanwhile


def _escaped(page: Any) -> Any:
    page.data = page.data.replace("\\ue000", "\\u003c")
    return page


def _fit(maps: list[Tensor], count: int) -> None:
    for at, layer in enumerate(maps):
        if layer.shape[1:] != (count, count):
            raise ValueError(
                "bertviz draws queries and keys of one text here: every layer should be "
                f"{count} × {count} for {count} tokens, layer {at} is "
                f"{layer.shape[1]} × {layer.shape[2]}"
            )
        if layer.shape[0] != maps[0].shape[0]:
            raise ValueError("bertviz needs the same number of heads in every layer")


def _neuron_view(recording: Any, maps: list[Tensor], labels: list[str], batch: int) -> Any:
    records = [recording] if isinstance(recording, Attention) else list(recording)
    if not all(isinstance(record, Attention) for record in records):
        raise TypeError("the neuron view needs queries and keys: give a recording of attnlab.watch")
    from bertviz import neuron_view

    data = {
        "all": {
            "left_text": labels,
            "right_text": labels,
            "attn": [layer.tolist() for layer in maps],
            "queries": [record.queries[batch].float().tolist() for record in records],
            "keys": [_per_head(record)[batch].float().tolist() for record in records],
        }
    }
    # bertviz runs one of its own models here; the numbers are the recording's instead.
    causal = all(float(layer.triu(1).abs().max()) == 0 for layer in maps)
    with patch.object(neuron_view, "get_attention", lambda *_, **__: data):
        kind = "gpt2" if causal else "bert"
        return neuron_view.show(None, kind, None, "", html_action="return")


def _per_head(record: Attention) -> Tensor:
    keys = record.keys
    return keys.repeat_interleave(record.shape[1] // keys.shape[1], dim=1)
