"""Any mechanism in somebody else's model, in place of its attention.

    replaced = attnlab.replace(model, "longformer", window=64)
    print(replaced)                    # what was replaced, and which weights were taken over
    model(ids, attention_mask=mask)    # as before
    model.generate(ids)

Known are GPT-2, BERT and Llama of Transformers (5 or later), and ``nn.MultiheadAttention`` with
what PyTorch makes of it, such as ``nn.TransformerEncoder``. The model's projections are copied
where the mechanism has such, its masks become ``padding`` and ``causal``, and Llama's rotary
positions turn the queries and keys of mechanisms that can be turned. What cannot be honoured is
refused with a sentence, when the model is changed or when it is called.

With a cache, as in ``generate``, a layer is given the new tokens by its ``step``. The cache holds
what the layer has read, so that it can read all of it again where the state of ``step`` does not
fit: for sequences with padding, and after a beam search has taken other sequences. A mechanism
without ``step`` refuses a cache with tokens in it.
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.heads import regrouped
from attnlab.core.options import check_value
from attnlab.core.positions import Rotation
from attnlab.models.foreign import READERS, Found, Projection, Source, attention_of, source_of


@dataclass(frozen=True)
class Exchange:
    """One module that was replaced.

    ``name``    its address in the model
    ``was``     the class that stood there
    ``copied``  the projections whose weights were taken over
    ``drawn``   parameters of the new layer that are random
    ``left``    what the old module did and the new one does not
    """

    name: str
    was: str
    copied: tuple[str, ...]
    drawn: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Replaced:
    """What ``replace`` did: the ``model``, the ``mechanism`` and one ``Exchange`` a module."""

    model: nn.Module
    mechanism: str
    modules: tuple[Exchange, ...]

    def __repr__(self) -> str:
        first = self.modules[0]
        lines = [f"{len(self.modules)} × {first.was} → {self.mechanism}"]
        for what in ("copied", "drawn", "left"):
            names = {name: None for each in self.modules for name in getattr(each, what)}
            lines.append(f"{what}: {', '.join(names) or 'nothing'}")
        return "\n".join(lines)


def replace(
    model: nn.Module, mechanism: str, *, causal: bool = False,
    modules: Sequence[str] | None = None, **options: Any,
) -> Replaced:  # fmt: skip
    """Put a mechanism of the catalogue in place of the attention of ``model``, which is changed.

    ``modules`` are addresses (``model.named_modules()``) of the attention to be replaced; all of it
    by default, cross-attention apart. ``options`` are those of the mechanism. ``causal`` is for
    ``nn.MultiheadAttention``, which does not know whether its model is causal; the models of
    Transformers do.

    Raises ValueError in a sentence where the mechanism cannot stand there; then nothing is changed.
    """
    check_value("model", model, nn.Module)
    check_value("causal", causal, bool)
    card = catalog.card(mechanism)
    if not card.mixes or card.structure is not None:
        why = "is told a structure beside the sequence" if card.mixes else "mixes no positions"
        raise ValueError(f"{card.name} cannot stand in for attention: it {why}")
    chosen = {found: source_of(found) for found in _chosen(model, modules)}
    made = [_made(*each, card.name, causal, options) for each in chosen.items()]
    for (found, source), (stand_in, _) in zip(chosen.items(), made, strict=True):
        _put(model, found.module, stand_in, source.joined)
    return Replaced(model, card.name, tuple(account for _, account in made))


def _chosen(model: nn.Module, modules: Sequence[str] | None) -> list[Found]:
    """One of each module, though it may stand at several places."""
    there = {found.name: found for found in attention_of(model)}
    if not there:
        named = {type(each).__name__ for each in model.modules()}
        near = ", ".join(sorted(name for name in named if "ttention" in name)) or "none"
        raise ValueError(
            f"replace found no attention that it knows inside this {type(model).__name__}; it "
            f"knows {', '.join(READERS)}; the model's own modules of attention: {near}"
        )
    if isinstance(modules, str) or (modules is not None and not set(modules) <= set(there)):
        raise ValueError(f"modules takes a list of addresses, of {list(there)}, got {modules!r}")
    chosen = [there[name] for name in (there if modules is None else modules)]
    return list({id(found.module): found for found in reversed(chosen)}.values())[::-1]


def _made(
    found: Found, source: Source, mechanism: str, causal: bool, options: dict[str, Any]
) -> tuple["StandIn", Exchange]:
    if causal and source.causal is False:
        raise ValueError(f"{found.name} sees tokens on both sides, so it cannot be causal=True")
    if source.heads * source.head_dim != source.dim:
        raise ValueError(
            f"{found.name} has {source.heads} heads of width {source.head_dim}; layers here have "
            f"heads whose widths add up to dim={source.dim}"
        )
    if source.causal is not None:
        _check_version()
    causal = causal if source.causal is None else source.causal
    given: dict[str, Any] = {"positions": Given(source.head_dim)} if source.rotary else {}
    biased = any(part.bias is not None for part in source.parts.values())
    if biased and "bias" in catalog.card(mechanism).option_names():
        given["bias"] = True
    layer = catalog.build(
        mechanism, dim=source.dim, heads=source.heads, causal=causal, **given, **options
    )
    weight = source.parts["query"].weight
    layer = layer.to(weight.device, weight.dtype)
    taken, left = _copy(source, layer)
    stand_in = OfTorch if source.causal is None else OfTransformers
    made = stand_in(layer, source.then, causal, found.module).train(found.module.training)
    drawn = tuple(name for name, _ in layer.named_parameters() if name not in taken)
    copied = tuple(name for name in source.parts if f"heads.{name}.weight" in taken)
    return made, Exchange(found.name, type(found.module).__name__, copied, drawn, left)


def _check_version() -> None:
    version = importlib.metadata.version("transformers")
    if int(version.partition(".")[0]) < 5:
        raise ValueError(f"replace knows the attention of Transformers from 5 on, not of {version}")


@torch.no_grad()
def _copy(source: Source, layer: nn.Module) -> tuple[set[str], tuple[str, ...]]:
    """The parameters that were taken over, and what was left behind."""
    heads, taken = getattr(layer, "heads", None), set[str]()
    left = ["dropout of the weights"] if source.dropout else []
    for name, (weight, bias) in _scaled(source).items():
        own = getattr(heads, name, None)
        if not isinstance(own, nn.Linear):
            left.append(name)
            continue
        if name in ("key", "value"):
            has = heads.kv_heads  # type: ignore[union-attr]
            weight = regrouped(weight, source.kv_heads, has)
            bias = None if bias is None else regrouped(bias, source.kv_heads, has)
        if own.weight.shape != weight.shape:
            left.append(name)
            continue
        for parameter, value in (("weight", weight), ("bias", bias)):
            place = getattr(own, parameter)
            if place is not None:
                place.copy_(torch.zeros_like(place) if value is None else value)
                place.requires_grad_(source.parts[name].weight.requires_grad)
                taken.add(f"heads.{name}.{parameter}")
            elif value is not None:
                left.append(f"bias of {name}")
    return taken, tuple(left)


def _scaled(source: Source) -> dict[str, Projection]:
    """The projections, with queries such that scores are to be divided by √d."""
    factor = source.scale * source.head_dim**0.5
    weight, bias = source.parts["query"]
    query = Projection(weight * factor, None if bias is None else bias * factor)
    return {**source.parts, "query": query}


def _put(model: nn.Module, old: nn.Module, new: "StandIn", joined: nn.Module | None) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)
        if isinstance(parent, nn.TransformerEncoder):
            parent.use_nested_tensor = False
    if joined is not None and _has_output(new.layer):
        joined.dense = nn.Identity()  # which the layer's own output projection has become


def _has_output(layer: nn.Module) -> bool:
    return isinstance(getattr(getattr(layer, "heads", None), "output", None), nn.Linear)


class Given(Rotation):
    """Turns queries and keys by the cosines and sines (b, n, d) that the model hands around."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.now: Tensor | None = None  # cosines and sines, side by side

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        if self.now is None or self.now.shape[-2] != q.shape[2]:
            raise ValueError(
                "this mechanism turns other tokens than those that the model handed it, so that "
                "the model's rotary positions cannot be respected"
            )
        cos, sin = self.now[:, None].chunk(2, -1)
        first, second = q.chunk(2, -1)
        return q * cos + torch.cat((-second, first), -1) * sin

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        return self.queries(k, positions)


