"""A small transformer around any mechanism of the shelf, for lessons and experiments on a laptop.

A transformer is a residual stream of width ``dim``: each layer reads it through a layer norm, lets
the positions exchange information (attention), then treats each position alone (a two-layer
network), and adds both results back. Three models share these layers:

- ``language_model``: causal decoder, predicts the next token everywhere, (b, n) -> (b, n, vocab);
- ``classifier``: encoder that sees both sides, mean over real positions, (b, n) -> (b, classes);
- ``encoder_decoder``: the decoder also reads an encoded source through cross-attention,
  (b, n) and a source (b, m) -> (b, n, vocab). Source and target share vocabulary and positions.

``attention`` chooses the mechanism of every self-attention layer. Cross-attention is always full
softmax attention: few mechanisms define it, and a model whose parts differ only in
self-attention is the one that can be compared.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin, Attention Is All You Need,
NeurIPS 2017, arXiv:1706.03762. Departures: pre-norm by default (Xiong et al., On Layer
Normalization in the Transformer Architecture, ICML 2020, arXiv:2002.04745), GELU, learned positions
and the 1/√(number of residual branches) initialisation of GPT-2 (Radford et al., Language Models
are Unsupervised Multitask Learners, 2019); dropout on the residual branches and the embedding only,
never on attention weights.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models import choices, storage
from attnlab.models.choices import Attention
from attnlab.models.layers import Block, Positions, Stack, embedding_std, shrink_residual_branches

DecoderState = tuple[int, list[Any]]


class TinyTransformer(nn.Module):
    """A small transformer around any mechanism; see the module's docstring for the three kinds.

    vocab: number of different tokens. Leave it out and give ``features=f`` to classify sequences of
        float vectors (b, n, f), such as image patches.
    attention: a catalogue name ("full"), or a callable ``(dim, heads, causal) -> nn.Module``
        (called by keyword for ``causal``), or a list with one name, callable or module per layer.
        An encoder-decoder builds it for the encoder (two-sided) and again for the decoder (causal).
    attention_options: more keyword arguments for the catalogue, as {"window": 8}; a list of them
        gives each layer its own.
    max_len: the longest sequence, for every kind of position, so that a longer one is an error
        whatever the model. Positions count real tokens only: a padded token is as if absent.
    tie: use the token embedding as output matrix too (a classifier has no such matrix).
    checkpoint: recompute layers during backward instead of keeping their activations: about one
        forward pass more, for the memory of one layer instead of all. ``model.checkpoint = True``
        switches it later.

    ``model.config`` rebuilds the model: ``TinyTransformer(**model.config)``, as long as
    ``attention`` is a name. ``model.extra`` holds strings that are saved and loaded with
    it (a tokeniser's vocabulary).
    """

    def __init__(
        self,
        vocab: int | None = None,
        *,
        dim: int = 128,
        layers: int = 4,
        heads: int = 4,
        attention: Attention | Sequence[Attention] | None = "full",
        attention_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        kind: str = "language_model",
        classes: int | None = None,
        features: int | None = None,
        max_len: int = 256,
        positions: str = "learned",
        norm: str = "pre",
        hidden: int | None = None,
        tie: bool = True,
        dropout: float = 0.0,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        config = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        hidden = 4 * dim if hidden is None else hidden
        choices.check_sizes(dim=dim, layers=layers, heads=heads, max_len=max_len, hidden=hidden)
        choices.check_choices(kind, norm, positions, dropout)
        choices.check_heads(dim, heads)
        choices.check_options(attention_options)
        choices.check_ends(kind, vocab, classes, features)
        self.config: dict[str, Any] = config | choices.describe(attention, attention_options)
        self.extra: dict[str, str] = {}
        self.kind, self.vocab, self.features, self.max_len = kind, vocab, features, max_len
        self.dropout, self.checkpoint = dropout, checkpoint

        def stack(causal: bool, cross: bool) -> Stack:
            mixers = choices.build_layers(
                attention, attention_options, layers, dim, heads, causal, kind
            )
            blocks = [
                Block(
                    dim, mixer, FullAttention(dim, heads) if cross else None, hidden, norm, dropout
                )
                for mixer in mixers
            ]
            return Stack(blocks, dim, norm)

        self.embedding = _embedding(vocab, features, dim)
        self.positions = _positions(positions, max_len, dim)
        self.encoder = stack(False, cross=False) if kind != "language_model" else None
        self.decoder = (
            stack(True, cross=kind == "encoder_decoder") if kind != "classifier" else None
        )
        self.output = _output(kind, vocab, classes, dim, tie)
        given = [a for a in choices.as_list(attention) if isinstance(a, nn.Module)]
        shrink_residual_branches(self, keep=given)

    def forward(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b n f"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        source: Int[Tensor, "b m"] | None = None,
        source_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n vocab"] | Float[Tensor, "b classes"]:
        """Logits. ``padding`` and ``source_padding`` are True at real tokens; what stands
        elsewhere is never read. A classifier judges a row without real tokens from zeros.
        """
        self.check_source(source, source_padding)
        if self.decoder is None:
            return self.logits(self._pooled(tokens, padding))
        memory = None if source is None else self.encode(source, source_padding)
        return self.logits(self.decode(tokens, padding, memory, source_padding))

    def encode(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b n f"],
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        """The encoder's output at every position (``source`` of an encoder-decoder)."""
        if self.encoder is None:
            raise ValueError(f"a model of kind={self.kind!r} has no encoder; call decode().")
        x = self._embed(tokens, padding)
        return self.encoder(x, padding, checkpoint=self.checkpoint)

    def decode(
        self,
        tokens: Int[Tensor, "b n"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        """The decoder's output at every position; ``memory`` is ``encode(source)``."""
        if self.decoder is None:
            raise ValueError(f"a model of kind={self.kind!r} has no decoder; call encode().")
        self._check_memory(memory)
        x = self._embed(tokens, padding)
        return self.decoder(x, padding, memory, memory_padding, checkpoint=self.checkpoint)

    def logits(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... vocab"]:
        """From the stream's width to scores of tokens or classes."""
        weight = self.embedding.weight if self.output is None else self.output.weight
        bias = None if self.output is None else self.output.bias
        return F.linear(x, weight, bias)

    @property
    def steps_incrementally(self) -> bool:
        """Whether every layer of the decoder offers ``.step``, so that ``step`` works."""
        return self.decoder is not None and all(
            hasattr(block.attention, "step") for block in self.decoder.blocks
        )

    def step(
        self,
        tokens: Int[Tensor, "b t"],
        state: DecoderState | None = None,
        *,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b vocab"], DecoderState]:
        """Logits after t more tokens, given the state that the previous call returned.

        The same numbers as ``forward`` on all tokens so far, for the work of t positions.
        """
        if self.decoder is None or not self.steps_incrementally:
            raise ValueError(
                "step() needs a decoder whose every attention module has .step(x, state); "
                "generate(…) re-runs the prefix for others."
            )
        self._check_memory(memory)
        position, states = state or (0, [None] * len(self.decoder.blocks))
        if len(states) != len(self.decoder.blocks):
            raise ValueError(
                f"state holds {len(states)} layers, but this model has {len(self.decoder.blocks)}: "
                "give the state that this model's own step() returned."
            )
        x = self._embed(tokens, None, start=position)
        x, states = self.decoder.step(x, states, memory, memory_padding)
        return self.logits(x[:, -1]), (position + tokens.shape[1], states)

    def save(self, path: str | Path, extra: Mapping[str, str] | None = None) -> None:
        """Write weights, config and strings (``extra``) as one safetensors file, or nothing.

        What is in ``self.extra`` is written too, unless ``extra`` says otherwise.
        """
        storage.save(self, path, self.config, self.extra | dict(extra or {}))

    @classmethod
    def load(
        cls, path: str | Path, *, attention: Attention | Sequence[Attention] | None = None
    ) -> "TinyTransformer":
        """The model that ``save`` wrote, on the CPU and in torch's default dtype, whatever the
        file holds; its ``extra`` is in ``model.extra``.

        Give ``attention`` again if the model was built from a callable: code is not stored.
        """
        config, extra = storage.read_config(path)
        if attention is not None:
            if config.get("attention") is not None:
                raise ValueError(
                    f"{path} names its attention, {config['attention']!r}; "
                    "leave the argument attention out."
                )
            config["attention"] = attention
        elif config.get("attention", "full") is None:
            raise ValueError(
                f"{path} was saved from a model whose attention was a callable, which no file can "
                "hold. Give it again: TinyTransformer.load(path, attention=…)."
            )
        model = storage.rebuild(cls, config, path)
        storage.load_weights(model, path)
        model.extra = extra
        return model

    def check_source(self, source: Tensor | None, source_padding: Tensor | None) -> None:
        """Refuse a missing source, and one that the model would never read."""
        if self.kind == "encoder_decoder" and source is None:
            raise ValueError(
                "an encoder_decoder needs the tokens to read: call model(tokens, source=…)."
            )
        if self.kind != "encoder_decoder" and not (source is None and source_padding is None):
            raise ValueError(
                f"source is for kind='encoder_decoder'; a {self.kind} has no cross-attention."
            )

    def _check_memory(self, memory: Tensor | None) -> None:
        if (memory is None) == (self.kind == "encoder_decoder"):
            raise ValueError(
                "memory=model.encode(source) belongs to an encoder_decoder, and only to that; "
                f"this model's kind is {self.kind!r} and memory is "
                f"{'missing' if memory is None else 'given'}."
            )

    def _pooled(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        x = self.encode(tokens, padding)
        if padding is None:
            return x.mean(1)
        real = padding[..., None].to(x.dtype)
        return (x.masked_fill(~padding[..., None], 0)).sum(1) / real.sum(1).clamp(min=1)

    def _embed(self, tokens: Tensor, padding: Tensor | None, start: int = 0) -> Tensor:
        choices.check_input(tokens, padding, start, self)
        if self.features is not None:
            if padding is not None:  # so that a NaN in a padded vector stays there
                tokens = tokens.masked_fill(~padding[..., None], 0)
            x = self.embedding(tokens.to(self.embedding.weight.dtype))
        else:
            if padding is not None:
                tokens = tokens.masked_fill(~padding, 0)
            x = self.embedding(choices.in_vocabulary(tokens, self.vocab))
        return F.dropout(self._place(x, padding, start), self.dropout, self.training)

    def _place(self, x: Tensor, padding: Tensor | None, start: int) -> Tensor:
        if self.positions is None:
            return x
        table = self.positions.weight
        if padding is None:
            return x + table[start : start + x.shape[1]]
        return x + F.embedding((padding.cumsum(1) - 1).clamp(min=0), table)


def _positions(positions: str, length: int, dim: int) -> Positions | None:
    return None if positions == "none" else Positions(length, dim, positions == "learned")


def _embedding(vocab: int | None, features: int | None, dim: int) -> nn.Embedding | nn.Linear:
    if vocab is None:
        assert features is not None
        return nn.Linear(features, dim)
    embedding = nn.Embedding(vocab, dim)
    nn.init.normal_(embedding.weight, std=embedding_std(dim))
    return embedding


def _output(
    kind: str, vocab: int | None, classes: int | None, dim: int, tie: bool
) -> nn.Linear | None:
    """The output matrix; None where the token embedding serves."""
    if kind != "classifier" and tie:
        return None
    width = classes if kind == "classifier" else vocab
    assert width is not None
    output = nn.Linear(dim, width, bias=kind == "classifier")
    nn.init.normal_(output.weight, std=embedding_std(dim))
    if output.bias is not None:
        nn.init.zeros_(output.bias)
    return output
