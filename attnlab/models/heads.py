r"""New heads for a trained encoder: the mean over a text, or one decoder layer that reads it.

A model that was pretrained answers with tokens. For a task with classes it keeps embedding,
positions and encoder, and gets a head that begins untrained:

``"mean"``     as of BERT, a linear layer over one vector for the text, here the mean of the real
               positions, or over the vector of each token.
``"decoder"``  EncT5: one decoder layer whose input is a learned vector in the place of a token, one
               for each answer. Its cross-attention decides what of the text is read; then a linear
               layer. An encoder-decoder gives it the first layer of its own decoder.

The layer of EncT5 has T5's parameters of one decoder layer, so an encoder-decoder of base size
loses nearly half of its weights: 109.6 of 222.9 million stay in the encoder, 9.4 are the layer.

Devlin, Chang, Lee, Toutanova. BERT. NAACL 2019, arXiv:1810.04805, section 3.2. Liu, Huang, Lyu,
Shakeri, Yu, Li. EncT5: A Framework for Fine-tuning T5 as Non-autoregressive Models. arXiv 2021,
arXiv:2110.08426.
"""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.models import parts
from attnlab.models.layers import embedding_std
from attnlab.models.options import CLASSIFIERS, Options, as_list
from attnlab.models.tiny import TinyTransformer, check_model

HEADS = ("mean", "decoder")
KEPT = ("embedding", "positions", "encoder")
"""The parts of a model that a new head is put on."""


def with_head(
    model: TinyTransformer, kind: str, classes: int, *, head: Literal["mean", "decoder"] = "mean"
) -> "TinyTransformer | OneLayerDecoder":
    """A classifier with the encoder of a trained model, copied, and a head that is new.

    kind: "classifier" for one answer to each text, "token_classifier" for one at each token.

    Raises ValueError for a model without an encoder, such as a language model.
    """
    check_model(model)
    model = getattr(model, "_orig_mod", model)
    check_choice("head", head, HEADS)
    check_choice("kind", kind, CLASSIFIERS)
    if model.encoder is None:
        raise ValueError(
            f"a model of kind={model.kind!r} has no encoder to put a head on; pretrain one by "
            "masked_lm (kind='token_classifier') or span_corruption (kind='encoder_decoder')"
        )
    classes = check_integer("classes", classes, at_least=1)
    changed = {"kind": kind, "classes": classes, "logit_scale": 1.0}  # a scale is of tokens' scores
    made = TinyTransformer(**{**model.config, **changed})
    made.to(next(model.parameters()))  # its device and its dtype
    own = {name: x for name, x in model.state_dict().items() if name.split(".")[0] in KEPT}
    made.load_state_dict({**made.state_dict(), **own})
    made.extra = dict(model.extra)
    return made if head == "mean" else OneLayerDecoder(made, model)


class OneLayerDecoder(nn.Module):
    """EncT5: an encoder, and one decoder layer whose inputs are learned vectors.

    body: a classifier, whose encoder and output layer are used. of: a trained encoder-decoder,
    whose first decoder layer is copied; of another model, the layer is new.
    """

    def __init__(self, body: TinyTransformer, of: TinyTransformer | None = None) -> None:
        super().__init__()
        self.body, self.kind = body, body.kind
        self.vocab, self.dim, self.max_len = body.vocab, body.dim, body.max_len
        config = {**body.config, "kind": "encoder_decoder", "classes": None, "layers": 1}
        for name in ("attention", "attention_options"):
            several = as_list(config[name])
            config[name] = several[0] if several else config[name]
        options = Options(**config)
        parts.check(options)
        self.decoder = parts.stack(options, causal=True)
        if of is not None and of.decoder is not None and of.kind == "encoder_decoder":
            self.decoder.blocks[0].load_state_dict(of.decoder.blocks[0].state_dict())
        answers = 1 if self.kind == "classifier" else self.max_len
        self.latents = nn.Parameter(torch.randn(answers, self.dim) * embedding_std(self.dim))
        self.to(next(body.parameters()))

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"] | Float[Tensor, "b n classes"]:
        """The classes of each text, or of each token."""
        memory = self.body.encode(tokens, padding)
        asked: Any = self.latents[: 1 if self.kind == "classifier" else tokens.shape[1]]
        x = asked.expand(len(tokens), -1, -1)
        own = None if self.kind == "classifier" else padding
        read = self.body.logits(self.decoder(x, own, memory, padding))
        return read[:, 0] if self.kind == "classifier" else read
