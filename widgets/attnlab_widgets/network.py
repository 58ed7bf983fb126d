"""A small transformer as the page holds it: its numbers, its sizes, and its tokens as text."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.architecture.depth.plain import Plain
from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join.pre_norm import PreNorm
from attnlab.core.arguments import check_list, check_texts
from attnlab.core.modes import mode
from attnlab.figures.labels import visible
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.inputs import Reading
from attnlab.models.tiny import TinyTransformer

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
"""How the tokens 0, 1, … of a model are typed and shown, unless their names are given."""
TEXT = "uncopyrightablesuncopy"
"""A word of different letters, and its beginning again."""
ADDED = "positions"
MOST_NUMBERS = 1_000_000
MOST_LENGTH = 256
MOST_WORK = 60_000_000
"""Numbers times tokens of one pass: some 150 milliseconds of a processor in a page."""
SPACE = "␣"


@dataclass(frozen=True)
class Network:
    """What the page computes with.

    ``numbers``  the parameters by name, in float64, and ``positions`` (max_len, dim), what is added
                 to the vectors of tokens, where anything is
    ``names``    how each token is typed
    """

    numbers: dict[str, Tensor]
    names: list[str]
    heads: list[int]
    """Of each layer."""
    max_len: int
    logit_scale: float
    scales: list[float]
    """By what each layer multiplies q · k."""
    epsilon: list[float]
    """What each norm adds to the variance: both of each layer, then the last."""
    tokens: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", {name: token for token, name in enumerate(self.names)})

    @property
    def longest(self) -> int:
        """How many tokens a text may have: as many as there are positions, or fewer where a pass of
        so many would hold up the page."""
        count = sum(values.numel() for values in self.numbers.values())
        return min(self.max_len, MOST_WORK // count)

    @property
    def shown(self) -> list[str]:
        """How each token is drawn: signs in the place of what cannot be seen."""
        return [visible(name) for name in self.names]

    def refusals(self) -> dict[str, str]:
        """Why a text is not read or written on; the first "{}" stands for what was given."""
        few = ", ".join(self.shown[:6])
        known = (
            "the letters a to z, A to Z, 0 to 9, + and /"
            if "".join(self.names) == LETTERS
            else f"{len(self.names)} tokens: {few}{', …' if len(self.names) > 6 else ''}"
        )
        bound = (
            f"this model has positions for {self.max_len}"
            if self.longest == self.max_len
            else f"the page computes at most {self.longest} tokens of a model of this size"
        )
        return {
            "empty": "Type at least one letter: the model answers what comes after a text.",
            "unknown": f"The model does not know {{}}. It knows {known}.",
            "long": f"That is {{}} tokens, and {bound}.",
            "full": f"The text is full: {bound}{'' if self.longest < self.max_len else ' tokens'}.",
            "joined": "The next token is not written: joined to the text, it would be read as "
            "another one.",
        }

    def read(self, text: str) -> list[int]:
        """The tokens of a text: at each place the longest that fits.

        A ValueError, in the words of the page, for a text that the model cannot read.
        """
        check_texts(text=text)
        if not text:
            raise ValueError(self.refusals()["empty"])
        if SPACE in self.tokens and not any(" " in name for name in self.names):
            text = text.replace(" ", SPACE)
        longest = max(map(len, self.names))
        found: list[int] = []
        at = 0
        while at < len(text):
            pieces = (text[at : at + size] for size in range(longest, 0, -1))
            name = next((piece for piece in pieces if piece in self.tokens), "")
            if not name:
                raise ValueError(self.refusals()["unknown"].replace("{}", spelled(text[at]), 1))
            found.append(self.tokens[name])
            at += len(name)
        if len(found) > self.longest:
            raise ValueError(self.refusals()["long"].replace("{}", f"{len(found):,}", 1))
        return found

    def reads(self, text: str, tokens: list[int]) -> bool:
        """Whether a text is read as these tokens."""
        try:
            return self.read(text) == tokens
        except ValueError:
            return False

    def told(self) -> dict[str, Any]:
        """What the page is told; ``packed`` gives the numbers."""
        shapes = [[name, list(values.shape)] for name, values in self.numbers.items()]
        return {
            "tensors": shapes,
            "half": self.half,
            "names": self.names,
            "shown": self.shown,
            "heads": self.heads,
            "maxLen": self.longest,
            "logitScale": self.logit_scale,
            "scales": self.scales,
            "epsilon": self.epsilon,
            "refusals": self.refusals(),
        }

    @property
    def half(self) -> bool:
        """Whether half precision holds all numbers exactly."""
        return all(torch.equal(x.half().double(), x) for x in self.numbers.values())

    def packed(self) -> bytes:
        """All numbers, one behind the other: in half precision where that holds them exactly, else
        in single."""
        kind = "<f2" if self.half else "<f4"
        return b"".join(x.numpy().astype(kind).tobytes() for x in self.numbers.values())


def spelled(letter: str) -> str:
    """A letter in quotes, or its number where it cannot be seen."""
    seen = unicodedata.category(letter)[0] in "LNPS"
    return f"“{letter}”" if seen else f"U+{ord(letter):04X}"


def network_of(model: Any, names: Sequence[str] | None) -> Network:
    """The model taken apart; a TypeError or ValueError for one that the page cannot compute."""
    if not isinstance(model, TinyTransformer):
        raise TypeError(f"`model` should be a TinyTransformer, got {type(model).__name__}")
    if why := _reason(model):
        raise ValueError(f"the page cannot compute this model, {why}")
    stack: Any = model.decoder
    blocks = list(stack.blocks)
    numbers = {"embedding": model.embedding.weight}
    if model.positions is not None:
        numbers[ADDED] = _added(model)
    for at, block in enumerate(blocks):
        numbers |= _layer(at, block)
    numbers |= _parameters("norm", stack.norm)
    if model.output is not None:
        numbers |= _parameters("output", model.output)
    joins = [join.norm for block in blocks for join, _ in block.sublayers()]
    return Network(
        # In single precision, as the page is sent them where half would round.
        {name: x.detach().cpu().float().double() for name, x in numbers.items()},
        _names(names, int(model.vocab or 0)),
        [block.attention.heads.heads for block in blocks],
        model.max_len,
        float(model.logit_scale),
        [float(block.attention.scale) for block in blocks],
        [float(norm.eps) for norm in (*joins, stack.norm)],
    )


def copier() -> TinyTransformer:
    """The shipped language model that continues what repeats."""
    from attnlab import pretrained  # its files are asked for where they are needed

    return pretrained.load("induction")[0]


def begun(network: Network) -> str:
    """A word that begins again, or the first tokens twice."""
    try:
        network.read(TEXT)
    except ValueError:
        few = network.names[: max(1, min(8, network.longest // 2))]
        return "".join(few * 2)[: None if network.longest > 1 else 1]
    return TEXT


def _layer(at: int, block: Any) -> dict[str, Tensor]:
    heads, feed = block.attention.heads, block.feed_forward
    parts = {
        "norm": block.attention_residual.norm,
        "query": heads.query,
        "key": heads.key,
        "value": heads.value,
        "output": heads.output,
        "norm2": block.feed_forward_residual.norm,
        "expand": feed.expand,
        "contract": feed.contract,
    }
    found: dict[str, Tensor] = {}
    for name, module in parts.items():
        found |= _parameters(f"{at}.{name}", module)
    return found


def _parameters(name: str, module: Any) -> dict[str, Tensor]:
    found = {name: module.weight}
    return found if module.bias is None else found | {f"{name}.bias": module.bias}


@torch.no_grad()
def _added(model: TinyTransformer) -> Tensor:
    """What positions add to the vectors of tokens, (max_len, dim)."""
    home = model.embedding.weight
    zeros = torch.zeros(1, model.max_len, model.dim, device=home.device, dtype=home.dtype)
    ids = torch.zeros(1, model.max_len, dtype=torch.int64, device=home.device)
    with mode(model, training=False):
        scheme: Any = model.positions
        found: Tensor = scheme(zeros, Reading.of(model, ids).positions)
    return found[0]


def _reason(model: TinyTransformer) -> str:
    """Why the page cannot compute a model; empty where it can."""
    if model.kind != "language_model":
        return f"which is of kind {model.kind!r}: it walks through language models"
    stack: Any = model.decoder
    count = sum(p.numel() for p in model.parameters())
    if count > MOST_NUMBERS:
        return f"whose {count:,} parameters are more than the {MOST_NUMBERS:,} that a page holds"
    if model.max_len > MOST_LENGTH:
        return f"which has positions for {model.max_len} tokens, more than {MOST_LENGTH}"
    if type(model.embedding) is not nn.Embedding:
        return f"whose tokens are embedded by {type(model.embedding).__name__}, not by a table"
    if type(stack.depth) is not Plain:
        return f"whose layers are {type(stack.depth).__name__}, not one after another"
    return next(filter(None, map(_why_not, stack.blocks)), "")


def _why_not(block: Any) -> str:
    attention, feed = getattr(block, "attention", None), getattr(block, "feed_forward", None)
    if type(attention) is not FullAttention:
        return f"which has {type(attention or block).__name__}: it knows full attention alone"
    if attention.heads.positions is not None:
        scheme = type(attention.heads.positions).__name__
        return f"whose attention is told positions by {scheme}: it knows those of the embedding"
    if attention.scale != attention.heads.head_dim**-0.5:
        return "whose scores are not divided by the root of the width of their heads"
    if type(feed) is not MLP or feed.curve != "gelu":
        return "whose feed-forward layers are not two matrices with GELU in between"
    for join, _ in block.sublayers():
        if type(join) is not PreNorm or type(join.norm) is not nn.LayerNorm:
            return "whose sublayers do not join the stream by pre-norm with layer norms"
    return ""


def _names(names: Any, vocab: int) -> list[str]:
    if names is None:
        if vocab > len(LETTERS):
            raise ValueError(
                f"the model has {vocab} tokens, more than there are letters: give `names`, the "
                "text of each, such as task.tokens(range(task.vocab))"
            )
        return list(LETTERS[:vocab])
    found = check_list("names", names)
    for name in found:
        check_texts(**{"a name in names": name})
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ValueError(f"`names` should hold whole letters, and {name!r} has a surrogate")
    if len(found) != vocab or len(set(found)) != vocab or "" in found:
        raise ValueError(
            f"`names` should be {vocab} different texts, one for each token, none of them empty"
        )
    return [str(name) for name in found]
