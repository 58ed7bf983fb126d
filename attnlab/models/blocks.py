"""Blocks by name, each as its paper has it: ``TinyTransformer(block="mobilebert")``.

The usual block, "layers", is put together of an attention mechanism, a feed-forward layer and
joins, each by its own name. A paper that changes all of them together has a block instead, which
decides them, and the options that would choose them are refused beside it:

``"mobilebert"``  narrow layers in a wide stream, with several feed-forward layers
                  (``models.mobilebert``).
``"ib_bert"``     its teacher: wide layers between the same streams, one feed-forward layer.
``"evolved"``     the cells of the Evolved Transformer, as deep as two layers (``models.evolved``).

What stands around the blocks is that of any ``TinyTransformer``: embedding, positions that are
added to it, depth and output. The models of the papers, with the embedding of three tokens and
the numbers of cells that they have, are ``MobileBERT`` and ``EvolvedTransformer``.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.depth import Way
from attnlab.core.suggest import suggestion
from attnlab.models import evolved, mobilebert
from attnlab.models.options import Options

DECIDED = ("attention", "attention_options", "feed", "feed_options", "join", "join_options")
"""Options of a model that a block decides."""


class WholeBlock(nn.Module):
    """A block of a paper in the place of a ``models.layers.Block``.

    normalised: whether the stream needs no norm after the last of them.
    """

    steps = False

    def __init__(self, inside: nn.Module, *, reads_source: bool, normalised: bool) -> None:
        super().__init__()
        self.inside, self.reads_source, self.normalised = inside, reads_source, normalised

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
    ) -> Float[Tensor, "b n dim"]:
        if structure is not None:
            raise ValueError(
                f"structure is for attention that is told what connects the tokens; the attention "
                f"of {type(self.inside).__name__} is decided by its paper"
            )
        source = (memory, memory_padding) if self.reads_source else ()
        out: Tensor = self.inside(x, padding, *source)
        return out

    def sublayers(self) -> list[tuple[Any, nn.Module]]:
        """None that a join could change."""
        return []


class Made(NamedTuple):
    """A kind of block: ``encoder`` and ``decoder`` build one from the options of the model and its
    ``block_options``, whose names are ``takes``; without a ``decoder`` there are encoders alone."""

    encoder: Callable[[Options, Mapping[str, Any]], nn.Module]
    decoder: Callable[[Options, Mapping[str, Any]], nn.Module] | None = None
    takes: tuple[str, ...] = ()
    hidden: bool = False
    normalised: bool = False


def _mobilebert(
    default: mobilebert.MobileBERTOptions,
) -> Callable[[Options, Mapping[str, Any]], nn.Module]:
    def build(o: Options, given: Mapping[str, Any]) -> mobilebert.Layer:
        scale = o.dim / default.dim
        inside = given.get("inside", max(o.heads, int(default.inside * scale) // o.heads * o.heads))
        hidden = max(1, int(default.hidden * scale)) if o.hidden is None else o.hidden
        own = {"dim": o.dim, "heads": o.heads, "hidden": hidden, "inside": inside, **given}
        return mobilebert.Layer(replace(default, **own))

    return build


_SIZES = tuple(
    each.name
    for each in fields(mobilebert.MobileBERTOptions)
    if each.name not in ("dim", "heads", "hidden")
)
BLOCKS: Mapping[str, Made | None] = {
    "layers": None,
    "mobilebert": Made(_mobilebert(mobilebert.MOBILE), takes=_SIZES, hidden=True, normalised=True),
    "ib_bert": Made(_mobilebert(mobilebert.TEACHER), takes=_SIZES, hidden=True, normalised=True),
    "evolved": Made(
        lambda o, _: evolved.EncoderCell(o.dim, o.heads),
        lambda o, _: evolved.DecoderCell(o.dim, o.heads),
    ),
}


def check(o: Options) -> None:
    """A ValueError for what a block cannot be beside."""
    made = BLOCKS[o.block]
    if made is None:
        if o.block_options:
            raise ValueError("block_options are for the block of a paper; give block=… too")
        return
    usual = {each.name: each.default for each in fields(Options)}
    changed = [name for name in DECIDED if getattr(o, name) != usual[name]]
    if not made.hidden and o.hidden is not None:
        changed.append("hidden")
    if changed:
        raise ValueError(
            f"block={o.block!r} decides attention, feed-forward layers and joins itself; leave "
            f"{' and '.join(changed)} out"
        )
    for name in o.block_options or {}:
        if name not in made.takes:
            raise ValueError(
                f"block={o.block!r} has no option {name!r}{suggestion(name, made.takes)}"
            )
    if o.kind == "language_model" or (o.kind == "encoder_decoder" and made.decoder is None):
        kinds = "'classifier' and 'token_classifier'"
        kinds += "" if made.decoder is None else ", or 'encoder_decoder'"
        raise ValueError(
            f"block={o.block!r} stands in models of kind {kinds}; its paper has no decoder "
            f"{'' if made.decoder is None else 'without a source '}for kind={o.kind!r}"
        )
    if o.dropout:
        raise ValueError(f"block={o.block!r} has no dropout; leave dropout={o.dropout} out")


def stack_of(o: Options, way: Way, *, causal: bool) -> list[WholeBlock]:
    """The blocks of an encoder, or with ``causal`` of a decoder."""
    made = BLOCKS[o.block]
    assert made is not None
    build = made.decoder if causal else made.encoder
    assert build is not None
    sets = way.sets(o.layers)
    if way.reads_branches or sets.attention != sets.feed:
        raise ValueError(
            f"depth={o.depth!r} needs blocks with an attention and a feed-forward layer, and "
            f"block={o.block!r} cannot be taken apart; take another depth, such as depth='plain'"
        )
    given = o.block_options or {}
    blocks = {
        number: WholeBlock(build(o, given), reads_source=causal, normalised=made.normalised)
        for number in dict.fromkeys(sets.attention)
    }
    return [blocks[number] for number in sets.attention]