class StandIn(nn.Module):
    """A layer of the catalogue where another module stood, called as that one was."""

    def __init__(self, layer: nn.Module, then: nn.Module, causal: bool, was: nn.Module) -> None:
        super().__init__()
        self.layer, self.then, self.causal = layer, then, causal
        self.like(was)

    def like(self, was: Any) -> None:
        """Take over what the model asks of the module."""


class OfTorch(StandIn):
    """Called as ``nn.MultiheadAttention``. There are no weights to return: None in their place."""

    in_proj_bias = None
    _qkv_same_embed_dim = False  # so that nobody reads weights past ``forward``

    def like(self, was: Any) -> None:
        self.batch_first, self.num_heads, self.embed_dim = (
            was.batch_first, was.num_heads, was.embed_dim,
        )  # fmt: skip

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        del need_weights, average_attn_weights, is_causal  # a hint: the mask says it
        if query.dim() != 3:
            raise ValueError(f"give a batch of sequences, (b, n, dim), got {tuple(query.shape)}")
        if key is not query or value is not query:
            raise ValueError(
                "this layer attends to the sequence itself; name in `modules` the attention that "
                "is called with three times the same tensor"
            )
        x = query if self.batch_first else query.transpose(0, 1)
        b, n, _ = x.shape
        allowed = torch.ones(b, 1, n, n, dtype=torch.bool, device=x.device)
        if attn_mask is not None:
            seen = _allowed(attn_mask, hidden_is_true=True)
            allowed = allowed & (seen if seen.dim() == 2 else seen.unflatten(0, (b, -1)))
        if key_padding_mask is not None:
            allowed = allowed & _allowed(key_padding_mask, hidden_is_true=True)[:, None, None]
        out = self.then(self.layer(x, _padding(allowed, n, self.causal)))
        return (out if self.batch_first else out.transpose(0, 1)), None


