"""A Q-Former with the weights of one of Hugging Face's Transformers."""

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import EPSILON, QFormerOptions

_ATTEND = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "output": "output.dense",
}
_PARTS = {
    "feed.expand": "intermediate_query.dense",
    "feed.contract": "output_query.dense",
    "feed_join.norm": "output_query.LayerNorm",
    "text_feed.expand": "intermediate.dense",
    "text_feed.contract": "output.dense",
    "text_join.norm": "output.LayerNorm",
    "join.norm": "attention.output.LayerNorm",
    "cross_join.norm": "crossattention.output.LayerNorm",
}


def from_transformers(model: Any, queries: Tensor, embeddings: nn.Module | None = None) -> QFormer:
    """A Q-Former with copies of the weights of a ``Blip2QFormerModel``.

    queries: (q, dim), which Transformers keeps outside of it, as ``query_tokens``.
    embeddings: its words and positions (``Blip2TextEmbeddings``), if it was built with
        ``use_qformer_text_input``.

    Raises TypeError for another model; ValueError where it has what no Q-Former here has.
    """
    if type(model).__name__ != "Blip2QFormerModel":
        raise TypeError(
            "from_transformers takes a Blip2QFormerModel of Transformers, got a "
            f"{type(model).__name__}"
        )
    o = model.config
    if (o.hidden_act, o.layer_norm_eps) != ("gelu", EPSILON):
        raise ValueError(
            f"hidden_act should be 'gelu' and layer_norm_eps {EPSILON:g}, those of the released "
            f"Q-Formers, got {o.hidden_act!r} and {o.layer_norm_eps!r}"
        )
    if o.use_qformer_text_input != (embeddings is not None):
        raise ValueError(
            "a model with use_qformer_text_input=True reads words: give their embeddings=…, and "
            "only with such a model"
        )
    own = {} if embeddings is None else embeddings.state_dict()
    made = QFormer(
        QFormerOptions(
            dim=o.hidden_size, layers=o.num_hidden_layers, heads=o.num_attention_heads,
            hidden=o.intermediate_size, queries=len(queries), image_dim=o.encoder_hidden_size,
            every=o.cross_attention_frequency, max_len=o.max_position_embeddings,
            vocab=len(own["word_embeddings.weight"]) if own else None,
        )
    )  # fmt: skip
    made.to(queries.device, queries.dtype)
    theirs = {
        "queries": queries.detach(),
        "norm.weight": model.layernorm.weight,
        "norm.bias": model.layernorm.bias,
    }
    if own:
        theirs["table.weight"] = own["word_embeddings.weight"]
        theirs["positions.weight"] = own["position_embeddings.weight"]
    for i, layer in enumerate(model.encoder.layer):
        theirs |= {f"layers.{i}.{name}": value for name, value in _of_layer(layer.state_dict())}
    with torch.no_grad():
        made.load_state_dict(theirs)
    return made.train(model.training)


def _of_layer(theirs: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """The tensors of one layer by our names."""
    names = dict(_PARTS)
    for ours, part in (("attention", "attention"), ("cross", "crossattention")):
        names |= {f"{ours}.heads.{own}": f"{part}.{each}" for own, each in _ATTEND.items()}
    return [
        (f"{ours}.{kind}", theirs[f"{each}.{kind}"])
        for ours, each in names.items()
        for kind in ("weight", "bias")
        if f"{each}.{kind}" in theirs
    ]
