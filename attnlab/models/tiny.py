"""A small transformer around any mechanism of the shelf, for lessons and experiments on a laptop.

A transformer is a residual stream of width ``dim``: each layer reads it through a layer norm, lets
the positions exchange information (attention), then treats each position alone (a two-layer
network), and adds both results back. Four models share these layers:

- ``language_model``: causal decoder, predicts the next token everywhere, (b, n) -> (b, n, vocab);
- ``classifier``: encoder that sees both sides, mean over real positions, (b, n) -> (b, classes);
- ``token_classifier``: the same encoder, a class at every position, (b, n) -> (b, n, classes);
- ``encoder_decoder``: the decoder also reads an encoded source through cross-attention,
  (b, n) and a source (b, m) -> (b, n, vocab). Source and target share vocabulary and positions.

``attention`` chooses the mechanism of every self-attention layer. Cross-attention is full
softmax attention: few mechanisms define it, and a model whose parts differ only in self-attention
is the one that can be compared.

Some mechanisms are told what connects the tokens, as ``model(tokens, structure=…)``: tree attention
the trees, the Graph Transformer the graphs. A classifier then answers from the vector of the root,
or from the mean over the nodes of the graph. The decoder of an encoder-decoder has full attention
among its own tokens, which have no such structure, and the mechanism's own cross-attention to the
source where the mechanism has one.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin, Attention Is All You Need,
NeurIPS 2017, arXiv:1706.03762. Departures: pre-norm by default (Xiong et al., On Layer
Normalization in the Transformer Architecture, ICML 2020, arXiv:2002.04745), GELU, learned positions
and the 1/√(number of residual branches) initialisation of GPT-2 (Radford et al., Language Models
are Unsupervised Multitask Learners, 2019); dropout on the residual branches and the embedding only,
never on attention weights.

Five parts are pages of the catalogue, each chosen by its name: ``attention``, ``positions``, and of
``attnlab.architecture`` ``feed``, ``join`` and ``depth``.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import cleared
from attnlab.core.options import takes_structure
from attnlab.core.suggest import suggestion
from attnlab.mechanisms.positions.factorized import FactorizedEmbedding
from attnlab.models import inputs, parts, positions, storage
from attnlab.models.inputs import Memory, Reading
from attnlab.models.layers import Block, Stack, initialise_branches
from attnlab.models.options import CLASSIFIERS, Attention, Options, as_list, changed


class DecoderState(NamedTuple):
    """What ``step`` keeps: how many positions it has read, and what each layer keeps."""

    position: int
    layers: list[Any]
    begins: Int[Tensor, "b"] | None = None
    """The position at which the present document of each sequence began; None: 0 for all."""


def _signature() -> inspect.Signature:
    """What ``help`` and editors show: the signature of ``Options``, ``vocab`` by position too."""
    vocab, *others = inspect.signature(Options).parameters.values()
    return inspect.Signature([vocab.replace(kind=vocab.POSITIONAL_OR_KEYWORD), *others])


def _options(vocab: int | None, options: Mapping[str, Any]) -> Options:
    options, known = parts.in_todays_names(options), inspect.signature(Options).parameters
    for name in options:
        if name not in known:
            raise TypeError(f"TinyTransformer has no option {name!r}{suggestion(name, known)}")
    o = Options(vocab=vocab, **options)
    positions.check(o)
    parts.check(o)
    return o


class TinyTransformer(nn.Module):
    """A small transformer around any mechanism; see the module's docstring for the four kinds.

    vocab: number of different tokens. Leave it out and give ``features=f`` to classify sequences of
        float vectors (b, n, f), such as image patches.
    dim, layers, heads: width of the residual stream (128), number of layers (4; an encoder-decoder
        has as many of each) and of attention heads (4), which must divide dim.
    attention: a catalogue name ("full"), or a callable ``(dim, heads, causal) -> nn.Module``
        (called by keyword for ``causal``), or a list with one name, callable or module per layer.
        An encoder-decoder builds it for the encoder (two-sided) and again for the decoder (causal).
    attention_options: more keyword arguments for the catalogue, as {"window": 8}; a list of them
        gives each layer its own.
    cache_of: for each layer the one whose keys and values it attends to, its own or an earlier
        one's, as [0, 0, 2, 2]: the other layers keep no cache (``attnlab.models.shared_cache``).
    kind: "language_model", "classifier" or "token_classifier" (which need ``classes``), or
        "encoder_decoder".
    embedding_rank: width of the rows of a factorized embedding (ALBERT): a narrow table of tokens,
        and one matrix from that width to dim. Not given, the table itself has width dim.
    max_len: the longest sequence (256), for every kind of position, so that a longer one is an
        error whatever the model. Positions count real tokens only: padding takes no position.
    positions: how the model is told the order of its tokens: "learned", "sinusoidal", "none" or
        another scheme of the family "positions" ("rope", "alibi", "t5_bias", …). "complex" makes
        the vectors of tokens too, of dim / 2 complex numbers each. Schemes that go into
        the attention layers are shared by all layers of a stack, and need mechanisms that take them
        (``attnlab.goes_with``). A list gives each layer its own, of those that go into layers, or
        "none", as ["rope", "rope", "rope", "none"].
    position_options: more keyword arguments for the scheme, as {"layout": "interleaved"}; a list of
        them gives each layer its own, as [{"base": 1e4}, {"base": 1e6}].
    block, block_options: "layers", put together of the parts that follow; or the block of a paper,
        which decides attention, feed-forward layers and joins itself: "mobilebert", "ib_bert" or
        "evolved" (``attnlab.models.blocks``).
    feed, join, depth: pages of ``attnlab.architecture`` by their names: the feed-forward layer
        ("mlp", "gated", "switch", …), how a sublayer joins the stream ("pre_norm", "post_norm",
        "deep_norm", …: where the norm stands), and the way through the layers ("plain",
        "checkpointed", "shared", …). ``attnlab.goes_with`` says which fit together.
    feed_options, join_options, depth_options: more keyword arguments for them, as {"chunks": 4}:
        the feed-forward layers run in pieces of the sequence, computed again during backward.
    hidden: width of the feed-forward layers, 4·dim if not given.
    tie: use the token embedding, or its two factors, as output matrix too (a classifier has no
        such matrix, complex word embeddings no such table).
    logit_scale: what the scores of tokens or classes are multiplied by, 1 if not given; T5 takes
        dim ** -0.5 with its tied table.
    dropout: on the residual branches and the embedding, 0 if not given.
    checkpoint: recompute layers during backward instead of keeping their activations: about one
        forward pass more, for the memory of one layer instead of all. ``model.checkpoint = True``
        switches it later.

    Options of earlier versions go on working: norm="post" is join="post_norm", reversible=True is
    depth="reversible", feed_forward_chunks=4 is feed_options={"chunks": 4}.

    Defaults and checks are those of ``attnlab.models.options.Options``.
    ``model.config`` rebuilds the model: ``TinyTransformer(**model.config)``, as long as
    ``attention`` is a name. ``model.extra`` holds strings that are saved and loaded with
    it (a tokeniser's vocabulary).
    """

    __signature__ = _signature()

    def __init__(self, vocab: int | None = None, **options: Any) -> None:
        super().__init__()
        o = _options(vocab, options)
        self.config: dict[str, Any] = o.config()
        self.extra: dict[str, str] = {}
        self.kind, self.vocab, self.features = o.kind, o.vocab, o.features
        self.dim, self.max_len = o.dim, o.max_len
        self.dropout, self.checkpoint = o.dropout, o.checkpoint
        self.logit_scale = o.logit_scale
        self.embedding: Any = positions.of_tokens(o) or parts.embedding(o)
        self.positions = positions.at_embedding(o)
        scheme = self.embedding if self.embeds_by_position else self.positions
        # Asked now, as a compiler cannot ask.
        self._scheme_takes_structure = scheme is not None and takes_structure(scheme)
        self.encoder = None if o.kind == "language_model" else parts.stack(o, causal=False)
        self.decoder = None if o.kind in CLASSIFIERS else parts.stack(o, causal=True)
        self.output = parts.output(o, tied=o.tie and not self.embeds_by_position)
        given = [each for each in as_list(o.attention) if isinstance(each, nn.Module)]
        initialise_branches(self, keep=given)

    def extra_repr(self) -> str:
        return changed(self.config)

    def forward(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b n f"] | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        source: Int[Tensor, "b m"] | None = None,
        source_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        inputs_embeds: Float[Tensor, "b n dim"] | None = None,
        source_embeds: Float[Tensor, "b m dim"] | None = None,
    ) -> Float[Tensor, "b n vocab"] | Float[Tensor, "b classes"] | Float[Tensor, "b n classes"]:
        """Logits. ``padding`` and ``source_padding`` are True at real tokens; other tokens have no
        influence. A row without real tokens is classified from a vector of zeros. ``structure`` is
        that of the tokens that are encoded: the source, if there is one. A ``Visibility`` instead
        says which token sees which, in the place of the masks of dense attention; in an
        encoder-decoder which of the tokens that are written, all of which see the source.

        ``inputs_embeds`` are vectors in the place of those that ``model.embedding(tokens)`` gives,
        such as vectors of an image among those of words: positions are added to them as to the
        vectors of tokens, and gradients reach them. ``source_embeds`` take the place of a source.
        """
        self.check_source(source if source_embeds is None else source_embeds, source_padding)
        if self.decoder is None:
            reading = Reading.either(self, tokens, inputs_embeds, padding, structure)
            x = self._encoded(reading)
            return self._scores(x if self.kind == "token_classifier" else _pooled(x, reading))
        seen = inputs.visibility(structure)
        if self.encoder is None:
            return self._scores(
                self.decode(tokens, padding, structure=structure, inputs_embeds=inputs_embeds)
            )
        read = Reading.either(
            self, source, source_embeds, source_padding, None if seen else structure,
            names=("source", "source_embeds"),
        )  # fmt: skip
        memory = Memory(self._encoded(read), read.padding, structure)
        reading = Reading.either(self, tokens, inputs_embeds, padding, seen)
        return self._scores(self._decoded(reading, memory))

    def encode(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b n f"] | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
        structure: Any = None,
        *,
        inputs_embeds: Float[Tensor, "b n dim"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        """The encoder's output at every position (``source`` of an encoder-decoder)."""
        if self.encoder is None:
            raise ValueError(f"a model of kind={self.kind!r} has no encoder; call decode()")
        if self.decoder is not None and inputs.visibility(structure) is not None:
            raise ValueError(
                "which token sees which is told to the decoder of an encoder_decoder: leave "
                "structure out here, and give it to decode()"
            )
        return self._encoded(Reading.either(self, tokens, inputs_embeds, padding, structure))

    def decode(
        self,
        tokens: Int[Tensor, "b n"] | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        *,
        inputs_embeds: Float[Tensor, "b n dim"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        """The decoder's output at every position; ``memory`` is ``encode(source)``, ``structure``
        that of the source, or a ``Visibility`` of the tokens.
        """
        if self.decoder is None:
            raise ValueError(f"a model of kind={self.kind!r} has no decoder; call encode()")
        seen = inputs.visibility(structure)
        reading = Reading.either(self, tokens, inputs_embeds, padding, seen)
        return self._decoded(
            reading, Memory.of(self, reading.tokens, memory, memory_padding, structure)
        )

    def _encoded(self, reading: Reading) -> Tensor:
        assert self.encoder is not None
        given = {"structure": reading.structure, "checkpoint": self.checkpoint}
        out: Tensor = self.encoder(self._embedded(reading), reading.padding, **given)
        return out

    def _decoded(self, reading: Reading, memory: Memory) -> Tensor:
        assert self.decoder is not None
        x = self._embedded(reading)
        out: Tensor = self.decoder(x, reading.padding, *memory, checkpoint=self.checkpoint)
        return out

    def logits(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... vocab"]:
        """The scores of tokens or classes, from vectors of width dim."""
        inputs.check_tensor("x", x)
        if x.shape[-1:] != (self.dim,) or not x.is_floating_point():
            raise ValueError(
                f"x should be float vectors of width dim={self.dim} in its last axis, "
                f"got {x.dtype} of shape {tuple(x.shape)}"
            )
        return self._scores(x)

    def _scores(self, x: Tensor) -> Tensor:
        scores = self._unscaled(x)
        return scores if self.logit_scale == 1 else scores * self.logit_scale

    def _unscaled(self, x: Tensor) -> Tensor:
        if self.output is not None:
            found: Tensor = self.output(x)
            return found
        if isinstance(self.embedding, FactorizedEmbedding):
            return self.embedding.logits(x)
        return F.linear(x, self.embedding.weight)

    @property
    def steps_incrementally(self) -> bool:
        """Whether every layer of the decoder can read token by token, so that ``step`` works."""
        return self.decoder is not None and all(block.steps for block in self.decoder.blocks)

    def step(
        self,
        tokens: Int[Tensor, "b t"] | None = None,
        state: DecoderState | None = None,
        *,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        inputs_embeds: Float[Tensor, "b t dim"] | None = None,
    ) -> tuple[Float[Tensor, "b vocab"], DecoderState]:
        """Logits after t more tokens, given the state that the previous call returned.

        The same numbers as ``forward`` on all tokens so far, for the work of t positions.
        """
        given = (memory, memory_padding, structure)
        x, state = self._read_on(tokens, inputs_embeds, state, *given)
        return self._scores(x[:, -1]), state

    def advance(
        self, tokens: Int[Tensor, "b t"] | None = None, state: DecoderState | None = None, *,
        inputs_embeds: Float[Tensor, "b t dim"] | None = None,
    ) -> tuple[Float[Tensor, "b t vocab"], DecoderState]:  # fmt: skip
        """As ``step``, with the logits at every one of the t tokens: a text is read, or trained on,
        in segments."""
        x, state = self._read_on(tokens, inputs_embeds, state, None, None, None)
        return self._scores(x), state

    def cleared(self, state: DecoderState, ended: Bool[Tensor, "b"]) -> DecoderState:
        """The state after the end of a document in those sequences where ``ended`` is True: later
        tokens find nothing of what was read so far, and their positions start at 0.

        A ValueError if a layer keeps a state that cannot be cleared for some sequences alone.
        """
        assert self.decoder is not None
        blocks: Any = self.decoder.blocks
        kept = zip(blocks, state.layers, strict=True)
        layers = [cleared(block.attention, of_layer, ended) for block, of_layer in kept]
        old = torch.zeros_like(ended, dtype=torch.int64) if state.begins is None else state.begins
        return DecoderState(state.position, layers, old.masked_fill(ended, state.position))

    def _read_on(
        self, tokens: Tensor | None, inputs_embeds: Tensor | None, state: DecoderState | None,
        memory: Tensor | None, memory_padding: Tensor | None, structure: Any,
    ) -> tuple[Tensor, DecoderState]:  # fmt: skip
        """The decoder's output at t more tokens."""
        if inputs.visibility(structure) is not None:
            raise ValueError(
                "which token sees which cannot be told to step(), where a token sees those before "
                "it; call the model with all tokens"
            )
        if self.decoder is None or not self.steps_incrementally:
            raise ValueError(
                "step() needs a decoder whose every attention module has .step(x, state), and "
                "experts without a capacity; generate(…) re-runs the prefix for others"
            )
        position, layers, begins = _checked_state(state, len(self.decoder.blocks))
        start = position if begins is None else position - begins
        reading = Reading.either(self, tokens, inputs_embeds, start=start)
        read = Memory.of(self, reading.tokens, memory, memory_padding, structure)
        x, layers = self.decoder.step(self._embedded(reading), layers, *read, start=reading.start)
        return x, DecoderState(position + reading.tokens.shape[1], layers, begins)

    def save(self, path: str | Path, extra: Mapping[str, str] | None = None) -> None:
        """Write weights, config and strings (``extra``) as one safetensors file, or nothing.

        The strings of ``self.extra`` are written too; ``extra`` replaces those of the same name.
        """
        extra = {} if extra is None else extra
        storage.check_extra(extra)
        storage.check_extra(self.extra)
        storage.save(self, path, self.config, {**self.extra, **extra})

    @classmethod
    def load(
        cls, path: str | Path, *, attention: Attention | Sequence[Attention] | None = None
    ) -> "TinyTransformer":
        """The model that ``save`` wrote, on the CPU and in torch's default dtype, whatever dtype
        the file has; its ``extra`` is in ``model.extra``.

        Give ``attention`` again if the model was built from a callable: code is not stored.
        """
        config, extra = storage.read_config(path)
        if attention is not None:
            if config.get("attention") is not None:
                raise ValueError(
                    f"{path} names its attention, {config['attention']!r}; "
                    "leave the argument attention out"
                )
            config["attention"] = attention
        elif config.get("attention", "full") is None:
            raise ValueError(
                f"{path} was saved from a model whose attention was a callable, which no file can "
                "hold; give it again: TinyTransformer.load(path, attention=…)"
            )
        model = storage.load(cls, config, path)
        model.extra = extra
        return model

    def check_source(self, source: Tensor | None, source_padding: Tensor | None) -> None:
        """Refuse a missing source, and a source for a model without cross-attention."""
        if self.kind == "encoder_decoder" and source is None:
            raise ValueError(
                "an encoder_decoder needs the tokens to read: call model(tokens, source=…)"
            )
        if self.kind != "encoder_decoder" and not (source is None and source_padding is None):
            raise ValueError(
                f"source is for kind='encoder_decoder'; a {self.kind} has no cross-attention"
            )

    @property
    def reads_structure(self) -> bool:
        """Whether some part is told what connects the tokens, as ``model(tokens, structure=…)``."""
        parts = (part for part in self.modules() if part is not self)
        return any(takes_structure(part) for part in parts if not isinstance(part, Block | Stack))

    def _embedded(self, reading: Reading) -> Tensor:
        ready = reading.embedded or self.embeds_by_position
        x = reading.tokens if ready else self.embedding(reading.tokens)
        return F.dropout(self._placed(x, reading), self.dropout, self.training)

    @property
    def embeds_by_position(self) -> bool:
        """Whether the embedding itself is asked where tokens stand: vectors of tokens alone, which
        ``inputs_embeds`` could replace, do not exist then."""
        return not isinstance(self.embedding, nn.Embedding | nn.Linear | FactorizedEmbedding)

    def _placed(self, x: Tensor, reading: Reading) -> Tensor:
        scheme = self.embedding if self.embeds_by_position else self.positions
        if scheme is None:
            return x
        placed: Tensor
        if self._scheme_takes_structure:
            placed = scheme(x, structure=reading.structure)
        else:
            placed = scheme(x, reading.positions)
        return placed


def _pooled(x: Tensor, reading: Reading) -> Tensor:
    """The vector of the structure, or the mean over the real positions."""
    if reading.structure is not None:
        of_structure: Tensor = reading.structure.pooled(x)
        return of_structure
    if reading.padding is None:
        return x.mean(1)
    real = reading.padding[..., None]
    return x.masked_fill(~real, 0).sum(1) / real.to(x.dtype).sum(1).clamp(min=1)


def check_model(model: object) -> None:
    """A TypeError unless ``model`` is a TinyTransformer, perhaps compiled."""
    if not isinstance(getattr(model, "_orig_mod", model), TinyTransformer):
        raise TypeError(f"model should be a TinyTransformer, got a {type(model).__name__}")


def _checked_state(state: DecoderState | None, layers: int) -> DecoderState:
    if state is None:
        return DecoderState(0, [None] * layers)
    if not isinstance(state, DecoderState):
        raise TypeError(
            "state should be what this model's own step() returned, or None at the start, "
            f"got a {type(state).__name__}"
        )
    if len(state.layers) != layers:
        raise ValueError(
            f"state holds {len(state.layers)} layers, but this model has {layers}: "
            "give the state that this model's own step() returned"
        )
    return state