class OfTransformers(StandIn):
    """Called as the self-attention of a model of Transformers: gives (output, None)."""

    # What would change what is attended to. Of the rest that a model hands down, such as the number
    # of items in a batch, attention makes no use.
    REFUSED = ("encoder_hidden_states", "head_mask", "cu_seq_lens_q", "cu_seq_lens_k")

    def like(self, was: Any) -> None:
        self.layer_idx, self.is_causal = was.layer_idx, was.is_causal
        self.rotations = [each for each in self.layer.modules() if isinstance(each, Given)]

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None,
        past_key_values: Any = None, position_embeddings: tuple[Tensor, Tensor] | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        for name in self.REFUSED:
            if others.get(name) is not None:
                raise ValueError(
                    f"{name} was asked of attention that attnlab.replace has put in; it "
                    "takes tokens, a mask of padding, positions and a cache"
                )
        x = hidden_states
        turns = x[..., :0]
        if position_embeddings is not None:
            turns = torch.cat(position_embeddings, -1).expand(len(x), -1, -1)
        if past_key_values is None:
            return self.then(self._whole(x, turns, attention_mask)), None
        cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        return self.then(self._with(cache, x, turns, attention_mask)), None

    def _whole(self, x: Tensor, turns: Tensor, mask: Any, n: int | None = None) -> Tensor:
        """The last n outputs of a sequence that is read as a whole."""
        n = x.shape[1] if n is None else n
        self._turn(turns)
        out: Tensor = self.layer(x, self._padding(x, n, mask))
        return out[:, -n:]

    def _turn(self, turns: Tensor) -> None:
        for rotation in self.rotations:
            rotation.now = turns

    def _padding(self, x: Tensor, n: int, mask: Any) -> Tensor | None:
        if mask is None:
            return None
        if not isinstance(mask, Tensor) or mask.dim() != 4:
            raise ValueError(
                "the model hands around a mask that is no tensor (b, 1, n, m); load it with "
                'attn_implementation="sdpa" or "eager"'
            )
        allowed = _allowed(mask).expand(len(x), -1, n, x.shape[1])
        return _padding(allowed, n, self.causal)

    def _with(self, cache: Any, x: Tensor, turns: Tensor, mask: Any) -> Tensor:
        """With a cache whose keys are what this layer has read, and whose values how it turned."""
        before = self._kept(cache)
        past = 0 if before is None else before.shape[2]
        read, turned = (
            each[:, 0] for each in cache.update(x[:, None], turns[:, None], self.layer_idx)
        )
        entry = cache.layers[self.layer_idx]
        if type(entry).__name__ != "DynamicLayer" or read.shape[1] != past + x.shape[1]:
            raise ValueError(
                f"this layer needs a cache that keeps every token, a DynamicCache; it was given a "
                f"{type(entry).__name__}; call generate with use_cache=False, or without "
                "cache_implementation"
            )
        if not past:
            return self._whole(x, turns, mask)
        if not hasattr(self.layer, "step"):
            raise ValueError(
                f"{type(self.layer).__name__} cannot go on from a cache: it has no `step`, and "
                "what it gives may depend on how long the sequence is; call generate with "
                "use_cache=False"
            )
        if self._padding(read, x.shape[1], mask) is not None:
            return self._whole(read, turned, mask, x.shape[1])
        return self._step(entry, before, x, read, turns, turned)

    def _kept(self, cache: Any) -> Tensor | None:
        entries = cache.layers[self.layer_idx : self.layer_idx + 1]
        kept = getattr(entries[0], "keys", None) if entries else None
        return None if kept is None or not kept.numel() else kept

    def _step(
        self, entry: Any, before: Tensor | None, x: Tensor, read: Tensor, turns: Tensor,
        turned: Tensor,
    ) -> Tensor:  # fmt: skip
        """From the state after ``before``, if it is of the very tensor that the cache held."""
        of, state = getattr(entry, "state_of_step", (None, None))
        if of is not before:
            state, x, turns, n = None, read, turned, x.shape[1]
        self._turn(turns)
        out, state = self.layer.step(x, state)  # type: ignore[operator]
        entry.state_of_step = (entry.keys, state)
        return out if of is before else out[:, -n:]


# ---- masks


def _allowed(mask: Tensor, hidden_is_true: bool = False) -> Tensor:
    """True where a query may see a key, of a mask that is bool or added to the scores."""
    if mask.dtype == torch.bool:
        return ~mask if hidden_is_true else mask
    seen, hidden = mask == 0, mask <= -1e4  # e^-10000 is 0 in every dtype
    if not (seen | hidden).all():
        raise ValueError(
            "the model adds numbers to the scores, which is neither padding nor causality; no "
            "mechanism here can take them from outside"
        )
    return seen


def _padding(allowed: Tensor, n: int, causal: bool) -> Tensor | None:
    """Which of m keys are real, (b, m), of a mask (b, h, n, m) for the last n queries.

    None where all are. A ValueError for a mask that hides anything else than padded tokens and,
    where ``causal``, the future. What padded queries see does not matter.
    """
    m = allowed.shape[-1]
    padding = allowed[:, 0, -1] if causal else allowed[:, 0].any(1)
    expected = padding[:, None, None]
    if causal:
        past = torch.ones(n, m, dtype=torch.bool, device=allowed.device).tril(m - n)
        expected = expected & past
    if ((allowed != expected) & padding[:, None, -n:, None]).any():
        kept = "padding and the future" if causal else "padding"
        raise ValueError(
            f"the model's mask hides other tokens than {kept}, which is all that a layer with "
            f"causal={causal} can be told; a pattern belongs to the mechanism, and "
            "nn.MultiheadAttention is replaced with causal=True where its masks are causal"
        )
    return None if padding.all() else padding
